//! A directory of files of tensors as a run, mixed as they come.
//!
//! Tensors of a file that gives them no name are called as the file is, without its ending; others keep
//! their names. Order of execution is not recorded, so layers stand in natural name order. Links that
//! lead out of the directory are not followed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::flat::{self, Entry};
use super::{Format, container, native, natural, shards};
use crate::error::{Error, Result};
use crate::run::Run;

pub(super) const FORMAT: Format = Format { recognises, open };

/// Most files. A run of a large model leaves some ten thousand tensors; a directory with more than this is
/// something else (a data set), and listing it would only take time.
const MOST_FILES: usize = 200_000;

/// Deepest nesting of directories.
const MOST_LEVELS: usize = 16;

fn recognises(path: &Path) -> bool {
    // What cannot be listed is for `open` to say.
    path.is_dir() && is_no_tree(path) && list(path).map_or(true, |listed| !listed.files.is_empty() && !listed.holds_run)
}

/// Whether nothing says that the directory is a tree of runs, or a native run that lost its layers.
fn is_no_tree(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let numbered = |name: &str, prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    !entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let tree = entry.path().is_dir() && ["step", "rank"].iter().any(|prefix| numbered(&name, prefix));
        tree || shards::is_shard(&name)
    })
}

/// What a directory holds.
pub(super) struct Listed {
    /// Files of tensors by their path below the directory, in natural order.
    pub(super) files: Vec<(String, PathBuf)>,
    /// Other files, in natural order.
    others: Vec<String>,
    /// Links that lead out of it, in natural order.
    leading_out: Vec<String>,
    /// Whether a native run lies in it: its tensors are not to be taken for tensors of this one.
    holds_run: bool,
}

impl Listed {
    /// What was left out, in words.
    pub(super) fn warnings(&self) -> Vec<String> {
        let said = |names: &[String], what: &str| {
            names.first().map(|first| format!("{} {what}, `{first}` first: left out", names.len()))
        };
        let others = said(&self.others, "files that hold no tensors");
        let links = said(&self.leading_out, "links that lead out of the directory or to directories");
        [others, links].into_iter().flatten().collect()
    }
}

/// Lists what lies at and below `root`. A file counts by its ending, or, in `root` itself, by its content.
///
/// # Errors
/// A directory that cannot be listed, a name that is no text, too many files or levels.
pub(super) fn list(root: &Path) -> Result<Listed> {
    let real_root = root.canonicalize().map_err(|e| Error::io(root, "open", &e))?;
    let mut listed = Listed { files: Vec::new(), others: Vec::new(), leading_out: Vec::new(), holds_run: false };
    let mut seen = 0usize;
    let mut pending = vec![(root.to_path_buf(), String::new(), 0usize)];
    while let Some((directory, prefix, level)) = pending.pop() {
        let cannot = |e: std::io::Error| Error::io(&directory, "list the directory", &e);
        if level > MOST_LEVELS {
            let text = format_args!("expected at most {MOST_LEVELS} levels of directories below `{}`", root.display());
            return Err(Error::at(&directory, text));
        }
        for entry in std::fs::read_dir(&directory).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            seen += 1;
            if seen > MOST_FILES {
                let text =
                    format_args!("expected at most {MOST_FILES} files of one run, found more: name a part of it");
                return Err(Error::at(root, text));
            }
            if native::is_marker(&entry.file_name().to_string_lossy()) {
                listed.holds_run = true;
                return Ok(listed);
            }
            let kind = entry.file_type().map_err(cannot)?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            if kind.is_dir() {
                pending.push((path, format!("{name}/"), level + 1));
            } else if kind.is_symlink() && !leads_to_file_below(&path, &real_root) {
                listed.leading_out.push(name);
            } else if path.is_file()
                && (container::claims(&path) || (level == 0 && container::kind_of(&path).is_some()))
            {
                listed.files.push((name, path));
            } else {
                listed.others.push(name);
            }
        }
    }
    listed.files.sort_by(|a, b| natural::compare(&a.0, &b.0));
    listed.others.sort_by(|a, b| natural::compare(a, b));
    listed.leading_out.sort_by(|a, b| natural::compare(a, b));
    Ok(listed)
}

/// Whether `path` is a file in or below `root`, or a link to one.
pub(super) fn leads_to_file_below(path: &Path, root: &Path) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    path.canonicalize().is_ok_and(|real| real.starts_with(root) && real.is_file())
}

fn open(path: &Path) -> Result<Run> {
    let listed = list(path)?;
    let mut warnings = listed.warnings();
    warnings.push(flat::BY_NAME.into());
    let mut found = Vec::new();
    let mut files = Vec::new();
    for (name, file) in listed.files {
        for tensor in container::tensors(&file, files.len())? {
            found.push((name.clone(), tensor));
        }
        files.push(file);
    }
    let names = distinct(found.iter().map(|(file, tensor)| (file.as_str(), tensor.name.as_str())));
    let entries = names.into_iter().zip(found).map(|(name, (_, t))| Entry { name, op_name: None, stored: t.stored });
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by(|a, b| natural::compare(&a.name, &b.name));
    flat::run(path, "directory of files of tensors", files, entries, warnings)
}

/// A name for each tensor, given its file and its name there: the shortest of its own name, or the
/// file's where it has none; with the file's; with the file's ending as well, that no other tensor has.
fn distinct<'n>(tensors: impl Iterator<Item = (&'n str, &'n str)> + Clone) -> Vec<String> {
    let joined = |file: &str, name: &str| if name.is_empty() { file.to_string() } else { format!("{file}.{name}") };
    let choices = |(file, name): (&str, &str)| {
        let stem = without_ending(file);
        let short = if name.is_empty() { stem } else { name };
        [short.to_string(), joined(stem, name), joined(file, name)]
    };
    let mut counts: [HashMap<String, usize>; 2] = Default::default();
    for tensor in tensors.clone() {
        let [short, with_stem, _] = choices(tensor);
        *counts[0].entry(short).or_default() += 1;
        *counts[1].entry(with_stem).or_default() += 1;
    }
    // All of one kind, so that tensors of one archive stay alike.
    let all = |counts: &HashMap<String, usize>| counts.values().all(|&count| count == 1);
    let level = if all(&counts[0]) {
        0
    } else if all(&counts[1]) {
        1
    } else {
        2
    };
    tensors.map(|tensor| choices(tensor)[level].clone()).collect()
}

/// `a/b.npy` -> `a/b`.
fn without_ending(file: &str) -> &str {
    match file.rfind(['.', '/']) {
        Some(at) if at > 0 && file.as_bytes().get(at) == Some(&b'.') => file.get(..at).unwrap_or(file),
        _ => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be_told_apart() {
        let named = |tensors: &[(&str, &str)]| distinct(tensors.iter().copied());
        assert_eq!(named(&[("a/x.npy", ""), ("y.0.pt", ""), ("z", "")]), ["a/x", "y.0", "z"]);
        assert_eq!(named(&[("m-1.safetensors", "w"), ("m-2.safetensors", "b")]), ["w", "b"]);
        assert_eq!(named(&[("s0.npz", "w"), ("s1.npz", "w"), ("s1.npz", "b")]), ["s0.w", "s1.w", "s1.b"]);
        assert_eq!(named(&[("a.npy", ""), ("a.pt", "")]), ["a.npy", "a.pt"]);
    }
}
