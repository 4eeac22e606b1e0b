//! What every target does with a run that it wrote: open it and load what is small.
//!
//! Whatever is in the files, the outcome is a run or an error of one line; a panic, a hang or memory beyond
//! what the files justify is a finding.

use std::path::Path;

use goldline::run::{Run, TensorId};

/// Longest tensor that is loaded: a repeated view may be longer than any fuzzer should wait for.
const LONGEST: u64 = 1 << 20;

/// Opens the run at `path` and loads its tensors.
pub fn examine(path: &Path) {
    let Ok(run) = Run::open(path) else { return };
    for (index, tensor) in (0u32..).zip(&run.tensors) {
        if tensor.stored.as_ref().is_some_and(|stored| stored.len <= LONGEST) {
            let _ = run.load(TensorId(index));
        }
    }
}

/// The same for a single file of this name.
pub fn file(name: &str, bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).expect("the file is written");
    examine(&path);
}

/// The same for a directory of files: the bytes, split at each occurrence of eight `#`, in this order.
pub fn directory(names: &[&str], bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rest = bytes;
    for name in names {
        let split = rest.windows(8).position(|window| window == b"########");
        let (content, after) = split.map_or((rest, &[][..]), |at| (&rest[..at], &rest[at + 8..]));
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("the directory is made");
        std::fs::write(path, content).expect("the file is written");
        rest = after;
    }
    examine(dir.path());
}
