//! The verb record.

use std::io::Write;

use super::args::Record;
use super::output::Screen;
use super::progress::Progress;
use super::{Outcome, Status, target};
use crate::case::Case;
use crate::error::{Error, escape};
use crate::golden::{self, RecordOptions, RecordOutcome};

pub(super) fn record(args: &Record, screen: &mut Screen) -> Outcome {
    let case = Case::load(&args.case)?;
    let mut runs = args.runs.clone();
    if args.executing.execute {
        runs.push(target::executed(&case, &args.executing)?);
    }
    let progress = Progress::new("record");
    let options = RecordOptions {
        update: args.update,
        in_place: args.in_place,
        allow_incomplete: args.allow_incomplete,
        on_progress: &|done, all| progress.show(done, all),
    };
    let outcome = golden::record(&case, &runs, &options)?;
    drop(progress);
    let path = escape(&case.golden.display().to_string());
    let (recorded, changes) = match outcome {
        RecordOutcome::Unchanged => {
            writeln!(screen.out(), "{path}: nothing changes")?;
            return Ok(Status::Expected);
        }
        RecordOutcome::Refused(changes) => {
            for line in changes.lines() {
                screen.note(&format!("  {line}"));
            }
            return Err(Error::at(&case.golden, "a golden is there and differs (above); --update replaces it").into());
        }
        RecordOutcome::Created(recorded) => (recorded, None),
        RecordOutcome::Replaced(recorded, changes) => (recorded, Some(changes)),
    };
    for note in &recorded.notes {
        screen.note(note);
    }
    let mut out = screen.out();
    for line in changes.iter().flat_map(|changes| changes.lines()) {
        writeln!(out, "  {}", escape(&line))?;
    }
    let what = if changes.is_some() { "replaced" } else { "recorded" };
    writeln!(out, "{path}: {what}, {} tensors, {} bytes", recorded.tensors, recorded.bytes)?;
    Ok(Status::Expected)
}
