//! Differences of precision policy and device, by operator, told before any operator is blamed.

mod support;

use goldline::tensor::DType;
use serde_json::json;
use support::{Recorder, Values, verify};

/// Two softmax layers in `dtype`, one relu in fp32, one gelu computed in `compute` and recorded in fp32.
fn model(run: Recorder, dtype: DType, compute: Option<&str>, device: Option<&str>) -> Recorder {
    let mut run = run;
    run.input("x", Values::noise(&[8, 16], 1));
    for layer in ["s1", "s2"] {
        let values = Values::full(&[8, 16], 0.0625).to(dtype);
        let mut spec = run.layer(layer, "softmax", &["x"]);
        if device.is_some() {
            spec = spec.with("device", "npu:0");
        }
        spec.gives(values);
    }
    let mut spec = run.layer("r", "relu", &["s2"]);
    if let Some(device) = device {
        spec = spec.with("device", device);
    }
    spec.gives(Values::full(&[8, 16], 0.0625));
    let mut spec = run.layer("g", "gelu", &["r"]);
    if let Some(compute) = compute {
        spec = spec.with("compute", compute);
    }
    spec.gives(Values::full(&[8, 16], 0.0625));
    run.layer("v", "view", &["s1"]).gives(Values::full(&[8, 16], 0.0625).to(dtype));
    run
}

#[test]
fn each_operator_type_that_ran_in_another_dtype_is_one_line() {
    let golden = model(Recorder::f32(), DType::F32, None, None);
    let candidate = model(Recorder::f32(), DType::BF16, Some("float16"), None);
    assert_eq!(
        verify(&golden, &candidate).differences,
        [
            "softmax: float32 in the golden, bfloat16 in the candidate (2 layers)",
            "gelu: float32 in the golden, float16 in the candidate (1 layer)",
        ]
    );
    assert!(verify(&golden, &golden).differences.is_empty());
}

#[test]
fn what_the_environments_say_stands_first() {
    let environment = |tf32: bool| {
        let flags = json!({"device": "npu:0", "flags": {"allow_tf32": tf32}});
        model(Recorder::f32().meta("environment", flags), if tf32 { DType::F16 } else { DType::F32 }, None, None)
    };
    let lines = verify(&environment(false), &environment(true)).differences;
    let [first, second] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(first.contains("allow_tf32: false / true"), "{lines:?}");
    assert!(second.starts_with("softmax: float32"), "{lines:?}");
}

#[test]
fn an_operator_that_fell_back_to_another_device_is_told() {
    let candidate = |declared: &str| {
        let run = Recorder::f32().meta("environment", json!({"device": declared}));
        verify(&model(Recorder::f32(), DType::F32, None, None), &model(run, DType::F32, None, Some("cpu"))).differences
    };
    let line = "relu: on cpu in the candidate, whose device is npu (1 layer)".to_string();
    // A product's name is no device; most layers tell then.
    for declared in ["npu:0", "Ascend 910B"] {
        let lines = candidate(declared);
        assert_eq!(lines.last(), Some(&line), "{lines:?}");
    }
}

#[test]
fn autocast_lists_that_differ_are_told_and_many_lines_are_counted() {
    let with = |ops: &[&str], dtype: DType| {
        let precision = json!({"compute": "float32", "fp32_ops": ops});
        let mut run = Recorder::f32().meta("precision", precision);
        run.input("x", Values::noise(&[8, 8], 1));
        for op in ["abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor"] {
            run.layer(op, op, &["x"]).gives(Values::full(&[8, 8], 1.0).to(dtype));
        }
        run
    };
    let lines = verify(&with(&["softmax", "exp"], DType::F32), &with(&["exp", "pow"], DType::F16)).differences;
    assert_eq!(lines[0], "precision.fp32_ops: only in the golden softmax; only in the candidate pow");
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert_eq!(lines[9], "3 more operator types differ in dtype");
}
