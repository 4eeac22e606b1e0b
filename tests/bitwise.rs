//! `--bitwise`: the first layer with other bits, and what stands by operator type.

mod support;

use assert_cmd::Command;
use goldline::tensor::DType;
use serde_json::Value;
use support::{Recorded, Recorder, Values};

fn model(change: impl FnOnce(&mut Recorder)) -> Recorded {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[8, 16], 1));
    run.param("fc.weight", Values::noise(&[16, 16], 2).map(|v| v / 4.0));
    run.linear("fc", "x");
    run.apply("act", "relu", "fc", |v| v.max(0.0));
    run.apply("out", "tanh", "act", f64::tanh);
    change(&mut run);
    run.open()
}

/// One unit in the last place up.
fn next(v: f64) -> f64 {
    f64::from(f32::from_bits((v as f32).to_bits() + 1))
}

fn diff(golden: &Recorded, candidate: &Recorded, flags: &[&str]) -> (i32, String) {
    let mut command = Command::cargo_bin("goldline").expect("the binary");
    command.arg("diff").arg(golden.path()).arg(candidate.path()).args(flags);
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("utf-8");
    (output.status.code().expect("a status"), text)
}

fn json(golden: &Recorded, candidate: &Recorded) -> (i32, Value) {
    let (status, text) = diff(golden, candidate, &["--bitwise", "--json"]);
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn equal_bits_succeed() {
    let (golden, candidate) = (model(|_| {}), model(|_| {}));
    let (status, report) = json(&golden, &candidate);
    assert_eq!((status, &report["bitwise"]["equal"], &report["outcome"]), (0, &true.into(), &"expected".into()));
    assert_eq!(report["bitwise"]["ops"][0]["op"], "linear");
    assert_eq!(report["bitwise"]["ops"][0]["equal_bits"], 1.0);
    let (status, text) = diff(&golden, &candidate, &["--bitwise"]);
    assert!(status == 0 && text.contains("3 operator types bit-equal in every layer"), "{text}");
    // Without the flag the key is absent.
    let (_, text) = diff(&golden, &candidate, &["--json"]);
    assert!(serde_json::from_str::<Value>(&text).expect("json").get("bitwise").is_none());
}

#[test]
fn one_bit_within_tolerance_fails_and_names_the_layer() {
    let golden = model(|_| {});
    let candidate = model(|run| run.alter("out", |values| values[19] = next(values[19])));
    assert_eq!(diff(&golden, &candidate, &[]).0, 0, "within tolerance");
    let (status, report) = json(&golden, &candidate);
    let bitwise = &report["bitwise"];
    assert_eq!((status, &report["verdict"], &report["outcome"]), (1, &"pass".into(), &"unexpected".into()));
    assert_eq!((&bitwise["first"]["layer"], &bitwise["first_index"]), (&"out".into(), &serde_json::json!([1, 3])));
    assert_eq!(
        (&bitwise["unequal"], &bitwise["compared"], &bitwise["sources"]),
        (&1.into(), &3.into(), &serde_json::json!([]))
    );
    let tanh = bitwise["ops"].as_array().expect("a list").iter().find(|op| op["op"] == "tanh").expect("tanh");
    assert_eq!((&tanh["equal_bits"], &tanh["max_ulp"]), (&(127.0 / 128.0).into(), &1.into()));
    let (_, text) = diff(&golden, &candidate, &["--bitwise"]);
    assert!(text.contains("out (tanh) is the first layer that is not bit-equal"), "{text}");
    assert!(text.contains("99.22 %"), "{text}");
}

#[test]
fn sources_are_looked_at_first() {
    let candidate = model(|run| {
        run.alter("fc.weight", |values| values[0] = next(values[0].abs()));
        run.alter("act", |values| values[0] = 3.0);
    });
    let (status, report) = json(&model(|_| {}), &candidate);
    assert_eq!(status, 1);
    assert_eq!(report["bitwise"]["sources"], serde_json::json!(["fc.weight"]));
    let why = report["outcome_why"].as_str().expect("a reason");
    assert!(why.starts_with("the source fc.weight is not bit-equal; act"), "{why}");
}

#[test]
fn a_sign_of_zero_and_another_dtype_are_other_bits() {
    let zero = |sign: f64| model(move |run| run.alter("act", |values| values[0] = 0.0f64.copysign(sign)));
    let (status, report) = json(&zero(1.0), &zero(-1.0));
    assert_eq!((status, &report["bitwise"]["first"]["layer"]), (1, &"act".into()));
    assert_eq!(report["bitwise"]["first_index"], Value::Null, "no value differs");
    let narrow = model(|run| {
        let values = run.value("out").clone().to(DType::F16);
        run.layer("half", "cast", &["out"]).gives(values);
    });
    let wide = model(|run| {
        let values = run.value("out").clone().to(DType::F16).to(DType::F32);
        run.layer("half", "cast", &["out"]).gives(values);
    });
    let (status, report) = json(&wide, &narrow);
    assert_eq!((status, &report["bitwise"]["first"]["layer"]), (1, &"half".into()));
    assert_eq!(report["bitwise"]["why"], "float32 in the golden, float16 in the candidate");
}

#[test]
fn nothing_compared_is_incomparable_not_equal() {
    let mut other = Recorder::f32();
    other.input("elsewhere", Values::noise(&[4, 4], 9));
    other.apply("z", "sin", "elsewhere", f64::sin);
    assert_eq!(json(&model(|_| {}), &other.open()).0, 3);
}
