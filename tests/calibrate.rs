//! The spread between baseline runs: tolerances proposed from it, and limits that it widens.

mod support;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use goldline::case::Case;
use goldline::golden::{Calibration, CalibrationRow, Golden, RecordOptions, calibrate, record};
use goldline::judge;
use goldline::run::Run;
use serde_json::json;
use support::{Recorded, Recorder, Values};

/// `x -> fc -> act -> out`, where what an unordered sum leaves is put on `fc` and, weaker, on what follows.
fn baseline(noise: f64) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[8, 16], 1));
    run.param("fc.weight", Values::noise(&[16, 16], 2).map(|v| v / 4.0));
    run.linear("fc", "x");
    run.apply("act", "relu", "fc", |v| v.max(0.0));
    run.apply("out", "tanh", "act", f64::tanh);
    run.alter("fc", |values| values.iter_mut().for_each(|v| *v *= 1.0 + noise));
    run
}

struct Project {
    dir: tempfile::TempDir,
    runs: Vec<Recorded>,
}

impl Project {
    fn new(runs: &[Recorder], keys: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("schema: goldline.case/1\nname: tiny\ngolden: golden\n{keys}");
        std::fs::write(dir.path().join("tiny.yaml"), text).unwrap();
        Self { dir, runs: runs.iter().map(Recorder::open).collect() }
    }

    fn case_file(&self) -> PathBuf {
        self.dir.path().join("tiny.yaml")
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.runs.iter().map(|run| run.path().to_path_buf()).collect()
    }

    fn calibrate(&self) -> goldline::Result<Calibration> {
        calibrate(&Case::load(self.case_file())?, &self.paths(), &|_, _| {})
    }

    fn command(&self, runs: &[PathBuf], more: &[&str]) -> (i32, String, String) {
        let mut command = Command::cargo_bin("goldline").unwrap();
        command.arg("calibrate").arg(self.case_file());
        for run in runs {
            command.arg("--run").arg(run);
        }
        let output = command.args(more).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

fn row<'c>(calibration: &'c Calibration, layer: &str) -> &'c CalibrationRow {
    calibration.layers.iter().find(|row| row.layer == layer).unwrap()
}

#[test]
fn a_spread_beyond_auto_becomes_a_tolerance_that_the_case_takes_back() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3), baseline(-2e-3)], "");
    let found = project.calibrate().unwrap();
    let fc = row(&found, "fc");
    assert!((fc.rel_l2.unwrap() - 2e-3).abs() < 1e-6, "the largest of both: {fc:?}");
    assert!(fc.auto.unwrap() < 1e-5, "{fc:?}");
    // 3 times the spread, rounded up to two digits.
    assert_eq!((found.factor, fc.metric), (3.0, "rel_l2"));
    assert!((6e-3..=6.1e-3).contains(&fc.proposed.unwrap()), "{fc:?}");
    let act = row(&found, "act");
    assert_eq!((act.rel_l2, act.proposed), (Some(0.0), None), "equal in all runs");
    assert_eq!(found.layer.keys().collect::<Vec<_>>(), ["fc"]);

    let mut text = std::fs::read_to_string(project.case_file()).unwrap();
    text.push_str(&found.yaml);
    let case = Case::parse(&text, "tiny.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let limits = case.tolerance.limits("fc", "linear", goldline::tensor::DType::F32);
    assert_eq!(limits.rel_l2.map(|limit| limit.value), fc.proposed);
}

#[test]
fn a_spread_within_auto_needs_no_tolerance_and_a_coarser_precision_has_more_room() {
    let project = Project::new(&[baseline(0.0), baseline(1e-7)], "");
    let found = project.calibrate().unwrap();
    assert!(row(&found, "fc").rel_l2.unwrap() > 0.0);
    assert_eq!((found.yaml.as_str(), found.layer.len()), ("", 0));
    // What asks for a tolerance among float32 runs is inside of what bfloat16 costs.
    let fine = Project::new(&[baseline(0.0), baseline(1e-3)], "").calibrate().unwrap();
    let coarse = Project::new(&[baseline(0.0), baseline(1e-3)], "precision: bfloat16\n").calibrate().unwrap();
    assert!(row(&fine, "fc").proposed.is_some());
    assert_eq!(row(&coarse, "fc").proposed, None, "{:?}", row(&coarse, "fc"));
    assert!(fine.notes.iter().any(|note| note.contains("replaces auto")), "{:?}", fine.notes);
}

#[test]
fn an_excluded_layer_is_shown_but_no_tolerance_is_proposed() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3)], "layers: {exclude: [fc]}\n");
    let found = project.calibrate().unwrap();
    assert!(row(&found, "fc").rel_l2.unwrap() > 1e-4);
    assert_eq!(row(&found, "fc").proposed, None);
}

#[test]
fn one_run_or_the_same_twice_has_no_spread() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3)], "");
    let paths = project.paths();
    let (status, out, error) = project.command(&paths[..1], &[]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(error.contains("expected at least two --run, found 1"), "{error}");
    let (status, _, error) = project.command(&[paths[0].clone(), paths[0].clone()], &[]);
    assert!(status == 2 && error.contains("given twice"), "{error}");
    let mut other = baseline(0.0);
    other.alter("x", |values| values[0] += 1.0);
    let error = Project::new(&[baseline(0.0), other], "").calibrate().unwrap_err().to_string();
    assert!(error.contains("`x` was given another tensor"), "{error}");
}

#[test]
fn the_verb_prints_a_table_and_yaml_or_json_alone() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3)], "");
    let (status, out, error) = project.command(&project.paths(), &[]);
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(out.contains("tolerance:\n  layer:\n    \"fc\": {rel_l2: 3"), "{out}");
    assert!(out.contains("outputs are equal in all runs"), "{out}");
    let (status, out, _) = project.command(&project.paths(), &["--json"]);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &document["schema"]), (0, &json!("goldline.calibration/1")));
    assert!(document["layer"]["fc"]["rel_l2"].as_f64().unwrap() >= 3e-3);
    let quiet = Project::new(&[baseline(0.0), baseline(0.0)], "");
    let (status, out, _) = quiet.command(&quiet.paths(), &[]);
    assert!(status == 0 && out.contains("no tolerance is needed"), "{out}");
}

/// Judges `candidate` against the golden with what the golden knows of its noise, or without.
fn judged(golden: &Golden, candidate: &Run, with_noise: bool) -> (judge::Verdict, judge::Limit) {
    let noise = |layer, slot| golden.noise(&golden.run.display_name(layer), slot).filter(|_| with_noise)?.rel_l2;
    let options = judge::Options { noise: &noise, replay: judge::ReplayMode::Never, ..judge::Options::default() };
    let pairing = goldline::pairing::pair(&golden.run, candidate, &str::to_string).unwrap();
    let case = Case::default_for_diff();
    let judgement = judge::judge(&golden.run, candidate, pairing, &case, &options).unwrap();
    let fc = golden.run.layers.iter().find(|layer| layer.name == "fc").unwrap();
    let layer = judgement.layer(fc.id);
    let limit = judgement.tensors[&layer.outputs[0].1].limits["rel_l2"].clone();
    (layer.verdict, limit)
}

fn approve(project: &Project) -> Golden {
    let case = Case::load(project.case_file()).unwrap();
    record(&case, &project.paths(), &RecordOptions::default()).unwrap();
    Golden::open(project.dir.path().join("golden")).unwrap()
}

#[test]
fn noise_widens_a_limit_to_three_times_the_spread_and_says_so() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3)], "");
    let golden = approve(&project);
    let (within, beyond) = (baseline(2.5e-3).open(), baseline(3.5e-3).open());
    assert_eq!(judged(&golden, &within.run, false).0, judge::Verdict::Drift);
    let (verdict, limit) = judged(&golden, &within.run, true);
    assert_eq!(verdict, judge::Verdict::Pass);
    assert!((limit.value - 3e-3).abs() < 1e-5, "{limit:?}");
    assert!(limit.why.starts_with("3 times the noise, rel_l2 "), "{}", limit.why);
    assert_eq!(judged(&golden, &beyond.run, true).0, judge::Verdict::Drift);
}

#[test]
fn runs_that_agree_to_the_bit_tighten_nothing() {
    let project = Project::new(&[baseline(0.0), baseline(0.0)], "");
    let golden = approve(&project);
    assert_eq!(golden.noise("fc", 0).unwrap().rel_l2, Some(0.0));
    let candidate = baseline(1e-7).open();
    assert_eq!(judged(&golden, &candidate.run, true), judged(&golden, &candidate.run, false));
    assert_eq!(judged(&golden, &candidate.run, true).0, judge::Verdict::Pass);
}

#[test]
fn verify_diff_and_bisect_know_the_noise_of_an_approved_golden() {
    let project = Project::new(&[baseline(0.0), baseline(1e-3)], "");
    drop(approve(&project));
    let candidate = baseline(2.5e-3).open();
    let golden = project.dir.path().join("golden");
    let status = |verb: &str, first: &Path, more: &[&std::ffi::OsStr]| {
        let mut command = Command::cargo_bin("goldline").unwrap();
        command.arg(verb).arg(first).args(more);
        command.output().unwrap().status.code().unwrap()
    };
    let never = ["--replay".as_ref(), "never".as_ref()];
    let run = candidate.path().as_os_str();
    assert_eq!(status("diff", &golden, &[run, never[0], never[1]]), 0);
    assert_eq!(status("verify", &project.case_file(), &["--run".as_ref(), run, never[0], never[1]]), 0);
    assert_eq!(status("bisect", &golden, &[run]), 0);
    // The same run without its golden.json knows of no noise.
    std::fs::remove_file(golden.join("golden.json")).unwrap();
    assert_eq!(status("diff", &golden, &[run, never[0], never[1]]), 1);
    assert_eq!(status("bisect", &golden, &[run]), 1);
}
