//! The files of `dump_tensor_data`: where the bytes of each recorded tensor lie, and which contents are equal.
//!
//! In go the names that `dump.json` gives, out come their places, opened once each. A name that is no plain
//! file name, or a link, is not followed: nothing outside the dump is read. Files that are missing or
//! cannot be read are counted and named; their tensors are then known by their statistics alone.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::run::Stored;
use crate::run::format::container::{self, Found};
use crate::run::format::load;
use crate::tensor::DType;

/// Directory of the tensor files, beside `dump.json`.
const DATA: &str = "dump_tensor_data";

/// Reasons for not reading a file that are told one by one.
const REASONS: usize = 8;

/// What was found in one file.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    /// Where its bytes lie; the file's number is that of [`Payloads::files`].
    pub(super) stored: Stored,
    /// CRC-32 of its bytes, where it is known.
    pub(super) crc32: Option<u32>,
}

/// What was found in all files.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    /// Files that hold a tensor.
    pub(super) files: Vec<PathBuf>,
    found: HashMap<String, Payload>,
}

impl Payloads {
    /// Opens the files of these names, each once; what cannot be read is said in `warnings`.
    pub(super) fn open<'a>(directory: &Path, names: impl Iterator<Item = &'a str>, warnings: &mut Vec<String>) -> Self {
        let mut order: Vec<&str> = Vec::new();
        let mut seen: HashMap<&str, ()> = HashMap::new();
        for name in names {
            if seen.insert(name, ()).is_none() {
                order.push(name);
            }
        }
        let data = directory.join(DATA);
        // A link in place of the directory would lead out of the dump.
        let is_directory = std::fs::symlink_metadata(&data).is_ok_and(|kind| kind.is_dir());
        let opened: Vec<(&str, Result<Found, String>)> = order
            .par_iter()
            .map(|name| {
                let found = if is_directory { one(&data, name) } else { Err(format!("`{DATA}` is no directory")) };
                (*name, found)
            })
            .collect();
        let mut payloads = Self::default();
        let mut refused: BTreeMap<String, (u64, &str)> = BTreeMap::new();
        for (name, found) in opened {
            match found {
                Ok(Found { mut stored, crc32, .. }) => {
                    stored.file = payloads.files.len();
                    payloads.files.push(data.join(name));
                    payloads.found.insert(name.to_string(), Payload { stored, crc32 });
                }
                Err(reason) => refused.entry(reason).or_insert((0, name)).0 += 1,
            }
        }
        let others: u64 = refused.values().skip(REASONS).map(|(count, _)| count).sum();
        if others > 0 {
            warnings.push(format!("{others} more tensors were not read, for further reasons"));
        }
        for (reason, (count, first)) in refused.into_iter().take(REASONS) {
            warnings.push(format!("{count} tensors were not read, `{first}` first: {reason}"));
        }
        payloads
    }

    /// What the file of this name holds.
    pub(super) fn get(&self, name: &str) -> Option<&Payload> {
        self.found.get(name)
    }

    /// Fills in the CRC-32 of contents whose files do not give it, where `alike` says that several may be
    /// equal: names of one group are read, others are not.
    pub(super) fn digest(&mut self, alike: &[Vec<String>]) {
        let wanted: Vec<&String> = alike
            .iter()
            .filter(|group| group.len() > 1)
            .flatten()
            .filter(|name| self.found.get(*name).is_some_and(|payload| payload.crc32.is_none()))
            .collect();
        let digests: Vec<(String, u32)> = wanted
            .par_iter()
            .filter_map(|name| {
                let payload = self.found.get(*name)?;
                let path = self.files.get(payload.stored.file)?;
                let tensor = load::tensor(path, name, &payload.stored).ok()?;
                Some(((*name).clone(), crc32fast::hash(tensor.bytes())))
            })
            .collect();
        for (name, crc32) in digests {
            if let Some(payload) = self.found.get_mut(&name) {
                payload.crc32 = Some(crc32);
            }
        }
    }
}

/// The one tensor in the file `name` of the directory `data`.
fn one(data: &Path, name: &str) -> Result<Found, String> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0', ':']);
    if !plain {
        return Err(format!("expected the name of a file in `{DATA}`, found a path"));
    }
    let path = data.join(name);
    match std::fs::symlink_metadata(&path) {
        Ok(kind) if kind.is_symlink() => return Err("a link, which may lead out of the dump, is not followed".into()),
        Ok(kind) if kind.is_file() => {}
        Ok(_) => return Err("expected a file, found something else".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err("the file is missing".into()),
        Err(error) => return Err(format!("cannot open: {error}")),
    }
    let mut found = container::tensors(&path, 0).map_err(|error| error.message().to_string())?;
    match (found.pop(), found.len()) {
        (Some(found), 0) => Ok(found),
        (_, others) => Err(format!("expected one tensor in the file, found {}", others + usize::from(others > 0))),
    }
}

/// The dtype that a file holds in place of one that its kind has no name for: numpy has no bfloat16 and
/// MindSpore writes it as float32.
pub(super) fn is_widened(recorded: DType, stored: DType) -> bool {
    matches!((recorded, stored), (DType::BF16, DType::F32)) || recorded.bits() == 8 && stored == DType::F32
}
