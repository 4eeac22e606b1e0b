//! A preflight as a person reads it: the findings, the worst first, and the loss scale.

use std::io::{self, Write};

use super::{Style, Tone};
use crate::error::escape;
use crate::judge::figure;
use crate::preflight::{Finding, Preflight, Severity};
use crate::report::gist::Piece;

/// How many findings are listed unless all are asked for.
const FIRST: usize = 20;
/// Column at which the text of a finding starts.
const INDENT: usize = 12;

/// Writes what was found.
///
/// # Errors
/// Those of `out`.
pub fn write(preflight: &Preflight, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let summary = &preflight.summary;
    let title = format!("preflight for {}", preflight.dtype);
    writeln!(out, "{}  {}", style.paint(Tone::Strong, &title), escape(&preflight.run))?;
    writeln!(
        out,
        "  {} layers, {} outputs read, {} layers replayed in {}",
        summary.layers, summary.read, summary.replayed, preflight.dtype
    )?;
    match &preflight.loss_scale {
        Some(scale) => writeln!(
            out,
            "  loss scale  {} (largest gradient {} in {})",
            figure(scale.scale),
            figure(scale.amax),
            escape(&scale.layer)
        )?,
        None => writeln!(out, "  loss scale  not known: no gradient was recorded")?,
    }
    for note in &preflight.notes {
        writeln!(out, "  note        {}", style.flow(&vec![Piece::Text(note.clone())], INDENT + 2))?;
    }
    writeln!(out)?;
    if preflight.findings.is_empty() {
        let text = format!("nothing is flagged: what was recorded fits {}", preflight.dtype);
        return writeln!(out, "{}", style.paint(Tone::Good, &text));
    }
    let shown = if style.all { preflight.findings.len() } else { preflight.findings.len().min(FIRST) };
    for finding in preflight.findings.iter().take(shown) {
        one(finding, style, out)?;
    }
    if shown < preflight.findings.len() {
        writeln!(out, "{} more findings (--all shows them)\n", preflight.findings.len() - shown)?;
    }
    let count = |severity| preflight.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts = [Severity::Breaks, Severity::Risks, Severity::Degrades]
        .map(|severity| format!("{} {}", count(severity), severity.as_str()));
    writeln!(out, "{} findings: {}", preflight.findings.len(), counts.join(", "))
}

fn one(finding: &Finding, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let tone = if finding.severity == Severity::Breaks { Tone::Bad } else { Tone::Doubtful };
    let severity = format!("{:<8}", finding.severity.as_str());
    writeln!(
        out,
        "{}  {}  {} ({}, {}, layer {})",
        style.paint(tone, &severity),
        finding.kind.as_str(),
        style.paint(Tone::Strong, &escape(&finding.layer)),
        escape(&finding.op),
        escape(&finding.pass),
        finding.index,
    )?;
    for (label, text) in [("why", &finding.why), ("next", &finding.advice)] {
        writeln!(out, "  {label:<8}  {}", style.flow(&vec![Piece::Text(text.clone())], INDENT))?;
    }
    Ok(())
}
