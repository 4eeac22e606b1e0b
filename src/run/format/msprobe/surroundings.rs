//! What stands around a call: `construct.json` (which module holds it) and `stack.json` (where it was called).
//!
//! In goes the directory of a dump, out come the enclosing module and the source line of each key, as far as
//! the files say. They are helps for people: where one is absent or damaged, a warning says what is missing.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::run::format::{directory as folder, json};

/// Largest file of either kind that is read.
const MAX_LEN: u64 = 1 << 30;

/// Frames of a call stack that are looked at for one in the model's own code.
const FRAMES: usize = 24;

/// Longest chain of modules that is followed to the outermost.
const DEEPEST: usize = 256;

/// What stands around the calls of a dump.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    parents: HashMap<String, Option<String>>,
    sources: HashMap<String, String>,
}

impl Surroundings {
    /// Reads both files of the directory.
    pub(super) fn read(directory: &Path, warnings: &mut Vec<String>) -> Self {
        let mut found = Self::default();
        let parents: Option<HashMap<String, Parent>> = file(directory, "construct.json", "modules", warnings);
        found.parents = parents.unwrap_or_default().into_iter().map(|(key, parent)| (key, parent.0)).collect();
        let stacks: Option<HashMap<String, Stack>> = file(directory, "stack.json", "source lines", warnings);
        for (key, stack) in stacks.unwrap_or_default() {
            let Some(source) = source(&stack.frames) else { continue };
            let keys = if stack.keys.is_empty() { vec![key] } else { stack.keys };
            found.sources.extend(keys.into_iter().map(|key| (key, source.clone())));
        }
        found
    }

    /// The key of the module that holds this call; `None` where nothing does or it is not known.
    pub(super) fn parent(&self, key: &str) -> Option<&str> {
        self.parents.get(key)?.as_deref()
    }

    /// Whether it is known to stand in no module.
    pub(super) fn is_outermost(&self, key: &str) -> bool {
        self.parents.get(key).is_some_and(Option::is_none)
    }

    /// Whether `outer` is the call itself or a module around it.
    pub(super) fn is_within(&self, key: &str, outer: &str) -> bool {
        let mut at = Some(key);
        for _ in 0..DEEPEST {
            match at {
                Some(key) if key == outer => return true,
                Some(key) => at = self.parent(key),
                None => return false,
            }
        }
        false
    }

    /// File and line of the call.
    pub(super) fn source(&self, key: &str) -> Option<&str> {
        self.sources.get(key).map(String::as_str)
    }
}

fn file<T: serde::de::DeserializeOwned>(
    directory: &Path,
    name: &str,
    what: &str,
    warnings: &mut Vec<String>,
) -> Option<T> {
    let path = directory.join(name);
    if !folder::leads_to_file_below(&path, directory) {
        return None;
    }
    let read = json::read_small(&path, MAX_LEN).and_then(|bytes| json::parse(&path, &bytes));
    let note = |error: &crate::error::Error| format!("{name}: {}: {what} are not known", error.message());
    read.map_err(|error| warnings.push(note(&error))).ok()
}

/// `null`, the parent's key, or the key with a micro step.
struct Parent(Option<String>);

impl<'de> Deserialize<'de> for Parent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
        Ok(Self(value.as_str().map(str::to_string)))
    }
}

/// Keys with the stack that they share, or (in early versions) the stack alone.
#[derive(Default)]
struct Stack {
    keys: Vec<String>,
    frames: Vec<String>,
}

impl<'de> Deserialize<'de> for Stack {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Stack;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a call stack")
            }
            fn visit_unit<E>(self) -> Result<Stack, E> {
                Ok(Stack::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Stack, A::Error> {
                let (mut stack, mut lists) = (Stack::default(), 0);
                while let Some(part) = seq.next_element::<Texts>()? {
                    match (part, lists) {
                        (Texts::List(keys), 0) => (stack.keys, lists) = (keys, 1),
                        (Texts::List(frames), _) => (stack.frames, lists) = (frames, 2),
                        (Texts::One(frame), _) if stack.frames.len() < FRAMES => stack.frames.push(frame),
                        (Texts::One(_) | Texts::Other, _) => {}
                    }
                }
                Ok(stack)
            }
        }
        deserializer.deserialize_any(Parts)
    }
}

/// A text, or a list of them.
enum Texts {
    One(String),
    List(Vec<String>),
    Other,
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_unit<E>(self) -> Result<Texts, E> {
                Ok(Texts::Other)
            }
            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Texts::List(texts))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `path:line` of the innermost frame in the model's own code, else of the innermost.
fn source(frames: &[String]) -> Option<String> {
    let places: Vec<(&str, u64)> = frames.iter().take(FRAMES).filter_map(|frame| place(frame)).collect();
    let framework = |path: &str| {
        let path = path.replace('\\', "/");
        ["/torch/", "/torch_npu/", "/mindspore/", "/msprobe/"].iter().any(|part| path.contains(part))
    };
    let (path, line) = places.iter().find(|(path, _)| !framework(path)).or(places.first())?;
    Some(format!("{path}:{line}"))
}

/// `File PATH, line N, in NAME, …`.
fn place(frame: &str) -> Option<(&str, u64)> {
    let (path, rest) = frame.strip_prefix("File ")?.split_once(", line ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((path, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(construct: &str, stack: &str) -> (Surroundings, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("construct.json"), construct).unwrap();
        std::fs::write(dir.path().join("stack.json"), stack).unwrap();
        let mut warnings = Vec::new();
        (Surroundings::read(dir.path(), &mut warnings), warnings)
    }

    #[test]
    fn parents_and_sources_of_every_version() {
        let (around, warnings) = read(
            r#"{"a": "M", "M": "N", "N": null, "b": ["M", 3], "megatron_micro_step_number": 1}"#,
            r#"{"0": [["a", "b"], ["File /x/torch/nn/module.py, line 1, in f", "File /m/net.py, line 93, in g, \n h(x)"]],
                "c": ["File /m/old.py, line 7, in g", null], "d": null, "e": [["e"], []]}"#,
        );
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!((around.parent("a"), around.parent("b"), around.parent("N")), (Some("M"), Some("M"), None));
        assert!(around.is_outermost("N") && !around.is_outermost("a") && !around.is_outermost("unknown"));
        assert!(around.is_within("a", "N") && around.is_within("N", "N") && !around.is_within("N", "a"));
        assert_eq!(around.source("a"), Some("/m/net.py:93"));
        assert_eq!((around.source("b"), around.source("c")), (Some("/m/net.py:93"), Some("/m/old.py:7")));
        assert_eq!((around.source("d"), around.source("e")), (None, None));
    }

    #[test]
    fn damage_is_a_warning_and_circles_end() {
        let (around, warnings) = read(r#"{"a": "b", "b": "a"}"#, r#"{"0": 3}"#);
        assert!(!around.is_within("a", "c"));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("stack.json: ") && warnings[0].ends_with("source lines are not known"));
        assert!(read("[", "{}").1[0].starts_with("construct.json: "));
    }
}
