//! `html=`: one self-contained page.
//!
//! In goes a document, out comes a page without script and without anything to load: summary, strip
//! chart and the layers that are out, with all layers in a fold. The template escapes all that it
//! is given; control characters are made visible before.

mod strip;

use std::io::{self, Write};

use askama::Template;

use super::decisive::is_out;
use super::gist::{Gist, Line, Piece, gist, title};
use super::model::{LayerRow, Report};
use super::row_figures::RowFigures;
use super::suite::line_of;
use super::{CaseView, Document};
use crate::error::escape;

/// Writes the document.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let page = Page::of(document);
    let html = page.render().map_err(io::Error::other)?;
    out.write_all(html.as_bytes())?;
    // The template engine takes a template's last line feed away.
    out.write_all(b"\n")
}

#[derive(Template)]
#[template(path = "page.html", config = "src/report/html/askama.toml")]
struct Page {
    title: String,
    /// Cases in brief; empty for a single report.
    overview: Vec<Brief>,
    /// What ranks should hold alike and do not.
    disagreements: Vec<Vec<Bit>>,
    cases: Vec<CaseSection>,
}

struct Brief {
    good: bool,
    anchor: usize,
    name: String,
    verdict: String,
    place: String,
}

struct CaseSection {
    anchor: usize,
    name: String,
    verdict: String,
    tone: &'static str,
    remark: &'static str,
    /// Why there is no report.
    error: Option<String>,
    sections: Vec<(&'static str, Vec<Vec<Bit>>)>,
    strip: Option<strip::Strip>,
    out: Vec<TableRow>,
    all: Vec<TableRow>,
}

/// A stretch of a line.
struct Bit {
    is_name: bool,
    text: String,
}

struct TableRow {
    index: String,
    layer: String,
    candidate: String,
    op: String,
    pass: String,
    verdict: String,
    tone: &'static str,
    rel_l2: String,
    limit: String,
    limit_why: String,
    max_abs: String,
    cosine: String,
    role: String,
    why: String,
}

impl Page {
    fn of(document: &Document) -> Self {
        let cases: Vec<CaseSection> = document
            .cases()
            .into_iter()
            .enumerate()
            .map(|(anchor, case)| match case {
                CaseView::Report(report) => CaseSection::of(anchor, report),
                CaseView::Failed { case, error } => CaseSection::failed(anchor, case, error),
            })
            .collect();
        let (title, overview) = match document {
            Document::Report(report) => (format!("{} {}", escape(&title(report)), escape(&report.verdict)), Vec::new()),
            Document::Suite(suite) => {
                let brief = |(anchor, case): (usize, CaseView<'_>)| Brief::of(anchor, case);
                let overview = document.cases().into_iter().enumerate().map(brief).collect();
                (format!("{} cases, {}", suite.cases.len(), escape(&suite.verdict)), overview)
            }
        };
        let disagreements = match document {
            Document::Report(_) => Vec::new(),
            Document::Suite(suite) => suite.disagreements.iter().map(|found| bits(&line_of(found))).collect(),
        };
        Self { title, overview, disagreements, cases }
    }
}

impl Brief {
    fn of(anchor: usize, case: CaseView<'_>) -> Self {
        match case {
            CaseView::Failed { case, error } => {
                Self { good: false, anchor, name: escape(case), verdict: "error".into(), place: escape(error) }
            }
            CaseView::Report(report) => {
                let birth = report.nonfinite_origins.first().map(|birth| &birth.layer);
                let origin = report.origins.first().map(|origin| &origin.layer);
                let first = report.first_drift.as_ref().map(|place| &place.layer);
                Self {
                    good: report.outcome == "expected",
                    anchor,
                    name: escape(&title(report)),
                    verdict: escape(&report.verdict),
                    place: birth.or(origin).or(first).map(|layer| escape(layer)).unwrap_or_default(),
                }
            }
        }
    }
}

impl CaseSection {
    fn of(anchor: usize, report: &Report) -> Self {
        let Gist { verdict, title, expected, sections } = gist(report);
        let all: Vec<TableRow> = report.layers.iter().map(TableRow::of).collect();
        Self {
            anchor,
            name: escape(&title),
            tone: tone(&verdict),
            remark: match (expected, verdict.as_str()) {
                (true, "pass") => "",
                (true, _) => "as expected",
                (false, "pass") => "not as expected",
                (false, _) => "",
            },
            verdict: escape(&verdict),
            error: None,
            sections: sections
                .iter()
                .map(|section| (section.label, section.lines.iter().map(bits).collect()))
                .collect(),
            strip: strip::Strip::of(&report.layers),
            out: report.layers.iter().filter(|row| is_out(&row.verdict)).map(TableRow::of).collect(),
            all,
        }
    }

    fn failed(anchor: usize, case: &str, error: &str) -> Self {
        Self {
            anchor,
            name: escape(case),
            verdict: "error".into(),
            tone: "bad",
            remark: "",
            error: Some(escape(error)),
            sections: Vec::new(),
            strip: None,
            out: Vec::new(),
            all: Vec::new(),
        }
    }
}

impl TableRow {
    fn of(row: &LayerRow) -> Self {
        let figures = RowFigures::of(row);
        Self {
            index: row.index.map(|index| index.to_string()).unwrap_or_default(),
            layer: escape(&row.layer),
            candidate: row.candidate_layer.as_deref().map(escape).unwrap_or_default(),
            op: escape(&row.op),
            pass: if row.pass == "forward" { String::new() } else { escape(&row.pass) },
            verdict: escape(&row.verdict),
            tone: tone(&row.verdict),
            rel_l2: figures.rel_l2,
            limit: escape(&figures.limit),
            limit_why: escape(&figures.limit_why),
            max_abs: figures.max_abs,
            cosine: figures.cosine,
            role: row.role.as_deref().map(escape).unwrap_or_default(),
            why: escape(&row.why),
        }
    }
}

fn bits(line: &Line) -> Vec<Bit> {
    line.iter()
        .map(|piece| match piece {
            Piece::Name(name) => Bit { is_name: true, text: escape(name) },
            Piece::Text(text) => Bit { is_name: false, text: escape(text) },
        })
        .collect()
}

fn tone(verdict: &str) -> &'static str {
    match verdict {
        "pass" => "good",
        "drift" | "nonfinite" | "mismatch" => "bad",
        "missing" | "incomparable" => "doubtful",
        _ => "quiet",
    }
}
