//! Files that hold tensors: `.pt`, `.npy`, `.npz`, `.safetensors`, recognised by their first bytes.
//!
//! In goes the path of one file, out come its tensors in the file's own order, each with where its
//! bytes lie. What such a file means (a dump's argument, a checkpoint, a run) is for the formats that
//! use it to say.

use std::path::Path;

use super::{archive, recognise, safetensors, torch};
use crate::error::{Error, Result};
use crate::run::Stored;
use crate::tensor::DataFile;

/// A tensor in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// Where in the file it stands: a key, a path through nested containers (`layer.0.weight`), or
    /// empty where the file is one bare tensor.
    pub(super) name: String,
    /// Where its bytes lie; `file` is what the caller asked for.
    pub(super) stored: Stored,
    /// CRC-32 of the stored bytes, where the file gives it: equal dtype, shape, layout and CRC mean equal
    /// content.
    pub(super) crc32: Option<u32>,
}

/// The tensors of the file at `path`, to be known as file number `file` of the run.
///
/// # Errors
/// A file of no known kind, or one that is damaged or holds what its reader refuses.
pub(super) fn tensors(path: &Path, file: usize) -> Result<Vec<Found>> {
    let data = DataFile::open(path)?;
    let head = data.read(0, data.len().min(HEAD))?;
    if recognise::content(&head) == Some("a safetensors file") {
        let dense = |e: safetensors::Entry| Found {
            name: e.name,
            stored: Stored::dense(e.dtype, e.shape, file, e.offset, e.len),
            crc32: None,
        };
        return Ok(safetensors::read_header(path)?.into_iter().map(dense).collect());
    }
    if head.starts_with(b"PK") {
        let members = archive::members_of(&data)?;
        if torch::is_archive(&members) {
            return torch::archived(&data, &members, file);
        }
    }
    if torch::is_legacy(&head) {
        return torch::legacy(&data, file);
    }
    let found = recognise::content(&head).unwrap_or("a file of unknown format");
    Err(Error::at(path, format_args!("expected a file of tensors (.pt, .npy, .npz, .safetensors), found {found}")))
}

/// Bytes from which the kind is recognised.
const HEAD: u64 = 512;
