//! `md=`: for a pull-request comment (GitHub's Markdown).
//!
//! The same lines as the terminal's summary, then the layers of interest as a table in a fold. Names
//! and prose cannot form markup, HTML, links, mentions or table cells of their own.

use std::io::{self, Write};

use super::decisive::is_out;
use super::figure::counted;
use super::gist::{Line, Piece, gist, title};
use super::model::{LayerRow, Report, Suite};
use super::row_figures::RowFigures;
use super::suite::line_of;
use super::{CaseView, Document};
use crate::error::escape;

/// A comment may hold 65,536 characters; rows beyond this many are counted.
const MOST_ROWS: usize = 60;

/// Writes the document.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    if let Document::Suite(suite) = document {
        write_overview(suite, document, out)?;
    }
    for case in document.cases() {
        // A suite's passing cases have said all in the overview.
        match case {
            CaseView::Report(report) if matches!(document, Document::Report(_)) || report.outcome != "expected" => {
                write_report(report, out)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn write_overview(suite: &Suite, document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let totals: Vec<String> =
        suite.totals.iter().map(|(outcome, count)| format!("{count} {}", prose(outcome))).collect();
    let colon = if totals.is_empty() { "" } else { ": " };
    writeln!(out, "## Goldline: {}{colon}{}\n", counted(suite.cases.len() as u64, "case"), totals.join(", "))?;
    writeln!(out, "| | case | verdict | where |\n|---|---|---|---|")?;
    for case in document.cases() {
        match case {
            CaseView::Failed { case, error } => writeln!(out, "| ❌ | {} | error | {} |", code(case), prose(error))?,
            CaseView::Report(report) => {
                let mark = if report.outcome == "expected" { "✅" } else { "❌" };
                let birth = report.nonfinite_origins.first().map(|birth| &birth.layer);
                let origin = report.origins.first().map(|origin| &origin.layer);
                let first = report.first_drift.as_ref().map(|place| &place.layer);
                let place = birth.or(origin).or(first).map(|layer| code(layer)).unwrap_or_default();
                writeln!(out, "| {mark} | {} | {} | {place} |", code(&title(report)), prose(&report.verdict))?;
            }
        }
    }
    writeln!(out)?;
    if suite.disagreements.is_empty() {
        return Ok(());
    }
    writeln!(out, "**Ranks that should agree do not**\n")?;
    for disagreement in &suite.disagreements {
        writeln!(out, "* {}", set(&line_of(disagreement)))?;
    }
    writeln!(out)
}

fn write_report(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let gist = gist(report);
    let mark = if gist.expected { "✅" } else { "❌" };
    let expected = if gist.expected && gist.verdict != "pass" { " (as expected)" } else { "" };
    writeln!(out, "### {mark} {}: {}{expected}\n", prose(&gist.verdict), code(&gist.title))?;
    for section in &gist.sections {
        if let [line] = section.lines.as_slice() {
            writeln!(out, "* **{}** {}", section.label, set(line))?;
        } else {
            writeln!(out, "* **{}**", section.label)?;
            for line in &section.lines {
                writeln!(out, "  * {}", set(line))?;
            }
        }
    }
    writeln!(out)?;
    write_table(report, out)
}

fn write_table(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<&LayerRow> = report.layers.iter().filter(|row| is_out(&row.verdict)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let noun = if rows.len() == 1 { "layer is" } else { "layers are" };
    writeln!(out, "<details><summary>{} {noun} out</summary>\n", rows.len())?;
    writeln!(out, "| # | layer | op | verdict | rel_l2 | limit | max_abs | cosine | role |")?;
    writeln!(out, "|--:|---|---|---|--:|--:|--:|--:|---|")?;
    for row in rows.iter().take(MOST_ROWS) {
        let figures = RowFigures::of(row);
        let backward = if row.pass == "forward" { String::new() } else { format!(" {}", prose(&row.pass)) };
        writeln!(
            out,
            "| {} | {}{backward} | {} | {} | {} | {} | {} | {} | {} |",
            row.index.map(|index| index.to_string()).unwrap_or_default(),
            code(&row.layer),
            code(&row.op),
            prose(&row.verdict),
            figures.rel_l2,
            prose(&figures.limit),
            figures.max_abs,
            figures.cosine,
            row.role.as_deref().map(prose).unwrap_or_default(),
        )?;
    }
    if rows.len() > MOST_ROWS {
        writeln!(out, "\nand {} more; the JSON report has them all", rows.len() - MOST_ROWS)?;
    }
    writeln!(out, "\n</details>\n")
}

fn set(line: &Line) -> String {
    line.iter()
        .map(|piece| match piece {
            Piece::Name(name) => code(name),
            Piece::Text(text) => prose(text),
        })
        .collect()
}

/// A name as code. A plain code span where nothing in the name can leave it, else an element whose
/// content is all character references.
fn code(name: &str) -> String {
    let name = escape(name);
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._-:/#[](){}=+, ".contains(c));
    if plain && !name.starts_with(' ') && !name.ends_with(' ') {
        return format!("`{name}`");
    }
    let mut out = String::from("<code>");
    for c in name.chars() {
        if c.is_alphanumeric() || c == '.' { out.push(c) } else { out.push_str(&format!("&#{};", u32::from(c))) }
    }
    out.push_str("</code>");
    out
}

/// Prose that can form no markup.
fn prose(text: &str) -> String {
    let text = escape(text);
    let mut out = String::with_capacity(text.len());
    let mut before: Option<char> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let inside_a_word =
            before.is_some_and(char::is_alphanumeric) && chars.peek().copied().is_some_and(char::is_alphanumeric);
        match c {
            '&' | '<' | '>' | '|' | '`' | '*' | '[' | ']' | '\\' | '~' | '$' => {
                out.push_str(&format!("&#{};", u32::from(c)));
            }
            '_' if !inside_a_word => out.push_str("&#95;"),
            // GitHub finds mentions, issues and addresses in the finished text; a comment parts it.
            '@' | '#' => out.push_str(&format!("{c}<!-- -->")),
            ':' if chars.peek() == Some(&'/') => out.push_str(":<!-- -->"),
            '.' if out.ends_with("www") => out.push_str("<!-- -->."),
            // Only a marker at the start of a block has a meaning; prose never starts one, names may.
            '-' | '+' | '=' if before.is_none() => out.push_str(&format!("&#{};", u32::from(c))),
            _ => out.push(c),
        }
        before = Some(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        assert_eq!(code("encoder.0.__init__"), "`encoder.0.__init__`");
        assert_eq!(code("a|b"), "<code>a&#124;b</code>");
        assert_eq!(code("`x`"), "<code>&#96;x&#96;</code>");
        assert_eq!(code("</script>"), "<code>&#60;&#47;script&#62;</code>");
        assert_eq!(code("a\nb"), "<code>a&#92;u&#123;a&#125;b</code>");
        assert_eq!(code(" "), "<code>&#32;</code>");
    }

    #[test]
    fn prose_forms_no_markup() {
        assert_eq!(prose("rel_l2 is *big* | <b>"), "rel_l2 is &#42;big&#42; &#124; &#60;b&#62;");
        assert_eq!(prose("_x_"), "&#95;x&#95;");
        assert_eq!(prose("#3 by @someone"), "#<!-- -->3 by @<!-- -->someone");
        assert_eq!(prose("http://a www.b"), "http:<!-- -->//a www<!-- -->.b");
        assert_eq!(prose("- item"), "&#45; item");
        assert_eq!(prose("![i](j)"), "!&#91;i&#93;(j)");
    }
}
