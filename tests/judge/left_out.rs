//! What is not compared, or compared and not judged.

use serde_json::json;

use crate::mlp;
use crate::support::found::{first_drift, row, summary, verdict_of};
use crate::support::{Recorder, Values, verify, verify_case};

#[test]
fn a_candidate_that_ends_early_is_incomparable_and_says_where() {
    let mut candidate = mlp(Recorder::f32());
    candidate.end_before("fc2");
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "incomparable");
    assert!(report.why.contains("the last layer that was is act"), "{}", report.why);
    assert_eq!(report.summary.missing, 2);
}

#[test]
fn an_end_that_was_not_stored_is_incomparable() {
    let mut candidate = mlp(Recorder::f32());
    candidate.forget("out");
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "incomparable", "{}", summary(&report));
    assert!(report.why.contains("out:0"), "{}", report.why);
    assert_eq!(verdict_of(&report, "out"), "skipped");
    assert!(row(&report, "out").why.contains("not stored in the candidate"));
}

#[test]
fn another_shape_is_a_mismatch() {
    let mut candidate = mlp(Recorder::f32());
    candidate.op("pooled", "max", &["out"], Values::noise(&[16, 1], 4));
    let mut golden = mlp(Recorder::f32());
    golden.op("pooled", "max", &["out"], Values::noise(&[16], 4));
    let report = verify(&golden, &candidate);
    assert_eq!((report.verdict.as_str(), verdict_of(&report, "pooled")), ("drift", "mismatch"), "{}", summary(&report));
    assert!(row(&report, "pooled").why.contains("[16, 1]"), "{}", row(&report, "pooled").why);
}

#[test]
fn an_excluded_layer_is_skipped_and_the_drift_behind_it_is_found() {
    let mut candidate = mlp(Recorder::f32());
    for layer in ["fc1", "act"] {
        candidate.alter(layer, |y| y.iter_mut().for_each(|v| *v *= 1.1));
    }
    candidate.alter("fc2", |y| y.iter_mut().for_each(|v| *v += 0.1));
    let report = verify_case(&mlp(Recorder::f32()), &candidate, "layers: {exclude: ['fc1', 'act']}");
    assert_eq!(report.verdict, "drift");
    assert_eq!(verdict_of(&report, "fc1"), "skipped");
    assert!(row(&report, "fc1").why.contains("layers.exclude 'fc1'"));
    assert_eq!(first_drift(&report), Some("fc2"), "{}", summary(&report));
}

#[test]
fn garbage_at_padded_positions_is_not_judged() {
    let build = |garbage: f64, valid: f64| {
        let mut run = Recorder::f32();
        run.input("attention_mask", Values::i64(&[2, 4], [1, 1, 1, 0, 1, 1, 0, 0]));
        run.input("x", Values::noise(&[2, 4, 8], 1));
        run.apply("y", "tanh", "x", f64::tanh);
        run.alter("y", |y| {
            y[3 * 8] = garbage;
            y[7 * 8] = garbage;
            y[0] += valid;
        });
        run
    };
    let valid = "valid: {mask: attention_mask}";
    let (golden, garbage) = (build(0.0, 0.0), build(1e6, 0.0));
    assert_eq!(verify_case(&golden, &garbage, "").verdict, "drift");
    let report = verify_case(&golden, &garbage, valid);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert_eq!(row(&report, "y").outputs[0].metrics["invalid"], Some(24.0));
    assert_eq!(verify_case(&golden, &build(f64::NAN, 0.0), valid).verdict, "pass");
    assert_eq!(verify_case(&golden, &build(0.0, 0.1), valid).verdict, "drift");
    // The mask itself counts everywhere.
    let mut unmasked = build(0.0, 0.0);
    unmasked.alter("attention_mask", |mask| mask[3] = 1.0);
    assert_eq!(first_drift(&verify_case(&golden, &unmasked, valid)), Some("attention_mask"));
}

#[test]
fn indices_and_signatures_look_at_valid_positions_alone() {
    let valid = "valid: {mask: mask}";
    let build = |padded: f64, factor: f64| {
        let mut run = Recorder::f32();
        run.input("mask", Values::i64(&[8], [1, 1, 1, 1, 1, 1, 0, 0]));
        run.input("x", Values::noise(&[8, 16], 1));
        let largest = (0..8).map(|row| {
            let row = run.value("x").numbers[row * 16..][..16].to_vec();
            row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at as i64)
        });
        let mut largest: Vec<i64> = largest.collect();
        if padded != 0.0 {
            largest[7] = (largest[7] + 1) % 16;
        }
        run.layer("pick", "argmax", &["x"])
            .with("input_names", json!(["self"]))
            .with("attrs", json!({"dim": -1, "keepdim": false}))
            .gives(Values::i64(&[8], largest));
        run.apply("y", "tanh", "x", f64::tanh);
        run.alter("y", |y| {
            y[..6 * 16].iter_mut().for_each(|v| *v *= factor);
            y[6 * 16..].iter_mut().for_each(|v| *v += padded);
        });
        run
    };
    let golden = build(0.0, 1.0);
    let report = verify_case(&golden, &build(1e3, 1.0), valid);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert_eq!(verify_case(&golden, &build(1e3, 1.0), "").verdict, "drift");
    let report = verify_case(&golden, &build(1e3, 1.25), valid);
    assert_eq!(report.signatures.first().map(|s| s.kind.as_str()), Some("scale"), "{}", summary(&report));
}

#[test]
fn an_end_without_partner_that_only_moves_what_was_compared_leaves_nothing_out() {
    let build = |copied: bool, source: &str| {
        let mut run = mlp(Recorder::f32());
        run.input("buffer", Values::noise(&[8, 32], 9));
        if copied {
            let values = run.value(source).clone();
            run.layer("kept", "copy_", &["buffer", source]).with("input_names", json!(["self", "src"])).gives(values);
        }
        run
    };
    let report = verify(&build(true, "out"), &build(false, "out"));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    // What it copies has no partner either: then the end of the run was not compared.
    let mut golden = build(false, "out");
    golden.apply("last", "tanh", "out", f64::tanh);
    let values = golden.value("last").clone();
    golden.layer("kept", "copy_", &["buffer", "last"]).with("input_names", json!(["self", "src"])).gives(values);
    assert_eq!(verify(&golden, &build(false, "out")).verdict, "incomparable");
}
