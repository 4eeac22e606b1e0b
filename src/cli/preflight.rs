//! The verb preflight.

use std::io::Write;

use super::args::Preflight;
use super::output::Screen;
use super::progress::Progress;
use super::target::Baseline;
use super::{Outcome, Status};
use crate::preflight::preflight as look_ahead;
use crate::report::json;
use crate::report::terminal::preflight as findings;

pub(super) fn preflight(args: &Preflight, screen: &mut Screen) -> Outcome {
    // A golden that was recorded in place holds no tensors of its own.
    let baseline = Baseline::open(&args.run)?;
    let progress = Progress::new("preflight");
    let found = look_ahead(baseline.run(), args.dtype.of(), &|done, all| progress.show(done, all))?;
    drop(progress);
    if args.json {
        json::write_value(&found, &mut screen.out())?;
    } else {
        let mut text = Vec::new();
        findings::write(&found, screen.style(args.all), &mut text)?;
        screen.out().write_all(&text)?;
    }
    Ok(if found.findings.is_empty() { Status::Expected } else { Status::Unexpected })
}
