//! A residual network that computes, recorded as a run: every tensor can be altered as it is made
//! (and the alteration flows on) or as it is stored (and nothing else notices).

use std::path::Path;

use goldline::run::Run;
use serde_json::{Value, json};

/// Rows and columns of every activation.
const ROWS: usize = 4;
const WIDTH: usize = 8;

/// Changes the values of the tensor with this name.
pub(crate) type Alter<'a> = &'a dyn Fn(&str, &mut [f32]);

/// Leaves everything as it is.
pub(crate) fn nothing(_: &str, _: &mut [f32]) {}

/// What the network looks like and what goes wrong in it.
pub(crate) struct Net<'a> {
    pub(crate) blocks: usize,
    /// Applied to what a layer makes.
    pub(crate) made: Alter<'a>,
    /// Applied to what is stored.
    pub(crate) stored: Alter<'a>,
    /// Appends a backward pass: a gradient that flows back through the blocks.
    pub(crate) backward: bool,
    /// Leaves the inputs of layers out.
    pub(crate) without_flow: bool,
    /// A layer behind which another one is inserted that passes on 1.5 times what it reads.
    pub(crate) inserted_after: Option<&'a str>,
    /// The first layer that is not written, nor is what follows.
    pub(crate) ends_before: Option<&'a str>,
}

impl Default for Net<'_> {
    fn default() -> Self {
        Self {
            blocks: 40,
            made: &nothing,
            stored: &nothing,
            backward: false,
            without_flow: false,
            inserted_after: None,
            ends_before: None,
        }
    }
}

struct Recorder<'a, 'n> {
    net: &'a Net<'n>,
    layers: Vec<Value>,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
    ended: bool,
}

impl Recorder<'_, '_> {
    fn layer(
        &mut self,
        name: &str,
        op: &str,
        pass: &str,
        inputs: &[&str],
        shape: &[usize],
        mut v: Vec<f32>,
    ) -> Vec<f32> {
        (self.net.made)(name, &mut v);
        self.ended |= self.net.ends_before == Some(name);
        if self.ended {
            return v;
        }
        let mut stored = v.clone();
        (self.net.stored)(name, &mut stored);
        let inputs = if self.net.without_flow { &[][..] } else { inputs };
        self.layers.push(json!({"name": name, "op": op, "pass": pass, "inputs": inputs, "outputs": [name]}));
        self.tensors.push((name.into(), shape.to_vec(), stored));
        v
    }
}

/// Values in -1..1 that follow from `seed` alone.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn linear(x: &[f32], w: &[f32]) -> Vec<f32> {
    let row = |r: usize, c: usize| (0..WIDTH).map(|k| x[r * WIDTH + k] * w[c * WIDTH + k]).sum::<f32>();
    (0..ROWS * WIDTH).map(|at| row(at / WIDTH, at % WIDTH)).collect()
}

fn zip(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

/// Runs the network, records it at `dir` and opens the run.
pub(crate) fn record(dir: &Path, net: &Net<'_>) -> Run {
    let shape = [ROWS, WIDTH];
    let mut r = Recorder { net, layers: Vec::new(), tensors: Vec::new(), ended: false };
    let x = r.layer("x", "input", "forward", &[], &shape, noise(1, ROWS * WIDTH));
    let mask =
        r.layer("mask", "sigmoid", "forward", &["x"], &shape, x.iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect());
    let mut h = r.layer("embed", "tanh", "forward", &["x"], &shape, x.iter().map(|v| v.tanh()).collect());
    let mut before = "embed".to_string();
    let mut weights = Vec::new();
    for k in 0..net.blocks {
        let [w, l, m, a] = ["weight", "linear", "mul", "add"].map(|part| format!("blocks.{k}.{part}"));
        let weight: Vec<f32> = noise(100 + k as u64, WIDTH * WIDTH).iter().map(|v| v * 0.3).collect();
        let weight = r.layer(&w, "param", "forward", &[], &[WIDTH, WIDTH], weight);
        let y = r.layer(&l, "linear", "forward", &[&before, &w], &shape, linear(&h, &weight));
        let y = r.layer(&m, "mul", "forward", &[&l, "mask"], &shape, zip(&y, &mask, |a, b| a * b));
        let (y, m) = if net.inserted_after == Some(&m) {
            let extra = format!("{m}.extra");
            (r.layer(&extra, "exp", "forward", &[&m], &shape, y.iter().map(|v| v * 1.5).collect()), extra)
        } else {
            (y, m)
        };
        h = r.layer(&a, "add", "forward", &[&before, &m], &shape, zip(&h, &y, |a, b| a + b));
        before = a;
        weights.push((w, weight));
    }
    let _ = r.layer("head", "tanh", "forward", &[&before], &shape, h.iter().map(|v| (v * 0.1).tanh()).collect());
    if net.backward {
        let mut g =
            r.layer("head.grad", "mul", "backward", &["head", "head"], &shape, zip(&h, &h, |a, b| 0.01 * a * b));
        let mut from = "head.grad".to_string();
        for (k, (w, weight)) in weights.iter().enumerate().rev() {
            let name = format!("blocks.{k}.grad");
            g = r.layer(&name, "linear", "backward", &[&from, w], &shape, linear(&g, weight));
            from = name;
        }
    }
    write(dir, &r);
    Run::open(dir).unwrap()
}

fn write(dir: &Path, recorder: &Recorder<'_, '_>) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("run.json"), r#"{"format":"goldline.run/1","complete":true}"#).unwrap();
    let lines: String = recorder.layers.iter().map(|layer| format!("{layer}\n")).collect();
    std::fs::write(dir.join("layers.jsonl"), lines).unwrap();
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in &recorder.tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(data);
    std::fs::write(dir.join("tensors.safetensors"), bytes).unwrap();
}
