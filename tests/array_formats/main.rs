//! Files that others write: numpy arrays, checkpoints, debug trees, RunResults, snapshots.
//!
//! What `tests/data/make_numpy.py` wrote with the real libraries reads back to equal bits; what is damaged
//! or hostile is refused in one line; each format goes through `inspect`, `convert` and `diff`.

mod commands;
mod hostile;
mod judged;
mod mutation;
mod read_back;
mod write;

use std::path::{Path, PathBuf};

/// A file or directory under `tests/data`.
fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}
