//! Gradients of elementwise functions: grad_output times the derivative.

use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::activation::{gelu_argument, gelu_argument_slope};
use super::apply::{apply, argument, scalar};
use super::budget::{FEW_ROUNDINGS, GELU, TRANSCENDENTAL};
use super::curve::sigmoid;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "threshold_backward" | "relu_backward" => threshold,
        "gelu_backward" => gelu,
        "silu_backward" => silu,
        "tanh_backward" => tanh,
        "sigmoid_backward" => logistic,
        "leaky_relu_backward" => leaky_relu,
        "elu_backward" => elu,
        "hardtanh_backward" => hardtanh,
        "softplus_backward" => softplus,
        "log_sigmoid_backward" => log_sigmoid,
        _ => return None,
    })
}

const GRADIENT: &[&str] = &["grad_output", "grad"];

/// `function(gradient, x)` gives value and scale; `names` are those of x, `slot` its position.
fn gradient(
    call: &Call,
    names: &[&str],
    exactness: Exactness,
    function: impl Fn(f64, f64) -> (f64, f64) + Sync,
) -> Result<References, Unmodelled> {
    let (g, x) = (argument(call, GRADIENT, 0)?, argument(call, names, 1)?);
    Ok(vec![Some(apply(call, [&g.value, &x.value], exactness, |[g, x]| function(g, x))?)])
}

fn ulp(ulp: f64) -> Exactness {
    Exactness::Function { ulp, roundings: 0 }
}

/// The gradient where self (or relu's result) is above the threshold, else zero.
fn threshold(call: &Call) -> Result<References, Unmodelled> {
    let threshold = if call.function() == "relu_backward" { 0.0 } else { scalar(call, "threshold", None)? };
    gradient(call, &["self", "result", "input"], Exactness::Rounded, |g, x| (if x <= threshold { 0.0 } else { g }, 0.0))
}

/// Φ(x) + x·φ(x), or the derivative of the tanh form. Near the derivative's zero its two terms
/// cancel, so both enter the scale.
fn gelu(call: &Call) -> Result<References, Unmodelled> {
    let tanh = match call.text("approximate")?.unwrap_or("none") {
        "none" => false,
        "tanh" => true,
        other => return Err(call.unmodelled(&format!("approximation {other} is not known"))),
    };
    gradient(call, &["self", "input"], ulp(GELU), |g, x| {
        let (left, right) = if tanh {
            let s = sigmoid(2.0 * gelu_argument(x));
            (s, 2.0 * x * s * (1.0 - s) * gelu_argument_slope(x))
        } else {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            (0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2), x * density)
        };
        // In the lower tail kernels form 1 + erf(x), which sums the 1.
        (g * (left + right), g * left.abs().max(right.abs()).max(0.5))
    })
}

/// σ(x)·(1 + x·(1 - σ(x))).
fn silu(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, &["self", "input"], ulp(TRANSCENDENTAL), |g, x| {
        let s = sigmoid(x);
        let rest = x * s * sigmoid(-x);
        (g * (s + rest), g * s * (1.0 + x.abs()))
    })
}

/// 1 - y², of the recorded result y.
fn tanh(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, &["output", "result"], ulp(FEW_ROUNDINGS), |g, y| (g * (1.0 - y * y), g))
}

/// y·(1 - y), of the recorded result y.
fn logistic(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, &["output", "result"], ulp(FEW_ROUNDINGS), |g, y| (g * (1.0 - y) * y, g * y))
}

fn leaky_relu(call: &Call) -> Result<References, Unmodelled> {
    let slope = scalar(call, "negative_slope", None)?;
    gradient(call, &["self", "result"], Exactness::Rounded, |g, x| (if x > 0.0 { g } else { g * slope }, 0.0))
}

fn elu(call: &Call) -> Result<References, Unmodelled> {
    let alpha = scalar(call, "alpha", None)?;
    let (outer, inner) = (scalar(call, "scale", None)?, scalar(call, "input_scale", None)?);
    let of_result = call.flag("is_result", false)?;
    gradient(call, &["self_or_result", "self", "result"], ulp(TRANSCENDENTAL), |g, x| match (x > 0.0, of_result) {
        (true, _) => (g * outer, 0.0),
        (false, true) => (g * inner * (x + alpha * outer), g * inner * x.abs().max((alpha * outer).abs())),
        (false, false) => (g * inner * alpha * outer * (inner * x).exp(), 0.0),
    })
}

/// The gradient strictly inside the bounds.
fn hardtanh(call: &Call) -> Result<References, Unmodelled> {
    let (low, high) = (scalar(call, "min_val", None)?, scalar(call, "max_val", None)?);
    gradient(call, &["self", "input"], Exactness::Rounded, |g, x| (if x <= low || x >= high { 0.0 } else { g }, 0.0))
}

fn softplus(call: &Call) -> Result<References, Unmodelled> {
    let (beta, threshold) = (scalar(call, "beta", None)?, scalar(call, "threshold", None)?);
    gradient(call, &["self", "input"], ulp(TRANSCENDENTAL), |g, x| {
        let scaled = beta * x;
        let slope = if scaled > threshold { 1.0 } else { sigmoid(scaled) };
        (g * slope, g * slope * (1.0 + (-scaled).max(0.0)))
    })
}

fn log_sigmoid(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, &["self", "input"], ulp(TRANSCENDENTAL), |g, x| {
        let slope = sigmoid(-x);
        (g * slope, g * slope * (1.0 + x.abs()))
    })
}
