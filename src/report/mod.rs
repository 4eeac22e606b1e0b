//! What a person or a program reads: one model, one file per output format.
//!
//! In goes what `diagnose` and `blacklist` found, as a [`model::Report`] or a [`model::Suite`]; out
//! comes text on any [`std::io::Write`]. Every name in a report comes from a file and is not
//! trusted: each renderer escapes control characters as well as what its own syntax gives a meaning.
//! The same document gives the same bytes. Adding an output format is one new file and one line in
//! each table of [`Format`].

pub mod assemble;
pub mod bitwise;
pub mod csv;
pub mod decisive;
pub mod figure;
pub mod gist;
pub mod html;
pub mod inspection;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod model;
pub mod row_figures;
pub mod suite;
pub mod terminal;
mod truth;

#[cfg(test)]
mod example;
#[cfg(test)]
mod hostile_names;
#[cfg(test)]
mod renderer_snapshots;

use std::io::{self, BufWriter, Write};

use crate::error::{Error, Result};
use model::{Report, Suite, SuiteEntry};

/// What a renderer takes.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// One case, or two runs that were compared without a case.
    Report(Box<Report>),
    /// Several cases, or several steps or ranks of one.
    Suite(Box<Suite>),
}

/// One case of a document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CaseView<'a> {
    /// It has a report.
    Report(&'a Report),
    /// It could not be verified.
    Failed {
        /// Case name or path.
        case: &'a str,
        /// One line.
        error: &'a str,
    },
}

impl Document {
    /// The cases in order; a single report is one case.
    pub fn cases(&self) -> Vec<CaseView<'_>> {
        match self {
            Self::Report(report) => vec![CaseView::Report(report)],
            Self::Suite(suite) => suite
                .cases
                .iter()
                .map(|entry| match entry {
                    SuiteEntry::Report(report) => CaseView::Report(report),
                    SuiteEntry::Failed { case, error } => CaseView::Failed { case, error },
                })
                .collect(),
        }
    }
}

impl From<Report> for Document {
    fn from(report: Report) -> Self {
        Self::Report(Box::new(report))
    }
}

impl From<Suite> for Document {
    fn from(suite: Suite) -> Self {
        Self::Suite(Box::new(suite))
    }
}

/// A file format that `--report FORMAT=FILE` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `goldline.report/1` and `goldline.suite/1`.
    Json,
    /// One self-contained page.
    Html,
    /// For a continuous-integration server.
    Junit,
    /// For a pull-request comment.
    Markdown,
    /// For a spreadsheet: one line per output tensor.
    Csv,
}

type WriteDocument = fn(&Document, &mut dyn Write) -> io::Result<()>;

impl Format {
    /// Every format, in the order in which help texts list them.
    pub const ALL: [Self; 5] = [Self::Json, Self::Html, Self::Junit, Self::Markdown, Self::Csv];

    fn entry(self) -> (&'static str, WriteDocument) {
        match self {
            Self::Json => ("json", json::write),
            Self::Html => ("html", html::write),
            Self::Junit => ("junit", junit::write),
            Self::Markdown => ("md", markdown::write),
            Self::Csv => ("csv", csv::write),
        }
    }

    /// The name as `--report` takes it.
    pub fn name(self) -> &'static str {
        self.entry().0
    }

    /// The format with that name (`markdown` also stands for `md`).
    ///
    /// # Errors
    /// An unknown name; the message lists those that exist.
    pub fn parse(name: &str) -> Result<Self> {
        let wanted = if name == "markdown" { "md" } else { name };
        Self::ALL.into_iter().find(|format| format.name() == wanted).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            Error::new(format_args!("unknown report format \"{name}\": expected one of {}", names.join(", ")))
        })
    }

    /// Writes the document in this format.
    ///
    /// # Errors
    /// Those of `out`, with their kind kept (a closed pipe stays recognisable).
    pub fn write(self, document: &Document, out: &mut dyn Write) -> io::Result<()> {
        // Renderers write token by token; `out` may be a file.
        let mut buffered = BufWriter::new(out);
        (self.entry().1)(document, &mut buffered)?;
        buffered.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_closed_pipe_are_told_apart() {
        struct Refusing(io::ErrorKind);
        impl Write for Refusing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for document in example::documents() {
            for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull] {
                for format in Format::ALL {
                    let error = format.write(&document, &mut Refusing(kind)).unwrap_err();
                    assert_eq!(error.kind(), kind, "{}", format.name());
                }
                let error = terminal::write(&document, terminal::Style::default(), &mut Refusing(kind)).unwrap_err();
                assert_eq!(error.kind(), kind);
            }
        }
    }

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::ALL {
            assert_eq!(Format::parse(format.name()).unwrap(), format);
        }
        assert_eq!(Format::parse("markdown").unwrap(), Format::Markdown);
        let error = Format::parse("pdf").unwrap_err().to_string();
        assert_eq!(error, "unknown report format \"pdf\": expected one of json, html, junit, md, csv");
    }
}
