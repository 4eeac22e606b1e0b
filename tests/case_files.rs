//! Case files as a user writes them: what loads, what each mistake looks like, what is found.

use std::fs;
use std::path::{Path, PathBuf};

use goldline::case::{Case, ExpectVerdict, Metric, template};
use goldline::error::Place;
use goldline::tensor::DType;
use proptest::prelude::*;

/// A snapshot without the expression, which would repeat the whole test.
macro_rules! snapshot {
    ($shown:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($shown) })
    };
}

const HEAD: &str = "schema: goldline.case/1\nname: demo\ngolden: goldens/demo\n";

fn frame(text: &str) -> String {
    let error = Case::parse(text, "cases/demo.yaml").expect_err("the file has a mistake");
    assert_eq!(error.path(), Some(Path::new("cases/demo.yaml")));
    assert!(matches!(error.place(), Some(Place::Line(line)) if line >= 1));
    assert!(!error.message().is_empty() && !error.message().contains('\n'));
    error.to_string()
}

/// Frames of several mistakes, each under what it is about.
fn frames(mistakes: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (what, text) in mistakes {
        out.push_str(&format!("== {what}\n{}\n\n", frame(text)));
    }
    out
}

/// The same for lines that follow a valid head.
fn frames_below_head(mistakes: &[(&str, &str)]) -> String {
    let texts: Vec<(&str, String)> = mistakes.iter().map(|(what, text)| (*what, format!("{HEAD}{text}\n"))).collect();
    frames(&texts.iter().map(|(what, text)| (*what, text.as_str())).collect::<Vec<_>>())
}

fn load(text: &str) -> Case {
    Case::parse(&format!("{HEAD}{text}\n"), "cases/demo.yaml").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn mistakes_about_the_file() {
    snapshot!(frames(&[
        ("empty", ""),
        ("only comments", "# nothing\n\n"),
        ("a list", "- schema: goldline.case/1\n"),
        ("text", "hello\n"),
        ("html", "<!DOCTYPE html>\n<html><body>404: not found</body></html>\n"),
        ("no schema", "name: demo\ngolden: goldens/demo\n"),
        ("a later version", "schema: goldline.case/2\nname: demo\nnew_key: 1\n"),
        ("another kind of file", "schema: goldline.run/1\n"),
        ("schema is no text", "schema: 1\n"),
        ("no name", "schema: goldline.case/1\ngolden: goldens/demo\n"),
        ("no golden", "# a comment\nschema: goldline.case/1\nname: demo\n"),
        ("two documents", "schema: goldline.case/1\nname: demo\n---\nname: other\n"),
    ]));
}

#[test]
fn mistakes_of_syntax() {
    snapshot!(frames_below_head(&[
        ("open bracket", "layers: {exclude: [a, b}"),
        ("open quote", "command: [python, \"run.py]"),
        ("indentation", "layers:\n  include: [a]\n exclude: [b]"),
        ("tab", "layers:\n\tinclude: [a]"),
        ("pattern without quotes", "layers: {exclude: [*.dropout]}"),
        ("double star without quotes", "layers: {include: [**]}"),
        ("backslash in double quotes", "rename: [{from: \"^module\\.\", to: ''}]"),
        ("colon in plain text", "candidate: a: b"),
        ("tag", "seed: !secret 1"),
        ("merge key", "layers: {<<: {include: [a]}}"),
        ("alias to itself", "layers: &a {include: *a}"),
        ("too deep", "layers: [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]"),
    ]));
}

#[test]
fn mistakes_about_keys() {
    snapshot!(frames_below_head(&[
        ("near", "tolerence: {default: auto}"),
        ("far", "speed: 3"),
        ("in layers", "layers: {included: ['**']}"),
        ("in rename", "rename: [{from: a, too: b}]"),
        ("in expect", "expect: {verdict: drift, layer: x}"),
        ("in valid", "valid: {masks: attention_mask}"),
        ("in tolerance", "tolerance:\n  ops: {softmax: {max_abs: 1}}"),
        ("metric", "tolerance: {op: {softmax: {rel_12: 1e-3}}}"),
        ("twice", "seed: 1\nlayers: {}\nseed: 2"),
        ("twice in a table", "tolerance: {layer: {'a.*': {max_abs: 1}, 'a.*': {max_abs: 2}}}"),
        ("dtype twice in two spellings", "tolerance: {dtype: {bf16: {max_abs: 1}, bfloat16: {max_abs: 2}}}"),
        ("metric twice", "tolerance: {default: {max_abs: 1, max_abs: 2}}"),
        ("not text", "3: x"),
        ("missing in expect", "expect: {origin: x}"),
        ("missing in rename", "rename:\n  - from: a"),
        ("missing in valid", "valid: {}"),
    ]));
}

#[test]
fn mistakes_of_type() {
    snapshot!(frames(&[
        ("name", "schema: goldline.case/1\nname: 2024\ngolden: g\n"),
        ("golden", "schema: goldline.case/1\nname: demo\ngolden: [a, b]\n"),
    ]));
    snapshot!(frames_below_head(&[
        ("seed as text", "seed: '12'"),
        ("seed as fraction", "seed: 1.5"),
        ("seed too large", "seed: 9223372036854775808"),
        ("key without value", "seed:"),
        ("command as text", "command: python run.py"),
        ("command with a mapping", "command: [python, {a: b}]"),
        ("layers as list", "layers: ['*.dropout']"),
        ("exclude as text", "layers: {exclude: '*.dropout'}"),
        ("rename as mapping", "rename: {from: a, to: b}"),
        ("expect as text", "expect: drift"),
        ("tolerance as number", "tolerance: 1e-3"),
        ("default as number", "tolerance: {default: 1e-3}"),
        ("default as other text", "tolerance: {default: automatic}"),
        ("op as number", "tolerance: {op: {softmax: 1e-3}}"),
        ("limit as text", "tolerance: {op: {softmax: {max_abs: '1e-3'}}}"),
    ]));
}

#[test]
fn mistakes_of_value() {
    snapshot!(frames_below_head(&[
        ("inputs not there", "inputs: inputs.safetensors"),
        ("candidate empty", "candidate: ''"),
        ("NUL in a path", "candidate: \"a\\0b\""),
        ("no program", "command: []"),
        ("verdict", "expect: {verdict: nonfinit}"),
        ("origin of a pass", "expect: {verdict: pass, origin: x}"),
        ("precision", "precision: flaot16"),
        ("precision of integers", "precision: int8"),
        ("glob", "layers: {exclude: ['a[']}"),
        ("glob in tolerance", "tolerance: {layer: {'{a': {max_abs: 1}}}"),
        ("empty glob", "layers: {exclude: ['']}"),
        ("no include", "layers: {include: []}"),
        ("regex", "rename: [{from: '(module', to: ''}]"),
        ("regex too large", "rename: [{from: '\\w{1000}{1000}', to: ''}]"),
        ("empty regex", "rename: [{from: '', to: 'x'}]"),
        ("group that is not there", "rename: [{from: 'a(b)', to: '$2'}]"),
        ("group that runs into text", "rename: [{from: 'a(b)', to: '$1_x'}]"),
        ("dtype", "tolerance: {dtype: {bflaot16: {max_abs: 1}}}"),
        ("negative limit", "tolerance: {default: {max_abs: -1e-3}}"),
        ("infinite limit", "tolerance: {default: {rel_l2: .inf}}"),
        ("limit that overflows", "tolerance: {default: {rel_l2: 1e999}}"),
        ("NaN limit", "tolerance: {default: {cosine: .nan}}"),
        ("cosine", "tolerance: {default: {cosine: 1.5}}"),
        ("fraction of a ulp", "tolerance: {default: {max_ulp: 1.5}}"),
    ]));
    snapshot!(frames(&[
        ("golden is the case's own directory", "schema: goldline.case/1\nname: demo\ngolden: ./..\n"),
        ("empty name", "schema: goldline.case/1\nname: ' '\ngolden: g\n"),
        ("escape in a name", "schema: goldline.case/1\nname: \"\\e[31mred\"\ngolden: g\n"),
        ("escape in the source", "schema: goldline.case/1\nname: demo\n\u{202e}oops\u{200b}: 1\ngolden: g\n"),
    ]));
}

#[test]
fn bytes_that_are_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.yaml");
    let shown = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = Case::load(&path).unwrap_err().to_string();
        error.replace(&dir.path().display().to_string(), "DIR")
    };
    let mut large = HEAD.as_bytes().to_vec();
    large.resize((1 << 20) + 1, b'#');
    snapshot!(
        [
            shown(b"schema: goldline.case/1\nname: caf\xe9 au lait\n"),
            shown(b"\xff\xfes\0c\0h\0e\0m\0a\0"),
            shown(&large),
        ]
        .join("\n\n")
    );
    fs::write(&path, &large[..1 << 20]).unwrap();
    assert!(Case::load(&path).is_ok(), "1 MiB is allowed");
}

#[test]
fn a_file_that_cannot_be_read_is_one_line() {
    let error = Case::load("cases/nowhere.yaml").unwrap_err();
    assert_eq!(error.to_string(), "cases/nowhere.yaml: cannot open the case file: no such file or directory");
    let dir = tempfile::tempdir().unwrap();
    let error = Case::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("expected a case file, found a directory") && !error.contains('\n'), "{error}");
}

#[test]
fn the_design_s_example_loads() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("cases/minilm/runs/npu-fp16")).unwrap();
    fs::write(dir.path().join("cases/minilm/inputs.safetensors"), "").unwrap();
    let path = dir.path().join("cases/minilm/case.yaml");
    let text = r#"
schema: goldline.case/1
name: minilm-encode
seed: 1234
inputs: inputs.safetensors        # optional
golden: ../../goldens/minilm-encode
candidate: runs/npu-fp16
command: [python, run.py, --steps, 3, --lr, 1e-3, --flag, true]
expect: {verdict: nonfinite, origin: "ln.pow"}
precision: auto
layers: {include: ["**"], exclude: ["*.dropout"]}
rename: [{from: '^module\.', to: ''}]
valid: {mask: attention_mask}
tolerance:
  default: auto
  dtype: {bfloat16: {rel_l2: 3e-2}}
  op:    {softmax: {max_abs: 1e-3}}
  layer: {"encoder.*.out": {rel_l2: 5e-3, cosine: 0.9999}}
"#;
    fs::write(&path, text).unwrap();
    let case = Case::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let base = path.parent().unwrap();
    assert_eq!(case.path, path);
    assert_eq!(case.name, "minilm-encode");
    assert_eq!(case.seed, Some(1234));
    assert_eq!(case.inputs, Some(base.join("inputs.safetensors")));
    assert_eq!(case.golden, base.join("../../goldens/minilm-encode"));
    assert_eq!(case.require_candidate().unwrap(), base.join("runs/npu-fp16"));
    let command = ["python", "run.py", "--steps", "3", "--lr", "1e-3", "--flag", "true"].map(String::from);
    assert_eq!(case.command.as_deref(), Some(&command[..]));
    let expect = case.expect.as_ref().unwrap();
    assert_eq!((expect.verdict, expect.origin.as_deref()), (ExpectVerdict::Nonfinite, Some("ln.pow")));
    assert_eq!(case.precision, None);
    assert_eq!(case.rename[0].apply("module.encoder"), "encoder");
    assert_eq!(case.valid.as_ref().unwrap().mask, "attention_mask");
    assert!(case.layers.decides("encoder.0.dropout").is_some());
    assert!(!case.tolerance.is_auto());
}

#[test]
fn a_minimal_case_leaves_everything_to_auto() {
    for case in [load(""), Case::default_for_diff()] {
        assert_eq!((case.seed, case.precision), (None, None));
        assert!(case.inputs.is_none() && case.candidate.is_none() && case.command.is_none() && case.expect.is_none());
        assert!(case.tolerance.is_auto());
        assert_eq!(case.layers.decides("anything at all"), None);
        assert!(case.tolerance.limits("x", "softmax", DType::BF16).is_empty());
    }
}

#[test]
fn a_byte_order_mark_and_crlf_do_no_harm() {
    let text = format!("\u{feff}{}precision: fp16\r\nspeed: 1\r\n", HEAD.replace('\n', "\r\n"));
    let shown = frame(&text);
    assert!(shown.contains("cases/demo.yaml:5:1") && shown.contains("5 | speed: 1\n"), "{shown}");
    let case = Case::parse(&text.replace("speed: 1\r\n", ""), "cases/demo.yaml").unwrap();
    assert_eq!(case.precision, Some(DType::F16));
}

#[test]
fn a_golden_that_is_not_there_is_a_frame_when_it_is_needed() {
    let case = load("");
    let named = load("candidate: runs/nowhere");
    let errors = [case.require_golden(), case.require_candidate(), named.require_candidate()];
    snapshot!(errors.map(|error| error.unwrap_err().to_string()).join("\n\n"));
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("goldens/demo")).unwrap();
    let case = Case::parse(HEAD, dir.path().join("demo.yaml")).unwrap();
    assert_eq!(case.require_golden().unwrap(), dir.path().join("goldens/demo"));
}

#[test]
fn the_most_specific_limit_wins_for_each_metric() {
    let case = load(
        "tolerance:
  default: {max_abs: 1, rel_l2: 1, cosine: 0.1, max_ulp: 1}
  dtype: {bfloat16: {max_abs: 2, rel_l2: 2, cosine: 0.2}}
  op: {softmax: {max_abs: 3, rel_l2: 3}}
  layer:
    'encoder.*': {max_abs: 4}
    'encoder.0.*': {max_abs: 5, sqnr: 30}",
    );
    let limits = |layer, op, dtype| {
        let limits = case.tolerance.limits(layer, op, dtype);
        limits.iter().map(|(metric, limit)| format!("{}={}", metric.name(), limit.value)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(limits("head", "gelu", DType::F16), "max_abs=1 rel_l2=1 cosine=0.1 max_ulp=1");
    assert_eq!(limits("head", "gelu", DType::BF16), "max_abs=2 rel_l2=2 cosine=0.2 max_ulp=1");
    assert_eq!(limits("head", "softmax", DType::BF16), "max_abs=3 rel_l2=3 cosine=0.2 max_ulp=1");
    assert_eq!(limits("encoder.1.x", "softmax", DType::F16), "max_abs=4 rel_l2=3 cosine=0.1 max_ulp=1");
    assert_eq!(limits("encoder.0.x", "softmax", DType::BF16), "max_abs=5 rel_l2=3 cosine=0.2 sqnr=30 max_ulp=1");

    let sources = case.tolerance.limits("encoder.0.x", "softmax", DType::BF16);
    let source = |metric| sources.get(metric).map(|limit| &*limit.source);
    assert_eq!(source(Metric::MaxAbs), Some("tolerance.layer.'encoder.0.*'"));
    assert_eq!(source(Metric::RelL2), Some("tolerance.op.softmax"));
    assert_eq!(source(Metric::Cosine), Some("tolerance.dtype.bfloat16"));
    assert_eq!(source(Metric::MaxUlp), Some("tolerance.default"));
    assert_eq!(source(Metric::MaxRel), None);
}

#[test]
fn of_several_layer_patterns_the_last_in_the_file_wins() {
    let case = load("tolerance: {layer: {'a.b': {max_abs: 1}, 'a.*': {max_abs: 2}}}");
    let limits = case.tolerance.limits("a.b", "gelu", DType::F32);
    assert_eq!(limits.max_abs.map(|limit| limit.value), Some(2.0));
}

#[test]
fn a_layer_is_left_out_with_its_reason() {
    let case = load("layers: {include: ['encoder.*', 'head'], exclude: ['*.dropout', '*.tmp[0-9]']}");
    let decides = |name| case.layers.decides(name);
    assert_eq!(decides("encoder.0.attn.out"), None, "`*` matches dots");
    assert_eq!(decides("head"), None);
    assert_eq!(decides("head.x"), Some("not matched by layers.include"));
    assert_eq!(decides("encoder.0.dropout"), Some("excluded by layers.exclude '*.dropout'"));
    assert_eq!(decides("encoder.tmp3"), Some("excluded by layers.exclude '*.tmp[0-9]'"));
    assert_eq!(decides("dropout"), Some("not matched by layers.include"));
}

#[test]
fn cases_are_found_below_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("b/case.yaml", HEAD);
    write("a/deep/er/case.yml", HEAD);
    write("a.yaml", HEAD);
    write("broken.yaml", "schema: goldline.case/1\nname: [\n");
    write("a/compose.yaml", "services: {}\n");
    write("a/notes.txt", HEAD);
    write("a/empty.yaml", "");
    write(".git/case.yaml", HEAD);
    write("elsewhere/hidden.yaml.bak", HEAD);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(root.join("b"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root, root.join("b/cycle")).unwrap();
        std::os::unix::fs::symlink(root.join("gone"), root.join("dangling.yaml")).unwrap();
    }
    let found = Case::find(root).unwrap();
    let relative: Vec<PathBuf> = found.iter().map(|path| path.strip_prefix(root).unwrap().to_path_buf()).collect();
    let expected = ["a/deep/er/case.yml", "a.yaml", "b/case.yaml", "broken.yaml"];
    assert_eq!(relative, expected.map(PathBuf::from));
    let error = Case::find(root.join("nowhere")).unwrap_err().to_string();
    assert!(error.ends_with("cannot list the directory: no such file or directory"), "{error}");
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = dir.path().to_path_buf();
    path.extend(std::iter::repeat_n("d", 40));
    fs::create_dir_all(&path).unwrap();
    assert!(Case::find(dir.path()).unwrap_err().to_string().contains("nested more than"));
}

#[test]
fn the_template_is_a_case_that_is_found_and_loads() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("new.yaml"), template("new-model")).unwrap();
    let found = Case::find(dir.path()).unwrap();
    let case = Case::load(&found[0]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((case.name.as_str(), case.golden), ("new-model", dir.path().join("goldens/new-model")));
}

#[test]
fn patterns_that_would_exhaust_a_compiler_are_refused() {
    let deep = format!("{}{}", "{".repeat(100_000), "}".repeat(100_000));
    assert!(frame(&format!("{HEAD}layers: {{exclude: ['{deep}']}}\n")).contains("longer than 1000 bytes"));
    let deep = format!("{}{}", "{".repeat(499), "}".repeat(499));
    assert!(frame(&format!("{HEAD}layers: {{exclude: ['{deep}']}}\n")).contains("bad name pattern"));
    let deep = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(frame(&format!("{HEAD}rename: [{{from: '{deep}', to: ''}}]\n")).contains("bad regular expression"));
}

/// Text that looks like a case file more or less: pieces of one, in any order.
fn yamlish() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("schema: goldline.case/1\n".to_string()),
        Just("name: x\ngolden: g\n".to_string()),
        Just("tolerance:\n  op: {softmax: {max_abs: ".to_string()),
        Just("layers: {exclude: [".to_string()),
        Just("rename: [{from: '(', to: ".to_string()),
        Just("expect: {verdict: ".to_string()),
        "[a-z_]{1,8}: ",
        "[-+.0-9e]{1,6}",
        "[]{}\\[,:&*!|>'\"%@`#?~ \\t\\r\\n-]{1,4}",
        "\\PC{0,6}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic_or_print_control_characters(head in any::<bool>(), text in yamlish()) {
        let text = if head { format!("{HEAD}{text}") } else { text };
        if let Err(error) = Case::parse(&text, "cases/demo.yaml") {
            let shown = error.to_string();
            prop_assert!(shown.starts_with("error: ") && shown.contains("--> cases/demo.yaml:"), "{}", shown);
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{:?}", shown);
            prop_assert!(shown.contains('^'), "{}", shown);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut text = HEAD.as_bytes().to_vec();
        text.extend(bytes);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &text).unwrap();
        if let Err(error) = Case::load(file.path()) {
            prop_assert!(error.to_string().starts_with("error: "));
        }
    }
}

#[test]
fn mistakes_in_shards() {
    snapshot!(frames_below_head(&[
        ("no list", "shards: {match: '*'}"),
        ("no match", "shards: [{dim: 0}]"),
        ("neither dim nor how", "shards: [{match: '*'}]"),
        ("concat without dim", "shards: [{match: '*', how: concat}]"),
        ("sum with dim", "shards: [{match: '*', how: sum, dim: 0}]"),
        ("unknown how", "shards: [{match: '*', how: replicas}]"),
        ("unknown key", "shards: [{match: '*', dims: 0}]"),
        ("bad pattern", "shards: [{match: '[', dim: 0}]"),
        ("dim is no number", "shards: [{match: '*', dim: last}]"),
        ("unknown group", "shards: [{match: '*', dim: 0, group: every}]"),
        ("group of one", "shards: [{match: '*', dim: 0, group: [3]}]"),
        ("group is a number", "shards: [{match: '*', dim: 0, group: 3}]"),
        ("a rank twice", "shards: [{match: '*', dim: 0, group: [0, 1, 0]}]"),
        ("a negative rank", "shards: [{match: '*', dim: 0, group: [0, -1]}]"),
        (
            "groups that share a rank",
            "shards:\n- {match: 'a*', dim: 0, group: [0, 1]}\n- {match: 'b*', dim: 0, group: [2, 1]}"
        ),
        ("another order", "shards:\n- {match: 'a*', dim: 0, group: [0, 1]}\n- {match: 'b*', dim: 0, group: [1, 0]}"),
        ("all and some", "shards:\n- {match: 'a*', dim: 0}\n- {match: 'b*', dim: 0, group: [0, 1]}"),
    ]));
}

#[test]
fn shards_have_defaults() {
    use goldline::run::join::{Group, How};
    let case = load("shards:\n- {match: '*.up.*', dim: 0}\n- {match: '*.down', how: sum, group: all}");
    let found: Vec<(How, &Group)> = case.shards.iter().map(|rule| (rule.how, &rule.group)).collect();
    assert_eq!(found, [(How::Concat(0), &Group::All), (How::Sum, &Group::All)]);
    let case = load(
        "shards:\n- {match: a, dim: -1, group: [0, 1]}\n- {match: b, how: replica, group: [2, 3]}\n- {match: c, dim: 1, group: [0, 1]}",
    );
    let found: Vec<How> = case.shards.iter().map(|rule| rule.how).collect();
    assert_eq!(found, [How::Concat(-1), How::Replica, How::Concat(1)]);
}
