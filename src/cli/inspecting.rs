//! The verb inspect.

use std::io::Write;

use super::args::Inspect;
use super::output::Screen;
use super::progress::Progress;
use super::{Outcome, Status};
use crate::report::inspection::inspect as look_into;
use crate::report::json;
use crate::report::terminal::inspection;
use crate::run::Run;

pub(super) fn inspect(args: &Inspect, screen: &mut Screen) -> Outcome {
    let run = Run::open(&args.path)?;
    let progress = Progress::new("inspect");
    let found = look_into(&run, &|done, all| progress.show(done, all))?;
    drop(progress);
    let mut out = screen.out();
    if args.json {
        json::write_value(&found, &mut out)?;
    } else {
        drop(out);
        let style = screen.style(args.all);
        let mut text = Vec::new();
        inspection::write(&found, style, &mut text)?;
        screen.out().write_all(&text)?;
    }
    Ok(Status::Expected)
}
