//! The form of `torch.save` before torch 1.6 (and with `_use_new_zipfile_serialization=False` today).
//!
//! Five pickles follow each other (a magic number, a version, the machine, what is saved, the keys of the
//! storages), then each storage in the order of the keys: its number of elements in eight bytes and its
//! bytes. Source: `_legacy_save` in `torch/serialization.py`. Both are little-endian whatever the
//! machine: `torch/csrc/serialization.cpp` turns them around on big-endian ones.

use std::collections::HashMap;

use super::listing::Listed;
use super::place::{self, Place};
use super::value::{Graph, Node, Value};
use super::{Fault, listing, pickle, rebuild};
use crate::error::{Error, Result};
use crate::run::Encoding;
use crate::run::format::container::Found;
use crate::tensor::DataFile;

/// The magic number, 0x1950a86a20f9469cfc6c, as a pickle holds it.
const MAGIC: &[u8] = &[0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// Bytes read first; most files have all their pickles in these.
const FIRST: u64 = 1 << 16;

/// Bytes of a storage's length.
const LENGTH: u64 = 8;

/// Whether a file that starts with `head` is in this form.
pub(in crate::run::format) fn is_legacy(head: &[u8]) -> bool {
    // A protocol, with protocol 4 and later a frame, then the number.
    const NEAR: usize = 32;
    let near = head.get(..NEAR.min(head.len())).unwrap_or_default();
    near.first() == Some(&0x80) && near.windows(MAGIC.len()).any(|window| window == MAGIC)
}

/// The tensors of a file, to be known as file number `file` of the run.
///
/// # Errors
/// A damaged pickle, or one of more than tensors in plain containers; storages that are not there or too
/// short.
pub(in crate::run::format) fn tensors(data: &DataFile, file: usize) -> Result<Vec<Found>> {
    let refused = |fault: Fault| Error::at(data.path(), &fault.text).byte(fault.byte as u64);
    let longest = data.len().min(pickle::MAX_BYTES);
    let mut length = longest.min(FIRST);
    loop {
        let bytes = data.read(0, length)?;
        match pickles(&bytes) {
            // How long the pickles are is known only when they have been read.
            Err(fault) if fault.short && length < longest => length = longest.min(length.saturating_mul(16)),
            Err(fault) => return Err(refused(fault)),
            Ok(Pickles { listed, keys, sizes, end }) => {
                let places = storages(data, &keys, &sizes, end as u64)?;
                let place = |listed: Listed<'_>| match places.get(listed.view.storage.key) {
                    Some(place) => place::found(listed, *place, file).map_err(refused),
                    None => Err(refused(Fault::at(
                        listed.view.byte,
                        format!("{}: no storage has its key `{}`", listed.title(), listed.view.storage.key),
                    ))),
                };
                return listed.into_iter().map(place).collect();
            }
        }
    }
}

/// What the pickles say.
struct Pickles<'a> {
    listed: Vec<Listed<'a>>,
    /// Keys of the storages, in the order in which they follow.
    keys: Vec<&'a str>,
    /// Bytes of an element, by key.
    sizes: HashMap<&'a str, u64>,
    /// Where the storages begin.
    end: usize,
}

fn pickles(bytes: &[u8]) -> Result<Pickles<'_>, Fault> {
    let mut end = 0;
    let mut next = || -> Result<(Graph<'_>, usize), Fault> {
        let start = end;
        let graph = pickle::read(bytes.get(start..).unwrap_or_default()).map_err(|fault| moved(fault, start))?;
        end += graph.end;
        Ok((graph, start))
    };
    next()?;
    let (version, start) = next()?;
    const VERSION: i64 = 1001;
    if version.root != Value::Int(VERSION) {
        let found = version.describe(version.root);
        return Err(Fault::at(start, format!("expected version {VERSION} of torch's format, found {found}")));
    }
    next()?;
    let (saved, saved_at) = next()?;
    let (keys, keys_at) = next()?;
    let mut listed = listing::tensors(&saved).map_err(|fault| moved(fault, saved_at))?;
    listed.iter_mut().for_each(|listed| listed.view.byte += saved_at);
    let mut sizes = HashMap::new();
    for node in saved.nodes() {
        if let Node::Persistent { id, byte } = node {
            let storage = rebuild::storage(&saved, *id, *byte).map_err(|fault| moved(fault, saved_at))?;
            if let Some(size) = storage.element.bytes() {
                sizes.entry(storage.key).or_insert(size);
            }
        }
    }
    let texts = keys.elements(keys.root).unwrap_or_default().iter().map(|key| match key {
        Value::Text(text) if text.len() <= rebuild::MAX_KEY => Some(keys.text(*text)),
        _ => None,
    });
    let keys = texts.collect::<Option<Vec<_>>>();
    let keys = keys.ok_or_else(|| Fault::at(keys_at, "expected a list of the storages' keys, short texts"))?;
    Ok(Pickles { listed, keys, sizes, end })
}

/// A fault of a pickle that begins at byte `start` of the file.
fn moved(fault: Fault, start: usize) -> Fault {
    Fault { byte: fault.byte + start, ..fault }
}

/// Where each storage lies.
fn storages<'a>(
    data: &DataFile,
    keys: &[&'a str],
    sizes: &HashMap<&str, u64>,
    start: u64,
) -> Result<HashMap<&'a str, Place>> {
    let mut places = HashMap::with_capacity(keys.len());
    let mut at = start;
    for key in keys {
        let refused = |text: String| Error::at(data.path(), format_args!("storage `{key}`: {text}")).byte(at);
        let Some(size) = sizes.get(key) else {
            return Err(refused("no tensor says what its elements are".into()));
        };
        let count = data.read(at, LENGTH)?;
        let count = count.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let offset = at + LENGTH;
        let len = count.checked_mul(*size);
        let Some(len) = len.filter(|len| offset.checked_add(*len).is_some_and(|end| end <= data.len())) else {
            let end = data.len();
            return Err(refused(format!("expected {count} elements of {size} bytes, the file ends at byte {end}")));
        };
        let place = Place { offset, span: len, len, encoding: Encoding::Plain, big_endian: false, crc32: None };
        if places.insert(*key, place).is_some() {
            return Err(refused("occurs twice".into()));
        }
        at = offset + len;
    }
    Ok(places)
}
