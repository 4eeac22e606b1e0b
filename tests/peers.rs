//! Peer groups: what every layer of an operator does alike is the device; what one does alone is a fault.

mod support;

use goldline::report::model::Report;
use support::found::{origins, summary};
use support::{Recorder, Values, verify};

/// `t0 … tn` read the same input; each is off by its share of `errors`, with varying sign.
fn model(mut run: Recorder, errors: &[f64]) -> Recorder {
    run.input("x", Values::noise(&[32, 64], 1));
    for (at, error) in errors.iter().enumerate() {
        let mut sign = 1.0;
        let from = run.value("x").clone().to(goldline::tensor::DType::F64);
        let numbers: Vec<f64> = from
            .numbers
            .iter()
            .map(|v| {
                sign = -sign;
                v.tanh() * (1.0 + sign * error)
            })
            .collect();
        run.op(&format!("t{at}"), "tanh", &["x"], Values::of(from.dtype, &from.shape, numbers));
    }
    run
}

fn held(errors: &[f64]) -> Report {
    verify(&model(Recorder::f32(), &vec![0.0; errors.len()]), &model(Recorder::bf16(), errors))
}

/// Some three roundings of bfloat16: beyond what replay allows, within what vendors accept.
const SLIGHT: f64 = 5e-3;

fn notes<'r>(report: &'r Report, head: &str) -> Vec<&'r String> {
    report.notes.iter().filter(|note| note.starts_with(head)).collect()
}

#[test]
fn what_all_layers_of_an_operator_do_within_the_vendors_limit_is_one_line() {
    let report = held(&[SLIGHT; 5]);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(origins(&report).is_empty());
    let notes = notes(&report, "device characteristic of tanh");
    assert!(notes.len() == 1 && notes[0].contains("5 layers"), "{:?}", report.notes);
}

#[test]
fn a_few_layers_are_no_group_and_half_of_one_is_no_median() {
    assert_eq!(origins(&held(&[SLIGHT; 3])), ["t0", "t1", "t2"]);
    let report = held(&[SLIGHT, 0.0, SLIGHT, 0.0]);
    assert_eq!(origins(&report), ["t0", "t2"], "{}", summary(&report));
    assert!(notes(&report, "device characteristic").is_empty());
}

#[test]
fn a_member_far_above_its_group_is_an_origin_of_its_own() {
    let report = held(&[SLIGHT, SLIGHT, 0.1, SLIGHT, SLIGHT]);
    assert_eq!(origins(&report), ["t2"], "{}", summary(&report));
}

#[test]
fn beyond_what_vendors_accept_the_group_stays_out_and_is_called_systematic() {
    let report = held(&[0.05; 5]);
    assert_eq!(report.verdict, "drift");
    assert_eq!(origins(&report).len(), 5, "{}", summary(&report));
    assert_eq!(notes(&report, "systematic in tanh").len(), 1, "{:?}", report.notes);
}
