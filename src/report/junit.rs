//! `junit=`: for a continuous-integration server.
//!
//! One test suite per case. Its first test, `verdict`, is the case as a whole: it fails where the
//! outcome is not the expected one. Then comes one test per layer: out is a failure with its
//! reason, what was not compared is skipped with its reason. In a case with the expected outcome
//! nothing fails: a known defect that was found is a success. A case that could not be verified is
//! an error. What ranks should hold alike and do not is a suite of its own. No times and no identifiers are written, so that equal documents are equal bytes.

use std::io::{self, Write};

use quick_junit::{NonSuccessKind, Report as Tests, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::decisive::is_out;
use super::gist::{over, title};
use super::model::{Disagreement, LayerRow, Report};
use super::suite::where_found;
use super::{CaseView, Document};
use crate::error::escape;

/// Writes the document.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let mut tests = Tests::new("goldline");
    for case in document.cases() {
        tests.add_test_suite(match case {
            CaseView::Report(report) => suite(report),
            CaseView::Failed { case, error } => failed(case, error),
        });
    }
    if let Document::Suite(all) = document
        && !all.disagreements.is_empty()
    {
        tests.add_test_suite(ranks(&all.disagreements));
    }
    // Serialised to memory first: the crate wraps what `out` reports, and its kind would be lost.
    let text = tests.to_string().map_err(|error: SerializeError| io::Error::other(error))?;
    out.write_all(text.as_bytes())
}

/// One test for each tensor that ranks should hold alike and do not.
fn ranks(disagreements: &[Disagreement]) -> TestSuite {
    let mut suite = TestSuite::new("ranks");
    for disagreement in disagreements {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(escape(&disagreement.why));
        status.set_type("disagreement");
        suite.add_test_case(test(&where_found(disagreement), &disagreement.layer, status));
    }
    suite
}

fn failed(case: &str, error: &str) -> TestSuite {
    let mut suite = TestSuite::new(escape(case));
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    status.set_message(escape(error));
    suite.add_test_case(test(case, "verdict", status));
    suite
}

fn suite(report: &Report) -> TestSuite {
    let case = title(report);
    let expected = report.outcome == "expected";
    let mut suite = TestSuite::new(escape(&case));
    for (name, value) in [
        ("verdict", report.verdict.as_str()),
        ("outcome", &report.outcome),
        ("golden", &report.golden.path),
        ("candidate", &report.candidate.path),
    ] {
        suite.add_property((name, escape(value).as_str()));
    }
    suite.add_test_case(test(&case, "verdict", verdict(report, expected)));
    for row in &report.layers {
        suite.add_test_case(test(&case, &name(row), status(row, expected)));
    }
    suite
}

fn test(case: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut test = TestCase::new(escape(name), status);
    test.set_classname(escape(case));
    test
}

fn name(row: &LayerRow) -> String {
    if row.pass == "forward" { row.layer.clone() } else { format!("{} [{}]", row.layer, row.pass) }
}

fn verdict(report: &Report, expected: bool) -> TestCaseStatus {
    if expected {
        return TestCaseStatus::success();
    }
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    let why = report.outcome_why.as_deref().filter(|why| !why.is_empty()).unwrap_or(&report.why);
    status.set_message(escape(why));
    status.set_type(escape(&report.verdict));
    status
}

fn status(row: &LayerRow, expected: bool) -> TestCaseStatus {
    if is_out(&row.verdict) {
        if expected {
            return TestCaseStatus::success();
        }
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(escape(&row.why));
        let role = row.role.as_deref().unwrap_or("out");
        status.set_type(escape(&format!("{} ({role})", row.verdict)));
        let mut lines: Vec<String> = row.outputs.iter().filter_map(|output| output.detail.clone()).collect();
        lines.extend(over(row));
        if !lines.is_empty() {
            let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
            status.set_description(lines.join("\n"));
        }
        return status;
    }
    if row.verdict == "pass" {
        return TestCaseStatus::success();
    }
    let mut status = TestCaseStatus::skipped();
    let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
    status.set_message(escape(&format!("{}{why}", row.verdict)));
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn text(document: &Document) -> String {
        let mut out = Vec::new();
        write(document, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_expected_defect_fails_nothing_and_an_unexpected_one_does() {
        let mut report = example::nonfinite();
        let failures = text(&report.clone().into()).matches("<failure").count();
        assert_eq!(failures, 6, "the verdict and five layers");
        report.outcome = "expected".into();
        assert_eq!(text(&report.into()).matches("<failure").count(), 0);
    }

    #[test]
    fn an_expectation_that_was_not_met_fails_although_every_layer_passes() {
        let mut report = example::pass();
        report.outcome = "unexpected".into();
        report.outcome_why = Some("expected nonfinite at ln.pow, found pass".into());
        let text = text(&report.into());
        assert_eq!(text.matches("<failure").count(), 1);
        assert!(text.contains("expected nonfinite at ln.pow, found pass"));
    }
}
