//! Goldens: approved runs and what keeps them from changing unnoticed.
//!
//! In goes a case with one or more runs of it, out comes a directory that is the first of these runs
//! and holds `golden.json`: digests of metadata and of every tensor, when and from what it was
//! recorded, and how far the runs lie apart. The invariants: a golden changes by [`record()`] alone; a
//! crash at any moment leaves the old golden whole or the new one whole; whoever reads through
//! [`Golden::open`] and [`Golden::check_tensor`] sees what was recorded or an error.

mod calibration;
mod change;
mod digest;
mod document;
mod in_place;
mod place;
mod record;
mod spread;
mod tree;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

pub use calibration::{CALIBRATION_SCHEMA, Calibration, Row as CalibrationRow, calibrate};
pub use change::{Changes, FactChange, LayerChange, TensorChange, TensorDifference};
pub use digest::Digest;
pub use document::{GOLDEN_FILE, GOLDEN_SCHEMA, GoldenInfo, Noise, NoiseRecord, TensorRecord};
pub use place::recover;
pub use record::{RecordOptions, RecordOutcome, Recorded, record};
pub use spread::{LayerSpread, Spread, spread};

use crate::error::{Error, Result};
use crate::run::{Located, Run, TensorId};
use crate::tensor::Tensor;
use document::METADATA;

/// An approved run whose metadata is as it was recorded.
#[derive(Debug)]
pub struct Golden {
    /// The golden's directory.
    pub path: PathBuf,
    /// The run; its tensors lie in the golden, or in the source of one recorded in place.
    pub run: Run,
    /// `golden.json`.
    pub info: GoldenInfo,
    noise: HashMap<(String, usize), Noise>,
}

impl Golden {
    /// Whether `path` is a directory with a `golden.json`.
    pub fn is_golden(path: impl AsRef<Path>) -> bool {
        std::fs::symlink_metadata(path.as_ref().join(GOLDEN_FILE)).is_ok()
    }

    /// Whether `path` is a tree of steps and ranks of which each run is a golden.
    ///
    /// # Errors
    /// Those of [`Run::discover`].
    pub fn is_tree(path: impl AsRef<Path>) -> Result<bool> {
        let runs = Run::discover(path)?;
        let in_tree = |(step, rank, path): &Located| (step.is_some() || rank.is_some()) && Self::is_golden(path);
        Ok(runs.iter().all(in_tree))
    }

    /// Opens the golden at `path`. Its metadata is held against the digests before it is read; of
    /// the tensors, their names, dtypes and shapes are checked here and their content by
    /// [`Golden::check_tensor`]. A golden that an interrupted recording moved aside is put back.
    ///
    /// # Errors
    /// No golden there, a file that cannot be read or is not as it was recorded, a tensor that is
    /// missing or was added, a source that is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        recover(path)?;
        let file = path.join(GOLDEN_FILE);
        if !Self::is_golden(path) {
            // A path that leads nowhere, or to no run, is better told by the reader of runs.
            Run::open(path)?;
            return Err(Error::at(
                path,
                format_args!("expected a golden (with {GOLDEN_FILE}), found a run: approve it with `goldline record`"),
            ));
        }
        let info = GoldenInfo::read(&file)?;
        check_metadata(path, &info)?;
        let run = match &info.source {
            None => Run::open(path)?,
            Some(source) => {
                let source = in_place::source_directory(path, &file, source)?;
                in_place::with_tensors_of(Run::open(path)?, Run::open(source)?)?
            }
        };
        check_listing(&file, &run, &info)?;
        let mut noise: HashMap<(String, usize), Noise> = HashMap::new();
        for record in &info.noise {
            let found = Noise { rel_l2: record.rel_l2, max_abs: record.max_abs };
            noise
                .entry((record.layer.clone(), record.slot))
                .and_modify(|known| *known = known.or_larger(found))
                .or_insert(found);
        }
        Ok(Self { path: path.to_path_buf(), run, info, noise })
    }

    /// Holds a tensor as it was read against what was recorded: dtype, shape and digest. Meant for
    /// [`judge::Options::on_golden`](crate::judge::Options::on_golden), so that the pass which reads a
    /// tensor also checks it.
    ///
    /// # Errors
    /// A tensor that differs or that the golden does not list; the error names file and tensor.
    pub fn check_tensor(&self, id: TensorId, tensor: &Tensor) -> Result<()> {
        let Some(info) = self.run.tensors.get(id.0 as usize) else {
            return Err(Error::at(&self.path, format_args!("tensor number {} is not in the golden", id.0)));
        };
        let name = &info.name;
        let Some(record) = self.info.tensors.get(name) else {
            return Err(Error::at(self.path.join(GOLDEN_FILE), format_args!("tensor `{name}` is not listed")));
        };
        let complain = |text: String| {
            let file = info.stored.as_ref().and_then(|stored| self.run.files.get(stored.file));
            let error = Error::at(file.unwrap_or(&self.path), text);
            info.stored.as_ref().map_or(error.clone(), |stored| error.byte(stored.offset))
        };
        if tensor.dtype() != record.dtype || tensor.shape() != record.shape {
            return Err(complain(shape_text(name, record, (tensor.dtype(), tensor.shape()))));
        }
        let found = Digest::of_tensor(tensor);
        if found != record.digest {
            let text = format!("tensor `{name}` is not as it was recorded: expected {}, found {found}", record.digest);
            return Err(complain(text));
        }
        Ok(())
    }

    /// How far the approved runs lie apart at an output of the layer with this name, as reports
    /// print it; `None` where one run was approved or the output was not measured. Where layers of
    /// several passes share the name, the larger numbers count.
    pub fn noise(&self, layer: &str, slot: usize) -> Option<Noise> {
        self.noise.get(&(layer.to_string(), slot)).copied()
    }
}

fn shape_text(name: &str, record: &TensorRecord, found: (crate::tensor::DType, &[usize])) -> String {
    let (dtype, shape) = found;
    format!("tensor `{name}`: expected {} {:?} as recorded, found {dtype} {shape:?}", record.dtype, record.shape)
}

/// Every metadata file is there and has its digest, and no other is.
fn check_metadata(path: &Path, info: &GoldenInfo) -> Result<()> {
    for name in METADATA {
        let file = path.join(name);
        let Some(expected) = info.metadata.get(name) else {
            if std::fs::symlink_metadata(&file).is_ok() {
                return Err(Error::at(&file, "expected no such file, for it was not recorded"));
            }
            continue;
        };
        let found = Digest::of_file(&file)?;
        if found != *expected {
            let text = format!("the golden is not as it was recorded: expected {expected}, found {found}");
            return Err(Error::at(&file, text));
        }
    }
    Ok(())
}

/// The stored tensors are those that are listed.
fn check_listing(file: &Path, run: &Run, info: &GoldenInfo) -> Result<()> {
    let mut present = 0usize;
    for (_, tensor, stored) in in_place::stored(run) {
        let name = &tensor.name;
        let place = run.files.get(stored.file).map_or(run.path.as_path(), PathBuf::as_path);
        let Some(record) = info.tensors.get(name) else {
            let text = format!("tensor `{name}` was added since the golden was recorded");
            return Err(Error::at(place, text).byte(stored.offset));
        };
        if (stored.dtype, &stored.shape) != (record.dtype, &record.shape) {
            return Err(Error::at(place, shape_text(name, record, (stored.dtype, &stored.shape))).byte(stored.offset));
        }
        present += 1;
    }
    if present < info.tensors.len() {
        let there: std::collections::HashSet<&str> =
            in_place::stored(run).map(|(_, tensor, _)| tensor.name.as_str()).collect();
        if let Some(missing) = info.tensors.keys().find(|name| !there.contains(name.as_str())) {
            return Err(Error::at(file, format_args!("tensor `{missing}` is listed, found no such tensor in the run")));
        }
    }
    Ok(())
}
