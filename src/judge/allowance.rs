//! What one element of a replayed output may be off: the budget of a healthy implementation.

use super::threshold::{ARITHMETIC_ULP, FUNCTION_ULP, ROUNDING, SUM_SIGMAS};
use crate::op::Class;
use crate::replay::{Call, Exactness, Reference};
use crate::run::Layer;

/// What one element may be off: its variance and its bound.
pub(super) struct Allowance {
    pub(super) variance: f64,
    pub(super) bound: f64,
}

/// The budget of the element at `at`: one rounding to the output dtype, the sum's own roundings, the
/// function's ULP, and the spacing of subnormals (NUMERICS section 1).
#[expect(clippy::too_many_arguments, reason = "the facts that one element's bound rests on")]
pub(super) fn allowance(
    reference: &Reference,
    at: usize,
    floor: f64,
    value: f64,
    addend: f64,
    u_out: f64,
    u_inner: f64,
    subnormal: f64,
) -> Allowance {
    let scale = reference
        .scale
        .as_slice()
        .and_then(|s| s.get(at))
        .copied()
        .unwrap_or(value.abs())
        .abs()
        .max(value.abs())
        .max(floor);
    let rounding = ROUNDING * u_out * value.abs();
    let mut variance = rounding * rounding + (subnormal / 2.0).powi(2);
    let mut bound = u_out * value.abs() + subnormal / 2.0;
    match &reference.exactness {
        Exactness::Summed { terms, squares } => {
            let q = squares.as_slice().and_then(|s| s.get(at)).copied().unwrap_or(value * value);
            let sum = (ROUNDING * u_inner).powi(2) * *terms as f64 * (value * value / 3.0 + q / 6.0);
            // The products themselves are rounded where they are not fused.
            variance += sum + (ROUNDING * u_inner).powi(2) * q;
            bound += SUM_SIGMAS * sum.sqrt() + u_inner * q.sqrt();
            // Where bias and product are not fused, the product is rounded before the bias comes to it:
            // |product| is at most |result| + |bias|.
            if addend > 0.0 {
                bound += u_out * (value.abs() + addend);
            }
        }
        Exactness::Function { ulp, roundings } => {
            let function = u_inner * if *ulp > ARITHMETIC_ULP { ulp.max(FUNCTION_ULP) } else { *ulp } * scale;
            let visible = f64::from(*roundings) * ROUNDING * u_out * scale;
            variance += (ROUNDING * function).powi(2) + visible * visible;
            bound += function + f64::from(*roundings) * u_out * scale;
        }
        Exactness::Exact | Exactness::Rounded | Exactness::Discrete => {
            let function = u_inner * ARITHMETIC_ULP * scale;
            variance += (ROUNDING * function).powi(2);
            bound += function;
        }
    }
    Allowance { variance, bound }
}

/// Largest magnitude of the bias that a product is added to; 0 where there is none.
pub(super) fn largest_addend(layer: &Layer, call: &Call) -> f64 {
    if !matches!(layer.op.name(), "linear" | "matmul" | "conv" | "conv_transpose") || call.inputs.len() != 3 {
        return 0.0;
    }
    let shapes: Vec<Option<&[usize]>> = call.inputs.iter().map(|input| Some(input.value.shape())).collect();
    let Some((first, second)) = crate::op::operands(layer.input_names.as_deref(), &shapes) else { return 0.0 };
    let bias = call.inputs.iter().enumerate().find(|(slot, _)| *slot != first && *slot != second);
    bias.map_or(0.0, |(_, bias)| bias.value.iter().filter(|v| v.is_finite()).fold(0.0, |max, v| f64::max(max, v.abs())))
}

/// Rms of the scale in each row of a norm: mean and variance are sums over the row, and their rounding
/// reaches every element of it, however small.
pub(super) fn row_floors(layer: &Layer, reference: &Reference) -> Option<(usize, Vec<f64>)> {
    let width = reference.scale.shape().last().copied().filter(|&width| width > 1)?;
    if layer.op.class() != Class::Norm {
        return None;
    }
    let scale = reference.scale.as_slice()?;
    Some((
        width,
        scale.chunks(width).map(|row| (row.iter().map(|s| s * s).sum::<f64>() / width as f64).sqrt()).collect(),
    ))
}
