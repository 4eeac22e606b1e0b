//! Dumps as a whole: a real one, cut down to a few calls, and ones that mean harm.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::run::{LayerKind, Pass, Run};
use crate::tensor::DType;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/msprobe").join(name)
}

/// A layer in words: `op(argument=tensor, …) -> tensors`, attributes where they are known.
fn said(run: &Run, name: &str) -> String {
    let layer = run.layers.iter().find(|layer| layer.name == name).unwrap_or_else(|| panic!("no layer {name}"));
    let inputs: Vec<String> = layer
        .inputs
        .iter()
        .enumerate()
        .map(|(at, &id)| {
            let tensor = run.tensor(id).name.as_str();
            layer.input_names.as_ref().map_or(tensor.to_string(), |names| format!("{}={tensor}", names[at]))
        })
        .collect();
    let outputs: Vec<&str> = layer.outputs.iter().map(|&id| run.tensor(id).name.as_str()).collect();
    let attrs = layer.attrs.as_ref().map_or(String::new(), |attrs| format!(" {}", json!(attrs)));
    let function = layer.schema.as_deref().unwrap_or(&layer.op_name);
    format!("{function}({}) -> {}{attrs}", inputs.join(", "), outputs.join(", "))
}

#[test]
fn a_real_dump_reads_as_layers_with_arguments_edges_and_sources() {
    let run = Run::open(data("golden")).unwrap();
    assert_eq!(run.warnings, Vec::<String>::new());
    assert_eq!((run.meta.format.as_str(), run.meta.step, run.meta.compute), ("msprobe", Some(0), Some(DType::F32)));
    assert_eq!((run.meta.autocast, run.meta.complete), (Some(false), true));
    let gelu = "Functional.gelu.1.forward";
    assert_eq!(said(&run, gelu), format!(r#"gelu(self={gelu}.input.0) -> {gelu}.output.0 {{"approximate":"none"}}"#));
    let module = "Module.encoder.layer.1.intermediate.intermediate_act_fn.GELUActivation.forward.0";
    assert_eq!(said(&run, module), format!("GELUActivation({gelu}.input.0) -> {gelu}.output.0"));
    assert_eq!(
        said(&run, "Functional.gelu.1.backward"),
        format!(
            r#"gelu_backward(grad_output=Functional.gelu.1.backward.input.0, self={gelu}.input.0) -> Functional.gelu.1.backward.output.0 {{"approximate":"none"}}"#
        )
    );
    let parameters = "Module.pooler.dense.Linear.forward.0.parameters";
    assert_eq!(
        said(&run, "Functional.linear.18.forward"),
        format!(
            "linear(input=Functional.linear.18.forward.input.0, weight={parameters}.weight, bias={parameters}.bias) -> Functional.linear.18.forward.output.0 {{}}"
        )
    );
    assert_eq!(said(&run, "pooler.dense.weight"), format!("param() -> {parameters}.weight"));
    assert_eq!(
        said(&run, "Tensor.__truediv__.0.backward"),
        r#"div_backward(grad_output=Tensor.__truediv__.0.backward.input.0, self=Tensor.__truediv__.0.forward.input.0) -> Tensor.__truediv__.0.backward.output.0 {"other":2,"output_mask":[true,false],"rounding_mode":null}"#
            .replace(r#","rounding_mode":null"#, "")
    );
    assert_eq!(said(&run, "Torch.where.0.forward").split_once(" {").unwrap().1, r#""other":-3.4028234663852886e+38}"#);
    let layer = run.layers.iter().find(|layer| layer.name == gelu).unwrap();
    assert_eq!(layer.module.as_deref(), Some("encoder.layer.1.intermediate.intermediate_act_fn"));
    assert!(layer.source.as_deref().unwrap().contains("activations.py:"), "{:?}", layer.source);
    let output = run.load(layer.outputs[0]).unwrap().unwrap();
    assert_eq!((output.dtype(), output.shape()), (DType::F32, &[2, 10, 96][..]));
    let backward = run.layers.iter().find(|layer| layer.name == "Functional.gelu.1.backward").unwrap();
    assert_eq!((backward.pass, backward.kind), (Pass::Backward, LayerKind::Operator));
}

#[test]
fn a_dump_of_statistics_has_the_same_layers_and_no_tensors() {
    let (run, whole) = (Run::open(data("golden_statistics")).unwrap(), Run::open(data("golden")).unwrap());
    let names = |run: &Run| -> Vec<String> {
        run.layers.iter().map(|l| l.name.clone()).filter(|name| name.contains("ward")).collect()
    };
    let recorded =
        |names: Vec<String>| -> Vec<String> { names.into_iter().filter(|name| !name.contains(".input.")).collect() };
    assert_eq!(recorded(names(&run)), recorded(names(&whole)));
    assert!(run.tensors.iter().all(|tensor| tensor.stored.is_none()));
    let gelu = run.layers.iter().find(|layer| layer.name == "Functional.gelu.1.forward").unwrap();
    let stats = run.tensor(gelu.outputs[0]).stats.as_ref().unwrap();
    assert_eq!((stats.dtype, stats.shape.as_deref()), (Some(DType::F32), Some(&[2, 10, 96][..])));
    assert!(stats.l2.unwrap() > 0.0 && stats.nan == Some(0));
}

/// A dump with these calls, in a directory of its own.
fn dump(data: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let whole = json!({"task": "tensor", "framework": "pytorch", "data": data});
    std::fs::write(dir.path().join("dump.json"), whole.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("dump_tensor_data")).unwrap();
    dir
}

fn tensor(name: &str) -> Value {
    json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 2.0, "Min": 1.0, "Mean": 1.5,
        "Norm": 2.2, "data_name": name})
}

/// A `.npy` of two floats.
fn npy() -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend([1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

#[test]
fn names_that_leave_the_dump_are_not_followed() {
    let names = ["../dump.json", "/etc/hostname", "a/../../dump.json", "..", "", "c:\\x.pt", "missing.pt", "sub"];
    let calls: serde_json::Map<String, Value> = (0..)
        .zip(names)
        .map(|(at, name)| (format!("Torch.exp.{at}.forward"), json!({"output": [tensor(name)]})))
        .collect();
    let dir = dump(&calls.into());
    std::fs::create_dir(dir.path().join("dump_tensor_data/sub")).unwrap();
    let run = Run::open(dir.path()).unwrap();
    assert!(run.files.is_empty() && run.tensors.iter().all(|tensor| tensor.stored.is_none()));
    let warnings = run.warnings.join("\n");
    for (count, reason) in
        [(6, "found a path"), (1, "the file is missing"), (1, "expected a file, found something else")]
    {
        assert!(
            run.warnings.iter().any(|w| w.starts_with(&format!("{count} tensors")) && w.ends_with(reason))
                || warnings.contains(reason),
            "{warnings}"
        );
    }
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("x.npy"), npy()).unwrap();
    let call = json!({"Torch.exp.0.forward": {"output": [tensor("x.npy")]}});
    let dir = dump(&call);
    std::os::unix::fs::symlink(outside.path().join("x.npy"), dir.path().join("dump_tensor_data/x.npy")).unwrap();
    assert!(Run::open(dir.path()).unwrap().files.is_empty());
    let dir = dump(&call);
    std::fs::remove_dir(dir.path().join("dump_tensor_data")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("dump_tensor_data")).unwrap();
    assert!(Run::open(dir.path()).unwrap().files.is_empty());
    std::fs::remove_file(dir.path().join("dump_tensor_data")).unwrap();
    std::fs::create_dir(dir.path().join("dump_tensor_data")).unwrap();
    std::fs::write(dir.path().join("dump_tensor_data/x.npy"), npy()).unwrap();
    assert_eq!(Run::open(dir.path()).unwrap().files.len(), 1);
}

#[test]
fn mindspore_dumps_read_and_equal_arrays_are_one_tensor() {
    let of = |name: &str| {
        json!({"type": "mindspore.Tensor", "dtype": "Float32", "shape": [2], "Max": 2.0,
        "Min": 1.0, "Mean": 1.5, "Norm": 2.2, "data_name": name})
    };
    let dir = tempfile::tempdir().unwrap();
    let calls = json!({
        "Mint.exp.0.forward": {"input_args": [of("a.npy")], "input_kwargs": {}, "output": [of("b.npy")]},
        "Primitive.net.act.Tanh.0.forward": {"input": [of("c.npy")], "output": [of("d.npy")]},
        "Cell.net.act.Tanh.forward.0": {"input_args": [of("c.npy")], "output": [of("d.npy")]},
    });
    let whole = json!({"task": "tensor", "framework": "mindspore", "data": calls});
    std::fs::write(dir.path().join("dump.json"), whole.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("dump_tensor_data")).unwrap();
    for name in ["a", "b", "c", "d"] {
        std::fs::write(dir.path().join(format!("dump_tensor_data/{name}.npy")), npy()).unwrap();
    }
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.tensors.len(), 1, "all hold the same two numbers and hand them on");
    assert_eq!(
        said(&run, "Primitive.net.act.Tanh.0.forward"),
        "tanh(self=Cell.net.act.Tanh.forward.0.input.0) -> Cell.net.act.Tanh.forward.0.input.0 {}"
    );
    let layer = run.layers.iter().find(|layer| layer.name.starts_with("Primitive")).unwrap();
    assert_eq!((layer.module.as_deref(), layer.op.name()), (Some("net.act"), "tanh"));
}

#[test]
fn a_key_that_occurs_twice_and_arguments_recorded_after_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let call = json!({"input_args": [tensor("-1"), {"type": "float", "value": 1.0}], "output": [tensor("-1")]});
    let text = format!(r#"{{"data": {{"Tensor.add_.0.forward": {call}, "Tensor.add_.0.forward": {call}}}}}"#);
    std::fs::write(dir.path().join("dump.json"), text).unwrap();
    let run = Run::open(dir.path().join("dump.json")).unwrap();
    assert_eq!(run.layers.iter().map(|layer| layer.call).collect::<Vec<_>>(), [0, 1]);
    assert!(run.layers.iter().all(|layer| layer.inputs.is_empty()), "what was added to is not known");
}

#[test]
fn what_is_no_dump_is_refused_in_one_line() {
    let refusal = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dump.json"), text).unwrap();
        Run::open(dir.path()).unwrap_err().to_string()
    };
    assert!(refusal("").contains("dump.json: line 1: unexpected end"));
    assert!(refusal(r#"{"data": {}}"#).ends_with("expected at least one recorded call below `data`, found none"));
    assert!(refusal("{\"data\": {\"a\":\n 1}}").contains("line 2: invalid type: integer `1`"));
}

proptest! {
    /// Any bytes give a run or one line, and a run is what the rest of the program may rely on.
    #[test]
    fn any_change_of_a_dump_is_read_or_refused(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), end in any::<prop::sample::Index>(),
    ) {
        let mut text = std::fs::read(data("golden_statistics/step0/proc41/dump.json")).unwrap();
        for (at, byte) in &cuts {
            let at = at.index(text.len());
            text[at] = *byte;
        }
        if cuts.len() == 5 {
            text.truncate(end.index(text.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dump.json"), &text).unwrap();
        match Run::open(dir.path()) {
            Ok(run) => {
                for layer in &run.layers {
                    prop_assert!(layer.inputs.iter().chain(&layer.outputs).all(|id| (id.0 as usize) < run.tensors.len()));
                }
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
