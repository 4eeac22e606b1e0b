//! Three runs: who of golden and candidate is nearer to a run of higher precision.

mod support;

use goldline::case::Case;
use goldline::judge::{Level, Options, Truth};
use goldline::report::model::{OutputRow, Report};
use goldline::tensor::DType;
use support::found::{first_drift, origins, row, summary, verdict_of};
use support::{Recorded, Recorder, Values};

/// How far each of the three layers of a model is off, as a share of each value; the sign varies.
type Errors = [f64; 3];

/// `x -> a -> b -> c`, every layer a function of what the layer before holds, with an error of its own.
fn model(mut run: Recorder, errors: Errors) -> Recorder {
    run.input("x", Values::noise(&[16, 32], 1));
    for (layer, (from, error)) in ["a", "b", "c"].into_iter().zip(["x", "a", "b"].into_iter().zip(errors)) {
        let mut sign = 1.0;
        let values = run.value(from).clone().to(DType::F64);
        let numbers = values.numbers.iter().map(|v| {
            sign = -sign;
            (0.5 * v + 1.0) * (1.0 + sign * error)
        });
        let values = Values::of(DType::F64, &[16, 32], numbers.collect::<Vec<_>>());
        // An operator that nobody models, so that the truth alone decides.
        run.op(layer, "custom_block", &[from], values);
    }
    run
}

/// The truth in fp64.
fn exact() -> Recorded {
    model(Recorder::new(DType::F64), [0.0; 3]).open()
}

fn held_against(golden: &Recorded, candidate: &Recorded, truth: &Recorded, level: Option<Level>) -> Report {
    let truth = Truth { run: &truth.run, on_tensor: &|_, _| Ok(()), level };
    let options = Options { truth: Some(truth), ..Options::default() };
    goldline::pipeline::verify(&golden.run, &candidate.run, &Case::default_for_diff(), &options)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn of(golden: Errors, candidate: Errors) -> Report {
    let (golden, candidate) = (model(Recorder::f32(), golden).open(), model(Recorder::f32(), candidate).open());
    held_against(&golden, &candidate, &exact(), None)
}

fn output<'r>(report: &'r Report, layer: &str) -> &'r OutputRow {
    row(report, layer).outputs.first().expect("one output")
}

fn rho(report: &Report, layer: &str) -> Option<f64> {
    output(report, layer).metrics.get("rho").copied().flatten()
}

#[test]
fn runs_of_equal_error_have_a_rho_of_one_and_pass() {
    let report = of([0.0; 3], [0.0; 3]);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    for layer in ["a", "b", "c"] {
        assert!((rho(&report, layer).unwrap() - 1.0).abs() < 1e-9, "{layer}");
        assert_eq!(output(&report, layer).limits["rho"].value, 1.5);
    }
    let truth = report.truth.expect("the third run is told of");
    assert_eq!((truth.layers, truth.beyond, truth.better), (3, 0, 0), "{}", truth.why);
}

#[test]
fn an_error_too_small_for_two_runs_is_an_origin_against_the_truth() {
    // Three roundings' worth: within what two runs may differ by.
    let errors = [0.0, 1.5e-7, 0.0];
    let golden = model(Recorder::f32(), [0.0; 3]);
    let candidate = model(Recorder::f32(), errors);
    let two = support::verify(&golden, &candidate);
    assert_eq!(two.verdict, "pass", "{}", summary(&two));
    let report = held_against(&golden.open(), &candidate.open(), &exact(), None);
    assert_eq!(report.verdict, "drift", "{}", summary(&report));
    assert_eq!((first_drift(&report), origins(&report).as_slice()), (Some("b"), &["b"][..]), "{}", summary(&report));
    assert!(rho(&report, "b").unwrap() > 1.5 && row(&report, "b").why.contains("rho"), "{}", row(&report, "b").why);
    assert!(report.origins[0].why.contains("against the truth rho is"), "{}", report.origins[0].why);
}

#[test]
fn a_second_jump_downstream_is_an_origin_of_its_own() {
    let report = of([0.0; 3], [0.0, 1e-5, 1e-2]);
    assert_eq!(origins(&report), ["b", "c"], "{}", summary(&report));
    let report = of([0.0; 3], [0.0, 1e-2, 0.0]);
    assert_eq!(origins(&report), ["b"], "{}", summary(&report));
}

#[test]
fn the_better_candidate_never_fails() {
    let (golden, candidate) = (model(Recorder::f32(), [1e-3, 0.0, 0.0]), model(Recorder::f32(), [0.0; 3]));
    assert_eq!(support::verify(&golden, &candidate).verdict, "drift");
    let report = held_against(&golden.open(), &candidate.open(), &exact(), None);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(rho(&report, "a").unwrap() < 0.8);
    assert!(row(&report, "a").why.contains("the candidate is the better one"), "{}", row(&report, "a").why);
    assert!(report.origins.is_empty() && report.first_drift.is_none());
    let truth = report.truth.expect("told");
    assert_eq!((truth.better, truth.relieved), (3, 3), "{}", truth.why);
}

#[test]
fn who_makes_one_large_error_is_not_the_better_one() {
    let golden = model(Recorder::f32(), [0.0, 0.0, 1e-3]);
    let mut candidate = model(Recorder::f32(), [0.0; 3]);
    candidate.alter("c", |values| values[100] *= 1.015);
    let report = held_against(&golden.open(), &candidate.open(), &exact(), None);
    assert!(rho(&report, "c").unwrap() < 0.8);
    assert_eq!((report.verdict.as_str(), verdict_of(&report, "c")), ("drift", "drift"), "{}", summary(&report));
}

#[test]
fn a_level_limits_three_ratios_instead() {
    let (golden, candidate) = (model(Recorder::f32(), [1e-3, 0.0, 0.0]), model(Recorder::f32(), [1.7e-3, 0.0, 0.0]));
    let (golden, candidate) = (golden.open(), candidate.open());
    let report = |level| held_against(&golden, &candidate, &exact(), level);
    // Too far from the golden for two runs in any case: what differs is what the ratios say.
    let over = |level| report(Some(level)).truth.expect("told").beyond;
    assert_eq!((over(Level::L0), over(Level::L1), over(Level::L2)), (0, 3, 3));
    let of_l1 = report(Some(Level::L1));
    let limits = &output(&of_l1, "a").limits;
    assert_eq!(limits["max_ratio"].value, 5.0);
    assert_eq!((limits["mean_ratio"].value, limits["rmse_ratio"].value, limits.get("rho")), (1.5, 1.5, None));
    assert_eq!(of_l1.truth.and_then(|truth| truth.level).as_deref(), Some("L1"));
}

#[test]
fn a_candidate_of_coarser_dtype_is_shown_and_not_judged() {
    let golden = model(Recorder::f32(), [0.0; 3]).open();
    let candidate = model(Recorder::bf16(), [0.0; 3]).open();
    let report = held_against(&golden, &candidate, &exact(), None);
    assert_eq!(report.verdict, "pass", "{}", summary(&report));
    assert!(rho(&report, "a").unwrap() > 1e3);
    assert!(!output(&report, "a").limits.contains_key("rho"));
}

#[test]
fn a_truth_that_is_one_of_the_two_says_nothing() {
    let golden = model(Recorder::f32(), [0.0; 3]);
    let candidate = model(Recorder::f32(), [0.0, 1e-3, 0.0]);
    // Another directory with the same bytes, and the directory itself.
    let (golden, candidate, same) = (golden.open(), candidate.open(), candidate.open());
    for (truth, which) in [(&golden, "golden"), (&candidate, "candidate"), (&same, "candidate")] {
        let report = held_against(&golden, &candidate, truth, None);
        let told = report.truth.as_ref().and_then(|truth| truth.unusable.clone()).expect("unusable");
        assert!(told.contains(&format!("the truth is the {which} itself")), "{told}");
        assert_eq!((report.verdict.as_str(), rho(&report, "b")), ("drift", None));
    }
}

#[test]
fn a_truth_of_other_data_says_nothing() {
    let mut truth = model(Recorder::new(DType::F64), [0.0; 3]);
    truth.alter("x", |values| values[3] += 1.0);
    let (golden, candidate) = (model(Recorder::f32(), [0.0; 3]).open(), model(Recorder::f32(), [0.0; 3]).open());
    let report = held_against(&golden, &candidate, &truth.open(), None);
    let told = report.truth.and_then(|truth| truth.unusable).expect("unusable");
    assert!(told.starts_with("the truth was given another x"), "{told}");
}

#[test]
fn no_rho_of_few_elements_or_after_another_choice() {
    let build = |dtype: DType, chosen: i64, error: f64| {
        let mut run = Recorder::new(dtype);
        run.input("x", Values::noise(&[16, 32], 1));
        run.op("few", "custom_block", &["x"], Values::new(&[8], [1.0; 8]));
        let values = run.value("x").clone().map(|v| v * (1.0 + error));
        run.op("before", "custom_block", &["x"], values);
        run.layer("route", "custom_router", &["before"]).gives(Values::i64(&[1], [chosen]));
        let values = run.value("before").clone();
        run.op("after", "custom_block", &["before", "route"], values);
        run.open()
    };
    let (golden, truth) = (build(DType::F32, 1, 0.0), build(DType::F64, 1, 1e-9));
    let same = held_against(&golden, &build(DType::F32, 1, 0.0), &truth, None);
    assert_eq!((rho(&same, "few"), rho(&same, "before"), rho(&same, "after")), (None, Some(1.0), Some(1.0)));
    let other = held_against(&golden, &build(DType::F32, 2, 0.0), &truth, None);
    assert_eq!((rho(&other, "before"), rho(&other, "after")), (Some(1.0), None));
    let without = other.truth.expect("told").without;
    assert_eq!(without.get("after a discrete divergence"), Some(&1), "{without:?}");
    assert_eq!(without.get("fewer than 64 elements"), Some(&1), "{without:?}");
}

#[test]
fn the_command_line_takes_a_third_run() {
    let (golden, candidate) =
        (model(Recorder::f32(), [1e-3, 0.0, 0.0]).open(), model(Recorder::f32(), [0.0; 3]).open());
    let truth = exact();
    let run = |arguments: &[&str], third: &std::path::Path| {
        let (verb, rest) = arguments.split_first().expect("a verb");
        let mut command = assert_cmd::Command::cargo_bin("goldline").expect("the binary");
        command.arg(verb).arg(golden.path()).arg(candidate.path()).args(rest).arg("--truth").arg(third);
        let output = command.output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, text, _) = run(&["diff"], truth.path());
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("3 drift from the golden alone and pass"), "{text}");
    let (status, text, _) = run(&["diff", "--json", "--level", "l2"], truth.path());
    let report: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!((status, &report["truth"]["level"], &report["truth"]["better"]), (Some(0), &"L2".into(), &3.into()));
    let (_, text, _) = run(&["explain", "b"], truth.path());
    assert!(text.contains("b:0 has rho"), "{text}");
    let (status, _, error) = run(&["diff"], &truth.path().join("absent"));
    assert!(status == Some(2) && error.lines().count() == 1, "{error}");
}
