//! The pass that measures a pair: one partial result a block, merged in index order.

use std::ops::Range;

use super::bits;
use super::blocks::Blocks;
use super::pair::{Block, Pair, Position};
use super::{Metrics, SideStats, SpecialCounts};

/// What the values of a stretch of positions add up to; see [`Metrics`] for the fields.
#[derive(Debug, Clone)]
struct Partial {
    invalid: u64,
    invalid_unequal: u64,
    judged: u64,
    sentinels: u64,
    equal: u64,
    equal_bits: u64,
    max_abs: f64,
    max_abs_at: usize,
    max_rel: f64,
    sum_rel: f64,
    nonzero_golden: u64,
    error_sq: f64,
    sum_error: f64,
    dot: f64,
    golden_sq: f64,
    candidate_sq: f64,
    beyond: u64,
    max_ulp: u64,
    first_unequal: Option<usize>,
    golden: SideStats,
    candidate: SideStats,
    specials: SpecialCounts,
    saturated: u64,
    zero_for_nan: u64,
}

/// Measures all of `pair`, but for the places that [`super::slices`] finds.
pub(super) fn measure_pair(pair: &Pair) -> Metrics {
    let blocks = Blocks::new(pair.values, pair.row, size_of::<Partial>());
    let stripes = blocks.map(|ranges| {
        let mut buffers = pair.buffers(blocks.largest());
        let mut stripe = Partial::new();
        for range in ranges {
            stripe.merge(&Partial::of_block(pair, range, &mut buffers));
        }
        stripe
    });
    let mut total = Partial::new();
    stripes.iter().for_each(|stripe| total.merge(stripe));
    total.into_metrics(pair)
}

impl Partial {
    fn new() -> Self {
        Self {
            invalid: 0,
            invalid_unequal: 0,
            judged: 0,
            sentinels: 0,
            equal: 0,
            equal_bits: 0,
            max_abs: 0.0,
            max_abs_at: 0,
            max_rel: 0.0,
            sum_rel: 0.0,
            nonzero_golden: 0,
            error_sq: 0.0,
            sum_error: 0.0,
            dot: 0.0,
            golden_sq: 0.0,
            candidate_sq: 0.0,
            beyond: 0,
            max_ulp: 0,
            first_unequal: None,
            golden: SideStats::start(),
            candidate: SideStats::start(),
            specials: SpecialCounts::default(),
            saturated: 0,
            zero_for_nan: 0,
        }
    }

    fn of_block(pair: &Pair, range: Range<usize>, buffers: &mut Block) -> Self {
        let mut partial = Self::new();
        let (golden, candidate) = (pair.golden, pair.candidate);
        if golden.dtype() == candidate.dtype() {
            let width = golden.dtype().bits() / pair.lanes as u32;
            partial.equal_bits =
                bits::count_equal(width, golden.bytes(), candidate.bytes(), range.start, range.len(), |at| {
                    pair.is_valid(at)
                });
        }
        for position in pair.positions(range, buffers) {
            partial.add(pair, &position);
        }
        partial
    }

    fn add(&mut self, pair: &Pair, position: &Position) {
        let equal = position.equal();
        if !pair.is_valid(position.at) {
            self.invalid += 1;
            self.invalid_unequal += u64::from(!equal);
            return;
        }
        if equal {
            self.equal += 1;
        } else if self.first_unequal.is_none() {
            self.first_unequal = Some(position.at);
        }
        if position.sentinel {
            self.sentinels += 1;
            self.specials.shared_inf += u64::from(position.golden.is_infinite() && position.candidate.is_infinite());
            self.golden.add_special(position.golden);
            self.candidate.add_special(position.candidate);
            return;
        }
        self.golden.add(position.golden, &pair.golden_marks);
        self.candidate.add(position.candidate, &pair.candidate_marks);
        self.saturated += u64::from(saturates(pair, position));
        if position.judged() {
            self.add_judged(pair, position);
        } else {
            self.add_special(position, equal);
        }
    }

    fn add_judged(&mut self, pair: &Pair, position: &Position) {
        let Position { at, golden, candidate, difference, .. } = *position;
        self.judged += 1;
        self.dot += candidate * golden;
        self.golden_sq += golden * golden;
        self.candidate_sq += candidate * candidate;
        self.nonzero_golden += u64::from(golden != 0.0);
        if difference == 0.0 {
            return;
        }
        let error = difference.abs();
        self.error_sq += difference * difference;
        self.sum_error += difference;
        if error > self.max_abs {
            (self.max_abs, self.max_abs_at) = (error, at);
        }
        if golden != 0.0 {
            let relative = error / golden.abs();
            self.max_rel = self.max_rel.max(relative);
            self.sum_rel += relative;
        }
        if let Some(tolerance) = pair.tolerance {
            self.beyond += u64::from(error > tolerance.abs + tolerance.rel * golden.abs());
        }
        if let Some(grid) = pair.grid {
            self.max_ulp = self.max_ulp.max(grid.distance(golden, candidate));
        }
    }

    /// A position where a side is NaN or infinite, and that is no shared sentinel.
    fn add_special(&mut self, position: &Position, equal: bool) {
        if equal {
            let kind =
                if position.golden.is_nan() { &mut self.specials.shared_nan } else { &mut self.specials.shared_inf };
            *kind += 1;
        } else if position.candidate.is_finite() {
            self.specials.golden_only += 1;
            self.zero_for_nan += u64::from(position.golden.is_nan() && position.candidate == 0.0);
        } else {
            self.specials.candidate_only += 1;
        }
    }

    /// Adds the positions that follow: of equal maxima the first stays.
    fn merge(&mut self, next: &Self) {
        self.invalid += next.invalid;
        self.invalid_unequal += next.invalid_unequal;
        self.judged += next.judged;
        self.sentinels += next.sentinels;
        self.equal += next.equal;
        self.equal_bits += next.equal_bits;
        if next.max_abs > self.max_abs {
            (self.max_abs, self.max_abs_at) = (next.max_abs, next.max_abs_at);
        }
        self.max_rel = self.max_rel.max(next.max_rel);
        self.sum_rel += next.sum_rel;
        self.nonzero_golden += next.nonzero_golden;
        self.error_sq += next.error_sq;
        self.sum_error += next.sum_error;
        self.dot += next.dot;
        self.golden_sq += next.golden_sq;
        self.candidate_sq += next.candidate_sq;
        self.beyond += next.beyond;
        self.max_ulp = self.max_ulp.max(next.max_ulp);
        self.first_unequal = self.first_unequal.or(next.first_unequal);
        self.golden.merge(&next.golden);
        self.candidate.merge(&next.candidate);
        self.specials.candidate_only += next.specials.candidate_only;
        self.specials.golden_only += next.specials.golden_only;
        self.specials.shared_nan += next.specials.shared_nan;
        self.specials.shared_inf += next.specials.shared_inf;
        self.saturated += next.saturated;
        self.zero_for_nan += next.zero_for_nan;
    }

    fn into_metrics(self, pair: &Pair) -> Metrics {
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let element = |at: usize| (at / pair.lanes) as u64;
        let (golden_dtype, candidate_dtype) = (pair.golden.dtype(), pair.candidate.dtype());
        Metrics {
            golden_dtype,
            candidate_dtype,
            shape: pair.golden.shape().to_vec(),
            elements: pair.values as u64,
            invalid: self.invalid,
            invalid_unequal: self.invalid_unequal,
            judged: self.judged,
            sentinels: self.sentinels,
            equal: self.equal,
            equal_bits: (golden_dtype == candidate_dtype).then_some(self.equal_bits),
            max_abs: self.max_abs,
            max_abs_at: element(self.max_abs_at),
            max_rel: self.max_rel,
            mean_rel: mean(self.sum_rel, self.nonzero_golden),
            error_sq: self.error_sq,
            dot: self.dot,
            judged_golden_sq: self.golden_sq,
            judged_candidate_sq: self.candidate_sq,
            beyond: pair.tolerance.map(|_| self.beyond),
            mean_error: mean(self.sum_error, self.judged),
            max_ulp: pair.grid.map(|_| self.max_ulp),
            first_unequal: self.first_unequal.map(element),
            golden: self.golden.finish(),
            candidate: self.candidate.finish(),
            specials: self.specials,
            worst_channel: None,
            worst_row: None,
            worst_element: None,
            saturated: self.saturated,
            zero_for_nan: self.zero_for_nan,
        }
    }
}

/// Whether the candidate is stuck at its dtype's largest magnitude while the golden, of the same sign,
/// is infinite or rounds to something beyond.
fn saturates(pair: &Pair, position: &Position) -> bool {
    let (golden, candidate, max) = (position.golden, position.candidate, pair.candidate_marks.max);
    if candidate.abs() != max || golden.is_nan() || golden.is_sign_negative() != candidate.is_sign_negative() {
        return false;
    }
    golden.is_infinite() || pair.candidate_grid.is_some_and(|grid| grid.position(golden.abs()) > grid.position(max))
}
