//! The numbers of one tensor pair, and what follows from them.

use crate::tensor::DType;

/// Every metric of one tensor pair. *Judged* elements are those finite on both sides that are no
/// shared sentinel; all error metrics are over judged elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Element type of the golden tensor.
    pub golden_dtype: DType,
    /// Element type of the candidate tensor.
    pub candidate_dtype: DType,
    /// Extents of both.
    pub shape: Vec<usize>,
    /// All elements.
    pub elements: u64,
    /// Elements that the caller's `valid` mask rules out; every other count, sum and extreme leaves
    /// them out.
    pub invalid: u64,
    /// Of those, the ones whose values are not equal.
    pub invalid_unequal: u64,
    /// Judged elements.
    pub judged: u64,
    /// Mask sentinels at the same places: the most negative finite value of each side's dtype, or
    /// -inf, on both sides. They are no difference.
    pub sentinels: u64,
    /// Elements whose values are equal (NaN with NaN, -0 with +0, sentinels included).
    pub equal: u64,
    /// Elements whose bit patterns are equal; `None` where the dtypes differ.
    pub equal_bits: Option<u64>,
    /// Largest |candidate - golden|.
    pub max_abs: f64,
    /// Flat index of that element.
    pub max_abs_at: u64,
    /// Largest |candidate - golden| / |golden| over elements whose golden is not 0.
    pub max_rel: f64,
    /// Mean of |candidate - golden| / |golden| over the same elements.
    pub mean_rel: f64,
    /// sum of (candidate - golden)^2.
    pub error_sq: f64,
    /// sum of candidate * golden.
    pub dot: f64,
    /// sum of golden^2 over judged elements ([`SideStats::sum_sq`] also holds elements that are
    /// finite on that side alone).
    pub judged_golden_sq: f64,
    /// sum of candidate^2 over judged elements.
    pub judged_candidate_sq: f64,
    /// Judged elements beyond [`Options::tolerance`](super::Options); `None` where none was given.
    pub beyond: Option<u64>,
    /// Mean of candidate - golden: the bias.
    pub mean_error: f64,
    /// Largest distance in units in the last place of the coarser dtype, to which both are rounded
    /// (its grid goes on beyond its largest finite value); `None` for integers and bools.
    pub max_ulp: Option<u64>,
    /// Flat index of the first element that is not equal, special values included.
    pub first_unequal: Option<u64>,
    /// The golden side alone.
    pub golden: SideStats,
    /// The candidate side alone.
    pub candidate: SideStats,
    /// NaN/Inf that do not agree.
    pub specials: SpecialCounts,
    /// The channel (index on the last axis) with the largest error; `None` below two axes or two
    /// channels, beyond [`MAX_CHANNELS`](super::MAX_CHANNELS), or where no judged element differs.
    pub worst_channel: Option<Slice>,
    /// The row (everything but the last axis) with the largest error; `None` below two axes or two
    /// rows, beyond [`MAX_ROWS`](super::MAX_ROWS), or where no judged element differs.
    pub worst_row: Option<Slice>,
    /// The element whose error is largest against `max(|golden|, rms of golden)`;
    /// `None` where no judged element differs.
    pub worst_element: Option<Element>,
    /// Positions where one side saturates: the candidate's magnitude equals its dtype's maximum
    /// while the golden, of the same sign, is infinite or would round beyond it.
    pub saturated: u64,
    /// Positions where the golden is NaN and the candidate 0: some devices write NaN as 0.
    pub zero_for_nan: u64,
}

/// One side of a pair. Norms and extremes are over that side's finite elements, shared sentinels left out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SideStats {
    /// Smallest finite value; 0 where there is none.
    pub min: f64,
    /// Largest finite value; 0 where there is none.
    pub max: f64,
    /// Largest finite magnitude.
    pub amax: f64,
    /// Smallest magnitude that is not zero; 0 where there is none.
    pub amin_nonzero: f64,
    /// sum of squares.
    pub sum_sq: f64,
    /// sum.
    pub sum: f64,
    /// Number of NaN.
    pub nan: u64,
    /// Number of +Inf.
    pub pos_inf: u64,
    /// Number of -Inf.
    pub neg_inf: u64,
    /// Number of exact zeros.
    pub zeros: u64,
    /// Number of elements whose magnitude equals the dtype's largest finite value (0 for integers
    /// and bools).
    pub at_max: u64,
    /// Finite elements that were counted.
    pub finite: u64,
}

/// NaN and infinities that the two sides do not share at the same place with the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialCounts {
    /// Special in the candidate alone, or of another kind there.
    pub candidate_only: u64,
    /// Special in the golden alone.
    pub golden_only: u64,
    /// NaN in both at the same place.
    pub shared_nan: u64,
    /// The same infinity in both at the same place (mask sentinels included).
    pub shared_inf: u64,
}

/// A channel or a row of a tensor pair; the worst is the one with the largest
/// `error / max(norm, median_norm)`, so that a small slice beside large ones is not blamed for noise.
/// Norms are Euclidean, over judged elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    /// Index of the channel, or flat index of the row.
    pub index: u64,
    /// Norm of the error in it.
    pub error: f64,
    /// Norm of the golden in it.
    pub norm: f64,
    /// Median norm of the golden over all such slices.
    pub median_norm: f64,
    /// Number of slices.
    pub count: u64,
}

/// One element of a tensor pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Element {
    /// Flat index.
    pub index: u64,
    /// Golden value.
    pub golden: f64,
    /// Candidate value.
    pub candidate: f64,
    /// |candidate - golden| / max(|golden|, rms of golden); infinite where the golden is all zero.
    pub score: f64,
}

impl SideStats {
    /// Euclidean norm.
    pub fn l2(&self) -> f64 {
        self.sum_sq.sqrt()
    }

    /// Root mean square.
    pub fn rms(&self) -> f64 {
        if self.finite == 0 { 0.0 } else { (self.sum_sq / self.finite as f64).sqrt() }
    }

    /// NaN and infinities together.
    pub fn specials(&self) -> u64 {
        self.nan + self.pos_inf + self.neg_inf
    }
}

impl Metrics {
    /// ‖candidate - golden‖ / ‖golden‖ over judged elements; `None` where the golden is all zero but
    /// the error is not (0 where both are), or where a sum of squares leaves the range of f64.
    pub fn rel_l2(&self) -> Option<f64> {
        if self.max_abs == 0.0 {
            return Some(0.0);
        }
        ratio(self.error_sq, self.judged_golden_sq).map(f64::sqrt)
    }

    /// Cosine similarity over judged elements; `None` where a side is all zero, or where a sum of
    /// squares leaves the range of f64.
    pub fn cosine(&self) -> Option<f64> {
        let norms = self.judged_golden_sq.sqrt() * self.judged_candidate_sq.sqrt();
        ratio(self.dot.abs(), norms).map(|cosine| cosine.min(1.0).copysign(self.dot))
    }

    /// Root mean square of the error; `None` without a judged element or beyond the range of f64.
    pub fn rms_error(&self) -> Option<f64> {
        (self.judged > 0).then(|| (self.error_sq / self.judged as f64).sqrt()).filter(|rms| rms.is_finite())
    }

    /// Share of the valid elements whose bit patterns are equal; `None` where the dtypes differ or
    /// there is no element.
    pub fn equal_bits_share(&self) -> Option<f64> {
        let valid = self.elements - self.invalid;
        self.equal_bits.filter(|_| valid > 0).map(|equal| equal as f64 / valid as f64)
    }

    /// Elements that count and are not equal, special values included.
    pub fn unequal(&self) -> u64 {
        self.elements - self.invalid - self.equal
    }

    /// Signal to quantisation noise in dB; `None` where there is no signal or no noise.
    pub fn sqnr_db(&self) -> Option<f64> {
        self.rel_l2().filter(|&r| r > 0.0).map(|r| -20.0 * r.log10())
    }

    /// -log2(rel_l2): how many leading bits agree; `None` where all do.
    pub fn agreeing_bits(&self) -> Option<f64> {
        self.rel_l2().filter(|&r| r > 0.0).map(|r| -r.log2())
    }

    /// Whether a NaN/Inf stands on one side only, or is of another kind there.
    pub fn has_unshared_specials(&self) -> bool {
        self.specials.candidate_only + self.specials.golden_only > 0
    }
}

/// `part / whole` where that says something: `whole` neither 0, subnormal nor infinite, the result finite.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole >= f64::MIN_POSITIVE && whole.is_finite()).then(|| part / whole).filter(|ratio| ratio.is_finite())
}
