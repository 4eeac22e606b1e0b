//! A run of tensors of which nothing but names and contents is known.
//!
//! In go tensors in an order, out comes a [`Run`] with one layer per tensor, named by it. What made a
//! tensor and from what is not known: the layers have no inputs and the operator [`op::UNRECORDED`], so
//! that they are judged by dtype alone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::op;
use crate::run::assemble::{Parts, RecordedLayer};
use crate::run::{Run, RunMeta, Stored};

/// A tensor of a flat run.
pub(super) struct Entry {
    /// Name of the tensor and of its layer.
    pub(super) name: String,
    /// Operator that made it, where the format says so.
    pub(super) op_name: Option<String>,
    /// Where its bytes lie.
    pub(super) stored: Stored,
}

/// The remark of a run whose format has no execution order.
pub(super) const BY_NAME: &str =
    "the order of execution is not recorded: layers stand in the natural order of their names";

/// Puts the run together.
///
/// # Errors
/// Two tensors of one name; more tensors than can be numbered.
pub(super) fn run(
    path: &Path,
    format: &str,
    files: Vec<PathBuf>,
    entries: Vec<Entry>,
    warnings: Vec<String>,
) -> Result<Run> {
    let mut seen = HashSet::with_capacity(entries.len());
    if let Some(twice) = entries.iter().find(|entry| !seen.insert(entry.name.as_str())) {
        return Err(Error::at(path, format_args!("two tensors are called `{}`: expected each name once", twice.name)));
    }
    let layers = entries.iter().zip(1..).map(|(entry, line)| RecordedLayer {
        line,
        name: entry.name.clone(),
        op_name: entry.op_name.clone().unwrap_or_else(|| op::UNRECORDED.into()),
        outputs: vec![entry.name.clone()],
        ..RecordedLayer::default()
    });
    Parts {
        path: path.to_path_buf(),
        // A file is there or it is not: there is no recorder that could have been interrupted.
        meta: RunMeta { format: format.into(), complete: true, ..RunMeta::default() },
        layers_file: path.to_path_buf(),
        layers: layers.collect(),
        files,
        stored: entries.into_iter().map(|entry| (entry.name, entry.stored)).collect(),
        stats: Vec::new(),
        warnings,
    }
    .assemble()
}
