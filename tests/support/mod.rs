//! Runs for integration tests: real directories in the native format, built layer by layer.
//!
//! A test describes what a model computes and in which dtype; each layer is computed in f64 from what
//! its inputs hold after rounding, and rounded in turn, as a device would. What is faulty is put in by
//! hand. Each test binary uses its own part of this.
#![allow(dead_code, reason = "every test binary compiles all of it and uses a part")]

pub(crate) mod compute;
pub(crate) mod found;
pub(crate) mod parallel;
pub(crate) mod python;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::path::Path;

use goldline::blacklist::Advice;
use goldline::case::Case;
use goldline::report::model::Report;
use goldline::run::Run;
use goldline::tensor::DType;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub(crate) use value::Values;

/// A run under construction. Tensor ids are `layer:slot`.
#[derive(Clone)]
pub(crate) struct Recorder {
    /// Dtype that layers are rounded to unless they say otherwise.
    pub(crate) dtype: DType,
    manifest: Map<String, Value>,
    layers: Vec<Map<String, Value>>,
    tensors: BTreeMap<String, Values>,
    unstored: Vec<String>,
}

/// A recorded run, opened; its directory goes away with it.
pub(crate) struct Recorded {
    pub(crate) dir: TempDir,
    pub(crate) run: Run,
}

impl Recorded {
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Recorder {
    pub(crate) fn new(dtype: DType) -> Self {
        let manifest = json!({"format": "goldline.run/1", "complete": true});
        let Value::Object(manifest) = manifest else { unreachable!("an object") };
        Self { dtype, manifest, layers: Vec::new(), tensors: BTreeMap::new(), unstored: Vec::new() }
    }

    pub(crate) fn f32() -> Self {
        Self::new(DType::F32)
    }

    /// fp16 under autocast, as the manifest then says.
    pub(crate) fn f16() -> Self {
        Self::new(DType::F16).meta("precision", json!({"compute": "float16", "autocast": true}))
    }

    pub(crate) fn bf16() -> Self {
        Self::new(DType::BF16).meta("precision", json!({"compute": "bfloat16", "autocast": true}))
    }

    /// Sets a key of `run.json`.
    pub(crate) fn meta(mut self, key: &str, value: Value) -> Self {
        self.manifest.insert(key.into(), value);
        self
    }

    /// What a layer's first output holds, after rounding.
    pub(crate) fn value(&self, layer: &str) -> &Values {
        let id = id(layer);
        self.tensors.get(&id).unwrap_or_else(|| panic!("no tensor {id} has been recorded"))
    }

    /// An input, kept in fp32 whatever the run computes in.
    pub(crate) fn input(&mut self, name: &str, values: Values) {
        self.layer(name, "input", &[]).gives(values);
    }

    pub(crate) fn param(&mut self, name: &str, values: Values) {
        self.layer(name, "param", &[]).gives(values);
    }

    /// A layer with everything that can be said of it; [`LayerSpec::gives`] ends it.
    pub(crate) fn layer(&mut self, name: &str, op: &str, inputs: &[&str]) -> LayerSpec<'_> {
        let inputs: Vec<String> = inputs.iter().map(|input| id(input)).collect();
        let line = json!({"name": name, "op": op, "inputs": inputs});
        let Value::Object(line) = line else { unreachable!("an object") };
        LayerSpec { recorder: self, name: name.into(), line }
    }

    /// A layer whose output is `shape` and `values`, rounded to the run's dtype.
    pub(crate) fn op(&mut self, name: &str, op: &str, inputs: &[&str], values: Values) {
        let values = values.to(self.dtype);
        self.layer(name, op, inputs).gives(values);
    }

    /// Changes what a tensor holds after it was recorded; what was computed from it stays as it is.
    pub(crate) fn alter(&mut self, layer: &str, change: impl FnOnce(&mut Vec<f64>)) {
        let values = self.tensors.get_mut(&id(layer)).unwrap_or_else(|| panic!("no tensor of {layer}"));
        change(&mut values.numbers);
        *values = values.clone().to(values.dtype);
    }

    /// Leaves the tensor out of the file; the layer still names it.
    pub(crate) fn forget(&mut self, layer: &str) {
        self.unstored.push(id(layer));
    }

    /// Drops the layers from `name` on, as a run that crashed.
    pub(crate) fn end_before(&mut self, name: &str) {
        let at = self.layers.iter().position(|layer| layer["name"] == name).expect("the layer was recorded");
        self.layers.truncate(at);
    }

    /// Gives every layer another name.
    pub(crate) fn rename(mut self, change: impl Fn(&str) -> String) -> Self {
        for layer in &mut self.layers {
            let name = change(layer["name"].as_str().expect("a name"));
            layer.insert("name".into(), name.into());
        }
        self
    }

    /// Writes the run to a directory of its own and opens it.
    pub(crate) fn open(&self) -> Recorded {
        let dir = tempfile::tempdir().expect("a directory");
        self.write(dir.path());
        let run = Run::open(dir.path()).expect("the run opens");
        Recorded { dir, run }
    }

    /// Writes the run to `dir`, which is made.
    pub(crate) fn write(&self, dir: &Path) {
        std::fs::create_dir_all(dir).expect("a directory");
        let write = |name: &str, content: Vec<u8>| std::fs::write(dir.join(name), content).expect("written");
        write("run.json", Value::from(self.manifest.clone()).to_string().into_bytes());
        let lines: String = self.layers.iter().map(|line| format!("{}\n", Value::from(line.clone()))).collect();
        write("layers.jsonl", lines.into_bytes());
        let bytes: Vec<(&String, Dtype, &Vec<usize>, Vec<u8>)> = self
            .tensors
            .iter()
            .filter(|(name, _)| !self.unstored.contains(name))
            .map(|(name, values)| (name, file_dtype(values.dtype), &values.shape, values.bytes()))
            .collect();
        let views = bytes
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                (name.as_str(), TensorView::new(*dtype, (*shape).clone(), bytes).expect("bytes fit the shape"))
            })
            .collect::<Vec<_>>();
        write("tensors.safetensors", safetensors::serialize(views, None).expect("serialised"));
    }
}

/// The first output of a layer, or a tensor by its id.
fn id(name: &str) -> String {
    let is_id = name.rsplit_once(':').is_some_and(|(_, slot)| slot.bytes().all(|b| b.is_ascii_digit()));
    if is_id { name.into() } else { format!("{name}:0") }
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I8 => Dtype::I8,
        DType::Bool => Dtype::BOOL,
        other => panic!("tests do not write {other}"),
    }
}

/// One line of `layers.jsonl` under construction.
pub(crate) struct LayerSpec<'r> {
    recorder: &'r mut Recorder,
    name: String,
    line: Map<String, Value>,
}

impl LayerSpec<'_> {
    /// Any key of the line: `module`, `pass`, `attrs`, `source`, `call` …
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.line.insert(key.into(), value.into());
        self
    }

    /// One output, in the dtype that the values have.
    pub(crate) fn gives(self, values: Values) {
        self.gives_all([values]);
    }

    /// Several outputs.
    pub(crate) fn gives_all<const N: usize>(mut self, outputs: [Values; N]) {
        // A layer that ran before under this name gets tensors of its own.
        let ran = self.recorder.layers.iter().filter(|layer| layer["name"] == *self.name).count();
        let base = if ran == 0 { self.name.clone() } else { format!("{}#{ran}", self.name) };
        let ids: Vec<String> = (0..N).map(|slot| format!("{base}:{slot}")).collect();
        self.recorder.tensors.extend(ids.iter().cloned().zip(outputs));
        self.line.insert("outputs".into(), ids.into());
        self.recorder.layers.push(self.line);
    }

    /// Outputs that other layers made: what a module hands on from inside.
    pub(crate) fn hands_on(mut self, outputs: &[&str]) {
        let ids: Vec<String> = outputs.iter().map(|output| id(output)).collect();
        self.line.insert("outputs".into(), ids.into());
        self.recorder.layers.push(self.line);
    }
}

/// Verifies without a case, as `diff` does.
pub(crate) fn verify(golden: &Recorder, candidate: &Recorder) -> Report {
    verify_with(golden, candidate, &Case::default_for_diff())
}

/// Verifies under a case; `keys` are the lines of the case file behind its head.
pub(crate) fn verify_case(golden: &Recorder, candidate: &Recorder, keys: &str) -> Report {
    let text = format!("schema: goldline.case/1\nname: tiny\ngolden: golden\n{keys}\n");
    let case = Case::parse(&text, "tiny.yaml").unwrap_or_else(|error| panic!("{error}"));
    verify_with(golden, candidate, &case)
}

pub(crate) fn verify_with(golden: &Recorder, candidate: &Recorder, case: &Case) -> Report {
    let (golden, candidate) = (golden.open(), candidate.open());
    goldline::pipeline::verify(&golden.run, &candidate.run, case, &goldline::judge::Options::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The golden and what is advised against the candidate, for emitters.
pub(crate) fn advise(golden: &Recorder, candidate: &Recorder) -> (Recorded, Advice) {
    let (golden, candidate) = (golden.open(), candidate.open());
    let options = goldline::judge::Options::default();
    let case = Case::default_for_diff();
    let advice = goldline::pairing::pair(&golden.run, &candidate.run, &str::to_string)
        .and_then(|pairing| goldline::judge::judge(&golden.run, &candidate.run, pairing, &case, &options))
        .and_then(|judgement| {
            let diagnosis = goldline::diagnose::diagnose(&golden.run, &candidate.run, &judgement)?;
            goldline::blacklist::advise(&golden.run, &candidate.run, &judgement, &diagnosis)
        });
    (golden, advice.unwrap_or_else(|error| panic!("{error}")))
}
