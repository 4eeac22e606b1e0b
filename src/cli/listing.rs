//! The verb blacklist.

use std::io::Write;

use super::args::Blacklist;
use super::output::{Screen, write_file};
use super::{Outcome, Status, target};
use crate::blacklist::emit::{EmitOptions, Format, emit};
use crate::judge::CaseVerdict;
use crate::report::terminal::blacklist as evidence;

pub(super) fn blacklist(args: &Blacklist, screen: &mut Screen) -> Outcome {
    let format = args.emit.as_deref().map(Format::parse).transpose()?;
    let pair = target::open(&args.target.paths, args.target.run.as_deref())?;
    let analysis = target::analyse(&pair, args.comparing)?;
    match format {
        None => {
            let mut text = Vec::new();
            evidence::write(&analysis.advice, screen.style(true), &mut text)?;
            screen.out().write_all(&text)?;
        }
        Some(format) => {
            let options = EmitOptions { allow_collateral: args.allow_collateral };
            let emitted = emit(format, &analysis.advice, pair.baseline.run(), options)?;
            for note in &emitted.notes {
                screen.note(note);
            }
            match &args.output {
                Some(path) => write_file(path, |out| out.write_all(emitted.text.as_bytes()))?,
                None => screen.out().write_all(emitted.text.as_bytes())?,
            }
        }
    }
    // The list was asked for: drift is no surprise here, only runs that do not answer are.
    Ok(if analysis.judgement.verdict == CaseVerdict::Incomparable { Status::Incomparable } else { Status::Expected })
}
