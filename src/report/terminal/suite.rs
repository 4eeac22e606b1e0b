//! Several cases: one line each, then the totals.

use std::io::{self, Write};

use super::style::{Style, Tone, shortened, width_of};
use crate::error::legible;
use crate::report::figure::grouped;
use crate::report::gist::title;
use crate::report::model::{Report, Suite, SuiteEntry};
use crate::report::suite::line_of;

/// Names are padded to the longest, but not beyond this.
const MOST_NAME_WIDTH: usize = 40;

struct Row {
    /// `ok`, `FAIL` or `ERROR`.
    mark: &'static str,
    tone: Tone,
    name: String,
    verdict: String,
    rest: String,
}

/// Writes one line per case and the totals.
pub(super) fn write(suite: &Suite, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Row> = suite.cases.iter().map(row).collect();
    let widest = |cell: fn(&Row) -> &str| rows.iter().map(|row| width_of(cell(row))).max().unwrap_or_default();
    let names = widest(|row| &row.name).min(MOST_NAME_WIDTH);
    let verdicts = widest(|row| &row.verdict);
    for row in &rows {
        let name = padded(&shortened(&row.name, names), names);
        let verdict = padded(&row.verdict, verdicts);
        // 5 columns of mark, and two spaces between the columns.
        let room = style.columns().saturating_sub(5 + 2 + names + 2 + verdicts + 2);
        let line = format!(
            "{}  {}  {}  {}",
            style.paint(row.tone, &padded(row.mark, 5)),
            style.paint(Tone::Strong, &name),
            verdict,
            // What went wrong is not cut: it may be all that the reader gets.
            if style.all || row.mark == "ERROR" { row.rest.clone() } else { shortened(&row.rest, room) },
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let totals: Vec<String> =
        suite.totals.iter().map(|(outcome, count)| format!("{} {}", grouped(*count), legible(outcome))).collect();
    let verdict = style.paint(Tone::of(&suite.verdict), &legible(&suite.verdict));
    writeln!(out)?;
    write!(out, "{} cases", grouped(suite.cases.len() as u64))?;
    if !totals.is_empty() {
        write!(out, ": {}", totals.join(", "))?;
    }
    writeln!(out, "; worst verdict {verdict}")?;
    if let Some(first) = &suite.first {
        write!(out, "first not as expected: {}", style.paint(Tone::Strong, &legible(first)))?;
        let place = suite.first_drift.as_ref().filter(|place| place.step.is_some() || place.rank.is_some());
        if let Some(place) = place {
            write!(out, ", at {} ({})", style.paint(Tone::Strong, &legible(&place.layer)), legible(&place.op))?;
        }
        writeln!(out)?;
    }
    if !suite.disagreements.is_empty() {
        writeln!(out, "{}", style.paint(Tone::Bad, "ranks that should agree do not:"))?;
    }
    for disagreement in &suite.disagreements {
        writeln!(out, "  {}", style.flow(&line_of(disagreement), 2))?;
    }
    Ok(())
}

fn row(entry: &SuiteEntry) -> Row {
    match entry {
        SuiteEntry::Failed { case, error } => {
            Row { mark: "ERROR", tone: Tone::Bad, name: legible(case), verdict: String::new(), rest: legible(error) }
        }
        SuiteEntry::Report(report) => {
            let expected = report.outcome == "expected";
            let place = place(report);
            let rest = match (expected, report.verdict.as_str()) {
                (true, "pass") => String::new(),
                (true, _) => format!("as expected{}", place.map(|place| format!(", {place}")).unwrap_or_default()),
                (false, _) => report
                    .outcome_why
                    .as_deref()
                    .filter(|why| !why.is_empty())
                    .map(legible)
                    .or(place)
                    .unwrap_or_else(|| legible(&report.why)),
            };
            Row {
                mark: if expected { "ok" } else { "FAIL" },
                tone: if expected { Tone::Good } else { Tone::Bad },
                name: legible(&title(report)),
                verdict: legible(&report.verdict),
                rest,
            }
        }
    }
}

/// Where it went wrong, in the fewest words.
fn place(report: &Report) -> Option<String> {
    let (layer, op, more) = if let Some(birth) = report.nonfinite_origins.first() {
        (&birth.layer, &birth.op, report.nonfinite_origins.len() - 1)
    } else if let Some(origin) = report.origins.first() {
        (&origin.layer, &origin.op, report.origins.len() - 1)
    } else {
        let first = report.first_drift.as_ref()?;
        (&first.layer, &first.op, 0)
    };
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("at {} ({}){more}", legible(layer), legible(op)))
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(width_of(text))))
}
