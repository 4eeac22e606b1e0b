//! On-disk formats: one file per format, recognised by content.
//!
//! In goes a path, out comes a [`Run`] of which metadata and headers alone were read. Whatever the
//! format, a stored tensor is a range of bytes in one of [`Run::files`], checked against that file's
//! real length when the run was opened, so that loading is the same for all. Adding a format is one
//! file and one line of `FORMATS`.

mod archive;
mod container;
mod directory;
mod files;
mod flat;
mod huggingface;
mod json;
mod layers;
mod load;
mod manifest;
pub(in crate::run) mod msprobe;
mod native;
mod natural;
mod npy;
mod npz;
mod outline;
mod polygraphy;
mod recognise;
mod rknn;
mod safetensors;
mod shards;
mod stats;
mod torch;
mod write;

use std::path::Path;

use crate::error::{Error, Result};
use crate::run::{Run, TensorId};
use crate::tensor::Tensor;

pub(crate) use write::sync_directory;
pub use write::write_run;

/// A format of runs on disk.
struct Format {
    /// Whether what lies at the path is of this format (or means to be).
    recognises: fn(&Path) -> bool,
    /// Opens a run of this format.
    open: fn(&Path) -> Result<Run>,
}

/// All formats, the first that recognises a path opens it. Those that take any tensor files come last.
const FORMATS: &[Format] = &[
    native::FORMAT,
    msprobe::FORMAT,
    huggingface::FORMAT,
    polygraphy::FORMAT,
    rknn::FORMAT,
    directory::FORMAT,
    files::FORMAT,
];

/// Opens the run at `path`, whatever its format.
pub(super) fn open(path: &Path) -> Result<Run> {
    match FORMATS.iter().find(|format| (format.recognises)(path)) {
        Some(format) => (format.open)(path),
        None => Err(recognise::refusal(path)),
    }
}

/// Reads one stored tensor.
pub(super) fn load(run: &Run, id: TensorId) -> Result<Option<Tensor>> {
    let info = run.tensor(id);
    let Some(stored) = &info.stored else { return Ok(None) };
    let Some(path) = run.files.get(stored.file) else {
        return Err(Error::at(&run.path, format_args!("tensor `{}` lies in no file of the run", info.name)));
    };
    load::tensor(path, &info.name, stored).map(Some)
}
