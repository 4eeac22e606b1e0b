//! The command line: parses arguments, prints, asks, exits.
//!
//! In go the process's arguments, out come text on stdout, progress and errors on stderr, and the
//! exit status. Each verb is a thin call of the library; nothing is decided here but how it is shown.

mod args;
mod calibrating;
mod comparing;
mod files;
mod inspecting;
mod listing;
mod output;
mod preflight;
mod progress;
mod recording;
mod target;
mod trees;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::error::{Error, Result, legible};
use args::{Cli, Verb};
use output::Screen;

/// How a verb ended; the exit status of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// As expected.
    Expected,
    /// Drift or NaN/Inf, or not what the case expects.
    Unexpected,
    /// Bad usage, or an input that cannot be read.
    Error,
    /// The runs cannot be compared.
    Incomparable,
}

impl Status {
    fn code(self) -> u8 {
        match self {
            Self::Expected => 0,
            Self::Unexpected => 1,
            Self::Error => 2,
            Self::Incomparable => 3,
        }
    }

    /// The one that stands for both: an error first, then a finding, then what could not be compared.
    fn and(self, other: Self) -> Self {
        let rank = |status: Self| match status {
            Self::Error => 0,
            Self::Unexpected => 1,
            Self::Incomparable => 2,
            Self::Expected => 3,
        };
        if rank(other) < rank(self) { other } else { self }
    }
}

/// What stopped a verb.
enum Stop {
    /// Something to tell.
    Failed(Error),
    /// The reader of our output went away: no error.
    PipeClosed,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            _ => Self::Failed(Error::new(format_args!("cannot write the output: {error}"))),
        }
    }
}

type Outcome = Result<Status, Stop>;

/// Shows help, the version, or what is wrong with the arguments.
fn show_usage(error: &clap::Error) -> Status {
    // Help and version are no errors; clap knows which stream each belongs to.
    if !error.use_stderr() {
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = writeln!(io::stderr().lock(), "error: cannot write the output: {error}");
                Status::Error
            }
            _ => Status::Expected,
        };
    }
    // clap repeats arguments as they are, and those may come from a script that took them from a file.
    let text = error.render().to_string();
    let lines: Vec<String> = text.lines().map(legible).collect();
    let _ = if lines.iter().map(String::as_str).eq(text.lines()) {
        error.print()
    } else {
        writeln!(io::stderr().lock(), "{}", lines.join("\n"))
    };
    Status::Error
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return ExitCode::from(show_usage(&error).code());
        }
    };
    let mut screen = Screen::new(cli.global.color);
    if let Some(threads) = cli.global.threads {
        // Fails only where a pool exists already, which in this process is never.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(usize::from(threads)).build_global();
    }
    let outcome = match cli.verb {
        Verb::Record(args) => recording::record(&args, &mut screen),
        Verb::Verify(args) => comparing::verify(&args, &mut screen),
        Verb::Diff(args) => comparing::diff(&args, &mut screen),
        Verb::Bisect(args) => comparing::bisect(&args, &mut screen),
        Verb::Blacklist(args) => listing::blacklist(&args, &mut screen),
        Verb::Nan(args) => comparing::nan(&args, &mut screen),
        Verb::Preflight(args) => preflight::preflight(&args, &mut screen),
        Verb::Calibrate(args) => calibrating::calibrate(&args, &mut screen),
        Verb::Explain(args) => comparing::explain(&args, &mut screen),
        Verb::Inspect(args) => inspecting::inspect(&args, &mut screen),
        Verb::Convert(args) => files::convert(&args, &mut screen),
        Verb::Report(args) => files::report(&args, &mut screen),
        Verb::Init(args) => files::init(&args, &mut screen),
        Verb::Schema(_) => files::schema(&mut screen),
        Verb::Completions(args) => files::completions(&args, &mut screen),
    };
    let status = match outcome {
        Ok(status) => status,
        Err(Stop::PipeClosed) => Status::Expected,
        Err(Stop::Failed(error)) => {
            screen.error(&error);
            Status::Error
        }
    };
    ExitCode::from(status.code())
}
