//! `dump.json`: what was recorded, entry by entry, in execution order.
//!
//! In goes the file, out come its settings and its entries. The file is streamed: what is held is what it
//! says, never its text. An entry that is no object, a file that ends early or is no `dump.json` is one error
//! with its line.

use std::fmt;
use std::io::BufReader;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::bare::Quoting;
use super::node::Node;
use crate::error::{Error, Result};
use crate::run::format::json::message;
use crate::tensor::DataFile;

/// Largest `dump.json` that is read: entries of tens of millions of tensors.
const MAX_LEN: u64 = 8 << 30;

/// Entries that are taken; a training step of a large model has some hundred thousand.
const MAX_ENTRIES: usize = 16_000_000;

/// What `dump.json` holds.
#[derive(Debug, Default)]
pub(super) struct Dump {
    /// Its settings (`task`, `level`, `framework`), as texts.
    pub(super) settings: Vec<(String, String)>,
    /// Entries in the file's order.
    pub(super) entries: Vec<Entry>,
}

/// One entry: what was recorded under one key.
#[derive(Debug)]
pub(super) struct Entry {
    /// `Functional.linear.0.forward`.
    pub(super) key: String,
    /// `input_args`, `input_kwargs`, `output` …; of parameter gradients the parameters.
    pub(super) parts: Vec<(String, Node)>,
}

impl Entry {
    /// The part of one of these names.
    pub(super) fn part(&self, names: &[&str]) -> Option<&Node> {
        names.iter().find_map(|name| self.parts.iter().find(|(key, _)| key == name)).map(|(_, node)| node)
    }
}

impl Dump {
    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads `dump.json`.
///
/// # Errors
/// No JSON object, or one without `data`; an entry that is no object.
pub(super) fn read(path: &Path) -> Result<Dump> {
    let file = DataFile::open(path)?;
    if file.len() > MAX_LEN {
        return Err(Error::at(path, format_args!("expected at most {MAX_LEN} bytes, found {}", file.len())));
    }
    let reader = Quoting::new(BufReader::with_capacity(1 << 16, file.into_file()));
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, reader));
    let refused = |e: serde_json::Error| {
        let text = if e.is_io() { format!("cannot read: {e}") } else { message(&e) };
        Error::at(path, text).line(u64::try_from(e.line()).unwrap_or(u64::MAX))
    };
    let mut dump = Dump::default();
    let has_data = (&mut deserializer).deserialize_map(Whole(&mut dump)).map_err(refused)?;
    deserializer.end().map_err(refused)?;
    if !has_data {
        return Err(Error::at(path, "expected `data`, the recorded calls, found no such key"));
    }
    Ok(dump)
}

/// The object as a whole; says whether it held `data`.
struct Whole<'a>(&'a mut Dump);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut has_data = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "data" {
                map.next_value_seed(Data(&mut self.0.entries))?;
                has_data = true;
            } else if let Node::Scalar(value) = map.next_value()? {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                self.0.settings.push((key, text));
            }
        }
        Ok(has_data)
    }
}

/// The object below `data`.
struct Data<'a>(&'a mut Vec<Entry>);

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of recorded calls")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.0.len() >= MAX_ENTRIES {
                return Err(A::Error::custom(format_args!("expected at most {MAX_ENTRIES} recorded calls")));
            }
            let parts = map.next_value_seed(Parts)?;
            self.0.push(Entry { key, parts });
        }
        Ok(())
    }
}

/// The parts of one entry.
struct Parts;

impl<'de> DeserializeSeed<'de> for Parts {
    type Value = Vec<(String, Node)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Parts {
    type Value = Vec<(String, Node)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with what was recorded of one call")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            // Older versions call them by the tensor's name in the API; what is not known here is skipped.
            if matches!(key.as_str(), "is_recompute" | "is_nan" | "is_nan_index" | "stack") {
                map.next_value::<IgnoredAny>()?;
            } else {
                parts.push((key, map.next_value()?));
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Dump> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dump.json");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    fn refusal(text: &str) -> String {
        let error = parse(text).unwrap_err().to_string();
        error.split_once("dump.json: ").unwrap().1.to_string()
    }

    #[test]
    fn entries_come_in_the_files_order() {
        let text = r#"{"task": "tensor", "data": {"z": {"output": [{"dtype": "torch.float32", "shape": [1],
            "Max": NaN}]}, "a": {}, "gone": null}, "level": 1}"#;
        let dump = parse(text).unwrap();
        let keys: Vec<&str> = dump.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["z", "a", "gone"]);
        assert_eq!((dump.setting("task"), dump.setting("level")), (Some("tensor"), Some("1")));
        assert!(dump.entries[0].part(&["output"]).unwrap().tensors()[0].max.unwrap().is_nan());
    }

    #[test]
    fn bad_files_are_refused_with_their_line() {
        assert_eq!(refusal("{}"), "expected `data`, the recorded calls, found no such key");
        assert_eq!(
            refusal("{\"data\":\n{\"a\": 3}}"),
            "line 2: invalid type: integer `3`, expected an object with what was recorded of one call (column 8)"
        );
        assert_eq!(refusal("{\"data\":\n\n{\"a\": {"), "line 3: unexpected end while parsing an object (column 7)");
        assert!(refusal("[]").starts_with("line 1: invalid type: sequence, expected a JSON object"));
        assert!(refusal("{\"data\": {}} x").starts_with("line 1: trailing characters"));
        let deep = format!("{{\"data\": {{\"a\": {{\"output\": {}", "[".repeat(100_000));
        assert!(refusal(&deep).contains("recursion limit exceeded"));
    }
}
