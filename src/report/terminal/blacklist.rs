//! The evidence behind the blacklist, entry by entry.

use std::io::{self, Write};

use super::{Style, Tone};
use crate::blacklist::Advice;
use crate::error::legible;

/// Writes every entry with its layers, numbers and collateral, then the remedies.
///
/// # Errors
/// Those of `out`.
pub fn write(advice: &Advice, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if advice.blacklist.is_empty() {
        writeln!(out, "the blacklist is empty: no evidence that fp32 would help")?;
    }
    for entry in &advice.blacklist {
        let hit = entry.layers.len() as u64;
        writeln!(
            out,
            "{}  {} ({hit} of {} in this run), for its {}",
            style.paint(Tone::Bad, "fp32"),
            style.paint(Tone::Strong, &legible(&entry.op)),
            entry.total_of_op,
            entry.reason.as_str()
        )?;
        for layer in &entry.layers {
            writeln!(out, "      {}", legible(layer))?;
        }
        writeln!(out, "      why      {}", legible(&entry.why))?;
        if !entry.modules.is_empty() {
            let modules: Vec<String> = entry.modules.iter().map(|module| legible(module)).collect();
            writeln!(out, "      modules  {}", modules.join(", "))?;
        }
        if let Some(cann) = entry.cann {
            writeln!(out, "      CANN     {cann}")?;
        }
    }
    for remedy in &advice.remedies {
        let layers: Vec<String> = remedy.layers.iter().map(|layer| legible(layer)).collect();
        let about = if layers.is_empty() { String::new() } else { format!(" ({})", layers.join(", ")) };
        writeln!(out, "{}  {}{about}", style.paint(Tone::Strong, remedy.kind.as_str()), legible(&remedy.why))?;
    }
    Ok(())
}
