//! What a low-precision run will trip over: each finding from a run that has it and nothing else.

mod support;

use goldline::preflight::{Finding, FindingKind, Preflight, Severity, preflight};
use goldline::tensor::DType;
use serde_json::json;
use support::{Recorder, Values};

fn look(run: &Recorder, dtype: DType) -> Preflight {
    let recorded = run.open();
    preflight(&recorded.run, dtype, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"))
}

fn fp16(run: &Recorder) -> Preflight {
    look(run, DType::F16)
}

/// Kind and layer of every finding.
fn found(preflight: &Preflight) -> Vec<(FindingKind, &str)> {
    preflight.findings.iter().map(|finding| (finding.kind, finding.layer.as_str())).collect()
}

fn only(preflight: &Preflight) -> &Finding {
    let [finding] = preflight.findings.as_slice() else { panic!("{:#?}", preflight.findings) };
    finding
}

fn input(values: Values) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", values);
    run
}

#[test]
fn an_ordinary_network_has_nothing_flagged() {
    let mut run = input(Values::noise(&[16, 32], 1));
    run.param("fc.weight", Values::noise(&[32, 32], 2).map(|v| v / 6.0));
    run.linear("fc", "x");
    let positive = run.value("fc").clone().map(|v| v.max(0.0));
    run.layer("act", "relu", &["fc"]).with("attrs", json!({})).gives(positive);
    let sum = support::compute::zip(run.value("x"), run.value("act"), |a, b| a + b);
    run.layer("out", "add", &["x", "act"]).with("attrs", json!({"alpha": 1})).gives(sum.to(DType::F32));
    for dtype in [DType::F16, DType::BF16] {
        let preflight = look(&run, dtype);
        assert!(preflight.findings.is_empty(), "{:#?}", preflight.findings);
        assert_eq!((preflight.summary.layers, preflight.summary.read, preflight.summary.not_stored), (5, 5, 0));
        assert_eq!((preflight.loss_scale, preflight.summary.replayed >= 2), (None, true));
    }
    let preflight = fp16(&run);
    let row = &preflight.layers[4];
    assert!(row.headroom_bits.unwrap() > 10.0, "{row:?}");
    let predicted = row.predicted_rel_l2.unwrap();
    assert!((1e-4..1e-3).contains(&predicted), "about sqrt(3)·0.42·2^-11, found {predicted}");
}

#[test]
fn values_beyond_the_range_overflow_and_the_last_bit_is_no_headroom() {
    let preflight = fp16(&input(Values::new(&[4], [1.0, 7e4, -8e4, 2.0])));
    let finding = only(&preflight);
    assert_eq!((finding.kind, finding.severity), (FindingKind::Overflow, Severity::Breaks));
    assert_eq!((finding.numbers["beyond"], finding.numbers["amax"]), (2.0, 8e4));
    assert!(finding.advice.contains("bfloat16"), "{}", finding.advice);
    assert_eq!(preflight.layers[0].beyond, 2);
    // 65519 rounds to 65504, which is the largest; 65520 to infinity.
    assert_eq!(only(&fp16(&input(Values::new(&[1], [65519.0])))).kind, FindingKind::Headroom);
    assert_eq!(only(&fp16(&input(Values::new(&[1], [65520.0])))).kind, FindingKind::Overflow);
    // One bit is what must be left.
    assert!(fp16(&input(Values::new(&[1], [32752.0]))).findings.is_empty());
    let finding = &fp16(&input(Values::new(&[1], [32768.0]))).findings[0];
    assert_eq!((finding.kind, finding.severity), (FindingKind::Headroom, Severity::Risks));
    assert!(look(&input(Values::new(&[1], [1e30])), DType::BF16).findings.is_empty());
    assert_eq!(only(&look(&input(Values::new(&[1], [3e38])), DType::BF16)).kind, FindingKind::Headroom);
}

#[test]
fn a_mask_sentinel_and_recorded_infinities_are_no_overflow() {
    let sentinel = f64::from(f32::MIN);
    let run = input(Values::new(&[4], [0.0, sentinel, f64::NEG_INFINITY, 1.0]));
    assert!(fp16(&run).findings.is_empty());
    // A mask that is merely large becomes -Inf.
    assert_eq!(only(&fp16(&input(Values::new(&[2], [0.0, -1e9])))).kind, FindingKind::Overflow);
}

#[test]
fn what_moves_values_is_not_blamed_for_them() {
    let mut run = input(Values::new(&[2, 2], [1.0, 7e4, 2.0, 3.0]));
    run.op("view", "view", &["x"], Values::new(&[4], [1.0, 7e4, 2.0, 3.0]));
    run.layer("block", "block", &["x"]).with("kind", "module").hands_on(&["view"]);
    assert_eq!(found(&fp16(&run)), [(FindingKind::Overflow, "x")]);
}

#[test]
fn small_values_that_lose_more_than_rounding_costs_underflow() {
    // A spacing of 6e-8 beside 1e-6.
    let finding = fp16(&input(Values::noise(&[64], 5).map(|v| v * 1e-6))).findings.remove(0);
    assert_eq!((finding.kind, finding.severity), (FindingKind::Underflow, Severity::Degrades));
    let share = finding.numbers["energy_lost"];
    assert!((1e-5..1e-2).contains(&share) && share > finding.numbers["limit"], "{share}");
    // All of it vanishes.
    let finding = fp16(&input(Values::full(&[8], 1e-8))).findings.remove(0);
    assert_eq!((finding.numbers["energy_lost"], finding.numbers["vanished"]), (1.0, 8.0));
    // Small beside large values costs nothing, and bfloat16 has float32's range.
    assert!(fp16(&input(Values::new(&[2], [1.0, 1e-8]))).findings.is_empty());
    assert!(look(&input(Values::full(&[8], 1e-8)), DType::BF16).findings.is_empty());
}

#[test]
fn gradients_get_the_best_loss_scale_and_are_told_to_use_it() {
    let mut run = input(Values::full(&[4], 1.0));
    run.layer("x.grad", "mul", &["x"]).with("pass", "backward").gives(Values::full(&[4], 1e-8));
    let preflight = fp16(&run);
    let scale = preflight.loss_scale.as_ref().unwrap();
    // 65504 / (8·1e-8) = 2^39.57.
    assert_eq!((scale.scale, scale.layer.as_str()), (2f64.powi(39), "x.grad"));
    let finding = preflight.findings.iter().find(|finding| finding.kind == FindingKind::Underflow).unwrap();
    assert!(finding.advice.starts_with("scale the loss by"), "{}", finding.advice);
    assert_eq!(finding.pass, "backward");
}

#[test]
fn squares_that_a_norm_sums_may_overflow_although_all_values_fit() {
    let rows = |value: f64| Values::new(&[2, 4], [1.0, 1.0, 1.0, 1.0, value, value, value, value]);
    for (op, attrs) in [
        ("rms_norm", json!({"normalized_shape": [4], "eps": 1e-6})),
        ("layer_norm", json!({"normalized_shape": [4], "eps": 1e-5, "weight": null, "bias": null})),
        ("group_norm", json!({"num_groups": 1, "eps": 1e-5})),
    ] {
        let run = |value: f64| {
            let mut run = input(rows(value));
            run.layer("ln", op, &["x"]).with("attrs", attrs.clone()).gives(Values::full(&[2, 4], 1.0));
            run
        };
        let preflight = fp16(&run(200.0));
        let finding = preflight.findings.iter().find(|finding| finding.kind == FindingKind::SquareSum);
        let finding = finding.unwrap_or_else(|| panic!("{op}: {:#?}", preflight.findings));
        assert_eq!((finding.numbers["square_sum"], finding.numbers["row"]), (160_000.0, 1.0), "{op}");
        assert_eq!(finding.severity, Severity::Risks);
        let has = |run: &Recorder, dtype| look(run, dtype).findings.iter().any(|f| f.kind == FindingKind::SquareSum);
        assert!(!has(&run(100.0), DType::F16) && !has(&run(200.0), DType::BF16), "{op}");
    }
}

#[test]
fn an_exponential_overflows_by_its_argument_unless_the_maximum_comes_off_first() {
    let exp = |argument: f64| {
        let mut run = input(Values::new(&[2], [0.0, argument]));
        run.op("e", "exp", &["x"], Values::new(&[2], [1.0, argument.exp()]));
        run
    };
    let preflight = fp16(&exp(12.0));
    let finding = only(&preflight);
    assert_eq!((finding.kind, finding.severity), (FindingKind::Exponent, Severity::Breaks));
    assert!((finding.numbers["limit"] - 11.09).abs() < 0.001, "ln 65504");
    assert!(!found(&fp16(&exp(11.0))).contains(&(FindingKind::Exponent, "e")));
    assert!(!found(&look(&exp(12.0), DType::BF16)).contains(&(FindingKind::Exponent, "e")));
    let mut softmax = input(Values::new(&[2], [0.0, 12.0]));
    let values = [1.0 / (1.0 + 12f64.exp()), 1.0 / (1.0 + (-12f64).exp())];
    softmax.layer("p", "softmax", &["x"]).with("attrs", json!({"dim": -1})).gives(Values::new(&[2], values));
    assert_eq!(found(&fp16(&softmax)), []);
}

#[test]
fn long_sums_stagnate_from_the_term_on_that_is_half_a_unit() {
    let sum = |op: &str, n: usize| {
        let mut run = input(Values::full(&[1, n], 1.0 / 64.0));
        run.op("s", op, &["x"], Values::new(&[1], [if op == "mean" { 1.0 / 64.0 } else { n as f64 / 64.0 }]));
        run
    };
    let flagged = |run: &Recorder, dtype| {
        let preflight = look(run, dtype);
        preflight.findings.iter().any(|finding| finding.kind == FindingKind::Stagnation)
    };
    for op in ["sum", "mean"] {
        assert!(flagged(&sum(op, 2048), DType::F16) && !flagged(&sum(op, 2047), DType::F16), "{op}");
        assert!(flagged(&sum(op, 256), DType::BF16) && !flagged(&sum(op, 255), DType::BF16), "{op}");
    }
    // Contractions sum in float32 unless the run says otherwise.
    let linear = |accumulate: &str| {
        let mut run = input(Values::full(&[1, 512], 1.0));
        run.param("w", Values::full(&[2, 512], 1.0 / 64.0));
        let line = run.layer("fc", "linear", &["x", "w"]).with("accumulate", accumulate);
        line.gives(Values::full(&[1, 2], 8.0));
        run
    };
    assert!(flagged(&linear("bfloat16"), DType::BF16) && !flagged(&linear("float32"), DType::BF16));
}

#[test]
fn an_eps_below_the_smallest_subnormal_keeps_nothing_from_0() {
    let norm = |eps: f64| {
        let mut run = input(Values::noise(&[2, 8], 3));
        let attrs = json!({"normalized_shape": [8], "eps": eps});
        run.layer("ln", "batch_norm", &["x"]).with("attrs", attrs).gives(Values::noise(&[2, 8], 4));
        run
    };
    let preflight = fp16(&norm(1e-12));
    let finding = only(&preflight);
    assert_eq!((finding.kind, finding.severity), (FindingKind::Epsilon, Severity::Risks));
    assert_eq!((finding.numbers["eps"], finding.numbers["becomes"]), (1e-12, 0.0));
    assert!(fp16(&norm(1e-5)).findings.is_empty() && look(&norm(1e-12), DType::BF16).findings.is_empty());
    // The same where it is added by hand, and in an optimizer's step.
    let mut added = input(Values::full(&[2], 1.0));
    added.layer("var.eps", "add", &["x"]).with("attrs", json!({"other": 1e-8})).gives(Values::full(&[2], 1.0));
    assert_eq!(found(&fp16(&added)), [(FindingKind::Epsilon, "var.eps")]);
    let mut adam = input(Values::full(&[2], 1.0));
    let line = adam.layer("w.step", "adam", &["x"]).with("attrs", json!({"eps": 1e-8})).with("pass", "optimizer");
    line.gives(Values::full(&[2], 1.0));
    let preflight = fp16(&adam);
    assert!(only(&preflight).advice.contains("optimizer"), "{:?}", preflight.findings);
}

#[test]
fn an_ill_conditioned_step_shows_in_the_replay_and_a_cancelling_sum_does_not() {
    // The angle 3000.3 is 3000.0 or 3002.0 in float16: its sine is another number.
    let angles: Vec<f64> = (0..32).map(|i| 3000.3 + 1.7 * f64::from(i)).collect();
    let mut run = input(Values::new(&[32], angles.clone()));
    run.layer("sin", "sin", &["x"]).with("attrs", json!({})).gives(Values::new(&[32], angles.iter().map(|a| a.sin())));
    let preflight = fp16(&run);
    let finding = only(&preflight);
    assert_eq!(
        (finding.kind, finding.severity, finding.layer.as_str()),
        (FindingKind::IllConditioned, Severity::Degrades, "sin")
    );
    assert!(preflight.layers[1].predicted_rel_l2.unwrap() > 0.1);

    let x = Values::noise(&[64], 7);
    let mut run = input(x.clone());
    run.input("y", x.clone().map(|v| v * 1.001));
    let difference = x.numbers.iter().map(|v| v - v * 1.001);
    run.layer("d", "sub", &["x", "y"]).with("attrs", json!({"alpha": 1})).gives(Values::new(&[64], difference));
    let preflight = fp16(&run);
    assert!(preflight.layers[2].predicted_rel_l2.unwrap() > 0.1, "{:?}", preflight.layers[2]);
    assert!(preflight.findings.is_empty(), "{:#?}", preflight.findings);
}

#[test]
fn replay_shows_what_overflows_from_values_that_fit() {
    // 1e-8 is 0 in float16, and the quotient infinite; what is lost in energy is not: 1 stands beside it.
    let mut run = input(Values::full(&[2], 1.0));
    run.input("y", Values::new(&[2], [1.0, 1e-8]));
    run.layer("q", "div", &["x", "y"]).with("attrs", json!({})).gives(Values::new(&[2], [1.0, 1.0]));
    let preflight = fp16(&run);
    let finding = only(&preflight);
    assert_eq!((finding.kind, finding.severity), (FindingKind::ReplayOverflow, Severity::Breaks));
    assert_eq!((finding.numbers["overflow"], preflight.layers[2].predicted_overflow), (1.0, 1));
}

#[test]
fn the_worst_comes_first_and_the_order_does_not_depend_on_threads() {
    let mut run = input(Values::full(&[8], 1e-8));
    run.input("tight", Values::full(&[1], 4e4));
    run.input("far", Values::full(&[1], 1e6));
    run.input("further", Values::full(&[1], 1e7));
    let expected = [
        (FindingKind::Overflow, "far"),
        (FindingKind::Overflow, "further"),
        (FindingKind::Headroom, "tight"),
        (FindingKind::Underflow, "x"),
    ];
    let recorded = run.open();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found = pool.install(|| preflight(&recorded.run, DType::F16, &|_, _| {})).unwrap();
        serde_json::to_string(&found).unwrap()
    };
    assert_eq!(found(&fp16(&run)), expected);
    assert_eq!(with(1), with(4));
}

#[test]
fn what_could_not_be_looked_at_is_said() {
    let mut run = Recorder::f16();
    run.input("x", Values::full(&[4], 1.0));
    run.op("act", "relu", &["x"], Values::full(&[4], 1.0));
    run.input("gone", Values::full(&[4], 7e4));
    run.forget("gone");
    let preflight = fp16(&run);
    assert!(preflight.findings.is_empty(), "{:?}", preflight.findings);
    assert!(preflight.notes.iter().any(|note| note.contains("recorded in 16 bit")), "{:?}", preflight.notes);
    let recorded = run.open();
    let error = goldline::preflight::preflight(&recorded.run, DType::F32, &|_, _| {}).unwrap_err();
    assert_eq!(error.to_string(), "expected float16 or bfloat16 as the dtype, found float32");
}

mod verb {
    use super::*;
    use assert_cmd::Command;

    fn goldline(run: &Recorder, more: &[&str]) -> (i32, String, String) {
        let recorded = run.open();
        let mut command = Command::cargo_bin("goldline").unwrap();
        let output = command.arg("preflight").arg(recorded.path()).args(more).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    #[test]
    fn exits_with_1_where_something_is_flagged_and_0_otherwise() {
        let (status, out, _) = goldline(&input(Values::full(&[4], 7e4)), &["--dtype", "float16"]);
        assert_eq!(status, 1, "{out}");
        assert!(out.contains("breaks    overflow  x (input, forward, layer 0)"), "{out}");
        assert!(out.contains("why") && out.contains("next") && out.contains("1 findings: 1 breaks"), "{out}");
        let (status, out, _) = goldline(&input(Values::full(&[4], 7e4)), &["--dtype", "bfloat16"]);
        assert_eq!(status, 0, "{out}");
        assert!(out.contains("nothing is flagged"), "{out}");
    }

    #[test]
    fn prints_json_alone_and_refuses_other_dtypes() {
        let (status, out, _) = goldline(&input(Values::full(&[4], 7e4)), &["--dtype", "float16", "--json"]);
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((status, &document["schema"]), (1, &json!("goldline.preflight/1")));
        let finding = &document["findings"][0];
        assert_eq!(
            (&finding["kind"], &finding["severity"], &finding["numbers"]["beyond"]),
            (&json!("overflow"), &json!("breaks"), &json!(4.0))
        );
        let (status, _, error) = goldline(&input(Values::full(&[4], 1.0)), &["--dtype", "int8"]);
        assert_eq!(status, 2, "{error}");
        let (status, _, error) = goldline(&input(Values::full(&[4], 1.0)), &[]);
        assert!(status == 2 && error.contains("--dtype"), "{error}");
    }

    #[test]
    fn names_bring_no_escape_to_the_terminal() {
        let mut run = Recorder::f32();
        run.input("x\u{1b}[31m", Values::full(&[1], 7e4));
        let (_, out, _) = goldline(&run, &["--dtype", "float16"]);
        assert!(!out.contains('\u{1b}') && out.contains("\\u{1b}[31m"), "{out}");
    }
}
