//! Measures a tensor pair and decides nothing.
//!
//! In go two [`Tensor`]s and [`Options`]; out comes a [`Comparison`]: every metric with f64
//! accumulation, or the reason why they cannot be held against each other. Beside it stand
//! [`measure`] (one tensor alone), [`special_map`] (where NaN and infinities stand) and
//! [`differing`] (where exact values differ). Blocks are cut by shape alone and their partial
//! statistics merge in order, so no result depends on the number of threads; tensors are decoded a
//! block at a time, never as a whole.
//!
//! A complex tensor is measured as its components: every count, [`Metrics::elements`] included, is
//! then a count of components, while flat indices, channels and rows are those of whole elements.

mod bits;
mod blocks;
mod differing;
mod integer;
mod kernel;
mod metrics;
mod pair;
#[cfg(test)]
mod rules;
mod side;
mod slices;
mod special;
mod ulp;

pub use differing::{Differing, differing};
pub use metrics::{Element, Metrics, SideStats, Slice, SpecialCounts};
pub use side::measure;
pub use slices::{MAX_CHANNELS, MAX_ROWS};
pub use special::{Class, Side, SpecialFilter, SpecialMap, special_map, special_map_alone, unravel};
pub use ulp::ulp_distance;

use crate::tensor::{DType, Kind, Tensor};
use pair::Pair;

/// What came of comparing two tensors.
#[derive(Debug, Clone)]
pub enum Comparison {
    /// Both are numbers of the same shape.
    Measured(Box<Metrics>),
    /// They cannot be held against each other (shape, kind of dtype); the reason in words.
    Mismatch(String),
    /// Their bytes can be compared but not their values (packed 6-bit floats); true where equal.
    Opaque {
        /// Whether the bytes are equal.
        equal: bool,
    },
}

/// What to measure beside the metrics that always are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// One entry for each element, row-major: false where it does not count (padding). `None`: all count.
    pub valid: Option<&'a [bool]>,
    /// The limit for [`Metrics::beyond`].
    pub tolerance: Option<Tolerance>,
}

/// An element is beyond it where |candidate - golden| > `abs` + `rel`·|golden|.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Part relative to the golden's magnitude.
    pub rel: f64,
}

/// Holds `candidate` against `golden`, element by element.
///
/// Floats of any two dtypes compare by value, integers of any two widths exactly, bools with bools;
/// anything else, and tensors of different shape, is a [`Comparison::Mismatch`]. So is a `valid` mask
/// that has not one entry for each element.
pub fn compare(golden: &Tensor, candidate: &Tensor, options: &Options) -> Comparison {
    if let Some(reason) = mismatch(golden, candidate) {
        return Comparison::Mismatch(reason);
    }
    if let Some(valid) = options.valid.filter(|valid| valid.len() != golden.len()) {
        return Comparison::Mismatch(format!("expected a mask of {} valid flags, found {}", golden.len(), valid.len()));
    }
    if !golden.dtype().decodes() {
        return Comparison::Opaque { equal: golden.bytes() == candidate.bytes() };
    }
    let pair = Pair::new(golden, candidate, options);
    let mut metrics = kernel::measure_pair(&pair);
    slices::localise(&pair, &mut metrics);
    Comparison::Measured(Box::new(metrics))
}

/// Why two tensors cannot be held against each other, or `None` where they can.
fn mismatch(golden: &Tensor, candidate: &Tensor) -> Option<String> {
    let (left, right) = (golden.dtype(), candidate.dtype());
    if golden.shape() != candidate.shape() {
        return Some(format!("shape {:?} in the golden, {:?} in the candidate", golden.shape(), candidate.shape()));
    }
    if left.kind() != right.kind() {
        return Some(format!("{} in the golden, {} in the candidate", describe(left), describe(right)));
    }
    (left != right && !(left.decodes() && right.decodes()))
        .then(|| format!("{left} in the golden, {right} in the candidate: the packing of 6-bit floats is not defined"))
}

fn describe(dtype: DType) -> String {
    let kind = match dtype.kind() {
        Kind::Float => "floating point",
        Kind::Int => "integer",
        Kind::Bool => "boolean",
        Kind::Complex => "complex",
    };
    format!("{kind} ({dtype})")
}
