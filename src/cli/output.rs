//! Where text goes: stdout, stderr, report files.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::args::{Output, When};
use super::{Status, Stop};
use crate::error::{Error, Result, legible};
use crate::report::terminal::{self, DEFAULT_WIDTH, Style};
use crate::report::{CaseView, Document, Format};

/// The terminal of this process, or what stands for it.
pub(super) struct Screen {
    colour: bool,
    width: usize,
}

impl Screen {
    pub(super) fn new(when: When) -> Self {
        let on_terminal = io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => on_terminal && !no_colour && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        };
        let width = terminal_size::terminal_size()
            .filter(|_| on_terminal)
            .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
        Self { colour, width }
    }

    pub(super) fn style(&self, all: bool) -> Style {
        Style { colour: self.colour, width: self.width, all }
    }

    /// Stdout.
    pub(super) fn out(&mut self) -> impl Write {
        io::stdout().lock()
    }

    /// A line on stderr.
    pub(super) fn note(&mut self, text: &str) {
        // Nobody is left to tell where stderr is closed.
        let _ = writeln!(io::stderr().lock(), "{}", legible(text));
    }

    /// An error on stderr. A source frame says "error" by itself.
    pub(super) fn error(&mut self, error: &Error) {
        let text = error.to_string();
        let prefix = if text.starts_with("error") { "" } else { "error: " };
        let _ = writeln!(io::stderr().lock(), "{prefix}{text}");
    }
}

/// Where reports go.
pub(super) struct Sinks {
    files: Vec<(Format, Option<PathBuf>)>,
    all: bool,
}

impl Sinks {
    /// Resolves the options; refuses two reports on stdout.
    pub(super) fn new(output: &Output) -> Result<Self> {
        let mut files: Vec<(Format, Option<PathBuf>)> = Vec::new();
        if output.json {
            files.push((Format::Json, None));
        }
        for spec in &output.reports {
            let Some((format, file)) = spec.split_once('=') else {
                return Err(Error::new(format_args!(
                    "--report {spec}: expected FORMAT=FILE, such as html=report.html"
                )));
            };
            let file = match file {
                "" => {
                    return Err(Error::new(format_args!(
                        "--report {spec}: expected a file name behind `=`, or `-` for stdout"
                    )));
                }
                "-" => None,
                file => Some(PathBuf::from(file)),
            };
            files.push((Format::parse(format)?, file));
        }
        if files.iter().filter(|(_, file)| file.is_none()).count() > 1 {
            return Err(Error::new("only one report can go to stdout"));
        }
        for (at, (_, file)) in files.iter().enumerate() {
            if let Some(file) =
                file.as_ref().filter(|file| files[..at].iter().any(|(_, other)| other.as_ref() == Some(file)))
            {
                return Err(Error::at(file, "two reports cannot go to one file"));
            }
        }
        Ok(Self { files, all: output.all })
    }

    /// Writes every report; shows it on the terminal unless one went to stdout.
    pub(super) fn write(&self, document: &Document, screen: &mut Screen) -> Result<(), Stop> {
        // Files first: they are whole whether or not the reader of stdout stays.
        for (format, file) in &self.files {
            if let Some(path) = file {
                write_file(path, |out| format.write(document, out))?;
            }
        }
        let to_stdout = self.files.iter().find(|(_, file)| file.is_none());
        let written = match to_stdout {
            Some((format, _)) => format.write(document, &mut screen.out()),
            None => terminal::write(document, screen.style(self.all), &mut screen.out()),
        };
        match written {
            // The reader has seen enough; what was found, and so the exit status, stays.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        Ok(())
    }
}

/// Writes a file whole or not at all.
pub(super) fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A device or a pipe cannot be replaced, only written to.
    if path.exists() && !path.is_file() {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(|e| Error::io(path, "open the file for writing", &e))?;
        return write(&mut file).map_err(|e| Error::io(path, "write the file", &e));
    }
    let mut aside = tempfile::Builder::new()
        .prefix(".goldline-")
        .tempfile_in(directory)
        .map_err(|e| Error::io(path, "create the file", &e))?;
    write(aside.as_file_mut()).map_err(|e| Error::io(path, "write the file", &e))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A temporary file is private; a report is as readable as any other file of the user.
        let mode = std::fs::metadata(path).map_or(0o644, |m| m.permissions().mode());
        let _ = aside.as_file().set_permissions(std::fs::Permissions::from_mode(mode));
    }
    aside.persist(path).map_err(|e| Error::io(path, "write the file", &e.error))?;
    Ok(())
}

/// The status that a document stands for.
pub(super) fn status_of(document: &Document) -> Status {
    let across = match document {
        Document::Suite(suite) if !suite.disagreements.is_empty() => Status::Unexpected,
        _ => Status::Expected,
    };
    document.cases().iter().fold(across, |status, case| {
        status.and(match case {
            CaseView::Failed { .. } => Status::Error,
            CaseView::Report(report) if report.outcome == "expected" => Status::Expected,
            CaseView::Report(report) if report.outcome_why.is_none() && report.verdict == "incomparable" => {
                Status::Incomparable
            }
            CaseView::Report(_) => Status::Unexpected,
        })
    })
}
