//! Where the limits stand, and what moves them.

use goldline::tensor::DType;
use serde_json::json;

use crate::mlp;
use crate::support::compute;
use crate::support::found::{first_drift, row, summary};
use crate::support::{Recorder, Values, verify, verify_case};

#[test]
fn an_explicit_limit_replaces_auto_for_its_metric_alone() {
    let mut candidate = mlp(Recorder::f32());
    candidate.alter("fc1", |y| y.iter_mut().for_each(|v| *v *= 1.0 + 1e-4));
    candidate.alter("act", |y| y.iter_mut().for_each(|v| *v *= 1.0 + 1e-4));
    let golden = mlp(Recorder::f32());
    assert_eq!(verify(&golden, &candidate).verdict, "drift");
    let wide = verify_case(&golden, &candidate, "tolerance: {default: {rel_l2: 1e-3}}");
    assert_eq!(wide.verdict, "pass", "{}", summary(&wide));
    // Its source is told with it.
    let limit = &row(&wide, "fc1").outputs[0].limits["rel_l2"];
    assert_eq!(limit.value, 1e-3);
    // A limit on another metric leaves rel_l2 as it was, and holds besides.
    let other = verify_case(&golden, &candidate, "tolerance: {default: {max_abs: 1.0}}");
    assert_eq!(other.verdict, "drift");
    let tight = verify_case(&golden, &golden, "tolerance: {layer: {fc1: {cosine: 0.999}}}");
    assert_eq!(tight.verdict, "pass");
    let tight = verify_case(&golden, &candidate, "tolerance: {default: {rel_l2: 1e-3}, layer: {fc1: {max_abs: 1e-9}}}");
    assert_eq!((tight.verdict.as_str(), first_drift(&tight)), ("drift", Some("fc1")));
}

/// Mean of each row, and the sum of two tensors that nearly cancel.
fn cancelling(mut run: Recorder, fault: f64) -> Recorder {
    let x = Values::noise(&[8, 256], 1);
    // Rows whose mean is zero but for rounding.
    let centred = compute::by_row(&x, |row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|v| v - mean).collect()
    });
    run.input("x", centred.to(DType::F32));
    run.apply("a", "mul", "x", |v| v * 1.1);
    run.mean("mean", "a");
    run.apply("b", "neg", "a", |v| -v * (1.0 + 1e-3));
    run.add("rest", "a", "b");
    run.alter("rest", |y| y.iter_mut().for_each(|v| *v += fault));
    run
}

#[test]
fn sums_that_cancel_are_held_against_what_was_summed() {
    for candidate in [Recorder::f16(), Recorder::bf16()] {
        let report = verify(&cancelling(Recorder::f32(), 0.0), &cancelling(candidate, 0.0));
        assert_eq!(report.verdict, "pass", "{}", summary(&report));
        let rel_l2 = row(&report, "mean").outputs[0].metrics["rel_l2"].unwrap();
        assert!(rel_l2 > 0.1, "the test is about a mean without a digit in common, found {rel_l2}");
    }
    let report = verify(&cancelling(Recorder::f32(), 0.0), &cancelling(Recorder::f32(), 1e-4));
    assert_eq!(first_drift(&report), Some("rest"), "{}", summary(&report));
}

#[test]
fn an_all_zero_golden_is_held_against_the_magnitude_that_was_summed() {
    let build = |rest: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[8, 8], 1));
        run.apply("a", "relu", "x", |v| v.max(0.0));
        run.apply("b", "neg", "a", |v| -v);
        run.add("zero", "a", "b");
        run.alter("zero", |y| y[9] = rest);
        run
    };
    let report = verify(&build(0.0), &build(1e-8));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert_eq!(row(&report, "zero").outputs[0].metrics["rel_l2"], None);
    let report = verify(&build(0.0), &build(1e-3));
    assert_eq!(first_drift(&report), Some("zero"), "{}", summary(&report));
}

#[test]
fn subnormals_have_a_floor() {
    // Gradients near 1e-7: a few steps of 6e-8 in fp16.
    let build = |mut run: Recorder, fault: f64| {
        run.input("x", Values::noise(&[16, 16], 1));
        run.apply("grad", "mul", "x", |v| v * 1e-7 * fault);
        run
    };
    let report = verify(&build(Recorder::f32(), 1.0), &build(Recorder::f16(), 1.0));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(row(&report, "grad").outputs[0].metrics["rel_l2"].unwrap() > 0.05);
    assert_eq!(verify(&build(Recorder::f32(), 1.0), &build(Recorder::f16(), 8.0)).verdict, "drift");
}

#[test]
fn one_wrong_element_in_a_hundred_thousand_is_found() {
    let build = |wrong: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[250, 400], 1));
        run.apply("y", "tanh", "x", f64::tanh);
        run.alter("y", |y| y[54_321] += wrong);
        run
    };
    let report = verify(&build(0.0), &build(2e-4));
    assert_eq!(first_drift(&report), Some("y"), "{}", summary(&report));
    assert!(row(&report, "y").outputs[0].metrics["cosine"].unwrap() > 0.999_999);
    assert_eq!(verify(&build(0.0), &build(0.0)).verdict, "pass");
}

#[test]
fn one_dead_channel_beside_a_massive_one_is_found() {
    let build = |dead: bool| {
        let mut run = Recorder::bf16();
        run.input("x", Values::noise(&[64, 16], 1));
        let gain: Vec<f64> = (0..16).map(|channel| if channel == 3 { 20_000.0 } else { 1.0 }).collect();
        run.param("gain", Values::new(&[16], gain));
        run.mul("y", "x", "gain");
        if dead {
            run.alter("y", |y| y.iter_mut().skip(7).step_by(16).for_each(|v| *v = 0.0));
        }
        run
    };
    let report = verify(&build(false), &build(true));
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    assert!(row(&report, "y").why.contains("channel") || row(&report, "y").why.contains("element"));
    assert!(row(&report, "y").outputs[0].metrics["rel_l2"].unwrap() < 1e-3);
}

#[test]
fn values_whose_squares_overflow_are_held_by_their_largest_difference() {
    let build = |values: &[f64]| {
        let mut run = Recorder::new(DType::F64);
        run.input("x", Values::noise(&[4], 1));
        run.op("y", "unheard_of", &["x"], Values::of(DType::F64, &[values.len()], values.to_vec()));
        run
    };
    for (golden, candidate, verdict) in [
        (vec![1e308; 9], vec![-1e308; 9], "drift"),
        (vec![1e160; 9], vec![3e160; 9], "drift"),
        (vec![1e160; 9], vec![1e160 * (1.0 + f64::EPSILON); 9], "pass"),
        (vec![1e308; 9], vec![1e308; 9], "pass"),
    ] {
        let report = verify(&build(&golden), &build(&candidate));
        assert_eq!(report.verdict, verdict, "{golden:?} {candidate:?}: {}", summary(&report));
    }
}

#[test]
fn a_tolerance_that_integers_do_not_have_leaves_them_compared_exactly() {
    let build = |first: i64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[4], 1));
        run.layer("ids", "unheard_of", &["x"]).gives(Values::i64(&[4], [first, 0, 0, 0]));
        run
    };
    for tolerance in ["{default: {max_ulp: 4}}", "{dtype: {int64: {max_ulp: 1}}}", "{op: {unheard_of: {max_ulp: 4}}}"] {
        let report = verify_case(&build(3), &build(900), &format!("tolerance: {tolerance}"));
        assert_eq!(report.verdict, "drift", "{tolerance}: {}", summary(&report));
    }
    // Of an all-zero golden there is no relative error.
    assert_eq!(verify_case(&build(0), &build(5), "tolerance: {default: {rel_l2: 1.0}}").verdict, "drift");
    assert_eq!(verify_case(&build(3), &build(5), "tolerance: {default: {max_abs: 2}}").verdict, "pass");
}

#[test]
fn a_bias_gradient_that_is_zero_in_exact_arithmetic_is_held_against_what_was_summed() {
    // Before a batch norm the gradient's mean over each channel is zero: what is left is rounding.
    let build = |mut run: Recorder, off: f64| {
        let mut g = Values::noise(&[2, 3, 16, 16], 5);
        for channel in 0..3 {
            let places: Vec<usize> = (0..2 * 3 * 256).filter(|at| at / 256 % 3 == channel).collect();
            let mean = places.iter().map(|&at| g.numbers[at]).sum::<f64>() / places.len() as f64;
            places.iter().for_each(|&at| g.numbers[at] -= mean);
        }
        let g = g.to(run.dtype);
        let sums = (0..3).map(|channel| {
            (0..2 * 3 * 256).filter(|at| at / 256 % 3 == channel).map(|at| g.numbers[at]).sum::<f64>() + off
        });
        let bias = Values::new(&[3], sums.collect::<Vec<_>>()).to(run.dtype);
        run.input("g", g);
        run.layer("conv.backward", "convolution_backward", &["g"])
            .with("input_names", json!(["grad_output"]))
            .with("pass", "backward")
            .gives(bias);
        run
    };
    let golden = build(Recorder::f32(), 0.0);
    let report = verify(&golden, &build(Recorder::bf16(), 0.0));
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert_eq!(verify(&golden, &build(Recorder::bf16(), 40.0)).verdict, "drift");
}
