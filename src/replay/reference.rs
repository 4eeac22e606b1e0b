//! Building references: the computed shape must be the recorded one, before anything is allocated.

use ndarray::ArrayD;

use super::{Call, Exactness, OutputSpec, Reference, Unmodelled};
use crate::tensor::{DType, Kind};

/// Largest magnitude up to which every integer has its own f64.
pub(super) const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

impl Call<'_> {
    /// What was recorded of output `slot`.
    ///
    /// # Errors
    /// Fewer outputs were recorded.
    pub(super) fn output(&self, slot: usize) -> Result<&OutputSpec, Unmodelled> {
        self.outputs.get(slot).ok_or_else(|| Unmodelled(format!("{} has no recorded output {slot}", self.function())))
    }

    /// Refuses a computed `shape` that is not that of recorded output `slot`.
    ///
    /// # Errors
    /// The shapes differ, or the output was not recorded.
    pub(super) fn fits(&self, slot: usize, shape: &[usize]) -> Result<(), Unmodelled> {
        let recorded = &self.output(slot)?.shape;
        if recorded == shape {
            return Ok(());
        }
        Err(self.unmodelled(&format!("result shape {shape:?} does not fit the recorded {recorded:?}")))
    }

    /// A refusal that names the function.
    pub(super) fn unmodelled(&self, reason: &str) -> Unmodelled {
        Unmodelled(format!("{}: {reason}", self.function()))
    }

    /// Number of recorded outputs must be `expected`.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn output_count(&self, expected: usize) -> Result<(), Unmodelled> {
        if self.outputs.len() == expected {
            return Ok(());
        }
        Err(self.unmodelled(&format!("expected {expected} recorded outputs, found {}", self.outputs.len())))
    }
}

/// A reference whose scale is the value's own magnitude.
pub(super) fn plain(value: ArrayD<f64>, exactness: Exactness) -> Reference {
    let scale = value.mapv(f64::abs);
    Reference { value, scale, exactness }
}

/// How exact a mover is: bits are moved where no operand changes its dtype on the way, else each
/// element is converted once.
pub(super) fn moved(operands: impl IntoIterator<Item = DType>, output: DType) -> Exactness {
    if operands.into_iter().all(|dtype| dtype == output) { Exactness::Exact } else { Exactness::Rounded }
}

/// Exactness of a function's output: integers and bools are right or wrong.
pub(super) fn graded(output: DType, float: Exactness) -> Exactness {
    match output.kind() {
        Kind::Int | Kind::Bool => Exactness::Discrete,
        Kind::Float | Kind::Complex => float,
    }
}

/// `value` rounded to `dtype`, ties to even; `None` for types whose rounding is not defined here.
pub(super) fn round_to(dtype: DType, value: f64) -> Option<f64> {
    Some(match dtype {
        DType::F64 => value,
        DType::F32 => f64::from(value as f32),
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::BF16 => half::bf16::from_f64(value).to_f64(),
        _ => return None,
    })
}

/// Values that an integer or bool type holds and that f64 tells apart; `None` for other types.
pub(super) fn integer_range(dtype: DType) -> Option<std::ops::RangeInclusive<f64>> {
    let signed = matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8);
    match dtype.kind() {
        Kind::Bool => Some(0.0..=1.0),
        Kind::Int => {
            let bits = dtype.bits().min(53) as i32;
            let top = 2f64.powi(if signed && bits < 53 { bits - 1 } else { bits });
            let bottom = if signed { -top } else { 0.0 };
            Some(bottom..=if bits < 53 { top - 1.0 } else { top })
        }
        Kind::Float | Kind::Complex => None,
    }
}
