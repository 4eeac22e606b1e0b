//! The whole pipeline in one call: two runs and a case in, a report out.

use crate::blacklist::{self, Advice};
use crate::case::Case;
use crate::diagnose::{self, Diagnosis};
use crate::error::Result;
use crate::judge::{self, Judgement};
use crate::pairing;
use crate::report::assemble::{Findings, assemble};
use crate::report::bitwise;
use crate::report::model::Report;
use crate::run::Run;

/// What every stage of the pipeline found.
#[derive(Debug)]
pub struct Analysis {
    /// Verdicts and measurements.
    pub judgement: Judgement,
    /// Origins, roles and births.
    pub diagnosis: Diagnosis,
    /// Remedies and blacklist.
    pub advice: Advice,
}

impl Analysis {
    fn findings<'a>(&'a self, golden: &'a Run, candidate: &'a Run) -> Findings<'a> {
        let Self { judgement, diagnosis, advice } = self;
        Findings { golden, candidate, judgement, diagnosis, advice }
    }
}

/// Pairs, measures, judges and diagnoses `candidate` against `golden` under `case`.
///
/// # Errors
/// A tensor that cannot be read, or that `options.on_golden` refuses.
pub fn analyse(golden: &Run, candidate: &Run, case: &Case, options: &judge::Options<'_>) -> Result<Analysis> {
    let rename = |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
    let pairing = pairing::pair(golden, candidate, &rename)?;
    let judgement = judge::judge(golden, candidate, pairing, case, options)?;
    let diagnosis = diagnose::diagnose(golden, candidate, &judgement)?;
    let advice = blacklist::advise(golden, candidate, &judgement, &diagnosis)?;
    Ok(Analysis { judgement, diagnosis, advice })
}

/// [`analyse`], told as a report.
///
/// # Errors
/// Those of [`analyse`].
pub fn verify(golden: &Run, candidate: &Run, case: &Case, options: &judge::Options<'_>) -> Result<Report> {
    let analysis = analyse(golden, candidate, case, options)?;
    Ok(assemble(Some(&case.name), analysis.findings(golden, candidate)))
}

/// [`verify`], with the bit equality of every layer beside it, which then decides the outcome.
///
/// # Errors
/// Those of [`analyse`].
pub fn verify_bitwise(golden: &Run, candidate: &Run, case: &Case, options: &judge::Options<'_>) -> Result<Report> {
    let analysis = analyse(golden, candidate, case, options)?;
    let findings = analysis.findings(golden, candidate);
    let mut report = assemble(Some(&case.name), findings);
    report.bitwise = Some(bitwise::tell(findings, &judge::bitwise(golden, &analysis.judgement, case)));
    bitwise::settle_outcome(&mut report);
    Ok(report)
}
