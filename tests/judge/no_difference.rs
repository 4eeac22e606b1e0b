//! Values that differ and are no difference.

use goldline::tensor::DType;

use crate::mlp;
use crate::support::found::{birth, births, first_drift, remedies, row, summary, verdict_of};
use crate::support::{Recorder, Values, verify};

/// Scores with a mask added, then softmax; `masked` is what stands at masked positions.
fn masked(dtype: DType, masked: f64) -> Recorder {
    let mut run = Recorder::new(dtype);
    run.input("scores", Values::noise(&[4, 8], 1).to(dtype));
    let added = run.value("scores").clone();
    let numbers = added.numbers.iter().enumerate().map(|(at, v)| if at % 8 > at / 8 + 3 { masked } else { *v });
    let added = Values::of(dtype, &[4, 8], numbers);
    run.op("mask", "masked_fill", &["scores"], added);
    run.softmax("softmax", "mask");
    run
}

#[test]
fn mask_sentinels_of_any_spelling_are_no_difference() {
    let lowest = (f64::from(f32::MIN), -65504.0, f64::NEG_INFINITY);
    for (golden, candidate) in [(lowest.0, lowest.1), (lowest.0, lowest.2), (lowest.2, lowest.1), (lowest.2, lowest.2)]
    {
        let report = verify(&masked(DType::F32, golden), &masked(DType::F16, candidate));
        assert_eq!(report.verdict, "pass", "{golden} {candidate} {}", summary(&report));
        assert!(births(&report).is_empty());
    }
    // A number that is merely large is one.
    let report = verify(&masked(DType::F32, f64::from(f32::MIN)), &masked(DType::F32, -1e4));
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
}

#[test]
fn nan_at_the_same_place_in_both_is_listed_and_never_an_origin() {
    let build = || {
        let mut run = mlp(Recorder::f32());
        run.alter("fc1", |y| y[40] = f64::NAN);
        run.alter("act", |y| y[40] = f64::NAN);
        run
    };
    let report = verify(&build(), &build());
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    let birth = birth(&report, "fc1");
    assert_eq!((birth.side.as_str(), birth.count), ("both", 1));
    assert!(report.origins.is_empty());
    assert_eq!(remedies(&report), ["check_model"]);
}

#[test]
fn an_operator_in_place_that_overwrote_its_operand_is_aliasing() {
    let mut candidate = mlp(Recorder::f32());
    let overwritten = candidate.value("act").numbers.clone();
    candidate.alter("fc1", |y| *y = overwritten);
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert_eq!(verdict_of(&report, "fc1"), "skipped");
    assert!(row(&report, "fc1").why.contains("aliasing"), "{}", row(&report, "fc1").why);
    assert!(report.notes.iter().any(|note| note.contains("aliasing")));
    // What follows is out: then it is no slip of the recorder.
    candidate.alter("act", |y| y.iter_mut().for_each(|v| *v *= 1.5));
    let report = verify(&mlp(Recorder::f32()), &candidate);
    assert_eq!((report.verdict.as_str(), first_drift(&report)), ("drift", Some("fc1")));
}

#[test]
fn what_a_factory_leaves_undefined_is_never_judged() {
    let build = |seed: u64| {
        let mut run = mlp(Recorder::f32());
        run.op("buffer", "empty", &[], Values::noise(&[16, 32], seed));
        run
    };
    let report = verify(&build(5), &build(6));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(row(&report, "buffer").why.contains("factory"));
}
