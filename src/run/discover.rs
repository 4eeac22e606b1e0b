//! Several steps or ranks: a tree `step{N}/rank{R}/` of which each leaf is a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Run;
use super::format::msprobe::place::DUMP;
use crate::error::{Error, Result};

/// One run of a tree: its step and rank, where the tree names them, and where it is.
pub type Located = (Option<u64>, Option<u64>, PathBuf);

impl Run {
    /// Finds the runs at and below `path`: the path itself, or the runs of a tree
    /// `step{N}/rank{R}/`, `step{N}/` or `rank{R}/`, sorted by step, then rank. Directories of msprobe
    /// that are named by a process (`proc{PID}`) count as ranks in the order of their numbers, for a
    /// process id says nothing about another run. Nothing is opened; links that lead out of `path` are
    /// not followed.
    ///
    /// # Errors
    /// A directory that cannot be listed, a step without a run in it, two directories for the same
    /// step and rank.
    pub fn discover(path: impl AsRef<Path>) -> Result<Vec<Located>> {
        let path = path.as_ref();
        let whole = || Ok(vec![(None, None, path.to_path_buf())]);
        if !path.is_dir() || holds_run(path) {
            return whole();
        }
        let root = path.canonicalize().map_err(|e| Error::io(path, "open", &e))?;
        let mut found = BTreeMap::new();
        let steps = numbered(path, "step", &root)?;
        for (step, directory) in &steps {
            let ranks = if holds_run(directory) { Vec::new() } else { ranks(directory, &root)? };
            if ranks.is_empty() {
                insert(&mut found, Some(*step), None, directory.clone())?;
            }
            for (rank, directory) in ranks {
                insert(&mut found, Some(*step), Some(rank), directory)?;
            }
        }
        if steps.is_empty() {
            for (rank, directory) in ranks(path, &root)? {
                insert(&mut found, None, Some(rank), directory)?;
            }
        }
        if found.is_empty() {
            return whole();
        }
        Ok(found.into_iter().map(|((step, rank), directory)| (step, rank, directory)).collect())
    }
}

type Key = (Option<u64>, Option<u64>);

fn insert(found: &mut BTreeMap<Key, PathBuf>, step: Option<u64>, rank: Option<u64>, directory: PathBuf) -> Result<()> {
    if let Some(other) = found.get(&(step, rank)) {
        let text = format!("expected one directory for each step and rank, found `{}` too", other.display());
        return Err(Error::at(directory, text));
    }
    found.insert((step, rank), directory);
    Ok(())
}

fn holds_run(directory: &Path) -> bool {
    ["run.json", "layers.jsonl", DUMP].iter().any(|name| directory.join(name).is_file())
}

/// Directories of ranks: by number, else those of processes by order.
fn ranks(directory: &Path, root: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let ranks = numbered(directory, "rank", root)?;
    if !ranks.is_empty() {
        return Ok(ranks);
    }
    let processes = numbered(directory, "proc", root)?;
    Ok((0..).zip(processes).map(|(rank, (_, path))| (rank, path)).collect())
}

/// Directories in `directory` whose name is `prefix` and a number, unless they lie outside `root`.
fn numbered(directory: &Path, prefix: &str, root: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let cannot = |e: std::io::Error| Error::io(directory, "list the directory", &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let Some(number) = digits.and_then(|digits| digits.parse().ok()) else { continue };
        let path = entry.path();
        let inside = path.canonicalize().is_ok_and(|real| real.starts_with(root) && real != root);
        if inside && path.is_dir() {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(runs: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for run in runs {
            std::fs::create_dir_all(dir.path().join(run)).unwrap();
            std::fs::write(dir.path().join(run).join("run.json"), "{}").unwrap();
        }
        dir
    }

    fn found(dir: &Path) -> Vec<(Option<u64>, Option<u64>, String)> {
        let relative = |path: PathBuf| path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        Run::discover(dir).unwrap().into_iter().map(|(step, rank, path)| (step, rank, relative(path))).collect()
    }

    #[test]
    fn steps_and_ranks_are_sorted_by_number() {
        let dir = tree(&["step10/rank0", "step2/rank1", "step2/rank0", "step3", "other", "stepx"]);
        let expected = [
            (Some(2), Some(0), "step2/rank0"),
            (Some(2), Some(1), "step2/rank1"),
            (Some(3), None, "step3"),
            (Some(10), Some(0), "step10/rank0"),
        ];
        assert_eq!(found(dir.path()), expected.map(|(s, r, p)| (s, r, p.to_string())));
    }

    #[test]
    fn a_run_itself_and_anything_else_is_one_entry() {
        assert_eq!(found(tree(&["."]).path()), [(None, None, String::new())]);
        assert_eq!(found(tree(&["a"]).path()), [(None, None, String::new())]);
        assert_eq!(found(tree(&["rank1", "rank0"]).path()).len(), 2);
    }

    #[test]
    fn processes_are_ranks_in_order() {
        let dir = tree(&["step0/proc900", "step0/proc1000", "step1/rank3", "step1/proc7"]);
        let expected = [
            (Some(0), Some(0), "step0/proc900"),
            (Some(0), Some(1), "step0/proc1000"),
            (Some(1), Some(3), "step1/rank3"),
        ];
        assert_eq!(found(dir.path()), expected.map(|(s, r, p)| (s, r, p.to_string())));
    }

    #[test]
    fn one_step_twice_is_an_error() {
        let dir = tree(&["step1", "step01"]);
        assert!(Run::discover(dir.path()).unwrap_err().message().contains("one directory for each"));
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_out_are_not_followed() {
        let outside = tree(&["rank0"]);
        let dir = tree(&["step1"]);
        std::os::unix::fs::symlink(outside.path(), dir.path().join("step2")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("step3")).unwrap();
        assert_eq!(found(dir.path()), [(Some(1), None, "step1".to_string())]);
    }
}
