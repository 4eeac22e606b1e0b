//! `goldline.run/1`: a directory with `run.json`, `layers.jsonl`, tensors in safetensors files and
//! perhaps `stats.jsonl`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Format, layers, manifest, shards, stats};
use crate::error::{Error, Result};
use crate::run::Run;
use crate::run::assemble::Parts;

pub(super) const FORMAT: Format = Format { recognises, open };

/// File names of the format.
pub(super) const MANIFEST: &str = "run.json";
pub(super) const LAYERS: &str = "layers.jsonl";
pub(super) const STATS: &str = "stats.jsonl";

/// Whether a directory with a file of this name means to be a native run.
pub(super) fn is_marker(name: &str) -> bool {
    name == MANIFEST || name == LAYERS
}

fn recognises(path: &Path) -> bool {
    // Asked without following: even a dangling link by one of these names means to be a run.
    let has = |name| std::fs::symlink_metadata(path.join(name)).is_ok();
    has(MANIFEST) || has(LAYERS)
}

fn open(path: &Path) -> Result<Run> {
    let names = list(path)?;
    for (name, what) in [(MANIFEST, "what the run was"), (LAYERS, "its layers")] {
        if !names.contains(name) {
            return Err(Error::at(path, format_args!("expected `{name}` ({what}), found no such file")));
        }
    }
    let mut warnings = Vec::new();
    let meta = manifest::read(&path.join(MANIFEST), &mut warnings)?;
    let layers_file = path.join(LAYERS);
    let layers = layers::read(&layers_file, &mut warnings)?;
    let shards = shards::read(path, &names, &mut warnings)?;
    let stats = if names.contains(STATS) { stats::read(&path.join(STATS), &mut warnings)? } else { Vec::new() };
    if shards.files.is_empty() {
        warnings.push("no tensors*.safetensors: no tensor was stored".into());
    }
    let shards::Shards { files, stored } = shards;
    Parts { path: path.to_path_buf(), meta, layers_file, layers, files, stored, stats, warnings }.assemble()
}

/// Names in the directory; those that are no text cannot be part of a run.
fn list(path: &Path) -> Result<BTreeSet<String>> {
    let cannot = |e: std::io::Error| Error::io(path, "list the directory", &e);
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        names.extend(entry.map_err(cannot)?.file_name().into_string());
    }
    Ok(names)
}
