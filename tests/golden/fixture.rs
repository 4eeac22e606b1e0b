//! A small run on disk and a case for it.

use std::path::{Path, PathBuf};

use goldline::case::Case;
use goldline::golden::{Golden, RecordOptions, RecordOutcome, record};
use goldline::run::TensorId;
use safetensors::tensor::{Dtype, TensorView};

/// What a test may want to be different about a run.
pub(crate) struct Model {
    pub(crate) seed: i64,
    pub(crate) created: &'static str,
    pub(crate) complete: bool,
    pub(crate) x: Vec<f32>,
    pub(crate) y: Vec<f32>,
    pub(crate) z: Vec<f32>,
    pub(crate) mask: Vec<u8>,
    /// Ids of x, w, y, mask, z.
    pub(crate) ids: [&'static str; 5],
    pub(crate) activation: &'static str,
    pub(crate) device: &'static str,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            seed: 7,
            created: "2026-01-01T00:00:00Z",
            complete: true,
            x: vec![1.0, -2.0, 3.0, -4.0],
            y: vec![3.0, 4.0, 0.0, 0.0],
            z: vec![3.0, 4.0, 0.0, 0.0],
            mask: vec![1, 0, 1, 1],
            ids: ["t0", "t1", "t2", "t3", "t4"],
            activation: "relu",
            device: "gpu",
        }
    }
}

impl Model {
    /// Writes the run to `dir`: input, parameter, linear, a random mask, an activation.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        std::fs::create_dir_all(dir).unwrap();
        let Self { seed, created, complete, ids: [x, w, y, m, z], activation, device, .. } = self;
        let manifest = format!(
            r#"{{"format":"goldline.run/1","name":"r","created":"{created}","seed":{seed},"complete":{complete},
                "precision":{{"compute":"float32"}},"environment":{{"device":"{device}","flags":{{"allow_tf32":false}}}}}}"#
        );
        std::fs::write(dir.join("run.json"), manifest).unwrap();
        let lines = [
            format!(r#"{{"name":"x","op":"input","outputs":["{x}"]}}"#),
            format!(r#"{{"name":"w","op":"param","outputs":["{w}"]}}"#),
            format!(
                r#"{{"name":"fc","op":"linear","inputs":["{x}","{w}"],"outputs":["{y}"],"attrs":{{"bias":null}}}}"#
            ),
            format!(r#"{{"name":"draw","op":"bernoulli","outputs":["{m}"]}}"#),
            format!(r#"{{"name":"act","op":"{activation}","inputs":["{y}"],"outputs":["{z}"]}}"#),
        ];
        std::fs::write(dir.join("layers.jsonl"), lines.join("\n") + "\n").unwrap();
        let floats = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let tensors = [
            (*x, Dtype::F32, vec![self.x.len()], floats(&self.x)),
            (*w, Dtype::F32, vec![2, 2], floats(&[0.5, 0.25, 2.0, 1.0])),
            (*y, Dtype::F32, vec![self.y.len()], floats(&self.y)),
            (*m, Dtype::BOOL, vec![self.mask.len()], self.mask.clone()),
            (*z, Dtype::F32, vec![self.z.len()], floats(&self.z)),
        ];
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(dir.join("tensors.safetensors"), bytes).unwrap();
        dir.to_path_buf()
    }
}

/// A directory with a case file, of which the golden is `goldens/g`.
pub(crate) struct Project {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) case: Case,
}

impl Project {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let case = case_in(dir.path());
        Self { dir, case }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn golden(&self) -> PathBuf {
        self.path("goldens/g")
    }

    /// Writes a run to `runs/NAME`.
    pub(crate) fn run(&self, name: &str, model: &Model) -> PathBuf {
        model.write(&self.path("runs").join(name))
    }

    pub(crate) fn record(&self, runs: &[PathBuf], options: &RecordOptions<'_>) -> goldline::Result<RecordOutcome> {
        record(&self.case, runs, options)
    }

    /// A project whose golden is the default model.
    pub(crate) fn recorded() -> Self {
        let project = Self::new();
        let run = project.run("a", &Model::default());
        let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
        assert!(matches!(outcome, RecordOutcome::Created(_)), "{outcome:?}");
        project
    }
}

pub(crate) fn case_in(dir: &Path) -> Case {
    let text = "schema: goldline.case/1\nname: small\nseed: 7\ngolden: goldens/g\n";
    Case::parse(text, dir.join("case.yaml")).unwrap()
}

pub(crate) fn updating() -> RecordOptions<'static> {
    RecordOptions { update: true, ..RecordOptions::default() }
}

/// Holds every tensor of the golden against its digest.
pub(crate) fn check_all(golden: &Golden) -> goldline::Result<usize> {
    let mut checked = 0;
    for id in (0u32..).map(TensorId).take(golden.run.tensors.len()) {
        if let Some(tensor) = golden.run.load(id)? {
            golden.check_tensor(id, &tensor)?;
            checked += 1;
        }
    }
    Ok(checked)
}

/// The names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The error of a call that must not succeed.
pub(crate) fn refusal<T: std::fmt::Debug>(result: goldline::Result<T>) -> String {
    result.unwrap_err().to_string()
}
