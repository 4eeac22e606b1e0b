//! What counts as a difference, over real run directories: each test fails without its rule.

mod support;

use goldline::tensor::DType;
use serde_json::json;
use support::found::{birth, births, first_drift, origin, origins, remedies, row, summary, verdict_of};
use support::{Recorder, Values, verify, verify_case};

/// `fc1 -> act -> fc2 -> out` with a residual add, in the recorder's dtype.
fn mlp(mut run: Recorder) -> Recorder {
    run.input("x", Values::noise(&[16, 32], 1));
    run.param("fc1.weight", Values::noise(&[32, 32], 2).map(|v| v / 6.0));
    run.param("fc2.weight", Values::noise(&[32, 32], 3).map(|v| v / 6.0));
    run.linear("fc1", "x");
    run.apply("act", "relu", "fc1", |v| v.max(0.0));
    run.linear("fc2", "act");
    run.add("out", "x", "fc2");
    run
}

// Sources.

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
        let dropped = support::compute::zip(run.value("before"), &mask, |v, m| if m > 0.0 { 2.0 * v } else { 0.0 });
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

// Values that are no difference.

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

// Indices and steps.

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

// What was not compared.

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

// Limits.

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

/// Mean of each row, and the sum of two tensors that nearly cancel.
fn cancelling(mut run: Recorder, fault: f64) -> Recorder {
    let x = Values::noise(&[8, 256], 1);
    // Rows whose mean is zero but for rounding.
    let centred = support::compute::by_row(&x, |row| {
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
fn the_report_is_the_same_for_any_number_of_threads() {
    let golden = mlp(Recorder::f32()).open();
    let mut candidate = mlp(Recorder::f16());
    candidate.alter("fc1", |y| y.iter_mut().for_each(|v| *v *= 1.05));
    let candidate = candidate.open();
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let case = goldline::case::Case::default_for_diff();
            let options = goldline::judge::Options::default();
            let report = goldline::pipeline::verify(&golden.run, &candidate.run, &case, &options).unwrap();
            let mut text = Vec::new();
            goldline::report::json::write(&report.into(), &mut text).unwrap();
            text
        })
    };
    let one = with_threads(1);
    assert!(!one.is_empty());
    assert!(one == with_threads(4));
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
