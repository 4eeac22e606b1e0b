//! The summary: verdict, where, why, what to do next, and what was not compared.

use std::io::{self, Write};

use super::style::{Style, Tone};
use crate::error::legible;
use crate::report::gist::{Section, gist};
use crate::report::model::Report;

/// Column in which the lines of a section start.
const INDENT: usize = 12;

/// Writes the summary of one report, with an empty line after it.
pub(super) fn write(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let gist = gist(report);
    let verdict = style.paint(Tone::of(&gist.verdict), &legible(&gist.verdict));
    let title = style.paint(Tone::Strong, &legible(&gist.title));
    write!(out, "{verdict}  {title}")?;
    if gist.expected && gist.verdict != "pass" {
        write!(out, "  {}", style.paint(Tone::Good, "(as expected)"))?;
    } else if !gist.expected && gist.verdict == "pass" {
        write!(out, "  {}", style.paint(Tone::Bad, "(not as expected)"))?;
    }
    writeln!(out)?;
    for section in &gist.sections {
        write_section(section, style, out)?;
    }
    writeln!(out)
}

fn write_section(section: &Section, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for (place, line) in section.lines.iter().enumerate() {
        let label = if place == 0 { section.label } else { "" };
        let padding = " ".repeat(INDENT.saturating_sub(2 + label.len()));
        writeln!(out, "  {}{padding}{}", style.paint(Tone::Quiet, label), style.flow(line, INDENT))?;
    }
    Ok(())
}
