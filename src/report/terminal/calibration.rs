//! A calibration as a person reads it: the spread of each layer, and what to paste into the case file.

use std::io::{self, Write};

use tabled::builder::Builder;
use tabled::settings::Style as Lines;

use super::{Style, Tone, shortened};
use crate::error::escape;
use crate::golden::{Calibration, CalibrationRow};
use crate::judge::figure;
use crate::report::gist::Piece;

/// Columns that the table takes beside the layer's name.
const OTHER_COLUMNS: usize = 66;
/// Column at which notes start.
const INDENT: usize = 12;

/// Writes the spread and the proposal.
///
/// # Errors
/// Those of `out`.
pub fn write(calibration: &Calibration, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let c = calibration;
    writeln!(out, "{}  {} runs", style.paint(Tone::Strong, &escape(&c.case)), c.runs.len())?;
    for note in &c.notes {
        writeln!(out, "  note      {}", style.flow(&vec![Piece::Text(note.clone())], INDENT))?;
    }
    let shown: Vec<&CalibrationRow> = c.layers.iter().filter(|row| style.all || row.max_abs > 0.0).collect();
    let equal = c.layers.len() - shown.len();
    if !shown.is_empty() {
        let mut table = Builder::default();
        table.push_record(["#", "layer", "op", "rel_l2", "max_abs", "auto", "proposed"]);
        let name_width = style.width.saturating_sub(OTHER_COLUMNS).max(16);
        for row in shown {
            let slot = if row.slot > 0 { format!(":{}", row.slot) } else { String::new() };
            let auto = row.auto.map_or_else(|| "-".to_string(), figure);
            table.push_record([
                row.index.to_string(),
                shortened(&format!("{}{slot}", escape(&row.layer)), name_width),
                shortened(&escape(&row.op), 14),
                row.rel_l2.map_or_else(|| "-".to_string(), figure),
                figure(row.max_abs),
                auto,
                row.proposed.map_or_else(String::new, |limit| format!("{} {limit:e}", row.metric)),
            ]);
        }
        let mut table = table.build();
        table.with(Lines::blank());
        writeln!(out, "\n{table}")?;
    }
    if equal > 0 {
        writeln!(out, "\n  {equal} outputs are equal in all runs (--all shows them)")?;
    }
    if c.yaml.is_empty() {
        let text = format!("auto covers {} times the spread everywhere: no tolerance is needed", c.factor);
        return writeln!(out, "\n{}", style.paint(Tone::Good, &text));
    }
    writeln!(out, "\nfor the case file\n")?;
    // Names in it are JSON strings; what reorders text would still reach the terminal.
    for line in c.yaml.lines() {
        writeln!(out, "{}", escape(line))?;
    }
    Ok(())
}
