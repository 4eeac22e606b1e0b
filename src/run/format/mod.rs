//! On-disk formats: one file per format, recognised by content.
//!
//! In goes a path, out comes a [`Run`] of which metadata and headers alone were read. Whatever the
//! format, a stored tensor is a range of bytes in one of [`Run::files`], checked against that file's
//! real length when the run was opened, so that loading is the same for all. Adding a format is one
//! file and one line of `FORMATS`.

mod json;
mod layers;
mod manifest;
mod native;
mod recognise;
mod safetensors;
mod shards;
mod stats;
mod write;

use std::path::Path;

use crate::error::{Error, Result};
use crate::run::{Run, TensorId};
use crate::tensor::{DataFile, Tensor};

pub use write::write_run;

/// A format of runs on disk.
struct Format {
    /// Whether what lies at the path is of this format (or means to be).
    recognises: fn(&Path) -> bool,
    /// Opens a run of this format.
    open: fn(&Path) -> Result<Run>,
}

/// All formats, the first that recognises a path opens it.
const FORMATS: &[Format] = &[native::FORMAT];

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
    let file = DataFile::open(path)?;
    if stored.offset.checked_add(stored.len).is_none_or(|end| end > file.len()) {
        return Err(Error::at(
            path,
            format_args!(
                "expected {} bytes of tensor `{}`, the file now ends at byte {}: it has changed since it was opened",
                stored.len,
                info.name,
                file.len()
            ),
        )
        .byte(stored.offset));
    }
    let bytes = file.read(stored.offset, stored.len)?;
    Tensor::new(stored.dtype, stored.shape.clone(), bytes)
        .map(Some)
        .map_err(|e| Error::at(path, format_args!("tensor `{}`: {e}", info.name)).byte(stored.offset))
}
