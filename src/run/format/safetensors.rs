//! Headers of safetensors files: which tensor lies where.
//!
//! The header alone is read, and only after its length is known to lie within the file. Which
//! layouts are legal is decided by the safetensors crate (no gap, no overlap, lengths that fit dtype
//! and shape); this file adds what the crate leaves open (a tensor listed twice, the file's real
//! length) and says which tensor and which byte are wrong.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use ::safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, IntoDeserializer, MapAccess};

use super::{json, recognise};
use crate::error::{Error, Result};
use crate::tensor::{DType, DataFile, Shape, element_count};

/// Longest header, the limit of the reference implementation.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// Bytes that hold the header's length.
const PREFIX: u64 = 8;

/// The header's key that is no tensor.
pub(super) const RESERVED: &str = "__metadata__";

/// One tensor of a file; `offset` counts from the start of the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The tensors of the file at `path`, in the order of their bytes (empty ones that share an offset by name).
///
/// # Errors
/// Anything but a well-formed safetensors file that ends where its last tensor ends; the error names
/// the byte and the tensor.
pub(super) fn read_header(path: &Path) -> Result<Vec<Entry>> {
    let file = DataFile::open(path)?;
    let length = header_length(&file)?;
    let header = file.read(PREFIX, length)?;
    let data = PREFIX + length;
    let Listed(mut listed) = serde_json::from_slice(&header).map_err(|e| {
        let text = format!("the header is no list of tensors: {}", json::message(&e));
        Error::at(path, text).byte(PREFIX + byte_of(&header, e.line(), e.column()))
    })?;
    listed.sort_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));
    let shard = Shard { path, data, len: file.len() };
    shard.check(&listed)?;
    listed.into_iter().map(|(name, raw)| shard.entry(name, raw)).collect()
}

fn header_length(file: &DataFile) -> Result<u64> {
    let path = file.path();
    let not_safetensors = |found: &str| Error::at(path, format_args!("expected a safetensors file, found {found}"));
    if file.len() < PREFIX {
        let head = file.read(0, file.len())?;
        return Err(not_safetensors(recognise::content(&head).unwrap_or("a file of less than 8 bytes")));
    }
    let head = file.read(0, file.len().min(64))?;
    let mut prefix = [0u8; 8];
    prefix.copy_from_slice(&head[..8]);
    let length = u64::from_le_bytes(prefix);
    let rest = file.len() - PREFIX;
    if length <= rest && length <= MAX_HEADER && length > 0 {
        return Ok(length);
    }
    if let Some(what) = recognise::content(&head).filter(|what| *what != "a safetensors file") {
        return Err(not_safetensors(what));
    }
    let expected = if length > rest {
        format!("a header within the file's {} bytes", file.len())
    } else {
        format!("a header of 1 to {MAX_HEADER} bytes")
    };
    Err(Error::at(path, format_args!("expected {expected}, found a header length of {length}")).byte(0))
}

/// The crate's type with this spelling.
fn dtype_of(spelling: &str) -> Option<Dtype> {
    let text: StrDeserializer<'_, ValueError> = spelling.into_deserializer();
    Dtype::deserialize(text).ok()
}

/// The header (without its length) of a file that holds these tensors one after the other, padded so
/// that the first begins at a multiple of 8.
///
/// # Errors
/// A message, where a tensor cannot be stored: an unknown dtype, the reserved name, no whole number of
/// bytes.
pub(super) fn encode_header(tensors: &[(&str, DType, &[usize])]) -> Result<Vec<u8>, String> {
    let mut infos = Vec::with_capacity(tensors.len());
    let mut position = 0usize;
    for (name, dtype, shape) in tensors {
        let unfit = || format!("tensor `{name}` ({dtype} {shape:?}) cannot be stored as safetensors");
        let crate_dtype = dtype_of(dtype.safetensors_name()).filter(|_| *name != RESERVED).ok_or_else(unfit)?;
        let len = element_count(shape).and_then(|n| dtype.byte_len(n)).ok_or_else(unfit)?;
        let end = position.checked_add(len).ok_or_else(unfit)?;
        let info = TensorInfo { dtype: crate_dtype, shape: shape.to_vec(), data_offsets: (position, end) };
        infos.push(((*name).to_string(), info));
        position = end;
    }
    let unusable = |e: &dyn fmt::Display| format!("cannot make a safetensors header: {e}");
    let metadata = Metadata::new(None, infos).map_err(|e| unusable(&e))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|e| unusable(&e))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// Offset in `text` of a place that serde_json gives as line and column.
fn byte_of(text: &[u8], line: usize, column: usize) -> u64 {
    let lines = text.split(|b| *b == b'\n').take(line.saturating_sub(1));
    let before: usize = lines.map(|l| l.len() + 1).sum();
    (before + column.saturating_sub(1)).min(text.len()) as u64
}

#[derive(serde::Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// The header's tensors as listed. A map would hide a name that is listed twice.
struct Listed(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Listed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a tensor for each key")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
                let mut listed = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == RESERVED {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        let entry = map.next_value::<RawEntry>()?;
                        listed.push((name, entry));
                    }
                }
                Ok(Listed(listed))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// A file under examination.
struct Shard<'a> {
    path: &'a Path,
    /// Where its data begin.
    data: u64,
    /// Its length.
    len: u64,
}

impl Shard<'_> {
    /// Holds the sorted list against the crate's rules and the file's length.
    fn check(&self, listed: &[(String, RawEntry)]) -> Result<()> {
        let mut seen = HashSet::with_capacity(listed.len());
        let mut infos = Vec::with_capacity(listed.len());
        for (name, raw) in listed {
            if !seen.insert(name.as_str()) {
                return Err(self.error(raw, format_args!("tensor `{name}` is listed twice")));
            }
            let dtype = dtype_of(&raw.dtype).ok_or_else(|| self.unknown_dtype(name, raw))?;
            let (Ok(begin), Ok(end)) = (usize::try_from(raw.data_offsets.0), usize::try_from(raw.data_offsets.1))
            else {
                return Err(self.error(raw, format_args!("tensor `{name}` lies beyond what can be addressed")));
            };
            infos.push((name.clone(), TensorInfo { dtype, shape: raw.shape.clone(), data_offsets: (begin, end) }));
        }
        let metadata = Metadata::new(None, infos).map_err(|e| {
            self.explain(listed).unwrap_or_else(|| Error::at(self.path, format_args!("unusable header: {e}")))
        })?;
        let expected = (metadata.data_len() as u64).checked_add(self.data);
        if expected == Some(self.len) {
            return Ok(());
        }
        let last = listed.iter().rfind(|(_, raw)| self.data.saturating_add(raw.data_offsets.1) > self.len);
        let text = match (last, expected) {
            (Some((name, raw)), _) => format!(
                "expected tensor `{name}` up to byte {}, the file ends at byte {}: it is truncated",
                self.data.saturating_add(raw.data_offsets.1),
                self.len
            ),
            (None, expected) => format!(
                "expected the file to end with its last tensor, at byte {}, found {} bytes",
                expected.unwrap_or(u64::MAX),
                self.len
            ),
        };
        Err(Error::at(self.path, text).byte(self.len.min(expected.unwrap_or(u64::MAX))))
    }

    /// Which tensor the crate objects to, and why.
    fn explain(&self, listed: &[(String, RawEntry)]) -> Option<Error> {
        let mut position = 0;
        let mut before: Option<&str> = None;
        for (name, raw) in listed {
            let (begin, end) = raw.data_offsets;
            if end < begin {
                let text = format_args!("tensor `{name}` ends before it begins: data_offsets [{begin}, {end}]");
                return Some(self.error(raw, text));
            }
            if begin < position {
                let other = before.unwrap_or_default();
                return Some(self.error(raw, format_args!("tensor `{name}` overlaps tensor `{other}`")));
            }
            if begin > position {
                let gap = begin - position;
                let text = format_args!("{gap} bytes before tensor `{name}` belong to no tensor");
                return Some(self.error(raw, text));
            }
            let expected = element_count(&raw.shape)
                .and_then(|n| DType::from_safetensors(&raw.dtype)?.byte_len(n))
                .and_then(|n| u64::try_from(n).ok());
            if expected != Some(end - begin) {
                let (dtype, shape, found) = (&raw.dtype, &raw.shape, end - begin);
                let text = match expected {
                    Some(n) => format!("expected {n} bytes for tensor `{name}` ({dtype} {shape:?}), found {found}"),
                    None => {
                        format!("tensor `{name}` ({dtype} {shape:?}) has no whole number of bytes that fits memory")
                    }
                };
                return Some(self.error(raw, text));
            }
            position = end;
            before = Some(name);
        }
        None
    }

    fn entry(&self, name: String, raw: RawEntry) -> Result<Entry> {
        let dtype = DType::from_safetensors(&raw.dtype).ok_or_else(|| self.unknown_dtype(&name, &raw))?;
        let (begin, end) = raw.data_offsets;
        Ok(Entry { name, dtype, shape: raw.shape, offset: self.data + begin, len: end - begin })
    }

    fn unknown_dtype(&self, name: &str, raw: &RawEntry) -> Error {
        self.error(raw, format_args!("tensor `{name}` has the unknown dtype `{}`", raw.dtype))
    }

    fn error(&self, raw: &RawEntry, message: impl fmt::Display) -> Error {
        Error::at(self.path, message).byte(self.data.saturating_add(raw.data_offsets.0))
    }
}
