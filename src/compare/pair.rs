//! A comparable tensor pair and what the passes over it ask of each position.

use std::ops::Range;

use super::integer;
use super::ulp::Grid;
use super::{Options, Tolerance};
use crate::tensor::{DType, Kind, Tensor};

/// Two tensors of the same shape and kind, ready to be read in blocks. Positions count *values*: a
/// complex element has two.
pub(super) struct Pair<'a> {
    pub(super) golden: &'a Tensor,
    pub(super) candidate: &'a Tensor,
    pub(super) valid: Option<&'a [bool]>,
    pub(super) tolerance: Option<Tolerance>,
    /// Values in both.
    pub(super) values: usize,
    /// Values for each element.
    pub(super) lanes: usize,
    /// Values in a row (the last axis); all of them for a 0-d tensor.
    pub(super) row: usize,
    pub(super) golden_marks: Marks,
    pub(super) candidate_marks: Marks,
    /// Grid of the coarser dtype.
    pub(super) grid: Option<Grid>,
    /// Grid of the candidate's dtype.
    pub(super) candidate_grid: Option<Grid>,
    /// Whether integers must be read exactly beside their f64 values.
    wide: bool,
}

/// Values of a dtype that mean more than a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// Largest finite value; NaN (equal to nothing) for integers and bools.
    pub(super) max: f64,
    /// The most negative finite value where masks use it, else NaN.
    sentinel: f64,
}

impl Marks {
    pub(super) fn of(dtype: DType) -> Self {
        // Masks are made in these dtypes; in narrower ones the lowest value is an everyday number
        // (block scaling puts one into every block).
        let has_sentinel = matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        let max = dtype.max_finite().unwrap_or(f64::NAN);
        Self { max, sentinel: if has_sentinel { -max } else { f64::NAN } }
    }

    /// Whether `value` may stand for "masked out" on this side.
    pub(super) fn may_be_sentinel(&self, value: f64) -> bool {
        value == self.sentinel || (value == f64::NEG_INFINITY && !self.sentinel.is_nan())
    }
}

/// Both sides of one block, decoded.
pub(super) struct Block {
    golden: Vec<f64>,
    candidate: Vec<f64>,
    golden_exact: Vec<i128>,
    candidate_exact: Vec<i128>,
}

/// One position of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) at: usize,
    pub(super) golden: f64,
    pub(super) candidate: f64,
    /// candidate - golden, exact before rounding to f64 also for 64-bit integers.
    pub(super) difference: f64,
    /// Both are mask sentinels of their dtypes.
    pub(super) sentinel: bool,
}

impl Position {
    /// Whether error metrics count it (its validity aside).
    pub(super) fn judged(&self) -> bool {
        self.golden.is_finite() && self.candidate.is_finite() && !self.sentinel
    }

    /// Value-equal: NaN with NaN, -0 with +0, sentinels with each other.
    pub(super) fn equal(&self) -> bool {
        self.difference == 0.0
            || self.sentinel
            || (self.golden.is_nan() && self.candidate.is_nan())
            || (self.golden.is_infinite() && self.golden == self.candidate)
    }
}

impl<'a> Pair<'a> {
    pub(super) fn new(golden: &'a Tensor, candidate: &'a Tensor, options: &Options<'a>) -> Self {
        let (left, right) = (golden.dtype(), candidate.dtype());
        let lanes = left.components();
        let values = golden.len() * lanes;
        Self {
            golden,
            candidate,
            valid: options.valid,
            tolerance: options.tolerance,
            values,
            lanes,
            row: golden.shape().last().map_or(values, |extent| extent.saturating_mul(lanes)),
            golden_marks: Marks::of(left),
            candidate_marks: Marks::of(right),
            grid: Grid::coarser(left, right),
            candidate_grid: Grid::of(right),
            wide: left.kind() == Kind::Int && (integer::is_wide(left) || integer::is_wide(right)),
        }
    }

    /// Buffers for blocks of up to `len` values.
    pub(super) fn buffers(&self, len: usize) -> Block {
        let exact = if self.wide { len } else { 0 };
        Block {
            golden: vec![0.0; len],
            candidate: vec![0.0; len],
            golden_exact: vec![0; exact],
            candidate_exact: vec![0; exact],
        }
    }

    /// Whether the value at `at` counts.
    pub(super) fn is_valid(&self, at: usize) -> bool {
        self.valid.is_none_or(|valid| valid.get(at / self.lanes).copied().unwrap_or(true))
    }

    /// Decodes `range` into `block` and walks its positions in order.
    pub(super) fn positions<'b>(
        &'b self,
        range: Range<usize>,
        block: &'b mut Block,
    ) -> impl Iterator<Item = Position> + 'b {
        let Block { golden, candidate, golden_exact, candidate_exact } = block;
        let len = range.len();
        self.golden.dtype().decode_into(self.golden.bytes(), range.start, &mut golden[..len]);
        self.candidate.dtype().decode_into(self.candidate.bytes(), range.start, &mut candidate[..len]);
        if self.wide {
            integer::decode_into(self.golden.dtype(), self.golden.bytes(), range.start, &mut golden_exact[..len]);
            integer::decode_into(
                self.candidate.dtype(),
                self.candidate.bytes(),
                range.start,
                &mut candidate_exact[..len],
            );
        }
        golden[..len].iter().zip(&candidate[..len]).enumerate().map(move |(offset, (&golden, &candidate))| {
            let difference =
                if self.wide { (candidate_exact[offset] - golden_exact[offset]) as f64 } else { candidate - golden };
            let sentinel = self.golden_marks.may_be_sentinel(golden) && self.candidate_marks.may_be_sentinel(candidate);
            Position { at: range.start + offset, golden, candidate, difference, sentinel }
        })
    }
}
