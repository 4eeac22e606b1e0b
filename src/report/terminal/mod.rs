//! The report as a person reads it on a terminal.
//!
//! In goes a document and a [`Style`]; out come a summary to be read in ten seconds and a table of
//! the layers that matter, or one line per case of a suite. Without colour the output holds no
//! escape byte; names never bring any. No line of the table is wider than the style's width, unless
//! that is too narrow for any table.

pub mod births;
pub mod bisection;
mod bitwise;
pub mod blacklist;
pub mod calibration;
pub mod explain;
pub mod inspection;
pub mod preflight;
mod style;
mod suite;
mod summary;
mod table;

use std::io::{self, BufWriter, Write};

pub use style::{DEFAULT_WIDTH, Style, Tone, shortened, width_of};

use super::Document;

/// Writes summary and table of a report, or the list of a suite's cases.
///
/// # Errors
/// Those of `out`.
pub fn write(document: &Document, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    match document {
        Document::Report(report) => {
            summary::write(report, style, &mut out)?;
            bitwise::write(report, style, &mut out)?;
            table::write(report, style, &mut out)?;
        }
        Document::Suite(suite) => suite::write(suite, style, &mut out)?,
    }
    out.flush()
}
