//! `--json`: the report as `goldline.report/1`, and reading it back.
//!
//! Keys stand in the order of the model, so equal reports are equal bytes. A number that is not
//! finite becomes null. Names keep their value, yet characters that a terminal or a browser would
//! act upon are written as `\u` escapes, which every JSON reader undoes.

use std::io::{self, Write};
use std::path::Path;

use serde::ser::Serialize;
use serde::{Deserialize, Deserializer, de};
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::Document;
use super::model::{Disagreement, REPORT_SCHEMA, Report, SUITE_SCHEMA, Suite, SuiteEntry, SuitePlace, Unpaired};
use crate::error::{Error, Result, is_hidden};

/// Writes the document as indented JSON with a line feed at the end.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    match document {
        Document::Report(report) => write_value(report, out),
        Document::Suite(suite) => write_value(suite, out),
    }
}

/// Writes any value as reports are written: indented, and harmless to a terminal that shows it.
///
/// # Errors
/// Those of `out`.
pub fn write_value<T: Serialize + ?Sized>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Harmless::default());
    // `From` gives back the error of `out` itself, so that a closed pipe stays recognisable.
    value.serialize(&mut serializer).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Reads a report or a suite that this tool wrote; `path` only names it in errors.
///
/// # Errors
/// Text that is no JSON, another schema, a missing key or a wrong type, each with its line.
pub fn read(path: &Path, text: &str) -> Result<Document> {
    let broken = |error: &serde_json::Error| {
        let message = describe(error);
        let line = u64::try_from(error.line()).unwrap_or(0);
        let error = Error::at(path, message);
        if line == 0 { error } else { error.line(line) }
    };
    if let Some(found) = no_json(text) {
        return Err(Error::at(path, format_args!("expected a JSON report, found {found}")));
    }
    let head: Head = serde_json::from_str(text).map_err(|error| broken(&error))?;
    match head.schema.as_deref() {
        Some(REPORT_SCHEMA) => serde_json::from_str::<Report>(text).map(Document::from).map_err(|error| broken(&error)),
        Some(SUITE_SCHEMA) => serde_json::from_str::<Suite>(text).map(Document::from).map_err(|error| broken(&error)),
        other => {
            let found = other.map_or_else(|| "no schema".to_owned(), |schema| format!("\"{schema}\""));
            let message =
                format!("expected a report with schema \"{REPORT_SCHEMA}\" or \"{SUITE_SCHEMA}\", found {found}");
            Err(Error::at(path, message))
        }
    }
}

/// What stands where no JSON object can.
fn no_json(text: &str) -> Option<&'static str> {
    match text.trim_start().chars().next() {
        None => Some("an empty file"),
        Some('<') => Some("a page of HTML or XML"),
        Some('{' | '[') => None,
        Some(_) => Some("something else"),
    }
}

/// The message without serde_json's own "at line … column …", which [`Error`] says in its way.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let tail = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&tail).unwrap_or(&text);
    let kind = if error.is_data() { "not a report" } else { "not JSON" };
    format!("{kind}: {what} (column {})", error.column())
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: Option<String>,
}

#[derive(Deserialize)]
struct SuiteFields {
    schema: String,
    verdict: String,
    #[serde(default)]
    totals: std::collections::BTreeMap<String, u64>,
    first: Option<String>,
    #[serde(default)]
    first_drift: Option<SuitePlace>,
    #[serde(default)]
    disagreements: Vec<Disagreement>,
    #[serde(default)]
    unpaired: Vec<Unpaired>,
    cases: Vec<SuiteEntry>,
}

impl<'de> Deserialize<'de> for Suite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SuiteFields { schema, verdict, totals, first, first_drift, disagreements, unpaired, cases } =
            SuiteFields::deserialize(deserializer)?;
        Ok(Self { schema, verdict, totals, first, first_drift, disagreements, unpaired, cases })
    }
}

#[derive(Deserialize)]
struct FailedFields {
    case: String,
    error: String,
}

impl<'de> Deserialize<'de> for SuiteEntry {
    /// An entry with the key `error` is a case that failed, any other a report: chosen by the key
    /// and not by trial, so that the error of a broken report is about that report.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if value.get("error").is_some() {
            let FailedFields { case, error } = serde_json::from_value(value).map_err(de::Error::custom)?;
            return Ok(Self::Failed { case, error });
        }
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(REPORT_SCHEMA) => {}
            found => {
                let found = found.unwrap_or("none");
                return Err(de::Error::custom(format_args!("a case's schema is {found}, expected {REPORT_SCHEMA}")));
            }
        }
        let name = value.get("case").and_then(serde_json::Value::as_str).unwrap_or("(unnamed)").to_owned();
        let report: Report = serde_json::from_value(value)
            .map_err(|error| de::Error::custom(format_args!("case \"{name}\": {error}")))?;
        Ok(Self::Report(Box::new(report)))
    }
}

/// Indents like serde_json's own formatter and escapes what a terminal or a browser would act upon.
#[derive(Default)]
struct Harmless {
    pretty: PrettyFormatter<'static>,
}

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut written = 0;
        let mut before = ' ';
        for (at, c) in fragment.char_indices() {
            // `<\/` is `</` to every JSON reader, but ends no script element of a page that embeds it.
            let closes_a_tag = before == '<' && c == '/';
            before = c;
            if !closes_a_tag && !is_hidden(c) {
                continue;
            }
            writer.write_all(&fragment.as_bytes()[written..at])?;
            if closes_a_tag {
                writer.write_all(b"\\/")?;
            } else {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
            written = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[written..])
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_object_value(writer)
    }
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
    fn what_was_written_is_read_back() {
        for document in example::documents() {
            assert_eq!(read(Path::new("r.json"), &text(&document)).unwrap(), document);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_become_null_and_can_be_read_back() {
        let mut report = example::drift();
        for row in &mut report.layers {
            for output in &mut row.outputs {
                output.introduced = Some(f64::NAN);
                for value in output.metrics.values_mut() {
                    *value = Some(f64::INFINITY);
                }
                for limit in output.limits.values_mut() {
                    limit.value = f64::NEG_INFINITY;
                }
            }
        }
        let json = text(&report.into());
        let back = read(Path::new("r.json"), &json).unwrap();
        assert_eq!(text(&back), json);
        let Document::Report(back) = back else { panic!("a report stays a report") };
        let output = back.layers.iter().flat_map(|row| &row.outputs).find(|o| !o.limits.is_empty()).unwrap();
        assert_eq!(output.introduced, None);
        assert!(output.limits.values().all(|limit| limit.value.is_nan()));
    }

    #[test]
    fn names_keep_their_value_but_cannot_act() {
        let hostile = "</script>\u{1b}[31m\u{9b}31m\u{7f}\u{202e}\n\u{feff}é";
        let mut report = example::pass();
        report.case = Some(hostile.to_owned());
        let json = text(&report.into());
        assert!(json.chars().all(|c| c == '\n' || !is_hidden(c)));
        assert!(!json.contains("</"));
        let Document::Report(back) = read(Path::new("r.json"), &json).unwrap() else { panic!("a report") };
        assert_eq!(back.case.as_deref(), Some(hostile));
    }

    #[test]
    fn what_is_not_a_report_is_refused_in_one_line() {
        let refused = |text: &str| read(Path::new("r.json"), text).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"schema": "goldline.report/2"}"#),
            "r.json: expected a report with schema \"goldline.report/1\" or \"goldline.suite/1\", found \"goldline.report/2\""
        );
        assert_eq!(
            refused("{}"),
            "r.json: expected a report with schema \"goldline.report/1\" or \"goldline.suite/1\", found no schema"
        );
        assert_eq!(
            refused("{\n\"schema\": 1}"),
            "r.json: line 2: not a report: invalid type: integer `1`, expected a string (column 11)"
        );
        assert_eq!(refused("<html>"), "r.json: expected a JSON report, found a page of HTML or XML");
        assert_eq!(refused("\n"), "r.json: expected a JSON report, found an empty file");
        assert!(refused("[]").ends_with("found no schema"));
        assert!(refused("[1]").starts_with("r.json: line 1: not a report: "));
        assert!(refused(&"[".repeat(100_000)).contains("r.json: line 1: "));
        assert!(refused(r#"{"schema": "goldline.report/1", "case": null}"#).contains("missing field"));
        let suite = r#"{"schema": "goldline.suite/1", "verdict": "pass", "first": null, "cases": [{"case": "a"}]}"#;
        assert!(refused(suite).contains("a case's schema is none, expected goldline.report/1"));
    }

    #[test]
    fn keys_that_were_added_later_may_be_absent() {
        let text = r#"{"schema": "goldline.report/1", "case": "a", "verdict": "pass", "outcome": "expected",
            "golden": {"path": "g", "environment": {}}, "candidate": {"path": "c", "environment": {}},
            "summary": {"layers": 1}, "first_drift": null, "origins": [], "nonfinite_origins": [],
            "blacklist": [{"op": "pow", "layers": ["a"], "reason": "range", "grade": "replay", "score": 0.98, "why": "w"}],
            "layers": [{"index": 0, "layer": "a", "op": "pow", "pass": "forward", "verdict": "pass", "role": null,
                        "outputs": [{"tensor": "a:0", "metrics": {}, "limits": {}}], "later": 1}]}"#;
        assert!(read(Path::new("r.json"), text).is_ok());
    }

    #[test]
    fn a_closed_pipe_stays_recognisable() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = write(&example::pass().into(), &mut Closed).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
