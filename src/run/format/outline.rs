//! The outline of a JSON file of any size: its structure, and where in the file its strings stand.
//!
//! In goes a path, out comes a [`Node`]. The file is read as a stream; of its text no more than one
//! string is in memory at a time, and of its structure no more than [`MOST_NODES`] nodes.

use std::cell::Cell;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::json;
use crate::error::{Error, Result};
use crate::tensor::DataFile;

/// Most values of a file. A tensor takes five, so that this is far beyond any run, and some 100 MB.
const MOST_NODES: u64 = 1 << 20;

/// Bytes of a string that are kept.
const KEPT: usize = 1024;

/// A value of the file.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Text(Text),
    /// A number, true, false or null.
    Other,
}

/// A string of the file.
#[derive(Debug, PartialEq)]
pub(super) struct Text {
    /// Its beginning.
    head: String,
    /// Byte of the file at which it stands after its quote, if it has no escapes; with escapes it is longer in
    /// the file and begins earlier.
    pub(super) offset: u64,
    /// Its length in bytes.
    pub(super) len: u64,
}

impl Text {
    /// The whole of a short string.
    pub(super) fn whole(&self) -> Option<&str> {
        (self.head.len() as u64 == self.len).then_some(self.head.as_str())
    }
}

impl Node {
    /// The value of the first of this name in an object.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Self::Object(fields) => fields.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Node]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&Text> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads the outline of the JSON file at `path`.
///
/// # Errors
/// No JSON, deeper nesting than serde_json takes, more than [`MOST_NODES`] values.
pub(super) fn read(path: &Path) -> Result<Node> {
    let taken = Rc::new(Cell::new(0));
    let file = DataFile::open(path)?.into_file();
    let reader = Counting { inner: BufReader::with_capacity(1 << 16, file), taken: Rc::clone(&taken) };
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let nodes = Cell::new(0);
    let place = Place { taken: &taken, nodes: &nodes };
    place
        .deserialize(&mut deserializer)
        .and_then(|node| deserializer.end().map(|()| node))
        .map_err(|e| Error::at(path, json::message(&e)).line(u64::try_from(e.line()).unwrap_or(u64::MAX)))
}

/// A reader that says how many bytes were taken from it.
struct Counting {
    inner: BufReader<std::fs::File>,
    taken: Rc<Cell<u64>>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

/// Where the parser stands, and how much it has made.
#[derive(Clone, Copy)]
struct Place<'a> {
    taken: &'a Cell<u64>,
    nodes: &'a Cell<u64>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        if self.nodes.replace(self.nodes.get() + 1) >= MOST_NODES {
            return Err(D::Error::custom(format_args!("expected at most {MOST_NODES} values, found more")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            fields.push((key, map.next_value_seed(self)?));
        }
        Ok(Node::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        let len = text.len() as u64;
        let kept = (0..=KEPT.min(text.len())).rev().find_map(|end| text.get(..end));
        // The parser has just read up to the closing quote: it takes one byte at a time and none ahead.
        let offset = self.taken.get().saturating_sub(len + 1);
        Ok(Node::Text(Text { head: kept.unwrap_or_default().to_string(), offset, len }))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(text: &str) -> Result<Node> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn strings_are_found_where_they_stand() {
        let long = "x".repeat(5000);
        let text = format!("{{\"a\" : [1, \"é\",{{\"b\":\"{long}\" }} , \"\"],\"c\":null}}\n");
        let node = outline(&text).unwrap();
        let items = node.get("a").unwrap().list().unwrap();
        let place = |node: &Node| (node.text().unwrap().offset as usize, node.text().unwrap().len as usize);
        for (node, expected) in [(&items[1], "é"), (items[2].get("b").unwrap(), long.as_str()), (&items[3], "")] {
            let (offset, len) = place(node);
            assert_eq!(&text[offset..offset + len], expected);
        }
        assert_eq!(items[1].text().unwrap().whole(), Some("é"));
        assert_eq!(items[2].get("b").unwrap().text().unwrap().whole(), None);
        assert_eq!(node.get("c"), Some(&Node::Other));
    }

    #[test]
    fn deep_and_endless_files_are_refused() {
        let reason = |text: &str| outline(text).unwrap_err().to_string();
        assert!(reason(&"[".repeat(1 << 20)).contains("recursion limit"));
        assert!(reason(&format!("[{}1]", "1,".repeat(1 << 20))).contains("expected at most 1048576 values"));
        assert!(reason("[1] [2]").contains("trailing characters"));
        assert!(reason("{\"a\":\"b").contains("unexpected end"));
    }
}
