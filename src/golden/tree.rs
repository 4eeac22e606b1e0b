//! Approving trees of steps and ranks: each run of a tree becomes a golden of its own.
//!
//! The tree of goldens `step{N}/rank{R}/` is made aside as a whole and put in place by one rename, so that
//! no step of it is older than another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::place::Place;
use super::record::{RecordOptions, RecordOutcome, Recorded, expect_distinct, expect_nothing_else, record_one};
use super::{Changes, FactChange, GOLDEN_FILE, Golden, change, recover};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::run::Run;

/// Runs by their directory in a tree, such as `step0/rank1`.
type Tree = BTreeMap<String, PathBuf>;

/// The runs of a tree; `None` where a run or a file stands there.
pub(super) fn located(path: &Path) -> Result<Option<Tree>> {
    let found = Run::discover(path)?;
    if found.iter().any(|(step, rank, _)| step.is_none() && rank.is_none()) {
        return Ok(None);
    }
    let directory = |step: Option<u64>, rank: Option<u64>| {
        let parts = [step.map(|step| format!("step{step}")), rank.map(|rank| format!("rank{rank}"))];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    };
    Ok(Some(found.into_iter().map(|(step, rank, path)| (directory(step, rank), path)).collect()))
}

/// Approves trees as the golden of `case`; the first of them, `first`, is stored.
///
/// # Errors
/// Those of [`record`](super::record()) for each run; trees of different steps or ranks; a golden of one run
/// where the tree belongs.
pub(super) fn record(
    case: &Case,
    first: &Tree,
    trees: &[PathBuf],
    options: &RecordOptions<'_>,
) -> Result<RecordOutcome> {
    if options.in_place {
        let text = "a tree of runs cannot be recorded in place: expected one run, or record the tree by copy";
        return Err(Error::at(&case.golden, text));
    }
    expect_distinct(trees)?;
    let place = Place::of(&case.golden)?;
    recover(&place.path)?;
    let old = standing(&place.path)?;
    let staging = place.stage()?;
    let new = staging.new_golden();
    std::fs::create_dir(&new).map_err(|e| Error::io(&new, "make the directory", &e))?;
    let mut all = Recorded { golden: case.golden.clone(), tensors: 0, bytes: 0, notes: Vec::new() };
    let others = trees.iter().skip(1).map(|path| Ok((path, located(path)?.unwrap_or_default())));
    let others = others.collect::<Result<Vec<_>>>()?;
    if let Some((path, _)) = others.iter().find(|(_, tree)| !tree.keys().eq(first.keys())) {
        return Err(Error::at(path, "expected a tree of the same steps and ranks as the first, found others"));
    }
    for (directory, path) in first {
        let runs: Vec<PathBuf> =
            std::iter::once(path).chain(others.iter().filter_map(|(_, tree)| tree.get(directory))).cloned().collect();
        let mut leaf = case.clone();
        leaf.golden = new.join(directory);
        if let RecordOutcome::Created(recorded) = record_one(&leaf, &runs, options)? {
            all.tensors += recorded.tensors;
            all.bytes = all.bytes.saturating_add(recorded.bytes);
            all.notes.extend(recorded.notes);
        }
    }
    let Some(old) = old else {
        staging.put()?;
        return Ok(RecordOutcome::Created(all));
    };
    let changes = changes(&old, &new, first, options)?;
    if changes.is_empty() {
        return Ok(RecordOutcome::Unchanged);
    }
    if !options.update {
        return Ok(RecordOutcome::Refused(changes));
    }
    only_goldens(&place.path, &old)?;
    let left = staging.replace()?;
    all.notes
        .extend(left.map(|path| format!("{}: what is left of the old golden could not be removed", path.display())));
    Ok(RecordOutcome::Replaced(all, changes))
}

/// The tree of goldens that is there; `None` for nothing or an empty directory.
fn standing(path: &Path) -> Result<Option<Tree>> {
    let nothing = match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if nothing {
        return Ok(None);
    }
    match located(path)? {
        Some(tree) if Golden::is_tree(path)? => Ok(Some(tree)),
        _ => {
            let what = if path.join(GOLDEN_FILE).is_file() { "the golden of one run" } else { "something else" };
            let text =
                format!("expected a tree of goldens or nothing where the golden belongs, found {what}: move it away");
            Err(Error::at(path, text))
        }
    }
}

fn changes(old: &Tree, new: &Path, tree: &Tree, options: &RecordOptions<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    let directories: BTreeSet<&String> = old.keys().chain(tree.keys()).collect();
    for directory in directories {
        let fact = |from: Option<&str>, to: Option<&str>| FactChange {
            key: directory.clone(),
            from: from.map(str::to_string),
            to: to.map(str::to_string),
        };
        match (old.get(directory), tree.contains_key(directory)) {
            (Some(old), true) => {
                let recorded = Golden::open(new.join(directory))?;
                let found = match Golden::open(old) {
                    Ok(old) => change::find(&old, &recorded.run, &recorded.info, options.on_progress)?,
                    // One that is damaged is told and may be replaced like any other.
                    Err(error) => Changes { damaged: Some(error.to_string()), ..Changes::default() },
                };
                if !found.is_empty() {
                    changes.within.insert(directory.clone(), found);
                }
            }
            (Some(_), false) => changes.facts.push(fact(Some("recorded"), None)),
            (None, _) => changes.facts.push(fact(None, Some("recorded"))),
        }
    }
    Ok(changes)
}

/// Replacing a tree removes its directory; what is no part of a golden must not go with it.
fn only_goldens(root: &Path, tree: &Tree) -> Result<()> {
    let mut between: BTreeSet<&Path> = BTreeSet::from([root]);
    for leaf in tree.values() {
        expect_nothing_else(leaf)?;
        between.extend(leaf.ancestors().skip(1).take_while(|path| path.starts_with(root)));
    }
    for directory in &between {
        let cannot = |e: std::io::Error| Error::io(directory, "list the directory", &e);
        for entry in std::fs::read_dir(directory).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if !between.contains(path.as_path()) && tree.values().all(|leaf| *leaf != path) {
                let text = "expected only goldens in the tree that would be replaced, found this: move it away";
                return Err(Error::at(path, text));
            }
        }
    }
    Ok(())
}
