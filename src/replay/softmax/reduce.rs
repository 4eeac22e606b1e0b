//! How a loss is reduced: not at all, to its mean or to its sum.

use ndarray::arr0;
use serde_json::Value;

use super::LOSS_ULP;
use crate::replay::answer::with_summation;
use crate::replay::lanes::{array, sum};
use crate::replay::{Call, Reference, Unmodelled};

/// ATen's numbers are 0, 1 and 2, the functional interface has names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reduction {
    /// One loss for each element.
    None,
    /// The mean, which is the default.
    Mean,
    /// The sum.
    Sum,
    /// The sum over the extent of the first axis (`kl_div` alone).
    BatchMean,
}

impl Reduction {
    /// # Errors
    /// Attributes were not recorded; a reduction that does not exist.
    pub(super) fn of(call: &Call) -> Result<Self, Unmodelled> {
        let Some(value) = call.attr("reduction")? else { return Ok(Self::Mean) };
        match value {
            Value::String(name) => match name.as_str() {
                "none" => Some(Self::None),
                "mean" => Some(Self::Mean),
                "sum" => Some(Self::Sum),
                "batchmean" => Some(Self::BatchMean),
                _ => None,
            },
            value => match value.as_i64() {
                Some(0) => Some(Self::None),
                Some(1) => Some(Self::Mean),
                Some(2) => Some(Self::Sum),
                _ => None,
            },
        }
        .ok_or_else(|| Unmodelled(format!("reduction {value} is none, mean or sum")))
    }

    /// The shape of the result where the terms have shape `terms`.
    pub(super) fn shape(self, terms: &[usize]) -> Vec<usize> {
        if self == Self::None { terms.to_vec() } else { Vec::new() }
    }

    /// Reduces `terms` (values and scales, of `shape`); a mean divides by `count`.
    pub(super) fn apply(
        self,
        shape: &[usize],
        value: Vec<f64>,
        scale: Vec<f64>,
        count: f64,
    ) -> Result<Reference, Unmodelled> {
        let divisor = match self {
            Self::None => return Ok(Reference::function(array(shape, value)?, array(shape, scale)?, LOSS_ULP)),
            Self::Mean => count,
            Self::Sum => 1.0,
            Self::BatchMean => shape.first().copied().unwrap_or(1) as f64,
        };
        let ulp = with_summation(LOSS_ULP, value.len());
        let total = |terms: Vec<f64>| arr0(sum(terms) / divisor).into_dyn();
        Ok(Reference::function(total(value), total(scale), ulp))
    }
}
