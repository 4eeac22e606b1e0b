//! The search with few loads, on a residual network that really computes.

mod support_bisect;

use goldline::bisect::{Bisection, Options, Outcome, Purpose, search};
use goldline::case::Case;
use goldline::error::Error;
use goldline::judge::{self, Probe, Verdict};
use goldline::pairing;
use goldline::report::terminal::{self, Style};
use goldline::run::Run;
use support_bisect::{Alter, Net, record};

/// Golden and candidate, which live as long as the directory.
struct Runs {
    _dir: tempfile::TempDir,
    golden: Run,
    candidate: Run,
}

fn runs(golden: &Net<'_>, candidate: &Net<'_>) -> Runs {
    let dir = tempfile::tempdir().unwrap();
    let golden = record(&dir.path().join("golden"), golden);
    let candidate = record(&dir.path().join("candidate"), candidate);
    Runs { _dir: dir, golden, candidate }
}

fn with_fault(made: Alter<'_>) -> Runs {
    runs(&Net::default(), &Net { made, ..Net::default() })
}

fn bisect(runs: &Runs) -> Bisection {
    search(&runs.golden, &runs.candidate, &Case::default_for_diff(), &Options::default()).unwrap()
}

fn trusting(runs: &Runs) -> Bisection {
    let options = Options { trust_output: true, ..Options::default() };
    search(&runs.golden, &runs.candidate, &Case::default_for_diff(), &options).unwrap()
}

fn found(bisection: &Bisection) -> Vec<&str> {
    match &bisection.outcome {
        Outcome::Found { origins } => origins.iter().map(|origin| origin.layer.as_str()).collect(),
        other => panic!("expected an origin, found {other:?}"),
    }
}

/// Pairs that were read and are no source.
fn computed(bisection: &Bisection) -> u64 {
    bisection.loaded.pairs - bisection.loaded.source_pairs
}

fn scale(wanted: &str, factor: f32) -> impl Fn(&str, &mut [f32]) {
    move |name, values| {
        if name == wanted {
            values.iter_mut().for_each(|v| *v *= factor);
        }
    }
}

#[test]
fn a_fault_in_any_block_is_found_with_few_loads() {
    for block in 0..40 {
        for part in ["linear", "mul", "add"] {
            let name = format!("blocks.{block}.{part}");
            let bisection = bisect(&with_fault(&scale(&name, 1.01)));
            assert_eq!(found(&bisection), [name.as_str()]);
            assert_eq!(bisection.verdict, "drift");
            assert_eq!(bisection.fell_back, None);
            // Of 123: the output, the mask, 6 halvings of 40 blocks, the block, inputs and a consumer.
            assert!(computed(&bisection) <= 14, "{name}: {} loads", computed(&bisection));
        }
    }
}

#[test]
fn faults_at_both_ends_are_found() {
    for name in ["embed", "mask", "head"] {
        let bisection = bisect(&with_fault(&scale(name, 1.01)));
        assert_eq!(found(&bisection), [name]);
        assert_eq!(bisection.fell_back, None, "{name}");
    }
}

#[test]
fn the_books_list_everything_that_was_read_once() {
    let bisection = bisect(&with_fault(&scale("blocks.17.linear", 1.01)));
    let sum = |f: &dyn Fn(&goldline::bisect::Step) -> u64| bisection.steps.iter().map(f).sum::<u64>();
    assert_eq!(sum(&|step| step.pairs), bisection.loaded.pairs);
    assert_eq!(sum(&|step| step.bytes), bisection.loaded.bytes);
    assert_eq!(bisection.loaded.of_pairs, 1 + 2 + 40 * 4 + 1);
    let mut names: Vec<&str> = bisection.steps.iter().map(|step| step.layer.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), bisection.steps.len(), "no layer is read twice");
    assert_eq!(bisection.steps.first().unwrap().purpose, Purpose::Source);
    let suspect = bisection.steps.iter().find(|step| step.layer == "blocks.17.linear").unwrap();
    assert!(suspect.rel_l2.unwrap() > suspect.limit.unwrap());
}

#[test]
fn every_golden_tensor_that_is_read_is_shown_to_the_caller() {
    let runs = with_fault(&scale("blocks.17.linear", 1.01));
    let options = Options {
        on_golden: &|id, _| match runs.golden.tensor(id).name.as_str() {
            "blocks.17.linear" => Err(Error::new("digest does not hold")),
            _ => Ok(()),
        },
        ..Options::default()
    };
    let error = search(&runs.golden, &runs.candidate, &Case::default_for_diff(), &options).unwrap_err();
    assert_eq!(error.to_string(), "digest does not hold");
}

#[test]
fn a_fault_that_vanishes_before_the_next_cut_point_is_found_by_the_scan() {
    let runs = runs(&Net::default(), &Net { stored: &scale("blocks.20.linear", 1.5), ..Net::default() });
    let bisection = bisect(&runs);
    assert_eq!(found(&bisection), ["blocks.20.linear"]);
    assert!(bisection.fell_back.as_deref().unwrap().contains("does not prove"), "{:?}", bisection.fell_back);
    assert!(bisection.loaded.pairs < bisection.loaded.of_pairs, "the scan stops at the first origin");

    let trusted = trusting(&runs);
    assert_eq!(trusted.verdict, "pass");
    assert_eq!(trusted.fell_back, None);
    assert!(!trusted.caveats.is_empty());
}

#[test]
fn a_fault_that_vanishes_before_the_output_is_found_without_a_scan() {
    // Recorded as out in blocks 10 to 25 alone: cut points there are out, the output is in.
    let stored = |name: &str, values: &mut [f32]| {
        let block = name.split('.').nth(1).and_then(|k| k.parse::<usize>().ok());
        if block.is_some_and(|k| (10..=25).contains(&k)) && !name.ends_with("weight") {
            values.iter_mut().for_each(|v| *v *= 1.01);
        }
    };
    let bisection = bisect(&runs(&Net::default(), &Net { stored: &stored, ..Net::default() }));
    assert_eq!(found(&bisection), ["blocks.10.linear"]);
    assert_eq!(bisection.fell_back, None);
    assert!(computed(&bisection) <= 16, "{} loads", computed(&bisection));
}

#[test]
fn nothing_wrong_is_said_with_what_it_does_not_prove() {
    let runs = with_fault(&support_bisect::nothing);
    let bisection = bisect(&runs);
    assert!(matches!(&bisection.outcome, Outcome::Nothing { why } if why.contains("every tensor pair was read")));
    assert_eq!(bisection.verdict, "pass");
    assert_eq!(bisection.loaded.pairs, bisection.loaded.of_pairs);

    let trusted = trusting(&runs);
    assert!(matches!(&trusted.outcome, Outcome::Nothing { why } if why.contains("does not prove")));
    assert!(computed(&trusted) < 60, "outputs and cut points alone: {}", computed(&trusted));
}

#[test]
fn a_source_that_differs_ends_the_search() {
    for name in ["x", "blocks.30.weight"] {
        let bisection = bisect(&with_fault(&scale(name, 1.5)));
        assert_eq!(bisection.verdict, "incomparable");
        let Outcome::Incomparable { origins, why } = &bisection.outcome else { panic!("{:?}", bisection.outcome) };
        assert_eq!(origins.first().map(|o| (o.layer.as_str(), o.role.as_str())), Some((name, "source")));
        assert!(why.contains("different tensors"), "{why}");
        assert_eq!(computed(&bisection), 0, "no operator is read");
    }
}

#[test]
fn a_nan_is_found_where_it_first_stands() {
    let nan = |name: &str, values: &mut [f32]| {
        if name == "blocks.9.mul" {
            values[3] = f32::NAN;
        }
    };
    let bisection = bisect(&with_fault(&nan));
    assert_eq!(found(&bisection), ["blocks.9.mul"]);
    assert_eq!(bisection.verdict, "nonfinite");
    assert_eq!(bisection.fell_back, None);
    let text = serde_json::to_string(&bisection).unwrap();
    assert_eq!(serde_json::from_str::<Bisection>(&text).unwrap(), bisection);
}

#[test]
fn two_faults_name_the_one_that_reaches_the_output_first() {
    let both = |name: &str, values: &mut [f32]| {
        scale("blocks.8.linear", 1.01)(name, values);
        scale("blocks.30.linear", 1.01)(name, values);
    };
    assert_eq!(found(&bisect(&with_fault(&both))), ["blocks.8.linear"]);
}

#[test]
fn a_fault_in_the_backward_pass_is_found_there() {
    let golden = Net { backward: true, ..Net::default() };
    let bisection =
        bisect(&runs(&golden, &Net { backward: true, made: &scale("blocks.12.grad", 1.01), ..Net::default() }));
    assert_eq!(found(&bisection), ["blocks.12.grad"]);
    assert_eq!(bisection.fell_back, None);
    assert!(computed(&bisection) <= 16, "{} loads", computed(&bisection));
}

#[test]
fn without_recorded_flow_every_pair_is_scanned() {
    let flat = |made| Net { without_flow: true, blocks: 5, made, ..Net::default() };
    let fault = scale("blocks.3.mul", 1.01);
    let bisection = bisect(&runs(&flat(&support_bisect::nothing), &flat(&fault)));
    assert_eq!(found(&bisection).first(), Some(&"blocks.3.mul"));
    assert!(bisection.fell_back.unwrap().contains("no recorded inputs"));
}

#[test]
fn a_candidate_that_ends_early_is_incomparable() {
    let bisection = bisect(&runs(&Net::default(), &Net { ends_before: Some("blocks.33.linear"), ..Net::default() }));
    assert_eq!(bisection.verdict, "incomparable");
    let Outcome::Incomparable { origins, why } = &bisection.outcome else { panic!("{:?}", bisection.outcome) };
    assert!(origins.is_empty());
    assert!(why.contains("final tensors were not compared"), "{why}");
}

#[test]
fn runs_that_share_no_layer_are_incomparable() {
    let dir = tempfile::tempdir().unwrap();
    let golden = record(&dir.path().join("golden"), &Net { blocks: 1, ..Net::default() });
    std::fs::write(dir.path().join("run.json"), r#"{"format":"goldline.run/1"}"#).unwrap();
    std::fs::write(dir.path().join("layers.jsonl"), r#"{"name":"other","op":"softmax","outputs":["other:0"]}"#)
        .unwrap();
    let other = Run::open(dir.path()).unwrap();
    let bisection = search(&golden, &other, &Case::default_for_diff(), &Options::default()).unwrap();
    assert_eq!(bisection.verdict, "incomparable");
    assert_eq!(bisection.loaded.pairs, 0);
}

#[test]
fn a_layer_that_only_the_candidate_has_is_named() {
    let inserted = Net { inserted_after: Some("blocks.22.mul"), ..Net::default() };
    let bisection = bisect(&runs(&Net::default(), &inserted));
    assert_eq!(found(&bisection), ["blocks.22.mul.extra"]);
    let Outcome::Found { origins } = &bisection.outcome else { panic!("found") };
    assert_eq!(origins.first().unwrap().index, None);
    assert_eq!(bisection.fell_back, None);
}

#[test]
fn a_block_without_an_origin_of_its_own_is_said_and_scanned() {
    let runs = with_fault(&scale("blocks.17.linear", 1.01));
    let text = "schema: goldline.case/1\nname: c\ngolden: g\nlayers: {exclude: [\"blocks.17.linear\"]}\n";
    let case = Case::parse(text, "case.yaml").unwrap();
    let bisection = search(&runs.golden, &runs.candidate, &case, &Options::default()).unwrap();
    assert!(bisection.fell_back.unwrap().contains("holds no layer that is out although its inputs are in"));
    assert_eq!(bisection.verdict, "drift");
    assert!(matches!(bisection.outcome, Outcome::Nothing { .. }));
    assert_eq!(bisection.loaded.pairs, bisection.loaded.of_pairs, "all that could clear it up was read");
}

#[test]
fn a_probe_that_has_read_everything_judges_like_a_whole_comparison() {
    let runs = with_fault(&scale("blocks.17.linear", 1.01));
    let case = Case::default_for_diff();
    let pair = || pairing::pair(&runs.golden, &runs.candidate, &|name| name.to_string()).unwrap();
    let whole = judge::judge(&runs.golden, &runs.candidate, pair(), &case, &Default::default()).unwrap();
    let mut probe = Probe::new(&runs.golden, &runs.candidate, pair(), &case, &|_, _| Ok(())).unwrap();
    assert!(probe.judgement().layers.iter().all(|layer| layer.verdict == Verdict::Skipped));
    // Last things first: the order must not matter.
    let mut pairs = probe.pairs().to_vec();
    pairs.reverse();
    for pair in pairs.chunks(7) {
        probe.read(pair).unwrap();
    }
    let told = |j: &judge::Judgement| {
        let layers: Vec<_> = j.layers.iter().map(|layer| (layer.verdict, layer.why.clone())).collect();
        (layers, j.verdict, j.why.clone(), j.notes.clone())
    };
    assert_eq!(told(probe.judgement()), told(&whole));
}

#[test]
fn a_person_reads_probes_result_and_books() {
    let bisection = bisect(&with_fault(&scale("blocks.17.linear", 1.01)));
    let mut out = Vec::new();
    terminal::bisection::write(&bisection, Style { width: 100, ..Style::default() }, &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn no_name_brings_a_terminal_escape() {
    let hostile = "a\u{1b}[31m\nb\u{202e}";
    let mut bisection = bisect(&with_fault(&scale("blocks.17.linear", 1.01)));
    for step in &mut bisection.steps {
        step.layer = hostile.into();
    }
    let Outcome::Found { origins } = &mut bisection.outcome else { panic!("found") };
    for origin in origins {
        origin.layer = hostile.into();
        origin.candidate_layer = Some(hostile.into());
        origin.op = hostile.into();
        origin.why = hostile.into();
    }
    bisection.fell_back = Some(hostile.into());
    for width in [0, 60, 200] {
        let mut out = Vec::new();
        terminal::bisection::write(&bisection, Style { width, all: true, ..Style::default() }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
        assert_eq!(text.lines().filter(|line| line.starts_with('b')).count(), 0, "{text}");
    }
}
