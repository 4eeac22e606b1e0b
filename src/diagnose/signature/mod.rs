//! Signatures: what kind of difference is it?
//!
//! In go the origins; out come the explanations that fit, each with the share of the error's energy
//! that it explains. The error is the recorded output less what the layer's own inputs give in fp64,
//! rounded as it was recorded; where the layer was not replayed, less the golden's output. A fixed set
//! of explanations is tried, and one is told only where it explains [`SHARE`] of the energy: plain
//! noise has none. Nothing here changes a verdict or names an origin.
//!
//! Adding an explanation is one function and one line of [`EXPLANATIONS`].

mod evidence;
mod magnitude;
mod order;
mod place;
mod source;
mod value;
mod variant;

use super::flow::{Flow, Site};
use super::origin::{Origin, Role};
use crate::error::Result;
use evidence::Evidence;

/// Least share of the error's energy that an explanation must explain: what is left is then below a
/// third of the error's size (sqrt(0.1)). Of 96 faults down to 0.024 % of the tensor's norm the right
/// explanation reached it each time, the least with 0.908 (a factor of 1.01 in bf16, whose own rounding is
/// a sixth of that error); fp32 noise and clean runs have none.
pub const SHARE: f64 = 0.9;

/// A share from which on the more specific of two explanations is told first, whatever the last digits.
const CERTAIN: f64 = 0.97;

/// Origins that are looked at: what follows the first few is seldom a cause of its own.
const ORIGINS: usize = 4;

/// Explanations told of one origin.
const TOLD: usize = 2;

/// Kinds that say where the error stands, but not what it is: told where nothing else explains it.
const PLACES: [&str; 4] = ["channel", "row", "element", "onset"];

/// Largest number of output elements that are looked at: each explanation costs a pass over them.
const ELEMENTS: usize = 1 << 21;

/// An explanation of an origin's error.
#[derive(Debug, Clone, PartialEq)]
pub struct Signature {
    /// The origin it explains.
    pub site: Site,
    /// `scale`, `offset`, `permutation`, `unwritten` …
    pub kind: &'static str,
    /// Share of the error's energy that it explains, [`SHARE`] to 1.
    pub explains: f64,
    /// What was found, and what to do.
    pub why: String,
}

/// What an explanation says of itself.
struct Explanation {
    kind: &'static str,
    share: f64,
    why: String,
}

/// One group of explanations.
type Explain = fn(&Evidence<'_>) -> Result<Vec<Explanation>>;

/// In the order of how much they say: of two that explain alike the first is told first.
const EXPLANATIONS: [Explain; 14] = [
    source::aliasing,
    variant::reduced_operands,
    variant::other_arguments,
    value::coarser_grid,
    value::rounding,
    place::unwritten,
    place::stale,
    value::dropout,
    value::saturation,
    magnitude::element,
    order::permutation,
    magnitude::fit,
    magnitude::slice,
    place::onset,
];

/// Explanations of the first few origins, the best of each first.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn find(flow: &Flow<'_>, origins: &[Origin]) -> Result<Vec<Signature>> {
    let mut found = Vec::new();
    let looked_at = origins.iter().filter(|origin| matches!(origin.role, Role::Introduced | Role::Amplified));
    for origin in looked_at.take(ORIGINS) {
        if let Some(tie) = flipped(flow, origin) {
            found.push(tie);
            continue;
        }
        if origin.role != Role::Introduced {
            continue;
        }
        let Some(evidence) = evidence::gather(flow, origin, ELEMENTS)? else { continue };
        let mut explanations = Vec::new();
        for explain in EXPLANATIONS {
            explanations.extend(explain(&evidence)?.into_iter().filter(|e| e.share >= SHARE));
        }
        explanations.sort_by(|a, b| b.share.min(CERTAIN).total_cmp(&a.share.min(CERTAIN)));
        if explanations.first().is_some_and(|best| !PLACES.contains(&best.kind)) {
            explanations.retain(|e| !PLACES.contains(&e.kind));
        }
        let mut told = Vec::new();
        explanations.retain(|e| {
            !told.contains(&e.kind) && {
                told.push(e.kind);
                true
            }
        });
        found.extend(explanations.into_iter().take(TOLD).map(|Explanation { kind, share, why }| Signature {
            site: origin.site,
            kind,
            explains: share.min(1.0),
            why: format!("{why}{}", evidence.remark()),
        }));
    }
    Ok(found)
}

/// An index that flipped between near-ties: the judgement has held every one that differs against the
/// values that it chooses between.
fn flipped(flow: &Flow<'_>, origin: &Origin) -> Option<Signature> {
    let Site::Layer(id) = origin.site else { return None };
    flow.judgement.layer(id).flipped.then(|| Signature {
        site: origin.site,
        kind: "tie",
        explains: 1.0,
        why: "only choices between values that tie within the dtype differ: break ties alike on both devices, or compute what is chosen from in fp32".into(),
    })
}
