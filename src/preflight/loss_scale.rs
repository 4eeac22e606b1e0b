//! The loss scale that suits the recorded gradients.

use serde::Serialize;

use super::Target;
use super::finding::{Finding, FindingKind};
use super::range::Range;
use super::threshold::LOSS_SCALE_RESERVE;
use crate::judge::figure;
use crate::run::{Pass, Run};

/// A loss scale, and the gradient it follows from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossScale {
    /// 2^floor(log2(max / (8·amax))): the largest power of two that leaves three bits of range.
    pub scale: f64,
    /// Largest gradient.
    pub amax: f64,
    /// The layer that makes it.
    pub layer: String,
}

/// The best loss scale; `None` where the run holds no gradient other than 0.
pub(super) fn best(run: &Run, ranges: &[Option<Range>], target: &Target) -> Option<LossScale> {
    let backward = run.layers.iter().filter(|layer| layer.pass == Pass::Backward && !layer.op.is_source());
    let amax_of = |id: &crate::run::TensorId| ranges.get(id.0 as usize)?.as_ref().map(|range| range.amax);
    let mut largest = None;
    for layer in backward {
        let amax = layer.outputs.iter().filter_map(amax_of).fold(0.0, f64::max);
        // The first of equals, so that a mover does not take the place of what it moved.
        if amax > largest.map_or(0.0, |(known, _)| known) {
            largest = Some((amax, layer.id));
        }
    }
    let (amax, id) = largest?;
    let exponent = (target.max / (LOSS_SCALE_RESERVE * amax)).log2().floor();
    // Within f32, in which a loss is scaled.
    let scale = exponent.clamp(-126.0, 127.0).exp2();
    Some(LossScale { scale, amax, layer: run.display_name(id) })
}

impl LossScale {
    /// Names the scale where it is what helps.
    pub(super) fn advise(&self, finding: &mut Finding) {
        let concerns = matches!(finding.kind, FindingKind::Underflow | FindingKind::Overflow | FindingKind::Headroom);
        if finding.pass == Pass::Backward.to_string() && concerns {
            finding.advice = format!(
                "scale the loss by {} (the largest gradient, {} in {}, then leaves 3 bits of range)",
                figure(self.scale),
                figure(self.amax),
                self.layer
            );
        }
    }
}
