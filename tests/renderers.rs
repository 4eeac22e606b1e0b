//! The renderers as a user of the library meets them: text in, every format out.

use std::path::Path;

use goldline::report::terminal::{self, Style};
use goldline::report::{CaseView, Document, Format, json};
use proptest::prelude::*;

/// A report as another version of the tool may have written it: keys missing, keys added.
const REPORT: &str = r#"{
  "schema": "goldline.report/1", "case": "tiny", "verdict": "nonfinite", "outcome": "unexpected", "added_later": [1],
  "golden": {"path": "g", "environment": {}}, "candidate": {"path": "c", "environment": {"device": "npu:0"}},
  "summary": {"layers": 2, "compared": 2, "pass": 1, "nonfinite": 1},
  "first_drift": {"layer": "ln.pow", "op": "pow", "pass": "forward", "index": 1},
  "origins": [],
  "nonfinite_origins": [{"layer": "ln.pow", "op": "pow", "pass": "forward", "index": 1, "tensor": "ln.pow:0",
    "in": "candidate", "kind": "inf", "count": 63, "first_index": [2, 2], "cause": "overflow", "cause_layer": null,
    "first_nan_layer": null, "ended": "ln.rsqrt", "reached": ["ln.mean"], "why": "beyond 65504"}],
  "blacklist": [],
  "layers": [
    {"index": 0, "layer": "x", "op": "input", "pass": "forward", "verdict": "pass", "role": null, "inputs": [],
     "outputs": [{"tensor": "x:0", "metrics": {"rel_l2": 0.0}, "limits": {}}]},
    {"index": 1, "layer": "ln.pow", "op": "pow", "pass": "forward", "verdict": "nonfinite", "role": "introduced",
     "inputs": ["x:0"], "outputs": [{"tensor": "ln.pow:0", "metrics": {"rel_l2": null}, "limits": {}}]}
  ]
}"#;

fn suite() -> String {
    format!(
        r#"{{"schema": "goldline.suite/1", "verdict": "nonfinite", "totals": {{"unexpected": 1, "error": 1}}, "first": "tiny",
            "cases": [{REPORT}, {{"case": "torn", "error": "torn/run.json: byte 3: not JSON"}}]}}"#
    )
}

fn read(text: &str) -> Document {
    json::read(Path::new("report.json"), text).unwrap()
}

fn written(document: &Document, format: Format) -> String {
    let mut out = Vec::new();
    format.write(document, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_stored_report_can_be_written_in_every_format() {
    for document in [read(REPORT), read(&suite())] {
        for format in Format::ALL {
            let text = written(&document, format);
            assert!(text.contains("ln.pow"), "{}", format.name());
            assert!(text.ends_with('\n'), "{}", format.name());
        }
    }
}

#[test]
fn writing_and_reading_changes_nothing() {
    for document in [read(REPORT), read(&suite())] {
        let text = written(&document, Format::Json);
        let again = read(&text);
        assert_eq!(again, document);
        assert_eq!(written(&again, Format::Json), text);
    }
}

#[test]
fn a_suite_keeps_reports_and_failures_apart() {
    let document = read(&suite());
    let cases = document.cases();
    assert!(matches!(cases.first(), Some(CaseView::Report(report)) if report.case.as_deref() == Some("tiny")));
    assert!(matches!(cases.get(1), Some(CaseView::Failed { case: "torn", error: "torn/run.json: byte 3: not JSON" })));
    assert!(matches!(read(REPORT).cases().as_slice(), [CaseView::Report(_)]));
}

#[test]
fn a_broken_report_inside_a_suite_is_named() {
    let text = suite().replace("\"first_index\": [2, 2]", "\"first_index\": \"2, 2\"");
    let error = json::read(Path::new("report.json"), &text).unwrap_err();
    assert!(error.message().starts_with("not a report: case \"tiny\": invalid type: string \"2, 2\""), "{error}");
    assert_eq!(error.path(), Some(Path::new("report.json")));
    assert!(error.place().is_some(), "{error}");
}

#[test]
fn a_person_reads_where_why_and_what_next() {
    let mut out = Vec::new();
    terminal::write(&read(REPORT), Style::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("nonfinite  tiny"));
    for label in ["runs", "where", "why", "next", "counts"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(label)), "{label} in\n{text}");
    }
    assert!(
        text.contains("ln.pow (pow, layer 1 of 2) makes 63 Inf in the candidate, first at [2, 2]: overflow"),
        "{text}"
    );
}

#[test]
fn no_report_is_too_empty_to_be_shown() {
    let empty = r#"{"schema": "goldline.report/1", "verdict": "", "outcome": "", "golden": {"path": ""},
        "candidate": {"path": ""}, "summary": {}, "origins": [], "nonfinite_origins": [], "blacklist": [], "layers": []}"#;
    let none = r#"{"schema": "goldline.suite/1", "verdict": "pass", "first": null, "cases": []}"#;
    for document in [read(empty), read(none)] {
        for format in Format::ALL {
            assert!(!written(&document, format).is_empty());
        }
        for width in [0, 1, 100, usize::MAX] {
            let mut out = Vec::new();
            terminal::write(&document, Style { width, ..Style::default() }, &mut out).unwrap();
            assert!(!out.is_empty());
        }
    }
}

proptest! {
    #[test]
    fn numbers_survive_writing_and_reading(value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
        let text = REPORT.replace("\"rel_l2\": 0.0", &format!("\"rel_l2\": {value:e}"));
        let back = rel_l2(&read(&written(&read(&text), Format::Json)));
        // The JSON reader may be off by an ulp each time it reads; no digit that a person sees changes.
        prop_assert!((back - value).abs() <= 4.0 * f64::EPSILON * value.abs(), "{value:e} {back:e}");
    }
}

fn rel_l2(document: &Document) -> f64 {
    let Document::Report(report) = document else { panic!("a report") };
    let output = report.layers.first().and_then(|row| row.outputs.first()).unwrap();
    output.metrics.get("rel_l2").copied().flatten().unwrap()
}
