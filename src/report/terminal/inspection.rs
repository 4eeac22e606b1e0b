//! An inspection as a person reads it.

use std::io::{self, Write};

use tabled::builder::Builder;
use tabled::settings::Style as Lines;

use super::{Style, Tone, shortened};
use crate::error::legible;
use crate::judge::figure;
use crate::report::inspection::{Inspection, TensorRow};

/// How many layers are listed unless all are asked for.
const FIRST: usize = 20;
/// How many odd tensors are listed unless all are asked for.
const ODD: usize = 40;
/// Columns that the table takes beside the layer's name.
const OTHER_COLUMNS: usize = 62;

/// Writes facts, dtypes, operators, layers and what is odd.
///
/// # Errors
/// Those of `out`.
pub fn write(inspection: &Inspection, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let i = inspection;
    writeln!(out, "{}", style.paint(Tone::Strong, &legible(&i.path)))?;
    let closed = if i.complete { "complete" } else { "not closed by its recorder" };
    writeln!(out, "  {} layers, {} tensors ({} stored, {}), {closed}", i.layers, i.tensors, i.stored, bytes(i.bytes))?;
    for (key, value) in &i.facts {
        writeln!(out, "  {:<12} {}", legible(key), legible(value))?;
    }
    let dtypes: Vec<String> = i.dtypes.iter().map(|(dtype, (n, b))| format!("{n} {dtype} ({})", bytes(*b))).collect();
    writeln!(out, "  {:<12} {}", "dtypes", dtypes.join(", "))?;
    let mut operators: Vec<(&String, &u64)> = i.operators.iter().collect();
    operators.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
    let operators: Vec<String> = operators.iter().map(|(name, count)| format!("{count} {}", legible(name))).collect();
    writeln!(out, "  {:<12} {}", "operators", operators.join(", "))?;
    if !i.unknown_operators.is_empty() {
        let names: Vec<String> = i.unknown_operators.iter().map(|name| legible(name)).collect();
        writeln!(out, "  {:<12} {} (nothing is assumed about them)", "unknown", names.join(", "))?;
    }
    for warning in &i.warnings {
        writeln!(out, "  {:<12} {}", "warning", style.paint(Tone::Doubtful, &legible(warning)))?;
    }
    writeln!(out)?;
    let shown = if style.all { i.rows.len() } else { i.rows.len().min(FIRST) };
    let mut table = Builder::default();
    table.push_record(["#", "layer", "op", "dtype", "shape", "bytes", "range"]);
    let name_width = style.width.saturating_sub(OTHER_COLUMNS).max(16);
    for row in &i.rows[..shown] {
        let output = row.outputs.first();
        let more = row.outputs.len().saturating_sub(1);
        let shape = output.and_then(|o| o.shape.as_ref()).map_or("?".into(), |shape| format!("{shape:?}"));
        table.push_record([
            row.index.to_string(),
            shortened(&legible(&row.layer), name_width),
            shortened(&legible(&row.op), 14),
            output.and_then(|o| o.dtype.clone()).unwrap_or_else(|| "?".into()),
            if more > 0 { format!("{shape} +{more}") } else { shape },
            bytes(row.outputs.iter().map(|o| o.bytes).sum()),
            output
                .and_then(|o| o.range)
                .map_or(String::new(), |[low, high]| format!("{} … {}", figure(low), figure(high))),
        ]);
    }
    let mut table = table.build();
    table.with(Lines::blank());
    writeln!(out, "{table}")?;
    if shown < i.rows.len() {
        writeln!(out, "  {} more layers (--all shows them)", i.rows.len() - shown)?;
    }
    let odd: Vec<&TensorRow> =
        i.rows.iter().flat_map(|row| &row.outputs).chain(&i.loose).filter(|tensor| !tensor.odd.is_empty()).collect();
    if odd.is_empty() {
        return writeln!(out, "\nnothing odd: no NaN, Inf, saturated, empty or duplicate tensor");
    }
    writeln!(out, "\nodd")?;
    let listed = if style.all { odd.len() } else { odd.len().min(ODD) };
    for tensor in &odd[..listed] {
        writeln!(
            out,
            "  {}: {}",
            legible(&tensor.tensor),
            tensor.odd.iter().map(|o| legible(o)).collect::<Vec<_>>().join(", ")
        )?;
    }
    if listed < odd.len() {
        writeln!(out, "  {} more (--all shows them)", odd.len() - listed)?;
    }
    Ok(())
}

fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
