//! Which safetensors files of a run directory hold its tensors, and that they agree.
//!
//! With `tensors.safetensors.index.json` (Hugging Face's convention) the index decides; without it
//! every file named `tensors.safetensors`, `tensors-N.safetensors` or `tensors-N-of-M.safetensors`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{json, safetensors};
use crate::error::{Error, Result};
use crate::run::Stored;

/// Name of the index.
pub(super) const INDEX: &str = "tensors.safetensors.index.json";

/// Name of the only file of a run that is not sharded.
pub(super) const SINGLE: &str = "tensors.safetensors";

/// The stored tensors of a run.
#[derive(Debug, Default)]
pub(super) struct Shards {
    pub(super) files: Vec<PathBuf>,
    pub(super) stored: Vec<(String, Stored)>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Reads the headers of all tensor files in `dir`, of which `names` are the entries.
pub(super) fn read(dir: &Path, names: &BTreeSet<String>, warnings: &mut Vec<String>) -> Result<Shards> {
    let on_disk = by_name(dir, names)?;
    if !names.contains(INDEX) {
        warnings.extend(gap(&on_disk));
        return headers(dir, &on_disk);
    }
    let index_path = dir.join(INDEX);
    let bytes = json::read_small(&index_path, safetensors::MAX_HEADER)?;
    let Index { weight_map } = json::parse(&index_path, &bytes)?;
    let mut indexed = BTreeSet::new();
    for (tensor, file) in &weight_map {
        if indexed.contains(file) {
            continue;
        }
        if !is_plain(file) {
            let text = format!("tensor `{tensor}`: expected the name of a file beside the index, found `{file}`");
            return Err(Error::at(&index_path, text));
        }
        if !names.contains(file) {
            let text = format!("tensor `{tensor}` is said to lie in `{file}`, which is missing");
            return Err(Error::at(&index_path, text));
        }
        indexed.insert(file.clone());
    }
    let left_out: Vec<&String> = on_disk.iter().filter(|name| !indexed.contains(*name)).collect();
    if let Some(first) = left_out.first() {
        warnings.push(format!("{} tensor files that {INDEX} does not name, `{first}` first: left out", left_out.len()));
    }
    let shards = headers(dir, &indexed.into_iter().collect::<Vec<_>>())?;
    check_index(&index_path, &weight_map, &shards, warnings)?;
    Ok(shards)
}

/// Every tensor of the index lies where the index says.
fn check_index(
    path: &Path,
    weight_map: &BTreeMap<String, String>,
    shards: &Shards,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let places: HashMap<&str, &Path> = shards
        .stored
        .iter()
        .filter_map(|(name, stored)| Some((name.as_str(), shards.files.get(stored.file)?.as_path())))
        .collect();
    for (tensor, file) in weight_map {
        let found = places.get(tensor.as_str()).and_then(|p| p.file_name()).map(|n| n.to_string_lossy());
        if found.as_deref() != Some(file) {
            let found = found.map_or("nowhere".to_string(), |name| format!("in `{name}`"));
            return Err(Error::at(path, format_args!("expected tensor `{tensor}` in `{file}`, found it {found}")));
        }
    }
    let unlisted = shards.stored.len().saturating_sub(weight_map.len());
    if unlisted > 0 {
        warnings.push(format!("{unlisted} stored tensors that {INDEX} does not list"));
    }
    Ok(())
}

fn headers(dir: &Path, names: &[String]) -> Result<Shards> {
    let mut shards = Shards::default();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (file, name) in names.iter().enumerate() {
        let path = dir.join(name);
        for entry in safetensors::read_header(&path)? {
            if let Some(other) = seen.insert(entry.name.clone(), file) {
                let other = names.get(other).map_or("", String::as_str);
                let text = format!("tensor `{}` also lies in `{other}`: expected each tensor once", entry.name);
                return Err(Error::at(&path, text).byte(entry.offset));
            }
            let stored = Stored::dense(entry.dtype, entry.shape, file, entry.offset, entry.len);
            shards.stored.push((entry.name, stored));
        }
        shards.files.push(path);
    }
    Ok(shards)
}

/// Tensor files by their names, in order of their numbers.
fn by_name(dir: &Path, names: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut found: Vec<(Shard, &String)> = names.iter().filter_map(|n| Some((Shard::parse(n)?, n))).collect();
    found.sort();
    let totals: BTreeSet<u32> = found.iter().filter_map(|(shard, _)| shard.total).collect();
    if let Some(total) = totals.first() {
        if let Some(other) = totals.last().filter(|last| *last != total) {
            let text = format!("found shards of {total} files and shards of {other} files: expected one set");
            return Err(Error::at(dir, text));
        }
        let present: BTreeSet<u32> = found.iter().filter(|f| f.0.total.is_some()).map(|f| f.0.number).collect();
        if let Some(missing) = (1..=*total).find(|number| !present.contains(number)) {
            return Err(Error::at(dir, format_args!("shard {missing} of {total} is missing")));
        }
    }
    Ok(found.into_iter().map(|(_, name)| name.clone()).collect())
}

/// A warning where shards are numbered, but not one after the other. How many there should be is not
/// known, so this may be all there is.
fn gap(names: &[String]) -> Option<String> {
    let numbers = names.iter().filter_map(|name| Shard::parse(name)).map(|shard| shard.number).filter(|n| *n > 0);
    let numbers: Vec<u32> = numbers.collect();
    let (before, after) = numbers.iter().zip(numbers.iter().skip(1)).find(|(a, b)| **b - **a > 1)?;
    Some(format!("no shard between tensors-{before:05} and tensors-{after:05}: a file may be missing"))
}

/// What a shard's name says; sorts the single file first, then by number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shard {
    number: u32,
    total: Option<u32>,
}

impl Shard {
    fn parse(name: &str) -> Option<Self> {
        if name == SINGLE {
            return Some(Self { number: 0, total: None });
        }
        let numbers = name.strip_prefix("tensors-")?.strip_suffix(".safetensors")?;
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match numbers.split_once("-of-") {
            None => Some(Self { number: digits(numbers)?, total: None }),
            Some((number, total)) => Some(Self { number: digits(number)?, total: Some(digits(total)?) }),
        }
    }
}

/// Whether a native run's tensors lie in files of this name.
pub(super) fn is_shard(name: &str) -> bool {
    Shard::parse(name).is_some()
}

/// A name without any way out of the directory.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_are_parsed_and_sorted_by_number() {
        let names = ["tensors-00010.safetensors", "tensors-2.safetensors", SINGLE, "tensors-x.safetensors", "a"];
        let names: BTreeSet<String> = names.iter().map(|n| (*n).to_string()).collect();
        let found = by_name(Path::new("run"), &names).unwrap();
        assert_eq!(found, [SINGLE, "tensors-2.safetensors", "tensors-00010.safetensors"]);
    }

    #[test]
    fn a_missing_shard_of_a_numbered_set_is_named() {
        let set = |names: &[&str]| by_name(Path::new("run"), &names.iter().map(|n| (*n).to_string()).collect());
        let error = set(&["tensors-1-of-3.safetensors", "tensors-3-of-3.safetensors"]).unwrap_err();
        assert_eq!(error.message(), "shard 2 of 3 is missing");
        let error = set(&["tensors-1-of-1.safetensors", "tensors-1-of-2.safetensors"]).unwrap_err();
        assert!(error.message().contains("expected one set"), "{error}");
    }

    #[test]
    fn a_gap_between_numbered_shards_is_a_warning() {
        let gap = |names: &[&str]| gap(&names.iter().map(|n| (*n).to_string()).collect::<Vec<_>>());
        assert_eq!(gap(&[SINGLE, "tensors-00001.safetensors", "tensors-00002.safetensors"]), None);
        let warning = gap(&["tensors-00001.safetensors", "tensors-00004.safetensors"]).unwrap();
        assert!(warning.contains("between tensors-00001 and tensors-00004"), "{warning}");
    }

    #[test]
    fn only_plain_names_stay_in_the_directory() {
        assert!(is_plain("tensors-1.safetensors"));
        for bad in ["", "..", "../x", "/etc/passwd", "a/b", "a\\b", "c:x", "a\0"] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
