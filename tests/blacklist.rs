//! The blacklist as files for frameworks, from evidence in real run directories.

mod support;

use goldline::blacklist::emit::{EmitOptions, EmitOutput, Format, emit};
use goldline::blacklist::{Advice, Entry, Reason};
use serde_json::{Value, json};
use support::{Recorded, Recorder, Values, advise, python};

/// A block whose FFN overflows fp16 between `square` and the norm behind the residual add.
fn block(mut run: Recorder, norm: &str, adds: usize) -> Recorder {
    run.input("x", Values::noise(&[4, 8], 1).map(|v| v * 3e3));
    run.param("block.0.attn.proj.weight", Values::noise(&[8, 8], 2).map(|v| v / 3.0));
    run.linear("block.0.attn.proj", "x");
    let square = run.value("x").clone().map(|v| v * v).to(run.dtype);
    run.layer("block.0.act.square", "pow", &["x"]).with("module", "block.0.act").gives(square);
    let sum = support::compute::zip(run.value("x"), run.value("block.0.act.square"), |a, b| a + b).to(run.dtype);
    run.layer("block.0.residual", "add", &["x", "block.0.act.square"])
        .with("module", "block.0")
        .with("source", "model.py:31")
        .gives(sum);
    run.layer_norm(norm, "block.0.residual");
    let mut from = norm.to_string();
    for number in 0..adds {
        let name = format!("tail.{number}.add");
        run.add(&name, &from, norm);
        from = name;
    }
    run
}

fn overflowing(norm: &str, adds: usize) -> (Recorded, Advice) {
    let (golden, advice) = advise(&block(Recorder::f32(), norm, adds), &block(Recorder::f16(), norm, adds));
    let mut ops: Vec<&str> = advice.blacklist.iter().map(|entry| entry.op.as_str()).collect();
    ops.sort_unstable();
    assert_eq!(ops, ["add", "layer_norm", "pow"], "what the tests below rest on");
    (golden, advice)
}

fn emitted(format: Format, golden: &Recorded, advice: &Advice) -> EmitOutput {
    emit(format, advice, &golden.run, EmitOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn entry(op: &str, cann: Option<&'static str>, layers: &[&str]) -> Entry {
    Entry {
        op: op.into(),
        cann,
        layers: layers.iter().map(|layer| (*layer).to_string()).collect(),
        reason: Reason::Range,
        score: 1.0,
        why: "the golden holds 7e4".into(),
        total_of_op: layers.len() as u64,
        modules: Vec::new(),
    }
}

// torch.

#[test]
fn modules_are_wrapped_and_operators_in_a_forward_are_told() {
    let (golden, advice) = overflowing("block.0.ln", 0);
    let output = emitted(Format::Torch, &golden, &advice);
    let text = output.text.clone();
    let (modules, blocks) = text.split_once("BLOCKS = {").expect("both dictionaries");
    assert!(modules.contains("    \"block.0.act\": [\"block.0.act.square\"],"), "{text}");
    // The residual add stands in the forward of a block that holds other modules.
    assert!(blocks.contains("    \"block.0\": [\"block.0.residual\"],"), "{text}");
    // A norm is a module under its own name, unless that is the operator's.
    assert!(modules.contains("    \"block.0.ln\": [\"block.0.ln\"],"), "{text}");
    let (golden, advice) = overflowing("block.0.layer_norm", 0);
    let text = emitted(Format::Torch, &golden, &advice).text;
    assert!(text.contains("    \"block.0\": [\"block.0.residual\", \"block.0.layer_norm\"],"), "{text}");
    assert!(blocks.contains("#   at model.py:31 write run_fp32(f, ...) for the add f(...)"), "{text}");
    assert!(modules.contains("# block.0.act.square (pow): range"), "{text}");
    assert!(output.notes.iter().any(|note| note.contains("block.0.residual")), "{:?}", output.notes);
}

const MODEL: &str = "\
import torch
from keep_fp32 import keep_fp32, run_fp32, MODULES, BLOCKS
from torch import Module, Probe, Tensor

class Model(Module):
    pass

def model(dtype=torch.float32, ln='ln'):
    leaf = lambda: Probe({'weight': Tensor(dtype)})
    return Model(module=Module(block=Module(**{'0': Probe(act=leaf(), attn=Module(proj=leaf()), **{ln: leaf()})})))

def find(model, name):
    return dict(model.named_modules())['module.' + name]
";

fn script(body: &str) -> String {
    format!("{MODEL}\n{body}")
}

#[test]
fn the_snippet_casts_nested_inputs_and_turns_autocast_off() {
    if !python::is_there() {
        return;
    }
    let (golden, advice) = overflowing("block.0.ln", 0);
    let snippet = emitted(Format::Torch, &golden, &advice).text;
    let printed = python::expect(
        &snippet,
        &script(
            "
import copy
m = model()
wrapped = keep_fp32(m)
assert 'block.0.act' in wrapped and 'block.0' not in wrapped, wrapped
half, ids, double = Tensor(torch.float16), Tensor(torch.int64), Tensor(torch.float64)
with torch.autocast('npu'):
    act = find(m, 'block.0.act')
    result = act(half, [ids, (Tensor(torch.bfloat16), 3)], mask={'m': half, 'none': None}, scale=double)
    args, kwargs, autocast = act.seen
    assert not autocast and torch.is_autocast_enabled('npu')
    assert result.dtype == torch.float32, 'the output stays fp32'
    assert args[0].dtype == torch.float32 and args[1][0].dtype == torch.int64
    assert args[1][1][0].dtype == torch.float32 and args[1][1][1] == 3
    assert kwargs['mask']['m'].dtype == torch.float32 and kwargs['mask']['none'] is None
    assert kwargs['scale'].dtype == torch.float64, 'wider than fp32 stays'
    # What is not listed is not touched.
    proj = find(m, 'block.0.attn.proj')
    proj(half)
    assert proj.seen[0][0].dtype == torch.float16 and proj.seen[2]
    # A copy of the model calls its own modules.
    other = copy.deepcopy(m)
    find(other, 'block.0.act')(Tensor(torch.bfloat16), 1)
    assert find(other, 'block.0.act').seen[0][1] == 1 and len(act.seen[0]) == 2 and act.seen[0][1] != 1
    # An operator without a module.
    assert run_fp32(lambda a, b: (a.dtype, b.dtype, torch.is_autocast_enabled('npu')), half, b=half) == (
        torch.float32, torch.float32, False)
assert find(m, 'block.0.act')() is None, 'no tensor, no trouble'
print('ok')
",
        ),
    );
    assert_eq!(printed, "ok\n");
}

#[test]
fn outputs_are_cast_back_and_blocks_wrapped_where_asked() {
    if !python::is_there() {
        return;
    }
    let (golden, advice) = overflowing("block.0.ln", 0);
    let snippet = emitted(Format::Torch, &golden, &advice).text;
    python::expect(
        &snippet,
        &script(
            "
m = model()
assert 'block.0' in keep_fp32(m, whole_blocks=True, cast_back=True)
keep_fp32(m)  # twice does no harm
assert find(m, 'block.0.act')(Tensor(torch.float16)).dtype == torch.float16
block = find(m, 'block.0')
assert block((Tensor(torch.bfloat16),))[0].dtype == torch.bfloat16
assert block.seen[0][0][0].dtype == torch.float32
try:
    keep_fp32(model(torch.float16))
except TypeError as error:
    assert \"'weight'\" in str(error) and '.float()' in str(error), error
else:
    raise AssertionError('half parameters were taken')
",
        ),
    );
}

#[test]
fn a_module_that_the_model_does_not_have_is_an_error_with_the_nearest() {
    if !python::is_there() {
        return;
    }
    let (golden, advice) = overflowing("block.0.ln", 0);
    let snippet = emitted(Format::Torch, &golden, &advice).text;
    let output =
        python::run(&snippet, &script("keep_fp32(Module(block=Module(**{'0': Probe(acts=Probe(), ln=Probe())})))"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("the model has no module 'block.0.act', the nearest are: 'block.0.acts'"), "{error}");
}

#[test]
fn no_name_can_act_in_the_snippet() {
    if !python::is_there() {
        return;
    }
    let evil = "a\"]}\nimport os; os._exit(7)\n#\\\r\u{0}\u{2028}\u{1b}[31m\u{1f600}'''.ln";
    let (golden, advice) = overflowing(evil, 0);
    let output = emitted(Format::Torch, &golden, &advice);
    let expected: String = evil.chars().map(|c| format!("{} ", u32::from(c))).collect();
    let printed = python::expect(
        &output.text,
        "import keep_fp32\nfor name in list(keep_fp32.MODULES) + list(keep_fp32.BLOCKS):\n    print(*map(ord, name))",
    );
    assert!(printed.lines().any(|line| line == expected.trim_end()), "{printed}");
    assert!(output.text.lines().all(|line| !line.starts_with("import os")));
    assert!(output.text.is_ascii() || !output.text.contains('\u{2028}'));
    let evidence = Advice {
        blacklist: vec![Entry { why: evil.into(), modules: vec![evil.into()], ..entry(evil, None, &[evil]) }],
        remedies: Vec::new(),
    };
    python::expect(&emitted(Format::Torch, &golden, &evidence).text, "import keep_fp32");
}

#[test]
fn where_a_name_tells_no_module_the_operator_is_told() {
    let (golden, _) = overflowing("block.0.ln", 0);
    let advice = Advice { blacklist: vec![entry("div", None, &["div"])], remedies: Vec::new() };
    let output = emitted(Format::Torch, &golden, &advice);
    assert!(output.text.contains("MODULES = {}\n") && output.text.contains("BLOCKS = {}\n"));
    assert!(output.text.contains("#   in the model's forward write run_fp32(f, ...) for the div f(...)"));
    assert!(output.notes.iter().any(|note| note.contains("changes nothing")), "{:?}", output.notes);
}

#[test]
fn names_are_those_of_the_model_without_wrappers_and_calls() {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[2, 2], 1));
    run.apply("module._orig_mod.ln.pow#3", "pow", "x", |v| v * v);
    run.param("module.fc.weight", Values::noise(&[2, 2], 2));
    let product = support::compute::product(run.value("x"), run.value("module.fc.weight"));
    run.op("module.fc", "linear", &["x", "module.fc.weight"], product);
    let golden = run.open();
    let layers = ["module._orig_mod.ln.pow#3", "module.fc"];
    let advice = Advice { blacklist: vec![entry("any", None, &layers)], remedies: Vec::new() };
    let text = emitted(Format::Torch, &golden, &advice).text;
    assert!(text.contains("    \"ln\": [") && text.contains("    \"fc\": ["), "{text}");
}

// Ascend.

fn mixlist(output: &EmitOutput) -> Value {
    serde_json::from_str(&output.text).expect("JSON")
}

#[test]
fn operator_types_are_canns_and_stand_once() {
    let (golden, advice) = overflowing("block.0.ln", 0);
    let output = emitted(Format::AscendMixlist, &golden, &advice);
    let list = mixlist(&output);
    let mut types: Vec<&str> =
        list["black-list"]["to-add"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, ["Add", "LayerNormV3", "Pow"]);
    assert_eq!(list["white-list"], json!({"to-remove": []}));
    assert!(output.notes.iter().any(|note| note.starts_with("Add: 1 of 1 in this run")), "{:?}", output.notes);
}

#[test]
fn a_list_by_type_that_is_mostly_collateral_is_refused_unless_asked_for() {
    let (golden, advice) = overflowing("block.0.ln", 6);
    let error = emit(Format::AscendMixlist, &advice, &golden.run, EmitOptions::default()).unwrap_err().to_string();
    assert!(error.contains("Add (6 of 7 layers are not on the blacklist)"), "{error}");
    assert!(!error.contains("LayerNormV3") && !error.contains('\n'), "{error}");
    let output = emit(Format::AscendMixlist, &advice, &golden.run, EmitOptions { allow_collateral: true }).unwrap();
    assert!(output.notes.iter().any(|note| note.starts_with("Add: 1 of 7 in this run")), "{:?}", output.notes);
    assert!(mixlist(&output)["black-list"]["to-add"].as_array().unwrap().contains(&json!("Add")));
    // One layer more is no reason to refuse, and names never are.
    let (golden, advice) = overflowing("block.0.ln", 1);
    emitted(Format::AscendMixlist, &golden, &advice);
    let (golden, advice) = overflowing("block.0.ln", 6);
    emitted(Format::Torch, &golden, &advice);
}

#[test]
fn a_type_that_cann_does_not_have_is_left_out_with_a_note() {
    let (golden, _) = overflowing("block.0.ln", 0);
    let known = entry("pow", Some("Pow"), &["block.0.act.square"]);
    let advice = Advice { blacklist: vec![entry("my_op\n", None, &["a.my_op"]), known], remedies: Vec::new() };
    let output = emitted(Format::AscendMixlist, &golden, &advice);
    assert_eq!(mixlist(&output)["black-list"]["to-add"], json!(["Pow"]));
    assert!(output.notes[0].starts_with("my_op\\u{a}: left out"), "{:?}", output.notes);
    let advice = Advice { blacklist: vec![entry("my_op", None, &["a.my_op"])], remedies: Vec::new() };
    let output = emitted(Format::AscendMixlist, &golden, &advice);
    assert_eq!(mixlist(&output)["black-list"]["to-add"], json!([]));
    assert!(output.notes.iter().any(|note| note.starts_with("the file is empty")), "{:?}", output.notes);
}

// Empty.

#[test]
fn an_empty_blacklist_is_a_valid_file_that_says_what_helps_instead() {
    let golden = block(Recorder::f32(), "block.0.ln", 0);
    let mut candidate = block(Recorder::f32(), "block.0.ln", 0);
    candidate.alter("block.0.ln", |y| y.iter_mut().for_each(|v| *v *= 1.1));
    let (golden, advice) = advise(&golden, &candidate);
    assert!(advice.blacklist.is_empty());
    for format in Format::all() {
        let output = emitted(format, &golden, &advice);
        assert!(output.text.ends_with('\n'));
        assert!(output.notes.iter().any(|note| note.contains("fix_defect (block.0.ln)")), "{:?}", output.notes);
    }
    assert_eq!(mixlist(&emitted(Format::AscendMixlist, &golden, &advice))["black-list"], json!({"to-add": []}));
    let snippet = emitted(Format::Torch, &golden, &advice).text;
    assert!(snippet.contains("# the blacklist is empty"), "{snippet}");
    if python::is_there() {
        python::expect(&snippet, &script("assert keep_fp32(model()) == [] and not MODULES"));
    }
    let output = emitted(Format::Torch, &golden, &Advice::default());
    assert!(output.notes[0].contains("nothing is out"), "{:?}", output.notes);
}
