//! `goldline.run/1` as recorders write it: what opens, what it says, and what is an error.

#[path = "hostile/recording.rs"]
mod recording;

use std::collections::BTreeMap;

use goldline::run::format::write_run;
use goldline::run::{LayerId, LayerKind, Pass, Run, TensorId};
use goldline::tensor::DType;
use recording::{Recording, load_all, safetensors, two_tensors};

fn id(run: &Run, name: &str) -> TensorId {
    let at = run.tensors.iter().position(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name}"));
    TensorId(u32::try_from(at).unwrap())
}

fn with_layers(lines: &str) -> Recording {
    let run = Recording::sound();
    run.write("layers.jsonl", lines);
    run
}

/// One tensor of a single byte, by name.
fn one(name: &str) -> Vec<u8> {
    safetensors(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), &[7])
}

#[test]
fn layers_tensors_and_edges_are_connected() {
    let recording = Recording::sound();
    let run = recording.open().unwrap();
    assert!(run.meta.complete);
    let (x, y) = (id(&run, "x"), id(&run, "y"));
    assert_eq!((x, y), (TensorId(0), TensorId(1)), "in order of first appearance");
    assert_eq!(run.tensor(x).producer, Some((LayerId(0), 0)));
    assert_eq!(run.tensor(x).consumers, [(LayerId(1), 0)]);
    assert_eq!(run.layer(LayerId(1)).inputs, [x]);
    assert_eq!(run.dtype_and_shape(y), Some((DType::F32, &[2usize][..])));
    assert_eq!(run.load(x).unwrap().unwrap().decode(), Some(vec![1.0, -1.0]));
    assert_eq!(run.ancestors(LayerId(1)), [LayerId(0)]);
    assert_eq!(run.terminal_tensors(), [y]);
}

#[test]
fn every_key_of_a_layer_is_kept() {
    let run = with_layers(concat!(
        r#"{"name":"s","op":"softmax","kind":"module","pass":"backward","call":3,"inputs":["x"],"#,
        r#""input_names":["self"],"outputs":["y"],"attrs":{"dim":-1,"scale":"-inf","none":null},"#,
        r#""schema":"aten::_softmax","module":"m","source":"model.py:31","compute":"float16","#,
        r#""accumulate":"float32","device":"npu:0","grad_of":"w","unknown":[1]}"#,
    ));
    let run = run.open().unwrap();
    let layer = run.layer(LayerId(0));
    assert_eq!((layer.kind, layer.pass, layer.call), (LayerKind::Module, Pass::Backward, 3));
    assert_eq!(layer.input("self"), Some(id(&run, "x")));
    assert_eq!(layer.attr_i64("dim"), Some(-1));
    let attrs = layer.attrs.as_ref().unwrap();
    assert_eq!(attrs["scale"], "-inf", "infinities stay the strings they are recorded as");
    assert!(attrs["none"].is_null());
    assert_eq!((layer.compute, layer.accumulate), (Some(DType::F16), Some(DType::F32)));
    let texts = [&layer.schema, &layer.module, &layer.source, &layer.device, &layer.grad_of];
    assert_eq!(texts.map(|t| t.as_deref().unwrap()), ["aten::_softmax", "m", "model.py:31", "npu:0", "w"]);
}

#[test]
fn calls_that_are_not_recorded_are_counted_per_name_and_pass() {
    let lines = r#"{"name":"a","op":"x","outputs":[]}
{"name":"a","op":"x","outputs":[],"pass":"backward"}
{"name":"b","op":"x","outputs":[]}

{"name":"a","op":"x","outputs":[]}
"#;
    let run = with_layers(lines).open().unwrap();
    assert_eq!(run.layers.iter().map(|l| l.call).collect::<Vec<_>>(), [0, 0, 0, 1]);
    assert_eq!(run.layers.iter().map(|l| l.shares_name).collect::<Vec<_>>(), [true, false, false, true]);
    assert_eq!(run.display_name(LayerId(3)), "a#1");
    assert_eq!(run.display_name(LayerId(1)), "a");
}

#[test]
fn bad_layer_lines_name_line_and_trouble() {
    let sound = r#"{"name":"a","op":"x","outputs":[]}"#;
    let cases = [
        (r#"{"name":"b","outputs":[]}"#, "missing field `op` (column 25)"),
        (r#"{"op":"b","outputs":[]}"#, "missing field `name` (column 23)"),
        (r#"{"name":"b","op":"x"}"#, "missing field `outputs` (column 21)"),
        (
            r#"{"name":"b","op":"x","outputs":[],"pass":"sideways"}"#,
            "unknown variant `sideways`, expected one of `forward`, `backward`, `optimizer` (column 51)",
        ),
        (r#"{"name":"b","op":"x","outputs":[],"call":-1}"#, "invalid value: integer `-1`, expected u32 (column 43)"),
        (
            r#"{"name":"b","op":"x","outputs":[],"inputs":["t","u"],"input_names":["self"]}"#,
            "expected as many input_names as inputs (2), found 1",
        ),
        (
            r#"{"name":"a","op":"x","outputs":[],"call":0}"#,
            "layer `a` (forward, call 0) was already recorded in line 1: expected each name, pass and call once",
        ),
        ("not json", "expected a JSON object, found something else"),
        (r#"["b","x",[]]"#, "expected a JSON object, found a JSON array"),
        (r#"{"name":"b","op":"x","outputs":[]} {}"#, "trailing characters (column 36)"),
    ];
    for (line, expected) in cases {
        let text = with_layers(&format!("{sound}\n{line}\n{sound}\n")).refusal();
        assert_eq!(text, format!("layers.jsonl: line 2: {expected}"));
    }
}

#[test]
fn a_torn_last_line_is_left_out_with_a_warning() {
    let sound = r#"{"name":"a","op":"x","outputs":["x"]}"#;
    for torn in ["{", r#"{"name":"b","op"#, "{\"name\":\"\u{fc}", r#"{"name":5,"op":"#, "[{", "nul"] {
        let run = with_layers(&format!("{sound}\n{torn}")).open().unwrap();
        assert_eq!(run.layers.len(), 1);
        assert!(run.warnings[0].starts_with("layers.jsonl: line 2 is torn"), "{:?}", run.warnings);
        // With its newline it is no torn line but a bad one.
        let text = with_layers(&format!("{sound}\n{torn}\n")).refusal();
        assert!(text.starts_with("layers.jsonl: line 2: "), "{text}");
    }
    assert_eq!(with_layers(&format!("{sound}\n{sound}")).open().unwrap().layers.len(), 2, "whole, without newline");
    assert_eq!(with_layers("{").refusal(), "layers.jsonl: expected at least one layer, found only a torn one");
    assert_eq!(with_layers("").refusal(), "layers.jsonl: expected at least one layer, found none");
}

#[test]
fn a_byte_order_mark_and_carriage_returns_are_tolerated() {
    let run = with_layers("\u{feff}{\"name\":\"a\",\"op\":\"x\",\"outputs\":[\"x\"]}\r\n\r\n");
    run.write("run.json", "\u{feff}{\"format\":\"goldline.run/1\"}");
    run.write("stats.jsonl", "\u{feff}{\"tensor\":\"x\"}\n");
    assert_eq!(run.open().unwrap().layers[0].name, "a");
}

#[test]
fn what_is_missing_is_named() {
    let run = Recording::sound();
    run.remove("layers.jsonl");
    assert_eq!(run.refusal(), "RUN: expected `layers.jsonl` (its layers), found no such file");
    run.write("layers.jsonl", "");
    run.remove("run.json");
    assert_eq!(run.refusal(), "RUN: expected `run.json` (what the run was), found no such file");
    run.remove("layers.jsonl");
    let expected = "RUN: expected a run directory (run.json, layers.jsonl, tensors.safetensors), an msprobe dump, a file of tensors (.npy, .npz, .pt, .safetensors) or a directory of such files, a Hugging Face debug tree, Polygraphy RunResults or a run of an RKNN snapshot, found a directory with tensors.safetensors";
    assert_eq!(run.refusal(), expected);
    run.remove("tensors.safetensors");
    assert!(run.refusal().ends_with("found an empty directory"));

    let nowhere = Run::open("/nonexistent\u{1b}run").unwrap_err().to_string();
    assert_eq!(nowhere, "/nonexistent\\u{1b}run: cannot open: no such file or directory");
    run.write("page", "<html>");
    assert!(Run::open(run.file("page")).unwrap_err().message().ends_with("found an HTML page"));
    run.write("model", "GGUF");
    assert!(Run::open(run.file("model")).unwrap_err().message().ends_with("found a GGUF model"));
    run.write("model", two_tensors());
    assert_eq!(Run::open(run.file("model")).unwrap().layers.len(), 2);
}

#[test]
fn tensors_that_are_not_stored_are_no_error() {
    let run = Recording::sound();
    run.remove("tensors.safetensors");
    run.write(
        "stats.jsonl",
        "{\"tensor\":\"y\",\"dtype\":\"bfloat16\",\"shape\":[4,2],\"min\":-1.5,\"max\":3,\"mean\":null,\"l2\":\"inf\",\"nan\":2,\
         \"inf\":0,\"digest\":\"blake3:00\",\"alias_of\":\"x\",\"slice\":[0,1]}\n\
         {\"tensor\":\"stranger\"}\n{\"tensor\":",
    );
    let run = run.open().unwrap();
    assert_eq!(load_all(&run).unwrap(), 0);
    let y = id(&run, "y");
    assert_eq!(run.dtype_and_shape(y), Some((DType::BF16, &[4usize, 2][..])));
    let stats = run.tensor(y).stats.clone().unwrap();
    assert_eq!((stats.min, stats.max, stats.mean, stats.l2), (Some(-1.5), Some(3.0), None, None));
    assert_eq!((stats.nan, stats.inf, stats.alias_of.as_deref()), (Some(2), Some(0), Some("x")));
    assert_eq!(run.dtype_and_shape(id(&run, "x")), None);
    let warned = |text: &str| run.warnings.iter().any(|w| w.contains(text));
    assert!(warned("line 3 is torn") && warned("1 lines of statistics") && warned("no tensor was stored"));
}

#[test]
fn statistics_that_contradict_the_stored_tensor_are_a_warning() {
    let recording = Recording::sound();
    let with = |line: &str| {
        recording.write("stats.jsonl", line);
        recording.open().unwrap().warnings
    };
    let expected = ["statistics of 1 tensors give another dtype or shape than was stored, `x` first"];
    assert_eq!(with("{\"tensor\":\"x\",\"dtype\":\"float16\",\"shape\":[2]}\n"), expected);
    assert_eq!(with("{\"tensor\":\"x\",\"dtype\":\"float32\",\"shape\":[9]}\n"), expected);
    assert!(with("{\"tensor\":\"x\",\"shape\":[9],\"slice\":[0,2]}\n").is_empty(), "only some rows were stored");
    assert!(with("{\"tensor\":\"x\",\"dtype\":\"float32\",\"shape\":[2]}\n").is_empty());
}

#[test]
fn bad_statistics_name_line_and_trouble() {
    let run = Recording::sound();
    run.write("stats.jsonl", "{\"tensor\":\"x\"}\n{\"tensor\":\"x\"}\n");
    let expected = "stats.jsonl: line 2: tensor `x` already has statistics in line 1: expected each tensor once";
    assert_eq!(run.refusal(), expected);
    run.write("stats.jsonl", "{\"tensor\":\"x\",\"min\":\"low\"}\n");
    assert!(run.refusal().starts_with("stats.jsonl: line 1: invalid value: string \"low\", expected a number"));
}

#[test]
fn stored_tensors_that_no_layer_names_are_counted() {
    let run = with_layers("{\"name\":\"a\",\"op\":\"x\",\"outputs\":[\"none\"]}\n").open().unwrap();
    let names: Vec<&str> = run.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["none", "x", "y"]);
    assert_eq!(run.warnings, ["2 stored tensors that no layer names, `x` first"]);
}

#[test]
fn dtypes_that_are_not_known_are_one_warning_each() {
    let line = |name: &str| format!("{{\"name\":\"{name}\",\"op\":\"x\",\"outputs\":[],\"compute\":\"hf32\"}}\n");
    let run = with_layers(&(line("a") + &line("b"))).open().unwrap();
    assert_eq!(run.warnings[0], "layers.jsonl: line 1: compute `hf32` is no known dtype (2 layers say so)");
}

#[test]
fn shards_are_found_with_and_without_an_index() {
    for names in [
        ["tensors-00001.safetensors", "tensors-00002.safetensors"],
        ["tensors-00001-of-00002.safetensors", "tensors-00002-of-00002.safetensors"],
        ["first.safetensors", "second.safetensors"],
    ] {
        let run = Recording::sound();
        run.remove("tensors.safetensors");
        run.write(names[0], one("x"));
        run.write(names[1], one("y"));
        let indexed = names[0].starts_with("first");
        for index in [false, true] {
            if index {
                let map = format!(r#"{{"metadata":{{}},"weight_map":{{"x":"{}","y":"{}"}}}}"#, names[0], names[1]);
                run.write("tensors.safetensors.index.json", map);
            }
            let opened = run.open().unwrap();
            assert_eq!(load_all(&opened).unwrap(), if index || !indexed { 2 } else { 0 }, "{names:?}");
        }
    }
}

#[test]
fn shards_that_contradict_each_other_or_the_index_are_refused() {
    let run = Recording::sound();
    run.write("tensors-00001.safetensors", one("y"));
    let text = run.refusal();
    assert!(text.ends_with("tensor `y` also lies in `tensors.safetensors`: expected each tensor once"), "{text}");

    let index = |map: &str| run.write("tensors.safetensors.index.json", format!("{{\"weight_map\":{map}}}"));
    index(r#"{"x":"tensors.safetensors","y":"tensors.safetensors"}"#);
    let left_out =
        "1 tensor files that tensors.safetensors.index.json does not name, `tensors-00001.safetensors` first: left out";
    assert_eq!(run.open().unwrap().warnings, [left_out]);
    index(r#"{"x":"tensors.safetensors"}"#);
    assert!(run.open().unwrap().warnings.iter().any(|w| w.starts_with("1 stored tensors that")));
    index(r#"{"x":"tensors.safetensors","z":"tensors.safetensors"}"#);
    let expected = "tensors.safetensors.index.json: expected tensor `z` in `tensors.safetensors`, found it nowhere";
    assert_eq!(run.refusal(), expected);
    index(r#"{"x":"tensors-00009.safetensors"}"#);
    let expected =
        "tensors.safetensors.index.json: tensor `x` is said to lie in `tensors-00009.safetensors`, which is missing";
    assert_eq!(run.refusal(), expected);

    let run = Recording::sound();
    run.write("tensors-00001-of-00002.safetensors", one("z"));
    assert_eq!(run.refusal(), "RUN: shard 2 of 2 is missing");
}

/// A file with a tensor of every dtype, one of 0 dimensions and two empty ones.
fn every_dtype() -> (Vec<u8>, Vec<String>) {
    let (mut header, mut data, mut names) = (String::from("{\"__metadata__\":{\"format\":\"pt\"}"), Vec::new(), vec![]);
    let mut add = |name: &str, dtype: DType, shape: &[usize]| {
        let len = dtype.byte_len(shape.iter().product()).unwrap();
        let begin = data.len();
        data.extend((0..len).map(|at| (at * 37 + begin) as u8));
        let (dtype, end) = (dtype.safetensors_name(), data.len());
        header += &format!(r#","{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#);
        names.push(name.to_string());
    };
    for dtype in DType::all() {
        add(&format!("t.{dtype}"), dtype, &[2, 4]);
    }
    add("scalar", DType::F32, &[]);
    add("empty", DType::F16, &[3, 0]);
    add("void", DType::I64, &[0]);
    (safetensors(&(header + "}"), &data), names)
}

#[test]
fn every_dtype_0_d_and_empty_tensors_load() {
    let (file, names) = every_dtype();
    let outputs = names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(",");
    let run = with_layers(&format!("{{\"name\":\"a\",\"op\":\"x\",\"outputs\":[{outputs}]}}\n"));
    run.write("tensors.safetensors", file);
    let run = run.open().unwrap();
    for dtype in DType::all() {
        let tensor = run.load(id(&run, &format!("t.{dtype}"))).unwrap().unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &[2usize, 4][..]));
        assert_eq!(tensor.decode().map(|v| v.len()), dtype.decodes().then_some(8 * dtype.components()));
    }
    let load = |name| run.load(id(&run, name)).unwrap().unwrap();
    assert_eq!((load("scalar").len(), load("empty").shape().to_vec(), load("void").is_empty()), (1, vec![3, 0], true));
}

#[test]
fn a_written_run_reads_back_equal() {
    let (file, names) = every_dtype();
    let lines: String = names
        .iter()
        .take(20)
        .map(|name| {
            format!(
                "{{\"name\":\"layer \\u001b\",\"op\":\"Softmax\",\"inputs\":[\"absent\",\"{name}\"],\"input_names\":[\"a\",\"b\"],\
                 \"outputs\":[\"{name}\",\"y.{name}\"],\"pass\":\"optimizer\",\"attrs\":{{\"eps\":1e-5,\"x\":[true,null,-3]}},\
                 \"schema\":\"s\",\"module\":\"\",\"source\":\"f:1\",\"compute\":\"bfloat16\",\"device\":\"d\",\"grad_of\":\"g\"}}\n"
            )
        })
        .collect();
    let recording = with_layers(&lines);
    recording.write("tensors.safetensors", file);
    recording.write(
        "run.json",
        r#"{"format":"goldline.run/1","name":"n","created":"2026-01-01T00:00:00Z","seed":-5,"step":1,"rank":2,"world_size":4,
            "inputs_digest":"sha256:00","precision":{"compute":"float16","autocast":true,"fp32_ops":["pow"]},
            "environment":{"device":"npu","flags":{"tf32":false,"deep":{"a":[1]}}},"complete":true}"#,
    );
    recording
        .write("stats.jsonl", "{\"tensor\":\"absent\",\"min\":0.5,\"samples\":[1,2],\"slice\":{\"rows\":[0,2]}}\n");
    let run = recording.open().unwrap();

    let target = tempfile::tempdir().unwrap();
    let out = target.path().join("deep/er/out");
    let mut seen = BTreeMap::new();
    write_run(&run, &out, |id, tensor| assert!(seen.insert(id, tensor.clone()).is_none())).unwrap();
    let again = Run::open(&out).unwrap();
    assert_eq!(again.meta, run.meta);
    assert_eq!(again.layers, run.layers);
    assert_eq!(again.warnings, run.warnings);
    assert_eq!(again.tensors.len(), run.tensors.len());
    for (at, (new, old)) in again.tensors.iter().zip(&run.tensors).enumerate() {
        let id = TensorId(u32::try_from(at).unwrap());
        assert_eq!((&new.name, &new.stats, &new.producer), (&old.name, &old.stats, &old.producer));
        assert_eq!(new.consumers, old.consumers);
        let (loaded, original) = (again.load(id).unwrap(), run.load(id).unwrap());
        assert_eq!(loaded, original, "{}", new.name);
        assert_eq!(seen.get(&id), original.as_ref(), "{}", new.name);
        if let Some(stored) = &new.stored {
            let width = u64::from(stored.dtype.bits() / 8).max(1);
            assert!(stored.offset.is_multiple_of(width), "{} lies at a multiple of its width", new.name);
        }
    }
    // What was written is as good a source: the same files come out again, byte for byte.
    let third = target.path().join("third");
    write_run(&again, &third, |_, _| {}).unwrap();
    for name in ["run.json", "layers.jsonl", "stats.jsonl", "tensors.safetensors"] {
        assert!(std::fs::read(out.join(name)).unwrap() == std::fs::read(third.join(name)).unwrap(), "{name}");
    }
    let bytes = std::fs::read(out.join("tensors.safetensors")).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), names.len());
}

#[test]
fn a_tree_of_steps_and_ranks_is_found_and_named() {
    let tree = tempfile::tempdir().unwrap();
    for name in ["step1/rank0", "step1/rank1"] {
        let source = Recording::sound();
        write_run(&source.open().unwrap(), &tree.path().join(name), |_, _| {}).unwrap();
    }
    let found = Run::discover(tree.path()).unwrap();
    assert_eq!(found.iter().map(|f| (f.0, f.1)).collect::<Vec<_>>(), [(Some(1), Some(0)), (Some(1), Some(1))]);
    assert!(found.iter().all(|f| Run::open(&f.2).is_ok()));
    let error = Run::open(tree.path()).unwrap_err();
    assert!(error.message().ends_with("several runs below it (step1 …): name one of them"), "{error}");
}
