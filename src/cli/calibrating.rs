//! The verb calibrate.

use std::io::Write;

use super::args::Calibrate;
use super::output::Screen;
use super::progress::Progress;
use super::{Outcome, Status};
use crate::case::Case;
use crate::golden;
use crate::report::json;
use crate::report::terminal::calibration;

pub(super) fn calibrate(args: &Calibrate, screen: &mut Screen) -> Outcome {
    let case = Case::load(&args.case)?;
    let progress = Progress::new("calibrate");
    let found = golden::calibrate(&case, &args.runs, &|done, all| progress.show(done, all))?;
    drop(progress);
    if args.json {
        json::write_value(&found, &mut screen.out())?;
    } else {
        let mut text = Vec::new();
        calibration::write(&found, screen.style(args.all), &mut text)?;
        screen.out().write_all(&text)?;
    }
    Ok(Status::Expected)
}
