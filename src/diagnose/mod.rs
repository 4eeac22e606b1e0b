//! First drift, origins and roles, births of NaN and infinities.
//!
//! In goes a [`Judgement`]; out comes a [`Diagnosis`]: which layers are out
//! although what came into them is in (origins), the role of every layer, and for each NaN/Inf the
//! tensor that first holds it, its cause, where it went and where it ended. An origin is named only
//! on evidence in the recorded data flow; what stands between paired layers without partner is named
//! as a stretch, never passed over.

mod alone;
mod birth;
mod cause;
mod flow;
mod origin;
mod reach;
mod signature;

pub use alone::{LoneBirth, births_within};
pub use birth::{Birth, Cause, In, SpecialKind};
pub use flow::Site;
pub use origin::{Origin, Role};
pub use signature::{SHARE, Signature};

use crate::error::Result;
use crate::judge::Judgement;
use crate::run::Run;

/// What was found.
#[derive(Debug)]
pub struct Diagnosis {
    /// First place in execution order that is out.
    pub first_drift: Option<Site>,
    /// Places that are out although what came into them is in, most upstream first.
    pub origins: Vec<Origin>,
    /// Births of NaN and infinities in execution order, those shared by both runs last.
    pub births: Vec<Birth>,
    /// Role of every golden layer; `None` where it is in and nothing out came into it.
    pub roles: Vec<Option<Role>>,
    /// What kind of difference the first few origins show, the best explanation of each first.
    pub signatures: Vec<Signature>,
}

/// Diagnoses a judgement.
///
/// # Errors
/// A tensor that has to be read again and cannot be.
pub fn diagnose(golden: &Run, candidate: &Run, judgement: &Judgement) -> Result<Diagnosis> {
    let flow = flow::Flow::new(golden, candidate, judgement);
    let (origins, roles) = origin::find(&flow);
    let births = birth::find(&flow)?;
    let first_drift = flow.first_out();
    let signatures = signature::find(&flow, &origins)?;
    Ok(Diagnosis { first_drift, origins, births, roles, signatures })
}

/// The origins alone, most upstream first: reads nothing, so that it may be asked of a judgement of
/// few pairs. What was not measured counts as in.
pub fn origins(golden: &Run, candidate: &Run, judgement: &Judgement) -> Vec<Origin> {
    origin::find(&flow::Flow::new(golden, candidate, judgement)).0
}

#[cfg(test)]
mod tests;
