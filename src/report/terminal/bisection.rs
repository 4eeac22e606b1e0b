//! A bisection as a person reads it: one line per probe, then the result, then what was read.

use std::io::{self, BufWriter, Write};

use super::style::{Style, Tone, shortened, width_of};
use crate::bisect::{Bisection, Origin, Outcome, Purpose, Step};
use crate::error::legible;
use crate::report::figure::figure;
use crate::report::gist::Piece;

/// Column in which the layer of a probe starts.
const LAYER: usize = 14;
/// Columns behind the layer: verdict and numbers.
const NUMBERS: usize = 36;
/// Column in which prose starts.
const PROSE: usize = 12;

/// Writes the probes, the result and the books of a bisection.
///
/// # Errors
/// Those of `out`.
pub fn write(bisection: &Bisection, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for group in groups(&bisection.steps, style.all) {
        write_group(group, style, &mut out)?;
    }
    if !bisection.steps.is_empty() {
        writeln!(out)?;
    }
    write_result(bisection, style, &mut out)?;
    let loaded = bisection.loaded;
    writeln!(
        out,
        "loaded {} of {} tensor pairs ({} of {})",
        loaded.pairs,
        loaded.of_pairs,
        size(loaded.bytes),
        size(loaded.of_bytes)
    )?;
    out.flush()
}

/// Steps that stand on one line: a run of steps that agree, where none is of interest by itself.
fn groups(steps: &[Step], all: bool) -> Vec<&[Step]> {
    let is_quiet = |step: &Step| {
        !all && matches!(step.verdict.as_str(), "pass" | "skipped")
            && matches!(step.purpose, Purpose::Source | Purpose::Block | Purpose::Confirm | Purpose::Scan)
    };
    steps.chunk_by(|a, b| is_quiet(a) && is_quiet(b) && a.purpose == b.purpose && a.verdict == b.verdict).collect()
}

fn write_group(group: &[Step], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = group.first() else { return Ok(()) };
    let purpose = style.paint(Tone::Quiet, first.purpose.as_str());
    let padding = " ".repeat(LAYER.saturating_sub(2 + first.purpose.as_str().len()));
    write!(out, "  {purpose}{padding}")?;
    if group.len() > 1 {
        let what = if first.verdict == "pass" { "agree" } else { "are not compared" };
        let tail = if first.purpose == Purpose::Source { "sources" } else { "layers" };
        return writeln!(out, "{} {tail} {what}", group.len());
    }
    let room = style.columns().saturating_sub(LAYER + NUMBERS).max(8);
    let name = shortened(&legible(&first.layer), room);
    let gap = " ".repeat(room.saturating_sub(width_of(&name)));
    let verdict = style.paint(Tone::of(&first.verdict), &format!("{:<9}", first.verdict));
    write!(out, "{name}{gap}  {verdict}")?;
    match (first.rel_l2, first.limit) {
        (Some(value), Some(limit)) => {
            let relation = if value > limit { ">" } else { "<=" };
            write!(out, "  {} {relation} {}", figure(Some(value)), figure(Some(limit)))?;
        }
        (Some(value), None) => write!(out, "  {}", figure(Some(value)))?,
        _ => {}
    }
    writeln!(out)
}

fn write_result(bisection: &Bisection, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let verdict = style.paint(Tone::of(&bisection.verdict), &legible(&bisection.verdict));
    match &bisection.outcome {
        Outcome::Found { origins } => write_origins(&verdict, origins, style, out)?,
        Outcome::Incomparable { origins, .. } if !origins.is_empty() => write_origins(&verdict, origins, style, out)?,
        Outcome::Incomparable { why, .. } => {
            writeln!(out, "{verdict}  the runs do not answer the question")?;
            write_prose("why", why, style, out)?;
        }
        Outcome::Nothing { why } => {
            let what = if bisection.verdict == "pass" { "no drifting layer was found" } else { "no origin was found" };
            writeln!(out, "{verdict}  {what}")?;
            write_prose("why", why, style, out)?;
        }
    }
    if let Some(reason) = &bisection.fell_back {
        write_prose("scanned", &format!("all pairs in execution order, because {reason}"), style, out)?;
    }
    for caveat in &bisection.caveats {
        write_prose("note", caveat, style, out)?;
    }
    Ok(())
}

fn write_origins(verdict: &str, origins: &[Origin], style: Style, out: &mut dyn Write) -> io::Result<()> {
    for origin in origins {
        let name = style.paint(Tone::Strong, &legible(&origin.layer));
        let mut place = vec![legible(&origin.op), origin.pass.clone()];
        place.extend(origin.index.map(|index| format!("layer {index}")));
        if let Some(other) = &origin.candidate_layer {
            place.push(format!("{} in the candidate", legible(other)));
        }
        writeln!(out, "{verdict}  {name} ({}): {}", place.join(", "), legible(&origin.role))?;
        write_prose("why", &origin.why, style, out)?;
    }
    Ok(())
}

fn write_prose(label: &str, text: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let padding = " ".repeat(PROSE.saturating_sub(2 + label.len()));
    let line = vec![Piece::Text(text.to_string())];
    writeln!(out, "  {}{padding}{}", style.paint(Tone::Quiet, label), style.flow(&line, PROSE))
}

/// Bytes as a person reads them, in powers of ten.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for next in units {
        // What rounds to four digits is written in the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}
