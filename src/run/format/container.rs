//! Files that hold tensors: `.pt`, `.npy`, `.npz`, `.safetensors`, recognised by their first bytes.
//!
//! In goes the path of one file, out come its tensors in the file's own order, each with where its
//! bytes lie. What such a file means (a dump's argument, a checkpoint, a run) is for the formats that
//! use it to say.

use std::path::Path;

use super::{archive, npy, npz, recognise, safetensors, torch};
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
    let mut found = unchecked(path, file)?;
    for tensor in &mut found {
        tensor.stored.crc32 = tensor.crc32;
    }
    Ok(found)
}

fn unchecked(path: &Path, file: usize) -> Result<Vec<Found>> {
    let data = DataFile::open(path)?;
    let head = data.read(0, data.len().min(HEAD))?;
    match kind(&head) {
        Some(Kind::Safetensors) => {
            let dense = |e: safetensors::Entry| Found {
                name: e.name,
                stored: Stored::dense(e.dtype, e.shape, file, e.offset, e.len),
                crc32: None,
            };
            return Ok(safetensors::read_header(path)?.into_iter().map(dense).collect());
        }
        Some(Kind::Npy) => return Ok(vec![npy::array(path, file)?]),
        // Whatever stands first in an archive, its members decide.
        Some(Kind::Npz | Kind::Torch) if head.starts_with(b"PK") => {
            let members = archive::members(&data)?;
            if torch::is_archive(&members) {
                return torch::archived(&data, &members, file);
            }
            // torch.save writes its pickle last but these before it.
            if members.iter().any(|member| member.name.ends_with("/version") || member.name.ends_with("/byteorder")) {
                return Err(Error::at(
                    path,
                    "expected `data.pkl` in an archive of torch.save, found none: it was not written to its end",
                ));
            }
            return npz::arrays(&data, &members, file);
        }
        Some(Kind::Torch) if torch::is_legacy(&head) => return torch::legacy(&data, file),
        _ => {}
    }
    let found = recognise::content(&head).unwrap_or("a file of unknown format");
    Err(Error::at(path, format_args!("expected a file of tensors (.pt, .npy, .npz, .safetensors), found {found}")))
}

/// A kind of file that holds tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Npy,
    Npz,
    /// What `torch.save` writes: a zip archive, a pickle before 1.6.
    Torch,
    Safetensors,
}

impl Kind {
    /// As reports name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Torch => "torch.save",
            Self::Safetensors => "safetensors",
        }
    }

    /// Whether tensors stand in the order in which they were handed to the writer. safetensors sorts
    /// them by dtype and name.
    pub(super) fn keeps_order(self) -> bool {
        self != Self::Safetensors
    }
}

/// What kind of file of tensors seems to lie at `path`, by its first bytes; `None` for any other file, or one that
/// cannot be read.
pub(super) fn kind_of(path: &Path) -> Option<Kind> {
    let data = DataFile::open(path).ok()?;
    kind(&data.read(0, data.len().min(HEAD)).ok()?)
}

/// What kind of file begins with `head`.
fn kind(head: &[u8]) -> Option<Kind> {
    if head.starts_with(npy::MAGIC) {
        Some(Kind::Npy)
    } else if head.starts_with(b"PK\x03\x04") {
        // The name of the first member, which follows a header of 30 bytes.
        let len = head.get(26..28).map_or(0, |len| usize::from(len[0]) | usize::from(len[1]) << 8);
        let is_array = head.get(30..30 + len).is_some_and(|name| name.ends_with(b".npy"));
        Some(if is_array { Kind::Npz } else { Kind::Torch })
    } else if head.starts_with(b"PK\x05\x06") {
        Some(Kind::Npz)
    } else if recognise::content(head) == Some("a Python pickle") {
        Some(Kind::Torch)
    } else {
        (recognise::content(head) == Some("a safetensors file")).then_some(Kind::Safetensors)
    }
}

/// Whether the file means to be one of tensors by its ending; what it holds instead is then an error.
pub(super) fn claims(path: &Path) -> bool {
    const ENDINGS: &[&str] = &["npy", "npz", "pt", "pth", "safetensors"];
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

/// Bytes from which the kind is recognised.
const HEAD: u64 = 512;
