//! How the values of one tensor fit the dtype's range: what is beyond it, and what is lost below it.

use super::Target;
use super::finding::{Finding, FindingKind, Place, Severity};
use super::threshold::{HEADROOM_BITS, UNDERFLOW_ROUNDOFFS};
use crate::error::Result;
use crate::judge::figure;
use crate::replay::Rounding;
use crate::run::{Run, TensorId};
use crate::tensor::{DType, Kind, Tensor};

/// Values decoded at a time.
const BLOCK: usize = 4096;

/// How one tensor fits the dtype.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Range {
    /// Finite elements, mask sentinels left out.
    pub(super) finite: u64,
    /// Their largest magnitude.
    pub(super) amax: f64,
    /// Elements that round to an infinity.
    pub(super) beyond: u64,
    /// Nonzero elements that round to 0.
    pub(super) vanished: u64,
    /// Sum of squares.
    energy: f64,
    /// Sum of the squared rounding errors of elements below the smallest normal value; `None` where the
    /// values were not stored.
    lost: Option<f64>,
}

/// The range of a tensor, `None` where it is no floating-point tensor or nothing of it is known.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn of(run: &Run, id: TensorId, target: &Target) -> Result<Option<Range>> {
    let Some((dtype, _)) = run.dtype_and_shape(id) else { return Ok(None) };
    if dtype.kind() != Kind::Float || !dtype.decodes() {
        return Ok(None);
    }
    Ok(match run.load(id)? {
        Some(tensor) => Some(of_values(&tensor, target)),
        None => run.tensor(id).stats.as_ref().and_then(|stats| {
            let extremes = [stats.min?, stats.max?].map(|value| if is_sentinel(value, dtype) { 0.0 } else { value });
            let amax = extremes.iter().fold(0.0f64, |amax, value| amax.max(value.abs()));
            let beyond = extremes.iter().filter(|value| is_beyond(**value, target)).count() as u64;
            Some(Range { finite: 1, amax, beyond, ..Range::default() })
        }),
    })
}

/// The most negative finite value of its own dtype marks what a mask hides and becomes that of the other.
pub(super) fn is_sentinel(value: f64, dtype: DType) -> bool {
    dtype.max_finite().is_some_and(|max| value == -max)
}

fn is_beyond(value: f64, target: &Target) -> bool {
    target.format.round(value, Rounding::NearestEven).is_infinite()
}

fn of_values(tensor: &Tensor, target: &Target) -> Range {
    let dtype = tensor.dtype();
    let normal = target.smallest_normal();
    let mut range = Range::default();
    let mut lost = 0.0;
    let mut values = vec![0.0; BLOCK.min(tensor.len())];
    for start in (0..tensor.len()).step_by(BLOCK) {
        let count = BLOCK.min(tensor.len() - start);
        let Some(block) = values.get_mut(..count) else { break };
        dtype.decode_into(tensor.bytes(), start, block);
        for &value in block.iter().filter(|value| value.is_finite() && !is_sentinel(**value, dtype)) {
            let magnitude = value.abs();
            range.finite += 1;
            range.amax = range.amax.max(magnitude);
            range.energy += value * value;
            if magnitude < normal && value != 0.0 {
                let rounded = target.format.round(value, Rounding::NearestEven);
                range.vanished += u64::from(rounded == 0.0);
                lost += (value - rounded) * (value - rounded);
            } else if magnitude > target.max {
                range.beyond += u64::from(is_beyond(value, target));
            }
        }
    }
    range.lost = Some(lost);
    range
}

impl Range {
    /// log2(max/amax); `None` where all is zero.
    pub(super) fn headroom(&self, target: &Target) -> Option<f64> {
        (self.amax > 0.0).then(|| (target.max / self.amax).log2())
    }

    /// Share of the energy that is lost; `None` where there is none or it is not known.
    pub(super) fn lost_share(&self) -> Option<f64> {
        // Squares of values below 1e-154 vanish in f64 too: then nothing is known.
        (self.energy > 0.0 && self.energy.is_finite()).then(|| Some(self.lost? / self.energy))?
    }

    fn underflows(&self, target: &Target) -> bool {
        self.lost_share().is_some_and(|share| share.sqrt() > UNDERFLOW_ROUNDOFFS * target.u)
    }

    /// Whether what a layer makes of this tensor says nothing of the layer.
    pub(super) fn is_spoilt(&self, target: &Target) -> bool {
        self.beyond > 0 || self.underflows(target)
    }

    /// Values beyond the range, or within its last bit.
    pub(super) fn overflow(&self, place: &Place, target: &Target) -> Option<Finding> {
        let bits = self.headroom(target)?;
        let numbers =
            [("amax", self.amax), ("max", target.max), ("headroom_bits", bits), ("beyond", self.beyond as f64)];
        let dtype = target.dtype;
        let other = if dtype == DType::F16 { "; bfloat16 has float32's range" } else { "" };
        if self.beyond > 0 {
            return Some(place.finding(
                (FindingKind::Overflow, Severity::Breaks),
                &numbers,
                format!(
                    "holds values up to {}, {dtype} ends at {}{}",
                    figure(self.amax),
                    figure(target.max),
                    if self.lost.is_some() { format!(": {} elements become Inf", self.beyond) } else { String::new() }
                ),
                format!("keep it in fp32 with its consumers up to where values fit again, or scale before it{other}"),
            ));
        }
        (bits < HEADROOM_BITS).then(|| {
            place.finding(
                (FindingKind::Headroom, Severity::Risks),
                &numbers,
                format!(
                    "holds values up to {}: {} bits below {dtype}'s largest, {}, less than {HEADROOM_BITS}",
                    figure(self.amax),
                    figure(bits),
                    figure(target.max)
                ),
                format!("another input may overflow: keep it in fp32, or scale before it{other}"),
            )
        })
    }

    /// Small values that lose more than rounding costs.
    pub(super) fn underflow(&self, place: &Place, target: &Target) -> Option<Finding> {
        let share = self.lost_share().filter(|_| self.underflows(target))?;
        let dtype = target.dtype;
        Some(place.finding(
            (FindingKind::Underflow, Severity::Degrades),
            &[
                ("energy_lost", share),
                ("limit", (UNDERFLOW_ROUNDOFFS * target.u).powi(2)),
                ("vanished", self.vanished as f64),
                ("amax", self.amax),
            ],
            format!(
                "{} of its energy is lost below {dtype}'s smallest normal value {}: {} of {} values become 0; rounding \
                 alone costs less than {}",
                figure(share),
                figure(target.smallest_normal()),
                self.vanished,
                self.finite,
                figure((UNDERFLOW_ROUNDOFFS * target.u).powi(2))
            ),
            "scale the values up before it, or keep it in fp32".to_string(),
        ))
    }
}
