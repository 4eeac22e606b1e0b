//! `csv=`: one line per output tensor, for a spreadsheet (RFC 4180).
//!
//! The first columns are fixed; then comes one column per metric that occurs in the document, and
//! one per limit, each in alphabetical order. Numbers are written in full, an absent number is an
//! empty cell. A layer without outputs (missing, say) and a case that failed still have their line.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::model::{LayerRow, OutputRow, Report};
use super::{CaseView, Document};
use crate::error::escape;

const FIXED: [&str; 19] = [
    "case",
    "step",
    "rank",
    "index",
    "layer",
    "candidate_layer",
    "op",
    "pass",
    "verdict",
    "role",
    "paired_by",
    "why",
    "tensor",
    "tensor_verdict",
    "golden_dtype",
    "candidate_dtype",
    "shape",
    "introduced",
    "propagated",
];

/// Writes the document, with a header line.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let mut metrics: BTreeSet<&str> = BTreeSet::new();
    let mut limits: BTreeSet<&str> = BTreeSet::new();
    let cases = document.cases();
    for case in &cases {
        let CaseView::Report(report) = case else { continue };
        for output in report.layers.iter().flat_map(|row| &row.outputs) {
            metrics.extend(output.metrics.keys().map(String::as_str));
            limits.extend(output.limits.keys().map(String::as_str));
        }
    }
    let columns = Columns { metrics, limits };
    let mut header: Vec<String> = FIXED.iter().map(|name| (*name).to_owned()).collect();
    header.extend(columns.metrics.iter().map(|name| text(name)));
    header.extend(columns.limits.iter().map(|name| text(&format!("limit_{name}"))));
    header.push("detail".into());
    write_line(&header, out)?;
    for case in cases {
        match case {
            CaseView::Report(report) => write_report(report, &columns, out)?,
            CaseView::Failed { case, error } => {
                let mut line = vec![String::new(); header.len()];
                for (cell, value) in [("case", case), ("verdict", "error"), ("why", error)] {
                    if let Some(place) = FIXED.iter().position(|name| *name == cell).and_then(|at| line.get_mut(at)) {
                        *place = text(value);
                    }
                }
                write_line(&line, out)?;
            }
        }
    }
    Ok(())
}

struct Columns<'a> {
    metrics: BTreeSet<&'a str>,
    limits: BTreeSet<&'a str>,
}

fn write_report(report: &Report, columns: &Columns<'_>, out: &mut dyn Write) -> io::Result<()> {
    for row in &report.layers {
        if row.outputs.is_empty() {
            write_line(&cells(report, row, None, columns), out)?;
        }
        for output in &row.outputs {
            write_line(&cells(report, row, Some(output), columns), out)?;
        }
    }
    Ok(())
}

fn cells(report: &Report, row: &LayerRow, output: Option<&OutputRow>, columns: &Columns<'_>) -> Vec<String> {
    let optional = |value: Option<&str>| value.map(text).unwrap_or_default();
    let count = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let [golden_dtype, candidate_dtype] = output.map(|o| o.dtype.each_ref().map(|d| d.as_deref())).unwrap_or_default();
    let shape = output.and_then(|o| o.shape.as_ref()).map(|shape| {
        let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
        // Not `2,8`, which needs quotes, nor `2x8`, which some spreadsheets take for a number.
        format!("[{}]", extents.join(" "))
    });
    let mut cells = vec![
        optional(report.case.as_deref()),
        count(report.step),
        count(report.rank),
        count(row.index),
        text(&row.layer),
        optional(row.candidate_layer.as_deref()),
        text(&row.op),
        text(&row.pass),
        text(&row.verdict),
        optional(row.role.as_deref()),
        optional(row.paired_by.as_deref()),
        text(&row.why),
        optional(output.map(|o| o.tensor.as_str())),
        optional(output.map(|o| o.verdict.as_str())),
        optional(golden_dtype),
        optional(candidate_dtype),
        shape.unwrap_or_default(),
        number(output.and_then(|o| o.introduced)),
        number(output.and_then(|o| o.propagated)),
    ];
    let metric = |name: &str| output.and_then(|o| o.metrics.get(name).copied().flatten());
    let limit = |name: &str| output.and_then(|o| o.limits.get(name)).map(|limit| limit.value);
    cells.extend(columns.metrics.iter().map(|name| number(metric(name))));
    cells.extend(columns.limits.iter().map(|name| number(limit(name))));
    cells.push(optional(output.and_then(|o| o.detail.as_deref())));
    cells
}

fn number(value: Option<f64>) -> String {
    match value.filter(|x| x.is_finite()) {
        None => String::new(),
        Some(x) if x != 0.0 && !(1e-4..1e15).contains(&x.abs()) => format!("{x:e}"),
        Some(x) => x.to_string(),
    }
}

/// A cell of text: control characters visible, nothing that a spreadsheet would take for a formula,
/// quoted where RFC 4180 asks for it.
fn text(value: &str) -> String {
    let mut value = escape(value);
    // Also the full-width forms, and behind blanks, which some spreadsheets strip first.
    if value.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) {
        value.insert(0, '\'');
    }
    if value.contains([',', '"']) { format!("\"{}\"", value.replace('"', "\"\"")) } else { value }
}

fn write_line(cells: &[String], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(cells.join(",").as_bytes())?;
    out.write_all(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_defused() {
        assert_eq!(text("a,b"), "\"a,b\"");
        assert_eq!(text("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(text("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(text(" +1"), "' +1");
        assert_eq!(text("@x"), "'@x");
        assert_eq!(text("-1"), "'-1");
        assert_eq!(text("a\r\nb"), "a\\u{d}\\u{a}b");
        assert_eq!(text("a=b"), "a=b");
    }

    #[test]
    fn numbers_are_written_in_full() {
        for value in [0.0, 1.0, -2.5, 65504.0, 1.0 / 3.0, 3.1e-6, f64::MIN_POSITIVE, f64::MAX] {
            assert_eq!(number(Some(value)).parse::<f64>().unwrap(), value);
            assert!(number(Some(value)).len() < 26);
        }
        assert_eq!(number(Some(f64::NAN)), "");
        assert_eq!(number(None), "");
    }
}
