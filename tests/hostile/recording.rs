//! A small run directory whose files a test may replace by bad ones.

use std::path::{Path, PathBuf};

use goldline::Error;
use goldline::run::{Run, TensorId};
use tempfile::TempDir;

/// A run directory that goes away with the test.
pub(crate) struct Recording(TempDir);

impl Recording {
    /// Two layers, `x` (an input) and `y = relu(x)`; both tensors are two float32.
    pub(crate) fn sound() -> Self {
        let run = Self(tempfile::tempdir().unwrap());
        run.write("run.json", r#"{"format":"goldline.run/1","complete":true}"#);
        run.write(
            "layers.jsonl",
            "{\"name\":\"x\",\"op\":\"input\",\"outputs\":[\"x\"]}\n\
             {\"name\":\"y\",\"op\":\"relu\",\"inputs\":[\"x\"],\"outputs\":[\"y\"]}\n",
        );
        run.write("tensors.safetensors", two_tensors());
        run
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), content).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.file(name)).unwrap();
    }

    pub(crate) fn open(&self) -> Result<Run, Error> {
        Run::open(self.path())
    }

    /// The error's line, without the directory.
    #[track_caller]
    pub(crate) fn refusal(&self) -> String {
        let text = self.open().map(|run| run.warnings).expect_err("expected a refusal").to_string();
        assert!(!text.contains('\n'), "one line: {text}");
        let text = text.replace(&format!("{}/", self.path().display()), "");
        text.replace(&self.path().display().to_string(), "RUN")
    }
}

/// A safetensors file with this header and these data.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// The tensors `x` and `y`.
pub(crate) fn two_tensors() -> Vec<u8> {
    let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    safetensors(header, &[0, 0, 128, 63, 0, 0, 128, 191, 0, 0, 128, 63, 0, 0, 0, 0])
}

/// Loads everything a run says it stored.
pub(crate) fn load_all(run: &Run) -> Result<usize, Error> {
    let mut loaded = 0;
    for id in (0u32..).map(TensorId).take(run.tensors.len()) {
        loaded += usize::from(run.load(id)?.is_some());
    }
    Ok(loaded)
}
