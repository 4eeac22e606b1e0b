//! Functions of one tensor without parameters, one row each: value, scale, budget.

use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::apply::{apply, argument};
use super::budget::{FEW_ROUNDINGS, ROOT, TRANSCENDENTAL};

/// How exact a row is.
#[derive(Clone, Copy)]
enum Grade {
    /// The result is an input element, a constant, or correctly rounded.
    Rounded,
    /// ULP against the scale.
    Ulp(f64),
    /// True or false.
    Discrete,
}

/// Function name, value f(x), scale from x and y.
struct Curve {
    names: &'static [&'static str],
    value: fn(f64) -> f64,
    scale: fn(f64, f64) -> f64,
    grade: Grade,
}

const fn curve(
    names: &'static [&'static str],
    grade: Grade,
    value: fn(f64) -> f64,
    scale: fn(f64, f64) -> f64,
) -> Curve {
    Curve { names, value, scale, grade }
}

/// The result's own magnitude.
const OWN: fn(f64, f64) -> f64 = |_, y| y.abs();
/// The result lies on a curve whose formula sums values near 1: an absolute error of one unit there.
const UNIT: fn(f64, f64) -> f64 = |_, y| y.abs().max(1.0);

const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

/// Logistic function, accurate in both tails.
pub(super) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// ln(1 + e^x) without overflow.
pub(super) fn softplus(x: f64) -> f64 {
    if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }
}

/// Scale of sigmoid and of x·sigmoid(x): the rounding of x enters e^-x, which counts by 1 - σ.
pub(super) fn sigmoid_scale(x: f64, y: f64) -> f64 {
    y.abs() * (1.0 + x.abs() * sigmoid(-x))
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x * 0.0 } else { x.signum() }
}

/// Larger of two values, NaN where either is (IEEE 754-2019 maximum, as torch has it).
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Smaller of two values, NaN where either is.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn truth(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

const CURVES: &[Curve] = &[
    curve(&["relu"], Grade::Rounded, |x| maximum(x, 0.0), OWN),
    curve(&["relu6"], Grade::Rounded, |x| minimum(maximum(x, 0.0), 6.0), OWN),
    curve(&["abs", "absolute"], Grade::Rounded, f64::abs, OWN),
    curve(&["neg", "negative"], Grade::Rounded, |x| -x, OWN),
    curve(&["sign", "sgn"], Grade::Rounded, sign, OWN),
    curve(&["floor"], Grade::Rounded, f64::floor, OWN),
    curve(&["ceil"], Grade::Rounded, f64::ceil, OWN),
    curve(&["trunc", "fix"], Grade::Rounded, f64::trunc, OWN),
    curve(&["frac"], Grade::Rounded, |x| x - x.trunc(), OWN),
    curve(&["square"], Grade::Rounded, |x| x * x, OWN),
    curve(&["reciprocal"], Grade::Ulp(ROOT), |x| 1.0 / x, OWN),
    curve(&["sqrt"], Grade::Ulp(ROOT), f64::sqrt, OWN),
    curve(&["rsqrt"], Grade::Ulp(ROOT), |x| 1.0 / x.sqrt(), OWN),
    curve(&["sigmoid"], Grade::Ulp(TRANSCENDENTAL), sigmoid, sigmoid_scale),
    curve(&["silu", "swish"], Grade::Ulp(TRANSCENDENTAL), silu, sigmoid_scale),
    curve(
        &["log_sigmoid", "logsigmoid", "log_sigmoid_forward"],
        Grade::Ulp(TRANSCENDENTAL),
        |x| -softplus(-x),
        |x, y| y.abs() * (1.0 + x.max(0.0)),
    ),
    curve(
        &["mish"],
        Grade::Ulp(TRANSCENDENTAL),
        |x| x * softplus(x).tanh(),
        |x, y| y.abs() * (1.0 + x.abs() * sigmoid(-x)),
    ),
    // x + 3 is rounded before it is multiplied: near -3 the error is that of |x|·3/6.
    curve(
        &["hardswish"],
        Grade::Ulp(FEW_ROUNDINGS),
        |x| x * (minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0),
        |x, y| if x <= -3.0 { y.abs() } else { x.abs() },
    ),
    curve(
        &["hardsigmoid"],
        Grade::Ulp(FEW_ROUNDINGS),
        |x| minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
        |x, y| if x <= -3.0 { y.abs() } else { 1.0 },
    ),
    curve(
        &["selu"],
        Grade::Ulp(TRANSCENDENTAL),
        |x| if x > 0.0 { SELU_SCALE * x } else { SELU_SCALE * SELU_ALPHA * x.exp_m1() },
        |x, y| if x > 0.0 { y.abs() } else { SELU_SCALE * SELU_ALPHA },
    ),
    curve(&["tanh"], Grade::Ulp(TRANSCENDENTAL), f64::tanh, OWN),
    curve(&["exp"], Grade::Ulp(TRANSCENDENTAL), f64::exp, |x, y| y * (1.0 + x.abs())),
    curve(&["exp2"], Grade::Ulp(TRANSCENDENTAL), f64::exp2, |x, y| y * (1.0 + x.abs())),
    curve(&["expm1"], Grade::Ulp(TRANSCENDENTAL), f64::exp_m1, |x, y| y.abs() + x.abs() * x.exp()),
    curve(&["log"], Grade::Ulp(TRANSCENDENTAL), f64::ln, UNIT),
    curve(&["log2"], Grade::Ulp(TRANSCENDENTAL), f64::log2, UNIT),
    curve(&["log10"], Grade::Ulp(TRANSCENDENTAL), f64::log10, UNIT),
    curve(&["log1p"], Grade::Ulp(TRANSCENDENTAL), f64::ln_1p, OWN),
    curve(&["sin"], Grade::Ulp(TRANSCENDENTAL), f64::sin, UNIT),
    curve(&["cos"], Grade::Ulp(TRANSCENDENTAL), f64::cos, UNIT),
    curve(&["tan"], Grade::Ulp(TRANSCENDENTAL), f64::tan, |_, y| 1.0 + y * y),
    curve(&["asin", "arcsin"], Grade::Ulp(TRANSCENDENTAL), f64::asin, OWN),
    curve(&["acos", "arccos"], Grade::Ulp(TRANSCENDENTAL), f64::acos, UNIT),
    curve(&["atan", "arctan"], Grade::Ulp(TRANSCENDENTAL), f64::atan, OWN),
    curve(&["sinh"], Grade::Ulp(TRANSCENDENTAL), f64::sinh, |x, y| y.abs() * (1.0 + x.abs())),
    curve(&["cosh"], Grade::Ulp(TRANSCENDENTAL), f64::cosh, |x, y| y * (1.0 + x.abs())),
    curve(&["erf"], Grade::Ulp(TRANSCENDENTAL), libm::erf, OWN),
    curve(&["erfc"], Grade::Ulp(TRANSCENDENTAL), libm::erfc, |x, y| y.max(1.0).max(y * (1.0 + x * x))),
    curve(&["isnan"], Grade::Discrete, |x| truth(x.is_nan()), OWN),
    curve(&["isinf"], Grade::Discrete, |x| truth(x.is_infinite()), OWN),
    curve(&["isfinite"], Grade::Discrete, |x| truth(x.is_finite()), OWN),
    curve(&["logical_not"], Grade::Discrete, |x| truth(x == 0.0), OWN),
];

/// x·σ(x); NaN at -inf as the formula has it.
fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn row(function: &str) -> Option<&'static Curve> {
    CURVES.iter().find(|curve| curve.names.contains(&function))
}

pub(super) fn family(function: &str) -> Option<Replay> {
    row(function).map(|_| replay as Replay)
}

fn replay(call: &Call) -> Result<References, Unmodelled> {
    let curve = row(call.function()).ok_or_else(|| call.unmodelled("no such function"))?;
    let x = argument(call, &["self", "input", "x"], 0)?;
    let exactness = match curve.grade {
        Grade::Rounded => Exactness::Rounded,
        Grade::Ulp(ulp) => Exactness::Function { ulp, roundings: 0 },
        Grade::Discrete => Exactness::Discrete,
    };
    let first = apply(call, [&x.value], exactness, |[x]| {
        let y = (curve.value)(x);
        (y, (curve.scale)(x, y))
    })?;
    // log_sigmoid_forward also writes a buffer that only its own backward reads.
    let mut references = vec![Some(first)];
    references.resize_with(call.outputs.len().max(1), || None);
    Ok(references)
}
