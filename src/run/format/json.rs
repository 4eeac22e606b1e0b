//! Bounded reading of JSON and JSON-lines files, and where in them an error stands.
//!
//! In goes a path, out come values or lines with their numbers. No line or file beyond its bound is
//! ever held in memory.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, IgnoredAny};

use super::recognise;
use crate::error::{Error, Result};
use crate::tensor::DataFile;

/// Longest line of a JSON-lines file. One layer with its arguments takes a few hundred bytes.
pub(super) const MAX_LINE: u64 = 16 << 20;

/// Reads the whole of a small file, without a leading byte order mark.
pub(super) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = DataFile::open(path)?;
    if file.len() > limit {
        let len = file.len();
        return Err(Error::at(path, format_args!("expected at most {limit} bytes, found {len}")).byte(limit));
    }
    let mut bytes = file.read(0, file.len())?;
    if bytes.starts_with(BOM) {
        bytes.drain(..BOM.len());
    }
    Ok(bytes)
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Parses a whole JSON file of which `bytes` are the content, an object.
pub(super) fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    if !begins_object(bytes) {
        let found = recognise::content(bytes).unwrap_or("something else");
        return Err(Error::at(path, format_args!("expected a JSON object, found {found}")).line(1));
    }
    serde_json::from_slice(bytes)
        .map_err(|e| Error::at(path, message(&e)).line(u64::try_from(e.line()).unwrap_or(u64::MAX)))
}

/// What serde_json has to say, with the column but without the line, as a lower-case fragment.
pub(super) fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let text = text.strip_prefix("EOF").map_or_else(|| text.to_string(), |rest| format!("unexpected end{rest}"));
    if error.column() == 0 { text } else { format!("{text} (column {})", error.column()) }
}

/// A line of a JSON-lines file.
pub(super) struct Line {
    /// One-based number.
    pub(super) number: u64,
    bytes: Vec<u8>,
    terminated: bool,
}

/// A JSON-lines file, read line by line.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<std::fs::File>,
    number: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = DataFile::open(path)?.into_file();
        Ok(Self { path: path.to_path_buf(), reader: BufReader::with_capacity(1 << 16, file), number: 0 })
    }

    /// The next line that is not blank.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>> {
        loop {
            let mut bytes = Vec::new();
            (&mut self.reader)
                .take(MAX_LINE + 1)
                .read_until(b'\n', &mut bytes)
                .map_err(|e| Error::io(&self.path, "read", &e).line(self.number + 1))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() as u64 > MAX_LINE {
                let text = format!("expected a line of at most {MAX_LINE} bytes, found a longer one");
                return Err(Error::at(&self.path, text).line(self.number));
            }
            let terminated = bytes.last() == Some(&b'\n');
            if self.number == 1 && bytes.starts_with(BOM) {
                bytes.drain(..BOM.len());
            }
            if bytes.iter().any(|b| !b.is_ascii_whitespace()) {
                return Ok(Some(Line { number: self.number, bytes, terminated }));
            }
        }
    }

    /// Parses a line, an object; `None` for a torn one, which a crash while it was appended left behind: the
    /// last line, without its newline, and no valid JSON.
    pub(super) fn parse<T: DeserializeOwned>(&self, line: &Line) -> Result<Option<T>> {
        if !line.terminated && !is_json(&line.bytes) {
            return Ok(None);
        }
        if !begins_object(&line.bytes) {
            let found = recognise::content(&line.bytes).unwrap_or("something else");
            return Err(Error::at(&self.path, format_args!("expected a JSON object, found {found}")).line(line.number));
        }
        match serde_json::from_slice(&line.bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(Error::at(&self.path, message(&error)).line(line.number)),
        }
    }
}

/// Asked first, for serde takes an array for a struct, field by field.
fn begins_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}
