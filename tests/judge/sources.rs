//! What the model was given: inputs, parameters, random draws.

use goldline::tensor::DType;
use serde_json::json;

use crate::mlp;
use crate::support::compute;
use crate::support::found::{birth, births, first_drift, origin, origins, remedies, row, summary, verdict_of};
use crate::support::{Recorder, Values, verify};

#[test]
fn a_low_precision_run_of_the_same_model_passes() {
    for candidate in [Recorder::f16(), Recorder::bf16(), Recorder::f32()] {
        let report = verify(&mlp(Recorder::f32()), &mlp(candidate));
        assert_eq!(report.verdict, "pass", "{}", summary(&report));
        assert_eq!(report.summary.pass, 7);
    }
}

#[test]
fn other_weights_make_the_case_incomparable_and_blame_no_operator() {
    let mut candidate = mlp(Recorder::f32());
    candidate.alter("fc1.weight", |w| w[5] += 0.01);
    candidate.alter("fc1", |y| y.iter_mut().for_each(|v| *v += 0.1));
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "incomparable");
    assert_eq!(first_drift(&report), Some("fc1.weight"));
    assert_eq!((origin(&report).layer.as_str(), origin(&report).role.as_str()), ("fc1.weight", "source"));
    assert_eq!(remedies(&report), ["align_sources"]);
    assert_eq!(verdict_of(&report, "fc1"), "skipped");
    assert!(report.blacklist.is_empty());
}

#[test]
fn a_source_that_was_rounded_once_is_the_same_source() {
    let mut candidate = Recorder::bf16();
    candidate.input("x", Values::noise(&[8, 8], 1).to(DType::BF16));
    candidate.apply("y", "relu", "x", |v| v.max(0.0));
    let mut golden = Recorder::f32();
    golden.input("x", Values::noise(&[8, 8], 1));
    golden.apply("y", "relu", "x", |v| v.max(0.0));
    let report = verify(&golden, &candidate);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(row(&report, "x").why.contains("after rounding to bfloat16"), "{}", row(&report, "x").why);
}

#[test]
fn at_a_later_step_a_parameter_drifts_and_nothing_is_incomparable() {
    let at_step = |step: u64| {
        let golden = mlp(Recorder::f32().meta("step", json!(step)));
        let mut candidate = mlp(Recorder::f32().meta("step", json!(step)));
        candidate.alter("fc1.weight", |w| w[5] += 0.01);
        verify(&golden, &candidate)
    };
    assert_eq!(at_step(0).verdict, "incomparable");
    let later = at_step(1);
    assert_eq!(later.verdict, "drift", "{}", summary(&later));
    assert_eq!(verdict_of(&later, "fc1.weight"), "drift");
}

#[test]
fn a_source_that_holds_nan_on_one_side_is_the_birth() {
    let mut candidate = mlp(Recorder::f32());
    candidate.alter("x", |x| x[3] = f64::NAN);
    candidate.alter("fc1", |y| y[..32].fill(f64::NAN));
    candidate.alter("act", |y| y[..32].fill(f64::NAN));
    candidate.alter("fc2", |y| y[..32].fill(f64::NAN));
    candidate.alter("out", |y| y[..32].fill(f64::NAN));
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "nonfinite", "{}", summary(&report));
    assert_eq!(births(&report), ["x"]);
    let birth = birth(&report, "x");
    assert_eq!((birth.cause.as_str(), birth.count, birth.first_index.as_slice()), ("source", 1, &[0, 3][..]));
    assert!(report.blacklist.is_empty());
    assert_eq!(remedies(&report), ["align_sources"]);
}

#[test]
fn a_differing_seed_decides_only_where_no_source_was_recorded() {
    let with_seed = |seed: i64| mlp(Recorder::f32().meta("seed", json!(seed)));
    let report = verify(&with_seed(1), &with_seed(2));
    assert_eq!(report.verdict, "pass");
    assert!(report.notes.iter().any(|note| note.contains("seeds differ")), "{:?}", report.notes);
    let bare = |seed: i64| {
        let mut run = Recorder::f32().meta("seed", json!(seed));
        run.op("y", "relu", &[], Values::noise(&[8, 8], 1));
        run
    };
    assert_eq!(verify(&bare(1), &bare(2)).verdict, "incomparable");
    assert_eq!(verify(&bare(1), &bare(1)).verdict, "pass");
}

#[test]
fn dropout_that_drew_something_else_is_a_source() {
    let build = |keep: u64, fault: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[8, 32], 1));
        run.apply("before", "tanh", "x", |v| v.tanh() * (1.0 + fault));
        let mask = Values::noise(&[8, 32], keep);
        let dropped = compute::zip(run.value("before"), &mask, |v, m| if m > 0.0 { 2.0 * v } else { 0.0 });
        run.op("drop", "dropout", &["before"], dropped);
        run.apply("after", "abs", "drop", f64::abs);
        run
    };
    let report = verify(&build(7, 0.0), &build(8, 0.0));
    assert_eq!(report.verdict, "incomparable", "{}", summary(&report));
    assert_eq!((first_drift(&report), origins(&report).as_slice()), (Some("drop"), &["drop"][..]));
    assert_eq!(verdict_of(&report, "after"), "skipped");
    // Something worse stands before it: that is the finding.
    let report = verify(&build(7, 0.0), &build(8, 0.01));
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    assert_eq!(first_drift(&report), Some("before"));
}
