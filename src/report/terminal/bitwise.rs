//! Bit equality by operator type: those that are not bit-equal, or all where everything is asked for.

use std::io::{self, Write};

use super::style::{Style, Tone, shortened, width_of};
use crate::error::escape;
use crate::report::figure::{ABSENT, counted, grouped};
use crate::report::model::{BitwiseOp, Report};

/// Widest operator name that is shown whole.
const OP_WIDTH: usize = 32;
const HEADS: [&str; 5] = ["op", "layers", "not equal", "equal bits", "max ulp"];

/// Writes the table with an empty line after it; nothing where bit equality was not asked for.
pub(super) fn write(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(bitwise) = &report.bitwise else { return Ok(()) };
    let shown: Vec<&BitwiseOp> = bitwise.ops.iter().filter(|op| style.all || op.unequal > 0).collect();
    let hidden = bitwise.ops.len() - shown.len();
    let rows: Vec<[String; 5]> = shown.iter().map(|op| cells(op)).collect();
    if !rows.is_empty() {
        let heads = HEADS.map(str::to_owned);
        let widths: [usize; 5] = std::array::from_fn(|column| {
            let cells = std::iter::once(&heads).chain(&rows).filter_map(|row| row.get(column));
            cells.map(|cell| width_of(cell)).max().unwrap_or(0)
        });
        for (place, row) in std::iter::once(&heads).chain(&rows).enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(width_of(cell)));
                let cell = if column == 0 { format!("{cell}{padding}") } else { format!("  {padding}{cell}") };
                line.push_str(&cell);
            }
            let tone = if place == 0 { Tone::Quiet } else { Tone::Plain };
            writeln!(out, "{}", style.paint(tone, line.trim_end()))?;
        }
    }
    if hidden > 0 {
        let text = format!("{} bit-equal in every layer", counted(hidden as u64, "operator type"));
        writeln!(out, "{}", style.paint(Tone::Quiet, &text))?;
    }
    if rows.is_empty() && hidden == 0 { Ok(()) } else { writeln!(out) }
}

fn cells(op: &BitwiseOp) -> [String; 5] {
    [
        shortened(&escape(&op.op), OP_WIDTH),
        grouped(op.layers),
        grouped(op.unequal),
        op.equal_bits.map_or(ABSENT.to_owned(), share),
        op.max_ulp.map_or(ABSENT.to_owned(), grouped),
    ]
}

/// A share in percent; what is not all is never shown as 100 %.
fn share(share: f64) -> String {
    let percent = share * 100.0;
    if share < 1.0 { format!("{:.2} %", percent.min(99.99)) } else { "100 %".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_not_all_never_reads_as_all() {
        assert_eq!([share(1.0), share(0.999_999_9), share(0.5)], ["100 %", "99.99 %", "50.00 %"]);
    }
}
