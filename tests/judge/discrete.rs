//! Indices, steps, integers: right or wrong.

use goldline::tensor::DType;
use serde_json::json;

use crate::support::found::{first_drift, origin, summary};
use crate::support::{Recorder, Values, verify};

/// Router logits, the best two of each row, and what the chosen experts give.
fn router(logits: Values, chosen: [i64; 4], consumer: f64) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::full(&[2, 4], 1.0));
    run.op("logits", "gate", &["x"], logits);
    let values: Vec<f64> =
        chosen.iter().enumerate().map(|(at, &i)| run.value("logits").numbers[at / 2 * 4 + i as usize]).collect();
    run.layer("topk", "topk", &["logits"])
        .with("attrs", json!({"k": 2, "dim": -1, "largest": true, "sorted": true}))
        .gives_all([Values::new(&[2, 2], values), Values::i64(&[2, 2], chosen)]);
    run.op("experts", "moe", &["topk:1"], Values::full(&[2, 3], consumer));
    run
}

#[test]
fn an_index_that_differs_where_the_values_tie_passes() {
    let logits = Values::new(&[2, 4], [1.0, 3.0, 3.0, 0.0, 2.0, 1.0, 0.0, 5.0]);
    let golden = router(logits.clone(), [1, 2, 3, 0], 1.0);
    let report = verify(&golden, &router(logits.clone(), [2, 1, 3, 0], 1.0));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(report.notes.iter().any(|note| note.contains("tie exactly")), "{:?}", report.notes);
    // Values that are apart are a difference.
    let report = verify(&golden, &router(logits, [1, 2, 0, 3], 1.0));
    assert_eq!((report.verdict.as_str(), first_drift(&report)), ("drift", Some("topk")));
}

#[test]
fn an_index_near_a_tie_passes_unless_its_consumer_is_out() {
    let near = 3.0 + 2e-7;
    let logits = Values::new(&[2, 4], [1.0, near, 3.0, 0.0, 2.0, 1.0, 0.0, 5.0]);
    let golden = router(logits, [1, 2, 3, 0], 1.0);
    // The candidate's own logits order the two the other way.
    let logits = Values::new(&[2, 4], [1.0, 3.0, near, 0.0, 2.0, 1.0, 0.0, 5.0]);
    let report = verify(&golden, &router(logits.clone(), [2, 1, 3, 0], 1.0));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(report.notes.iter().any(|note| note.contains("near-ties")), "{:?}", report.notes);
    let report = verify(&golden, &router(logits, [2, 1, 3, 0], 1.5));
    assert_eq!(report.verdict, "drift");
    let origin = origin(&report);
    assert_eq!((origin.layer.as_str(), origin.role.as_str()), ("topk", "amplified"), "{}", summary(&report));
}

#[test]
fn a_quantizer_may_be_one_step_off() {
    let build = |off: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[8, 8], 1));
        let steps = run.value("x").numbers.iter().map(|v| (v * 20.0).round()).collect::<Vec<_>>();
        let steps = Values::of(DType::I8, &[8, 8], steps).set(3, off);
        run.layer("q", "quantize", &["x"]).gives(steps);
        run
    };
    assert_eq!(verify(&build(7.0), &build(8.0)).verdict, "pass");
    let report = verify(&build(7.0), &build(9.0));
    assert_eq!((report.verdict.as_str(), first_drift(&report)), ("drift", Some("q")));
}

#[test]
fn integers_and_flags_are_compared_exactly() {
    for dtype in [DType::I64, DType::Bool] {
        let build = |value: f64| {
            let mut run = Recorder::f32();
            run.input("x", Values::noise(&[2, 2], 1));
            run.layer("y", "gt", &["x"]).gives(Values::of(dtype, &[4], [0.0, 1.0, value, 1.0]));
            run
        };
        assert_eq!(verify(&build(1.0), &build(1.0)).verdict, "pass");
        assert_eq!(verify(&build(1.0), &build(0.0)).verdict, "drift");
    }
}
