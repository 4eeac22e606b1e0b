//! Births of NaN and infinities alone, as `goldline nan` shows them.

use std::io::{self, Write};

use super::{Style, Tone};
use crate::error::legible;
use crate::report::model::Birth;

/// How many of the layers that a special value reached are named.
const NAMED: usize = 6;

/// Writes each birth: where, what, why, how far it went.
///
/// # Errors
/// Those of `out`.
pub fn write(births: &[Birth], run: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if births.is_empty() {
        return writeln!(out, "no NaN or Inf was born in {}", legible(run));
    }
    for birth in births {
        one(birth, style, out)?;
    }
    Ok(())
}

fn one(birth: &Birth, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let tone = if birth.side == "both" { Tone::Doubtful } else { Tone::Bad };
    let at: Vec<String> = birth.first_index.iter().map(u64::to_string).collect();
    writeln!(
        out,
        "{}  {} ({}, {})  {} elements, the first at [{}], in the {}",
        style.paint(tone, &birth.kind),
        style.paint(Tone::Strong, &legible(&birth.layer)),
        legible(&birth.op),
        legible(&birth.pass),
        birth.count,
        at.join(", "),
        birth.side,
    )?;
    writeln!(out, "     cause    {}: {}", birth.cause, legible(&birth.why))?;
    if let Some(layer) = &birth.cause_layer {
        writeln!(out, "     led by   {}", legible(layer))?;
    }
    if let Some(layer) = birth.first_nan_layer.as_ref().filter(|layer| **layer != birth.layer) {
        writeln!(out, "     NaN from {}", legible(layer))?;
    }
    if !birth.reached.is_empty() {
        let named: Vec<String> = birth.reached.iter().take(NAMED).map(|name| legible(name)).collect();
        let more = birth.reached.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "     reached  {}{more}", named.join(", "))?;
    }
    match &birth.ended {
        Some(layer) => writeln!(out, "     ended at {}", legible(layer)),
        None if birth.side == "both" => Ok(()),
        None => writeln!(out, "     reaches the end of the run"),
    }
}
