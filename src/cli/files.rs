//! Verbs that read or write one file: convert, report, init, schema, completions.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use super::args::{Cli, Completions, Convert, Init, ReportFile};
use super::output::{Screen, Sinks, status_of, write_file};
use super::progress::Progress;
use super::{Outcome, Status};
use crate::case;
use crate::error::Error;
use crate::report::json;
use crate::run::Run;
use crate::run::format::write_run;
use crate::tensor::describe_kind;

/// Largest report that is read back.
const MAX_REPORT_BYTES: u64 = 1 << 30;

pub(super) fn convert(args: &Convert, screen: &mut Screen) -> Outcome {
    let run = Run::open(&args.input)?;
    for warning in &run.warnings {
        screen.note(&format!("{}: {warning}", args.input.display()));
    }
    let all = run.tensors.iter().filter(|tensor| tensor.stored.is_some()).count() as u64;
    let (progress, mut done, mut bytes) = (Progress::new("convert"), 0, 0u64);
    write_run(&run, &args.output, |_, tensor| {
        done += 1;
        bytes += tensor.bytes().len() as u64;
        progress.show(done, all);
    })?;
    drop(progress);
    writeln!(
        screen.out(),
        "{}: {} layers, {all} tensors, {bytes} bytes",
        crate::error::escape(&args.output.display().to_string()),
        run.layers.len()
    )?;
    Ok(Status::Expected)
}

pub(super) fn report(args: &ReportFile, screen: &mut Screen) -> Outcome {
    let sinks = Sinks::new(&args.output)?;
    let cannot = |error| Error::io(&args.input, "read the report", &error);
    let mut text = String::new();
    let read = if args.input == Path::new("-") {
        std::io::stdin().lock().take(MAX_REPORT_BYTES + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(&args.input).map_err(cannot)?;
        let found = file.metadata().map_err(cannot)?;
        // A pipe may hand a report on; a device has no end.
        if matches!(describe_kind(&found), "a directory" | "a device") {
            let text = format!("expected a JSON report, found {}", describe_kind(&found));
            return Err(Error::at(&args.input, text).into());
        }
        file.take(MAX_REPORT_BYTES + 1).read_to_string(&mut text)
    };
    if read.map_err(cannot)? as u64 > MAX_REPORT_BYTES {
        let text = format!("expected a report of at most {MAX_REPORT_BYTES} bytes, found more");
        return Err(Error::at(&args.input, text).byte(MAX_REPORT_BYTES).into());
    }
    let document = json::read(&args.input, &text)?;
    sinks.write(&document, screen)?;
    Ok(status_of(&document))
}

pub(super) fn init(args: &Init, screen: &mut Screen) -> Outcome {
    let usable =
        !args.name.is_empty() && args.name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !usable || args.name.starts_with('.') {
        return Err(Error::new(format_args!(
            "the name {:?} cannot name a file: use letters, digits, `-`, `_` and `.`",
            args.name
        ))
        .into());
    }
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from("cases").join(format!("{}.yaml", args.name)));
    if path.exists() {
        return Err(Error::at(&path, "exists already; name another file with -o").into());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Error::io(parent, "create the directory", &error))?;
    }
    write_file(&path, |out| out.write_all(case::template(&args.name).as_bytes()))?;
    writeln!(
        screen.out(),
        "{}: edit it, then approve a run: goldline record {0} --run DIR",
        crate::error::escape(&path.display().to_string())
    )?;
    Ok(Status::Expected)
}

pub(super) fn schema(screen: &mut Screen) -> Outcome {
    screen.out().write_all(case::json_schema().as_bytes())?;
    Ok(Status::Expected)
}

pub(super) fn completions(args: &Completions, screen: &mut Screen) -> Outcome {
    // Into memory first: the generator panics where its writer fails, and a pipe may close.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "goldline", &mut script);
    screen.out().write_all(&script)?;
    Ok(Status::Expected)
}
