//! What the real libraries wrote reads back to equal bits, in the order that the format gives.

use std::collections::BTreeMap;

use goldline::run::{LayerKind, Run, TensorId};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::data;

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Expected {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    sha256: String,
}

fn expected(directory: &str) -> BTreeMap<String, Vec<Expected>> {
    let path = data(directory).join("expected.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn digest(run: &Run, id: TensorId) -> (String, Vec<usize>, String) {
    let tensor = run.load(id).unwrap().expect("a stored tensor");
    let hex = Sha256::digest(tensor.bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    (tensor.dtype().name().to_string(), tensor.shape().to_vec(), hex)
}

/// The first output of each layer, in order.
fn outputs(run: &Run) -> Vec<Expected> {
    let outputs = run.layers.iter().filter_map(|layer| Some((layer.name.clone(), *layer.outputs.first()?)));
    outputs
        .map(|(name, id)| {
            let (dtype, shape, sha256) = digest(run, id);
            Expected { name, dtype, shape, sha256 }
        })
        .collect()
}

#[track_caller]
fn reads_back(directory: &str, least: usize) {
    let runs = expected(directory);
    assert!(runs.len() >= least, "{} runs", runs.len());
    for (path, tensors) in runs {
        let run = Run::open(data(directory).join(&path)).unwrap();
        assert_eq!(outputs(&run), tensors, "{path}");
        assert!(run.meta.complete, "{path}");
    }
}

#[test]
fn numpy_arrays_of_every_dtype_order_and_version() {
    reads_back("numpy", 30);
}

#[test]
fn checkpoints_and_directories_in_natural_order() {
    reads_back("safetensors", 2);
    let run = Run::open(data("safetensors/mixed")).unwrap();
    assert_eq!(run.warnings[0], "1 files that hold no tensors, `README.txt` first: left out");
    assert!(run.warnings[1].contains("natural order"), "{:?}", run.warnings);
}

#[test]
fn run_results_by_their_first_runner_and_iteration() {
    reads_back("polygraphy", 2);
    let run = Run::open(data("polygraphy/several.json")).unwrap();
    let said = "holds the runners `trt-runner` (1 iterations), `onnxrt-runner` (2 iterations): the first iteration of `trt-runner` was read";
    assert_eq!(run.warnings, [said]);
}

#[test]
fn snapshots_in_the_order_of_their_table() {
    reads_back("rknn", 2);
    let run = Run::open(data("rknn/snapshot/golden")).unwrap();
    let ops: Vec<&str> = run.layers.iter().map(|layer| layer.op.name()).collect();
    assert_eq!(ops, ["unrecorded", "conv", "relu", "view"]);
    let error = Run::open(data("rknn/snapshot")).unwrap_err();
    assert!(error.message().contains("name its `golden`, `simulator` or `runtime`"), "{error}");
}

/// Modules with their outputs, as hooks on the same model saw them; between them what nothing recorded.
#[test]
fn debug_trees_in_call_order() {
    let mut runs = expected("transformers");
    let modules = runs.remove("float32").unwrap();
    let run = Run::open(data("transformers/float32")).unwrap();
    let by_name: BTreeMap<String, Expected> =
        outputs(&run).into_iter().map(|output| (output.name.clone(), output)).collect();
    for module in &modules {
        assert_eq!(by_name.get(&module.name), Some(module));
    }
    let layers = run.layers.iter().filter(|layer| layer.kind == LayerKind::Module);
    let recorded: Vec<&str> = layers.map(|layer| layer.name.as_str()).collect();
    let hooked: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(recorded, hooked);
    assert_eq!(run.warnings, Vec::<String>::new(), "the tree is whole");
}

#[test]
fn debug_trees_link_modules_by_equal_content() {
    let run = Run::open(data("transformers/float32")).unwrap();
    let layer = |name: &str| run.layers.iter().find(|layer| layer.name == name).unwrap_or_else(|| panic!("{name}"));
    let made_by = |id: TensorId| run.layer(run.tensor(id).producer.unwrap().0).name.as_str();
    let reads = |name: &str| layer(name).inputs.iter().map(|&id| made_by(id)).collect::<Vec<_>>();
    assert_eq!(reads("BertModel.embeddings.word_embeddings"), ["input_ids"]);
    assert_eq!(reads("BertModel.embeddings.LayerNorm"), ["BertModel.embeddings.before_LayerNorm"]);
    let self_attention = "BertModel.encoder.layer.0.attention.self";
    for name in ["query", "key", "value"] {
        assert_eq!(reads(&format!("{self_attention}.{name}")), ["BertModel.embeddings.dropout"]);
    }
    assert_eq!(reads("BertModel.pooler.activation"), ["BertModel.pooler.dense"]);
    // The sum before the norm comes from all that nothing had read.
    let sum = reads("BertModel.embeddings.before_LayerNorm");
    assert_eq!(sum.len(), 4, "{sum:?}");
}

#[test]
fn printed_trees_keep_what_can_be_judged() {
    let run = Run::open(data("transformers/printed")).unwrap();
    let info = run.tensors.iter().find(|t| t.name == "BertModel.pooler.dense:out").unwrap();
    let stats = info.stats.as_ref().unwrap();
    assert!(info.stored.is_none() && stats.l2.unwrap() > 0.0, "{stats:?}");
    // The norm of what was printed is that of the stored tensor of the same model, to printed precision.
    let whole = Run::open(data("transformers/float16")).unwrap();
    let id = whole.tensors.iter().position(|t| t.name == "BertModel.pooler.dense:out").unwrap();
    let values = whole.load(TensorId(id as u32)).unwrap().unwrap().decode().unwrap();
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!((norm / stats.l2.unwrap() - 1.0).abs() < 2e-3, "{norm} {stats:?}");
}
