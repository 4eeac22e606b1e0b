//! Approving runs as a case's golden.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::document::{METADATA, NoiseRecord};
use super::place::Place;
use super::{Changes, Digest, GOLDEN_FILE, Golden, GoldenInfo, TensorRecord, change, in_place, recover, spread, tree};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::run::{Run, format};
use crate::tensor::Tensor;

/// Choices of one recording.
#[derive(Clone, Copy)]
pub struct RecordOptions<'a> {
    /// Whether a golden that is there and differs may be replaced.
    pub update: bool,
    /// Whether the tensors stay where they are and only their digests are recorded.
    pub in_place: bool,
    /// Whether a run that its recorder did not close may be approved.
    pub allow_incomplete: bool,
    /// Called with the tensors done and in all of the pass that goes on: spread, digests, changes,
    /// writing, each from 0 on.
    pub on_progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Default for RecordOptions<'_> {
    fn default() -> Self {
        Self { update: false, in_place: false, allow_incomplete: false, on_progress: &|_, _| {} }
    }
}

/// What came of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordOutcome {
    /// There was no golden, now there is.
    Created(Recorded),
    /// The golden was replaced.
    Replaced(Recorded, Changes),
    /// The golden holds just this already and was left alone.
    Unchanged,
    /// The golden differs and was left alone, for `update` was not set.
    Refused(Changes),
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The golden's directory.
    pub golden: PathBuf,
    /// Stored tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What the user should know, one line each.
    pub notes: Vec<String>,
}

/// Approves `runs` as the golden of `case`: the first is stored, the spread of the others against it
/// is kept as noise.
///
/// The new golden is made beside the old one and exchanged with it at the end; on any error, and
/// after a crash at any moment, the old golden is whole.
///
/// # Errors
/// No run, or one given twice; a run that cannot be read, is not complete, was made with another seed
/// than the case's or with other sources than the first; something at the golden's path that is no
/// golden; no space or permission. Trees of steps and ranks become a tree of goldens, not in place.
pub fn record(case: &Case, runs: &[PathBuf], options: &RecordOptions<'_>) -> Result<RecordOutcome> {
    match runs.first().map(|path| tree::located(path)).transpose()?.flatten() {
        Some(first) => tree::record(case, &first, runs, options),
        None => record_one(case, runs, options),
    }
}

/// [`record`] for runs that are no trees.
pub(super) fn record_one(case: &Case, runs: &[PathBuf], options: &RecordOptions<'_>) -> Result<RecordOutcome> {
    let place = Place::of(&case.golden)?;
    recover(&place.path)?;
    expect_distinct(runs)?;
    let mut notes = Vec::new();
    let opened: Vec<Run> = runs.iter().map(|path| open(case, path, options, &mut notes)).collect::<Result<_>>()?;
    let Some(run) = opened.first() else {
        return Err(Error::at(&case.golden, "expected at least one run to record, found none"));
    };
    let mut info = GoldenInfo::new(case.name.clone());
    info.seed = run.meta.seed.or(case.seed);
    info.environment = run.meta.environment.iter().cloned().collect();
    info.recorded_from = runs.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    info.runs = u32::try_from(runs.len()).unwrap_or(u32::MAX);
    if options.in_place {
        info.in_place = true;
        info.source = Some(source_of(case, &place.path, run)?);
    }
    if opened.len() > 1 {
        let rename =
            |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
        let found = spread(&opened, &rename, options.on_progress)?;
        info.noise = found.layers.iter().map(|entry| noise_record(run, entry)).collect();
        notes.extend(found.notes);
    }
    let occupied = occupied(&place.path)?;
    if occupied || options.in_place {
        info.tensors = digests(run, options.on_progress)?;
    }
    let mut changes = Changes::default();
    if occupied {
        changes = changes_against(&place.path, run, &info, options)?;
        if changes.is_empty() {
            return Ok(RecordOutcome::Unchanged);
        }
        if !options.update {
            return Ok(RecordOutcome::Refused(changes));
        }
        expect_nothing_else(&place.path)?;
    }
    let bytes = in_place::stored(run).map(|(_, _, stored)| stored.len).fold(0, u64::saturating_add);
    notes.extend(write(&place, occupied, run, &mut info, options)?);
    let recorded = Recorded { golden: case.golden.clone(), tensors: info.tensors.len(), bytes, notes };
    Ok(if occupied { RecordOutcome::Replaced(recorded, changes) } else { RecordOutcome::Created(recorded) })
}

/// A run that is given twice would pass for a repetition without any noise.
pub(super) fn expect_distinct(runs: &[PathBuf]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for path in runs {
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            return Err(Error::at(path, "expected different runs, found this one given twice"));
        }
    }
    Ok(())
}

fn open(case: &Case, path: &Path, options: &RecordOptions<'_>, notes: &mut Vec<String>) -> Result<Run> {
    let run = Run::open(path)?;
    if !run.meta.complete && !options.allow_incomplete {
        let text = "the run is not complete (its recorder did not close it): expected one that ran to its end";
        return Err(Error::at(path, text));
    }
    match (case.seed, run.meta.seed) {
        (Some(expected), Some(found)) if expected != found => {
            let text = format!("expected a run with the case's seed {expected}, found one with seed {found}");
            return Err(Error::at(path, text));
        }
        (Some(expected), None) => {
            notes.push(format!("{}: records no seed to hold against the case's {expected}", path.display()));
        }
        _ => {}
    }
    notes.extend(run.warnings.iter().map(|warning| format!("{}: {warning}", path.display())));
    Ok(run)
}

/// The source as `golden.json` will name it.
fn source_of(case: &Case, golden: &Path, run: &Run) -> Result<String> {
    let real = |path: &Path| path.canonicalize().ok();
    if !run.path.is_dir() {
        return Err(Error::at(&run.path, "expected the directory of a run to record in place, found a file"));
    }
    if let (Some(golden), Some(source)) = (real(golden), real(&run.path))
        && source.starts_with(&golden)
    {
        let text = "the run lies in the golden that would be replaced: expected one elsewhere to record in place";
        return Err(Error::at(&run.path, text));
    }
    in_place::source_path(golden, &case.path, &run.path)
}

fn noise_record(run: &Run, entry: &super::LayerSpread) -> NoiseRecord {
    NoiseRecord {
        layer: run.display_name(entry.layer),
        pass: run.layer(entry.layer).pass,
        slot: entry.slot,
        rel_l2: entry.noise.rel_l2,
        max_abs: entry.noise.max_abs,
    }
}

/// Whether a golden is there; false for nothing or an empty directory.
fn occupied(path: &Path) -> Result<bool> {
    let found = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::io(path, "look for a golden", &e)),
        Ok(found) => found,
    };
    let what = if !found.is_dir() {
        crate::tensor::describe_kind(&found)
    } else if Golden::is_golden(path) {
        return Ok(true);
    } else {
        let cannot = |e: std::io::Error| Error::io(path, "list the directory", &e);
        if std::fs::read_dir(path).map_err(cannot)?.next().is_none() {
            return Ok(false);
        }
        "a directory without golden.json"
    };
    Err(Error::at(
        path,
        format_args!("expected a golden or nothing where the golden belongs, found {what}: move it away"),
    ))
}

/// Replacing a golden removes its directory; what is no part of a golden must not go with it.
pub(super) fn expect_nothing_else(path: &Path) -> Result<()> {
    let cannot = |e: std::io::Error| Error::io(path, "list the directory", &e);
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name();
        let is_dir = entry.file_type().map_err(cannot)?.is_dir();
        let known = name.to_str().is_some_and(|name| {
            name == GOLDEN_FILE
                || METADATA.contains(&name)
                || (name.starts_with("tensors") && name.contains(".safetensors"))
        });
        if is_dir || !known {
            let text = "expected only files of the golden that would be replaced, found this: move it away";
            return Err(Error::at(entry.path(), text));
        }
    }
    Ok(())
}

fn changes_against(path: &Path, run: &Run, info: &GoldenInfo, options: &RecordOptions<'_>) -> Result<Changes> {
    match Golden::open(path) {
        Ok(old) => change::find(&old, run, info, options.on_progress),
        // One that is damaged is told and may be replaced like any other.
        Err(error) => Ok(Changes { damaged: Some(error.to_string()), ..Changes::default() }),
    }
}

fn record_of(tensor: &Tensor) -> TensorRecord {
    TensorRecord { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), digest: Digest::of_tensor(tensor) }
}

fn digests(run: &Run, on_progress: &(dyn Fn(u64, u64) + Sync)) -> Result<BTreeMap<String, TensorRecord>> {
    let stored: Vec<_> = in_place::stored(run).map(|(id, info, _)| (id, &info.name)).collect();
    let done = AtomicU64::new(0);
    let records: Vec<Option<(String, TensorRecord)>> = stored
        .par_iter()
        .map(|(id, name)| {
            let tensor = run.load(*id)?;
            on_progress(done.fetch_add(1, Ordering::Relaxed) + 1, stored.len() as u64);
            Ok(tensor.map(|tensor| ((*name).clone(), record_of(&tensor))))
        })
        .collect::<Result<_>>()?;
    Ok(records.into_iter().flatten().collect())
}

/// Writes the golden and puts it in place; what of the old one could not be removed is a note.
fn write(
    place: &Place,
    occupied: bool,
    run: &Run,
    info: &mut GoldenInfo,
    options: &RecordOptions<'_>,
) -> Result<Option<String>> {
    let staging = place.stage()?;
    let dir = staging.new_golden();
    if options.in_place {
        format::write_run(&in_place::without_tensors(run), &dir, |_, _| {})?;
    } else {
        let all = in_place::stored(run).count() as u64;
        let mut written = BTreeMap::new();
        format::write_run(run, &dir, |id, tensor| {
            written.insert(run.tensor(id).name.clone(), record_of(tensor));
            (options.on_progress)(written.len() as u64, all);
        })?;
        // Where the changes were shown, just these must be what is written.
        let differs = written.iter().find(|(name, found)| info.tensors.get(*name) != Some(found));
        if let Some((name, _)) = differs.filter(|_| !info.tensors.is_empty()) {
            return Err(Error::at(&run.path, format_args!("tensor `{name}` changed while the run was recorded")));
        }
        info.tensors = written;
    }
    for name in METADATA {
        let file = dir.join(name);
        if file.is_file() {
            info.metadata.insert(name.to_string(), Digest::of_file(&file)?);
        }
    }
    staging.write(GOLDEN_FILE, &info.to_bytes(&place.path.join(GOLDEN_FILE))?)?;
    if !occupied {
        staging.put()?;
        return Ok(None);
    }
    let left = staging.replace()?;
    Ok(left.map(|path| format!("{}: what is left of the old golden could not be removed", path.display())))
}
