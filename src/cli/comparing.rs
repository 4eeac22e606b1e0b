//! Verbs that compare two runs: verify, diff, bisect, nan, explain.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::args::{Bisect, Diff, Executing, Explain, Nan, Verify};
use super::output::{Screen, Sinks, status_of};
use super::progress::Progress;
use super::target::{self, Baseline, How, Pair};
use super::trees::{Compared, compare_paths};
use super::{Outcome, Status};
use crate::bisect;
use crate::case::Case;
use crate::diagnose::births_within;
use crate::error::{Error, Result};
use crate::golden::{Golden, recover};
use crate::report::assemble::{lone_births, settle_outcome};
use crate::report::model::{Birth, SuiteEntry};
use crate::report::suite::{Across, suite};
use crate::report::terminal::{self, explain as story};
use crate::report::{Document, json};
use crate::run::Run;

/// Where `verify` looks when it is told nothing.
const DEFAULT_CASES: &str = "cases";

pub(super) fn verify(args: &Verify, screen: &mut Screen) -> Outcome {
    let sinks = Sinks::new(&args.output)?;
    let mut files: Vec<PathBuf> = Vec::new();
    let paths = if args.paths.is_empty() { vec![PathBuf::from(DEFAULT_CASES)] } else { args.paths.clone() };
    let mut single = paths.len() == 1;
    for path in &paths {
        if path.is_dir() {
            let found = Case::find(path)?;
            if found.is_empty() {
                return Err(Error::at(
                    path,
                    "no case below this directory: a case is a YAML file that says `schema: goldline.case/1`",
                )
                .into());
            }
            single = false;
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    if args.run.is_some() && files.len() > 1 {
        return Err(Error::new(format_args!(
            "--run names one run, yet there are {} cases: name one case",
            files.len()
        ))
        .into());
    }
    if args.executing.out.is_some() && files.len() > 1 {
        return Err(Error::new(format_args!(
            "--out names one run, yet there are {} cases: name one case",
            files.len()
        ))
        .into());
    }
    if args.third.truth.is_some() && files.len() > 1 {
        return Err(Error::new(format_args!(
            "--truth names one run, yet there are {} cases: name one case",
            files.len()
        ))
        .into());
    }
    let (mut entries, mut across) = (Vec::new(), Across::default());
    let how = How { comparing: args.comparing, third: Some(&args.third), bitwise: args.bitwise };
    for file in &files {
        match verify_case(file, args.run.as_deref(), &args.executing, how) {
            Ok(found) => {
                entries.extend(found.entries);
                across.extend(found.across);
            }
            // One case that cannot be read is told as such; among several it does not hide the others.
            Err(error) if single => return Err(error.into()),
            Err(error) => {
                screen.error(&error);
                let case = file.display().to_string();
                entries.push(SuiteEntry::Failed { case, error: one_line(&error) });
            }
        }
    }
    finish(Compared { entries, across }, !single, &sinks, screen)
}

fn one_line(error: &Error) -> String {
    match error.place() {
        Some(crate::error::Place::Line(line)) => format!("line {line}: {}", error.message()),
        Some(crate::error::Place::Byte(byte)) => format!("byte {byte}: {}", error.message()),
        None => error.message().to_string(),
    }
}

fn verify_case(file: &Path, run: Option<&Path>, executing: &Executing, how: How<'_>) -> Result<Compared> {
    let case = Case::load(file)?;
    // An interrupted recording may have left the golden aside.
    recover(&case.golden)?;
    let golden = case.require_golden()?;
    if !Golden::is_golden(golden) && !Golden::is_tree(golden)? {
        // Says what is there instead, and how to approve a run.
        Golden::open(golden)?;
    }
    let executed = if executing.execute { Some(target::executed(&case, executing)?) } else { None };
    let candidate = match run.or(executed.as_deref()) {
        Some(run) => run,
        None => case.require_candidate()?,
    };
    let mut compared = compare_paths(golden, candidate, &case, how)?;
    for entry in &mut compared.entries {
        // A known defect is no reason for other bits: where they were asked for, they decide.
        if let (SuiteEntry::Report(report), Some(expect), false) = (entry, &case.expect, how.bitwise) {
            settle_outcome(report, expect.verdict.name(), expect.origin.as_deref());
        }
    }
    Ok(compared)
}

pub(super) fn diff(args: &Diff, screen: &mut Screen) -> Outcome {
    let sinks = Sinks::new(&args.output)?;
    let how = How { comparing: args.comparing, third: Some(&args.third), bitwise: args.bitwise };
    let compared = compare_paths(&args.golden, &args.candidate, &Case::default_for_diff(), how)?;
    finish(compared, false, &sinks, screen)
}

/// One report stands alone unless several cases were asked for.
fn finish(compared: Compared, several: bool, sinks: &Sinks, screen: &mut Screen) -> Outcome {
    let Compared { mut entries, across } = compared;
    let stands_alone = !several && across.is_empty();
    let document = match entries.pop() {
        Some(SuiteEntry::Report(report)) if entries.is_empty() && stands_alone => Document::Report(report),
        last => {
            entries.extend(last);
            Document::from(suite(entries, across))
        }
    };
    sinks.write(&document, screen)?;
    Ok(status_of(&document))
}

pub(super) fn bisect(args: &Bisect, screen: &mut Screen) -> Outcome {
    let Pair { baseline, candidate, case } = target::open(&args.target.paths, args.target.run.as_deref())?;
    let options = bisect::Options {
        trust_output: args.trust_output,
        on_golden: &|id, tensor| baseline.check(id, tensor),
        noise: &|layer, slot| baseline.noise(layer, slot),
    };
    let found = bisect::search(baseline.run(), &candidate, &case, &options)?;
    if args.json {
        json::write_value(&found, &mut screen.out())?;
    } else {
        let style = screen.style(args.all);
        terminal::bisection::write(&found, style, &mut screen.out())?;
    }
    Ok(match found.outcome {
        bisect::Outcome::Nothing { .. } => Status::Expected,
        bisect::Outcome::Incomparable { .. } => Status::Incomparable,
        bisect::Outcome::Found { .. } => Status::Unexpected,
    })
}

pub(super) fn nan(args: &Nan, screen: &mut Screen) -> Outcome {
    let run = Run::open(&args.run)?;
    let births = match &args.golden {
        Some(golden) => {
            target::compare(&Baseline::open(golden)?, &run, &Case::default_for_diff(), args.comparing.into())?
                .nonfinite_origins
        }
        None => {
            let progress = Progress::new("nan");
            lone_births(&run, &births_within(&run, &|done, all| progress.show(done, all))?)
        }
    };
    if args.json {
        #[derive(serde::Serialize)]
        struct Births {
            schema: &'static str,
            run: String,
            births: Vec<Birth>,
        }
        let document =
            Births { schema: "goldline.births/1", run: args.run.display().to_string(), births: births.clone() };
        json::write_value(&document, &mut screen.out())?;
    } else {
        let mut text = Vec::new();
        terminal::births::write(&births, &args.run.display().to_string(), screen.style(false), &mut text)?;
        screen.out().write_all(&text)?;
    }
    // What both runs share, or what a mask places, is no finding.
    let found = births.iter().any(|birth| birth.side != "both" && birth.cause != "placed");
    Ok(if found { Status::Unexpected } else { Status::Expected })
}

pub(super) fn explain(args: &Explain, screen: &mut Screen) -> Outcome {
    let baseline = Baseline::open(&args.golden)?;
    let how = How { third: Some(&args.third), ..How::from(args.comparing) };
    let report = target::compare(&baseline, &Run::open(&args.candidate)?, &Case::default_for_diff(), how)?;
    let rows = story::find(&report, &args.layer)?;
    let style = screen.style(true);
    let mut out = screen.out();
    story::write(&report, &rows, style, &mut out)?;
    out.flush()?;
    Ok(status_of(&Document::from(report)))
}
