//! Activations and other functions of one tensor that have parameters.

use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::apply::{Argument, apply, argument, scalar};
use super::budget::{FEW_ROUNDINGS, GELU, TRANSCENDENTAL};
use super::curve::{maximum, minimum, softplus};

const SELF: &[&str] = &["self", "input", "x"];

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "gelu" | "fast_gelu" | "npu_fast_gelu" | "quick_gelu" => gelu,
        "leaky_relu" => leaky_relu,
        "elu" | "celu" => elu,
        "softplus" => softplus_scaled,
        "hardtanh" => hardtanh,
        "clamp" | "clip" | "clamp_min" | "clamp_max" => clamp,
        "threshold" => threshold,
        "prelu" | "_prelu_kernel" => prelu,
        "nan_to_num" => nan_to_num,
        "round" => round,
        "logit" => logit,
        _ => return None,
    })
}

/// One output from one tensor.
fn one(
    call: &Call,
    exactness: Exactness,
    function: impl Fn(f64) -> (f64, f64) + Sync,
) -> Result<References, Unmodelled> {
    let x = argument(call, SELF, 0)?;
    Ok(vec![Some(apply(call, [&x.value], exactness, |[x]| function(x))?)])
}

fn ulp(ulp: f64) -> Exactness {
    Exactness::Function { ulp, roundings: 0 }
}

/// Slope of the cubic term in gelu's tanh form (Hendrycks and Gimpel, 2016).
const GELU_CUBIC: f64 = 0.044_715;
/// Slope of the logistic form x·σ(1.702 x) (the same paper).
const GELU_LOGISTIC: f64 = 1.702;

/// x·Φ(x), by the complementary error function, which keeps the lower tail.
pub(super) fn gelu_exact(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Argument of gelu's tanh form: √(2/π)·(x + 0.044715 x³).
pub(super) fn gelu_argument(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + GELU_CUBIC * x * x * x)
}

/// Derivative of [`gelu_argument`].
pub(super) fn gelu_argument_slope(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * GELU_CUBIC * x * x)
}

/// 0.5·x·(1 + tanh(argument)) = x·σ(2·argument), which does not cancel.
pub(super) fn gelu_tanh(x: f64) -> f64 {
    x * super::curve::sigmoid(2.0 * gelu_argument(x))
}

fn gelu(call: &Call) -> Result<References, Unmodelled> {
    let form = if call.function() == "gelu" { call.text("approximate")?.unwrap_or("none") } else { "logistic" };
    let function: fn(f64) -> f64 = match form {
        "none" => gelu_exact,
        "tanh" => gelu_tanh,
        "logistic" => |x| x * super::curve::sigmoid(GELU_LOGISTIC * x),
        other => return Err(call.unmodelled(&format!("approximation {other} is not known"))),
    };
    one(call, ulp(GELU), |x| (function(x), x))
}

fn leaky_relu(call: &Call) -> Result<References, Unmodelled> {
    let slope = scalar(call, "negative_slope", Some(0.01))?;
    one(call, Exactness::Rounded, |x| (if x > 0.0 { x } else { slope * x }, 0.0))
}

fn prelu(call: &Call) -> Result<References, Unmodelled> {
    let x = argument(call, SELF, 0)?;
    let mut slope = argument(call, &["weight"], 1)?;
    // One slope per channel stands along axis 1.
    if call.function() == "prelu" && slope.value.len() > 1 {
        let mut shape = vec![1; x.value.ndim()];
        let channels = slope.value.len();
        *shape.get_mut(1).ok_or_else(|| call.unmodelled("slopes per channel need a channel axis"))? = channels;
        slope.value = slope
            .value
            .into_shape_with_order(shape)
            .map_err(|_| call.unmodelled("the slopes are not one per channel"))?;
    }
    let function = |[x, slope]: [f64; 2]| (if x > 0.0 { x } else { slope * x }, 0.0);
    Ok(vec![Some(apply(call, [&x.value, &slope.value], Exactness::Rounded, function)?)])
}

fn elu(call: &Call) -> Result<References, Unmodelled> {
    let alpha = scalar(call, "alpha", Some(1.0))?;
    let (outer, inner) = if call.function() == "celu" {
        (1.0, 1.0 / alpha)
    } else {
        (scalar(call, "scale", Some(1.0))?, scalar(call, "input_scale", Some(1.0))?)
    };
    // Below zero some kernels form e^x - 1, which sums the 1.
    one(call, ulp(TRANSCENDENTAL), |x| {
        if x > 0.0 { (outer * x, 0.0) } else { (outer * alpha * (inner * x).exp_m1(), outer * alpha) }
    })
}

fn softplus_scaled(call: &Call) -> Result<References, Unmodelled> {
    let (beta, threshold) = (scalar(call, "beta", Some(1.0))?, scalar(call, "threshold", Some(20.0))?);
    one(call, ulp(TRANSCENDENTAL), |x| {
        let scaled = beta * x;
        let y = if scaled > threshold { x } else { softplus(scaled) / beta };
        (y, y * (1.0 + (-scaled).max(0.0)))
    })
}

fn hardtanh(call: &Call) -> Result<References, Unmodelled> {
    let (low, high) = (scalar(call, "min_val", Some(-1.0))?, scalar(call, "max_val", Some(1.0))?);
    one(call, Exactness::Rounded, |x| (minimum(maximum(x, low), high), 0.0))
}

fn threshold(call: &Call) -> Result<References, Unmodelled> {
    let (threshold, value) = (scalar(call, "threshold", None)?, scalar(call, "value", None)?);
    one(call, Exactness::Rounded, |x| (if x <= threshold { value } else { x }, 0.0))
}

/// Bounds are tensors or attributes; a bound that is absent is not there.
fn clamp(call: &Call) -> Result<References, Unmodelled> {
    let x = argument(call, SELF, 0)?;
    let (low, high) = match call.function() {
        "clamp_min" => (Some(argument(call, &["min"], 1)?), None),
        "clamp_max" => (None, Some(argument(call, &["max"], 1)?)),
        _ => (bound(call, "min")?, bound(call, "max")?),
    };
    let low = low.unwrap_or_else(|| Argument::scalar(f64::NEG_INFINITY));
    let high = high.unwrap_or_else(|| Argument::scalar(f64::INFINITY));
    let operands = [&x.value, &low.value, &high.value];
    let function = |[x, low, high]: [f64; 3]| (minimum(maximum(x, low), high), 0.0);
    Ok(vec![Some(apply(call, operands, Exactness::Rounded, function)?)])
}

fn bound(call: &Call, name: &str) -> Result<Option<Argument>, Unmodelled> {
    match call.named(&[name]) {
        Some(operand) => Ok(Some(operand.into())),
        None if call.attr(name)?.is_none() => Ok(None),
        None => scalar(call, name, None).map(|value| Some(Argument::scalar(value))),
    }
}

fn nan_to_num(call: &Call) -> Result<References, Unmodelled> {
    let dtype = call.output(0)?.dtype;
    let largest = dtype.max_finite().ok_or_else(|| call.unmodelled("integers hold no NaN"))?;
    let nan = scalar(call, "nan", Some(0.0))?;
    let (above, below) = (scalar(call, "posinf", Some(largest))?, scalar(call, "neginf", Some(-largest))?);
    one(call, Exactness::Rounded, |x| {
        let y = match x {
            x if x.is_nan() => nan,
            f64::INFINITY => above,
            f64::NEG_INFINITY => below,
            x => x,
        };
        (y, 0.0)
    })
}

/// Halves go to the even neighbour; `decimals` scales first.
fn round(call: &Call) -> Result<References, Unmodelled> {
    let decimals = if call.attrs.is_some() { call.integer("decimals", Some(0))? } else { 0 };
    if decimals != 0 {
        return Err(call.unmodelled("rounding to decimals depends on the implementation's power of ten"));
    }
    one(call, Exactness::Rounded, |x| (x.round_ties_even(), 0.0))
}

/// ln(x / (1 - x)), x clamped to [eps, 1 - eps] where eps is given.
fn logit(call: &Call) -> Result<References, Unmodelled> {
    let eps = match call.attr("eps")? {
        None => None,
        Some(_) => Some(scalar(call, "eps", None)?),
    };
    one(call, ulp(TRANSCENDENTAL + FEW_ROUNDINGS), |x| {
        let x = eps.map_or(x, |eps| minimum(maximum(x, eps), 1.0 - eps));
        let y = (x / (1.0 - x)).ln();
        (y, y.abs().max(1.0))
    })
}
