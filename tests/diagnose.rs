//! Where it came from: origins, roles and births, over real run directories.

mod support;

use goldline::tensor::DType;
use serde_json::json;
use support::found::{birth, births, blacklisted, first_drift, origin, origins, remedies, role_of, row, summary};
use support::{Recorder, Values, verify};

/// Four layers in a row, the last read by a fifth beside the input.
fn chain(run: Recorder) -> Recorder {
    chain_with(run, "", 1.0)
}

/// The same, where `faulty` gives `factor` times what it should, and what follows computes from that.
fn chain_with(mut run: Recorder, faulty: &str, factor: f64) -> Recorder {
    run.input("x", Values::noise(&[16, 32], 1));
    run.param("fc1.weight", Values::noise(&[32, 32], 2).map(|v| v / 6.0));
    run.param("fc2.weight", Values::noise(&[32, 32], 3).map(|v| v / 6.0));
    let broken = |run: &mut Recorder, name: &str| {
        if name == faulty {
            run.alter(name, |y| y.iter_mut().for_each(|v| *v *= factor));
        }
    };
    run.linear("fc1", "x");
    broken(&mut run, "fc1");
    run.apply("act", "tanh", "fc1", f64::tanh);
    broken(&mut run, "act");
    run.linear("fc2", "act");
    broken(&mut run, "fc2");
    run.add("out", "x", "fc2");
    run
}

// Drift.

#[test]
fn what_a_layer_passes_on_is_no_origin() {
    for faulty in ["fc1", "act", "fc2"] {
        let report = verify(&chain(Recorder::f32()), &chain_with(Recorder::f32(), faulty, 1.003));
        assert_eq!(report.verdict, "drift");
        assert_eq!((origins(&report).as_slice(), first_drift(&report)), (&[faulty][..], Some(faulty)));
        assert_eq!(role_of(&report, faulty), Some("introduced"));
        assert_eq!(role_of(&report, "out"), Some("propagated"));
        assert_eq!(remedies(&report), ["fix_defect"], "{}", summary(&report));
        assert!(report.blacklist.is_empty());
    }
}

#[test]
fn two_independent_origins_are_both_listed_in_order() {
    let build = |left: f64, right: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[16, 32], 1));
        run.input("y", Values::noise(&[16, 32], 2));
        run.apply("right", "tanh", "y", |v| v.tanh() * right);
        run.apply("left", "sigmoid", "x", |v| left / (1.0 + (-v).exp()));
        run.add("out", "left", "right");
        run
    };
    let report = verify(&build(1.0, 1.0), &build(1.01, 1.02));
    assert_eq!(origins(&report), ["right", "left"]);
    assert_eq!(first_drift(&report), Some("right"));
    assert_eq!(role_of(&report, "out"), Some("propagated"));
}

#[test]
fn what_comes_back_in_is_absorbed() {
    let build = |factor: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[16, 32], 1));
        run.apply("scaled", "mul", "x", |v| 3.0 * factor * v);
        run.layer_norm("norm", "scaled");
        run
    };
    let report = verify(&build(1.0), &build(1.01));
    assert_eq!((origins(&report).as_slice(), role_of(&report, "norm")), (&["scaled"][..], Some("absorbed")));
    assert_eq!(report.verdict, "drift");
}

#[test]
fn of_a_module_and_the_operator_inside_the_operator_is_named() {
    let build = |factor: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[16, 32], 1));
        let inner = run.value("x").clone().map(|v| v.tanh() * factor);
        let outer = inner.clone().map(f64::abs);
        run.layer("block.act", "tanh", &["x"]).with("module", "block").gives(inner);
        run.layer("block.abs", "abs", &["block.act"]).with("module", "block").gives(outer);
        run.layer("block", "Block", &["x"]).with("kind", "module").hands_on(&["block.abs"]);
        run
    };
    let report = verify(&build(1.0), &build(1.01));
    assert_eq!(origins(&report), ["block.act"], "{}", summary(&report));
}

#[test]
fn a_module_alone_is_its_own_origin() {
    let build = |factor: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[16, 32], 1));
        let inner = run.value("x").clone().map(|v| v.tanh() * factor);
        run.layer("block", "Block", &["x"]).with("kind", "module").gives(inner);
        run
    };
    assert_eq!(origins(&verify(&build(1.0), &build(1.01))), ["block"]);
}

/// Angles up to 30 000, as rotary embeddings have them, and their cosine.
fn angles(mut run: Recorder) -> Recorder {
    run.input("positions", Values::new(&[64, 1], (0..64).map(|at| f64::from(at) * 500.0)));
    run.param("freq", Values::new(&[8], (0..8).map(|at| 0.9f64.powi(at))));
    let positions = run.value("positions").clone();
    let product = Values::new(&[64, 8], positions.numbers.iter().flat_map(|p| [*p; 8]));
    let product = support::compute::zip(&product, run.value("freq"), |p, f| p * f);
    run.op("rope.angle", "mul", &["positions", "freq"], product);
    run.apply("rope.cos", "cos", "rope.angle", f64::cos);
    run
}

#[test]
fn the_cosine_of_a_large_argument_amplifies() {
    let report = verify(&angles(Recorder::f32()), &angles(Recorder::f16()));
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    let origin = origin(&report);
    assert_eq!((origin.layer.as_str(), origin.role.as_str()), ("rope.cos", "amplified"), "{}", origin.why);
    // What made the argument needs fp32 as much as what reads it.
    assert!(blacklisted(&report).contains(&"rope.angle"), "{}", summary(&report));
    assert_eq!(report.blacklist[0].reason, "conditioning");
}

#[test]
fn where_no_layer_jumps_it_is_accumulated() {
    // Each layer is off by a little more than rounding explains, none by much.
    let build = |mut run: Recorder, creep: f64| {
        run.input("x", Values::noise(&[16, 64], 1));
        let mut from = "x".to_string();
        for layer in 0..40 {
            let name = format!("layers.{layer:02}");
            let factor = if layer % 2 == 0 { 1.1 } else { 1.0 / 1.1 } * (1.0 + creep);
            run.apply(&name, "mul", &from, |v| v * factor);
            from = name;
        }
        run
    };
    let report = verify(&build(Recorder::f32(), 0.0), &build(Recorder::f32(), 1.2e-7));
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    assert_eq!(origin(&report).role, "accumulated", "{}", summary(&report));
    assert_eq!(remedies(&report), ["accumulated"]);
    assert!(report.blacklist.is_empty());
}

// Births.

/// `x² -> mean -> + eps -> rsqrt -> · x`: RMS norm taken apart.
fn rms_norm(mut run: Recorder, amplitude: f64) -> Recorder {
    run.input("x", Values::noise(&[4, 16], 1).map(|v| v * 20.0));
    run.alter("x", |x| x[16] = amplitude);
    run.apply("ln.pow", "pow", "x", |v| v * v);
    run.mean("ln.mean", "ln.pow");
    run.apply("ln.eps", "add", "ln.mean", |v| v + 1e-6);
    run.apply("ln.rsqrt", "rsqrt", "ln.eps", |v| 1.0 / v.sqrt());
    run.mul("ln.mul", "x", "ln.rsqrt");
    run
}

#[test]
fn an_overflow_has_a_birth_an_end_and_a_closure() {
    let report = verify(&rms_norm(Recorder::f32(), 400.0), &rms_norm(Recorder::f16(), 400.0));
    assert_eq!(report.verdict, "nonfinite");
    assert_eq!(births(&report), ["ln.pow"]);
    let birth = birth(&report, "ln.pow");
    assert_eq!((birth.kind.as_str(), birth.cause.as_str(), birth.count), ("inf", "overflow", 1));
    assert_eq!(birth.first_index, [1, 0]);
    assert_eq!(birth.reached, ["ln.mean", "ln.eps"]);
    // rsqrt makes 0 of it: a silent zero row, no NaN anywhere.
    assert_eq!((birth.ended.as_deref(), birth.first_nan_layer.as_deref()), (Some("ln.rsqrt"), None));
    assert_eq!(first_drift(&report), Some("ln.pow"));
    assert!(remedies(&report).contains(&"bf16"), "{}", summary(&report));
    assert_eq!(blacklisted(&report)[0], "ln.pow");
    assert_eq!(report.blacklist[0].reason, "range");
}

#[test]
fn bf16_holds_what_fp16_does_not() {
    let report = verify(&rms_norm(Recorder::f32(), 400.0), &rms_norm(Recorder::bf16(), 400.0));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
}

#[test]
fn the_closure_goes_on_until_values_fit_again() {
    let build = |mut run: Recorder| {
        run.input("x", Values::noise(&[4, 8], 1).map(|v| v * 3e3));
        run.apply("ffn.square", "pow", "x", |v| v * v);
        run.apply("ffn.scale", "mul", "ffn.square", |v| v * 2.0);
        run.add("residual", "x", "ffn.scale");
        run.layer_norm("ln2", "residual");
        run.apply("head", "tanh", "ln2", f64::tanh);
        run
    };
    let report = verify(&build(Recorder::f32()), &build(Recorder::f16()));
    assert_eq!(births(&report)[0], "ffn.square", "{}", summary(&report));
    let mut listed = blacklisted(&report);
    listed.sort_unstable();
    assert_eq!(listed, ["ffn.scale", "ffn.square", "ln2", "residual"]);
}

#[test]
fn an_underflow_is_traced_from_the_logarithm_to_the_softmax() {
    let build = |mut run: Recorder| {
        run.input("logits", Values::new(&[2, 3], [0.0, -30.0, 1.0, 2.0, 0.0, 1.0]));
        run.softmax("loss.softmax", "logits");
        run.apply("loss.log", "log", "loss.softmax", f64::ln);
        run
    };
    let report = verify(&build(Recorder::f32()), &build(Recorder::f16()));
    let birth = birth(&report, "loss.log");
    assert_eq!((birth.kind.as_str(), birth.cause.as_str()), ("inf", "underflow"), "{}", summary(&report));
    assert_eq!(birth.cause_layer.as_deref(), Some("loss.softmax"));
    assert_eq!(birth.first_index, [0, 1]);
    let mut listed = blacklisted(&report);
    listed.sort_unstable();
    assert_eq!(listed, ["loss.log", "loss.softmax"]);
    assert_eq!(report.blacklist[0].reason, "underflow");
}

#[test]
fn zero_by_zero_is_traced_through_the_eps_that_vanished() {
    let build = |mut run: Recorder| {
        run.input("x", Values::new(&[2, 4], [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]));
        run.apply("norm.square", "pow", "x", |v| v * v);
        run.mean("norm.mean", "norm.square");
        run.apply("norm.eps", "add", "norm.mean", |v| v + 1e-9);
        let result = support::compute::zip(run.value("x"), run.value("norm.eps"), |x, n| x / n);
        run.op("norm.div", "div", &["x", "norm.eps"], result);
        run
    };
    let report = verify(&build(Recorder::f32()), &build(Recorder::f16()));
    let birth = birth(&report, "norm.div");
    assert_eq!((birth.kind.as_str(), birth.cause.as_str(), birth.count), ("nan", "underflow", 4));
    assert_eq!(birth.cause_layer.as_deref(), Some("norm.eps"), "{}", summary(&report));
    assert!(blacklisted(&report).contains(&"norm.eps"));
}

#[test]
fn a_fully_masked_row_is_a_formula_and_no_list_helps() {
    let build = |row: f64| {
        let mut run = Recorder::f32();
        let masked = Values::noise(&[3, 4], 1).map(|v| v);
        run.input("scores", masked);
        run.alter("scores", |s| s[4..8].fill(f64::NEG_INFINITY));
        run.softmax("softmax", "scores");
        run.alter("softmax", |p| p[4..8].fill(row));
        run
    };
    let report = verify(&build(0.0), &build(f64::NAN));
    assert_eq!((report.verdict.as_str(), births(&report).as_slice()), ("nonfinite", &["softmax"][..]));
    let birth = birth(&report, "softmax");
    assert_eq!((birth.cause.as_str(), birth.count), ("formula", 4), "{}", summary(&report));
    assert!(report.blacklist.is_empty());
    assert_eq!(remedies(&report), ["fix_defect"]);
}

#[test]
fn nan_in_the_golden_alone_is_born_there() {
    let mut golden = chain(Recorder::f32());
    golden.alter("fc2", |y| y[7] = f64::NAN);
    golden.alter("out", |y| y[7] = f64::NAN);
    let report = verify(&golden, &chain(Recorder::f32()));
    assert_eq!(report.verdict, "nonfinite");
    assert_eq!(births(&report), ["fc2"]);
    let birth = birth(&report, "fc2");
    assert_eq!(
        (birth.side.as_str(), birth.kind.as_str(), birth.first_nan_layer.as_deref()),
        ("golden", "nan", Some("fc2"))
    );
    assert_eq!((birth.reached.as_slice(), birth.ended.as_deref()), (&["out".to_string()][..], None));
    assert!(report.blacklist.is_empty());
}

#[test]
fn a_nan_that_came_in_at_another_coordinate_is_a_birth_of_its_own() {
    let mut candidate = chain(Recorder::f32());
    // Row 2 carries the NaN on; in row 9 another is born in the middle of it.
    candidate.alter("fc1", |y| y[2 * 32..3 * 32].fill(f64::NAN));
    candidate.alter("act", |y| {
        y[2 * 32..3 * 32].fill(f64::NAN);
        y[9 * 32 + 4] = f64::NAN;
    });
    for layer in ["fc2", "out"] {
        candidate.alter(layer, |y| [2, 9].iter().for_each(|row| y[row * 32..(row + 1) * 32].fill(f64::NAN)));
    }
    let report = verify(&chain(Recorder::f32()), &candidate);
    assert_eq!(births(&report), ["fc1", "act"], "{}", summary(&report));
    assert_eq!((birth(&report, "act").count, birth(&report, "act").first_index.as_slice()), (1, &[9, 4][..]));
}

#[test]
fn a_cast_that_only_the_candidate_has_is_the_birth_in_its_stretch() {
    let mut golden = Recorder::f32();
    golden.input("x", Values::noise(&[4, 8], 1).map(|v| v * 1e5));
    golden.apply("scale", "mul", "x", |v| v * 1.5);
    golden.apply("act", "relu", "scale", |v| v.max(0.0));
    golden.apply("out", "tanh", "act", |v| (v / 1e6).tanh());
    let mut candidate = Recorder::f32();
    candidate.input("x", Values::noise(&[4, 8], 1).map(|v| v * 1e5));
    candidate.apply("scale", "mul", "x", |v| v * 1.5);
    let narrow = candidate.value("scale").clone().to(DType::F16);
    candidate.layer("scale.to_half", "cast", &["scale"]).gives(narrow);
    candidate.apply("act", "relu", "scale.to_half", |v| v.max(0.0));
    candidate.apply("out", "tanh", "act", |v| (v / 1e6).tanh());
    let report = verify(&golden, &candidate);
    assert_eq!(report.verdict, "nonfinite");
    assert_eq!(births(&report), ["scale.to_half"], "{}", summary(&report));
    let birth = birth(&report, "scale.to_half");
    assert_eq!((birth.index, birth.cause.as_str(), birth.kind.as_str()), (None, "overflow", "inf"));
    assert_eq!(birth.reached, ["act"]);
    assert_eq!(birth.ended.as_deref(), Some("out"));
}

#[test]
fn an_inf_whose_result_would_fit_overflowed_inside_the_operator() {
    let build = |mut run: Recorder, inside: bool| {
        run.input("q", Values::full(&[2, 4], 100.0));
        run.param("k", Values::full(&[3, 4], 100.0));
        let product = support::compute::product(run.value("q"), run.value("k")).map(|v| v / 4.0);
        run.op("scores", "matmul", &["q", "k"], product);
        if inside {
            run.alter("scores", |y| y[2] = f64::INFINITY);
        }
        run
    };
    let report = verify(&build(Recorder::f32(), false), &build(Recorder::f16(), true));
    let birth = birth(&report, "scores");
    assert_eq!((birth.cause.as_str(), birth.first_index.as_slice()), ("internal_overflow", &[0, 2][..]));
    // In fp32 there is no such excuse.
    let report = verify(&build(Recorder::f32(), false), &build(Recorder::f32(), true));
    assert_eq!(support::found::birth(&report, "scores").cause, "defect", "{}", summary(&report));
    assert!(report.blacklist.is_empty());
}

#[test]
fn a_device_that_saturates_is_told_from_one_that_is_right() {
    let build = |mut run: Recorder| {
        run.input("x", Values::noise(&[4, 8], 1).map(|v| v * 400.0));
        run.apply("square", "pow", "x", |v| v * v);
        run.apply("out", "tanh", "square", |v| (v / 1e5).tanh());
        run
    };
    let mut candidate = build(Recorder::f16());
    candidate.alter("square", |y| y.iter_mut().for_each(|v| *v = v.min(65504.0)));
    candidate.alter("out", |y| y.iter_mut().filter(|v| **v >= 1.0).for_each(|v| *v = 0.576));
    let report = verify(&build(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    let origin = origin(&report);
    assert_eq!(origin.layer, "square");
    assert!(origin.why.contains("finite is not safe on this device"), "{}", origin.why);
    assert!(row(&report, "square").outputs[0].metrics["saturated"].unwrap() > 0.0);
    assert_eq!(blacklisted(&report)[0], "square");
    assert_eq!(report.blacklist[0].reason, "range");
}

#[test]
fn a_gradient_that_overflows_asks_for_another_loss_scale() {
    let build = |mut run: Recorder, scale: f64| {
        run.input("x", Values::noise(&[4, 8], 1));
        run.apply("loss", "mean", "x", |v| v);
        let grad = run.value("x").clone().map(|v| v * 30.0 * scale).to(run.dtype);
        run.layer("loss.grad", "mul", &["x"]).with("pass", "backward").gives(grad);
        run
    };
    let report = verify(&build(Recorder::f32(), 65536.0), &build(Recorder::f16(), 65536.0));
    assert_eq!(births(&report), ["loss.grad"]);
    assert_eq!(birth(&report, "loss.grad").pass, "backward");
    assert_eq!(remedies(&report)[0], "loss_scale", "{}", summary(&report));
    assert!(report.blacklist.is_empty());
}

#[test]
fn a_numeric_switch_that_differs_comes_before_any_operator() {
    let with_switch = |run: Recorder, on: bool| run.meta("environment", json!({"flags": {"allow_hf32": on}}));
    let golden = with_switch(chain(Recorder::f32()), false);
    let candidate = with_switch(chain_with(Recorder::f32(), "fc1", 1.001), true);
    let report = verify(&golden, &candidate);
    assert_eq!(remedies(&report)[0], "align_environment", "{}", summary(&report));
    assert!(
        report.differences.iter().any(|line| line.contains("allow_hf32: false / true")),
        "{:?}",
        report.differences
    );
}
