//! Which directory of a tree of dumps is meant.
//!
//! In goes a path (a `dump.json`, the directory that holds it, a step's directory, a dump's root), out comes
//! the one directory with a `dump.json`, or none. Directories of ranks are `rank{R}` or `proc{PID}`; a process
//! id says nothing about another run, so ranks without numbers are numbered by order.

use std::path::{Path, PathBuf};

/// The file by which a dump is known.
pub(in crate::run) const DUMP: &str = "dump.json";

/// The directory with the `dump.json` that `path` means; `None` where there is none, or more than one.
pub(super) fn directory(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return (path.file_name()? == DUMP).then(|| path.parent().map(Path::to_path_buf)).flatten();
    }
    if path.join(DUMP).is_file() {
        return Some(path.to_path_buf());
    }
    let ranks = |directory: &Path| below(directory, &["rank", "proc"]);
    let mut found = ranks(path);
    if found.is_empty() {
        found = below(path, &["step"]).iter().flat_map(|step| ranks(step)).collect();
    }
    let mut dumps = found.into_iter().filter(|directory| directory.join(DUMP).is_file());
    let first = dumps.next()?;
    dumps.next().is_none().then_some(first)
}

/// Directories whose names are one of `prefixes` and a number, or the prefix alone.
fn below(directory: &Path, prefixes: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)));
            // Links are not followed: one of them may lead out of the dump.
            rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The number in the name of the directory itself (`step3`, `rank1`), or of one above it.
pub(super) fn numbered(directory: &Path, prefix: &str) -> Option<u64> {
    let real = directory.canonicalize().ok()?;
    let names = real.ancestors().take(2).filter_map(|path| path.file_name()?.to_str().map(str::to_string));
    names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(dumps: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for dump in dumps {
            std::fs::create_dir_all(dir.path().join(dump)).unwrap();
            std::fs::write(dir.path().join(dump).join(DUMP), "{}").unwrap();
        }
        dir
    }

    #[test]
    fn root_step_rank_and_file_mean_the_same_dump() {
        let dir = tree(&["step0/proc123"]);
        let rank = dir.path().join("step0/proc123");
        for path in [dir.path().to_path_buf(), dir.path().join("step0"), rank.clone(), rank.join(DUMP)] {
            assert_eq!(directory(&path), Some(rank.clone()), "{path:?}");
        }
        assert_eq!(numbered(&rank, "step"), Some(0));
        assert_eq!(numbered(&rank, "rank"), None);
        assert_eq!(directory(&tree(&["rank"]).path().join("other")), None);
        let bare = tree(&["step2/rank"]);
        assert_eq!(directory(bare.path()), Some(bare.path().join("step2/rank")));
    }

    #[test]
    fn several_dumps_are_no_single_one() {
        assert_eq!(directory(tree(&["step0/rank0", "step0/rank1"]).path()), None);
        assert_eq!(directory(tree(&["step0/rank0", "step1/rank0"]).path()), None);
        assert_eq!(directory(tree(&["a/b"]).path()), None);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let outside = tree(&["rank0"]);
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path().join("rank0"), dir.path().join("rank0")).unwrap();
        assert_eq!(directory(dir.path()), None);
    }
}
