//! Arithmetic of two operands under broadcasting; either may be a scalar attribute.

use super::super::reference::round_to;
use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::apply::{Argument, apply, argument, scalar};
use super::budget::{FEW_ROUNDINGS, TRANSCENDENTAL};
use super::curve::{maximum, minimum};
use crate::tensor::{DType, Kind};

const FIRST: &[&str] = &["self", "input", "x"];
const SECOND: &[&str] = &["other", "exponent", "y"];

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "add" => |call| sum(call, 1.0, false),
        "sub" | "subtract" => |call| sum(call, -1.0, false),
        "rsub" => |call| sum(call, -1.0, true),
        "mul" | "multiply" => product,
        "div" | "divide" | "true_divide" | "floor_divide" => quotient,
        "pow" => power,
        "fmod" => |call| remainder(call, |a, b| a % b),
        "remainder" => |call| remainder(call, floored_remainder),
        "maximum" => |call| chosen(call, maximum),
        "minimum" => |call| chosen(call, minimum),
        "fmax" => |call| chosen(call, f64::max),
        "fmin" => |call| chosen(call, f64::min),
        "atan2" | "arctan2" => arc_tangent,
        _ => return None,
    })
}

fn operands(call: &Call) -> Result<(Argument, Argument), Unmodelled> {
    Ok((argument(call, FIRST, 0)?, argument(call, SECOND, 1)?))
}

/// The two operands in the dtype in which they meet, and how exact one correctly rounded operation on
/// them is.
fn promoted(call: &Call) -> Result<(Argument, Argument, Exactness), Unmodelled> {
    let (mut a, mut b) = operands(call)?;
    let output = call.output(0)?.dtype;
    let mut exactness = Exactness::Rounded;
    for operand in [&mut a, &mut b] {
        let Some(dtype) = operand.dtype else { continue };
        // An operand that is finer than the result (an integer, or a 0-d tensor, which does not
        // promote) is rounded to it by some implementations and not by others.
        let finer = dtype.kind() == Kind::Int && output.kind() == Kind::Float
            || dtype.unit_roundoff().zip(output.unit_roundoff()).is_some_and(|(own, result)| own < result)
                && operand.value.ndim() == 0;
        if finer && operand.value.iter().any(|&v| round_to(output, v) != Some(v)) {
            exactness = Exactness::Function { ulp: FEW_ROUNDINGS, roundings: 1 };
        }
    }
    Ok((a, b, exactness))
}

/// a + sign·alpha·b, or with `reversed` b + sign·alpha·a.
fn sum(call: &Call, sign: f64, reversed: bool) -> Result<References, Unmodelled> {
    let alpha = sign * scalar(call, "alpha", Some(1.0))?;
    let (mut a, mut b, mut exactness) = promoted(call)?;
    if reversed {
        std::mem::swap(&mut a, &mut b);
    }
    // The product with alpha is rounded on its own unless it is exact.
    if alpha.abs() != 1.0 {
        exactness = Exactness::Function { ulp: FEW_ROUNDINGS, roundings: 0 };
    }
    if call.output(0)?.dtype == DType::Bool {
        return logical_sum(call, &a, &b, alpha);
    }
    let reference = apply(call, [&a.value, &b.value], exactness, |[a, b]| {
        let term = alpha * b;
        (a + term, a.abs().max(term.abs()))
    })?;
    Ok(vec![Some(reference)])
}

/// Addition of bools is logical or; there is no subtraction.
fn logical_sum(call: &Call, a: &Argument, b: &Argument, alpha: f64) -> Result<References, Unmodelled> {
    if alpha != 1.0 {
        return Err(call.unmodelled("bools are not scaled or subtracted"));
    }
    let or = |[a, b]: [f64; 2]| (f64::from(u8::from(a != 0.0 || b != 0.0)), 0.0);
    Ok(vec![Some(apply(call, [&a.value, &b.value], Exactness::Discrete, or)?)])
}

fn product(call: &Call) -> Result<References, Unmodelled> {
    let (a, b, exactness) = promoted(call)?;
    let reference = apply(call, [&a.value, &b.value], exactness, |[a, b]| (a * b, 0.0))?;
    Ok(vec![Some(reference)])
}

fn quotient(call: &Call) -> Result<References, Unmodelled> {
    let mode = if call.attrs.is_some() { call.text("rounding_mode")? } else { None };
    let (a, b, exactness) = promoted(call)?;
    let mode = if call.function() == "floor_divide" { Some("floor") } else { mode };
    let rounding: fn(f64, f64) -> f64 = match mode {
        None => |a, b| a / b,
        // Not floor(a/b): the quotient itself may be rounded up to an integer.
        Some("floor") => floored_quotient,
        Some("trunc") => |a, b| (a / b).trunc(),
        Some(other) => return Err(call.unmodelled(&format!("rounding mode {other} is not known"))),
    };
    let exactness = if mode.is_some() { Exactness::Discrete } else { exactness };
    Ok(vec![Some(apply(call, [&a.value, &b.value], exactness, |[a, b]| (rounding(a, b), 0.0))?)])
}

/// Largest integer not above a/b, from the exact remainder.
fn floored_quotient(a: f64, b: f64) -> f64 {
    if b == 0.0 || !a.is_finite() || !b.is_finite() {
        return (a / b).floor();
    }
    let rest = a % b;
    let quotient = ((a - rest) / b).round();
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { quotient - 1.0 } else { quotient }
}

/// a - floor(a/b)·b: the sign is the divisor's.
fn floored_remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

fn remainder(call: &Call, function: fn(f64, f64) -> f64) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    // fmod is exact; kernels that form a - floor(a/b)·b are held against what they subtract.
    let exactness = Exactness::Function { ulp: FEW_ROUNDINGS, roundings: 0 };
    let reference = apply(call, [&a.value, &b.value], exactness, |[a, b]| (function(a, b), a.abs().max(b.abs())))?;
    Ok(vec![Some(reference)])
}

fn chosen(call: &Call, function: fn(f64, f64) -> f64) -> Result<References, Unmodelled> {
    if call.outputs.len() != 1 || call.attrs.is_some_and(|attrs| attrs.contains_key("dim")) {
        return Err(call.unmodelled("a reduction, not a choice of two operands"));
    }
    let (a, b, exactness) = promoted(call)?;
    Ok(vec![Some(apply(call, [&a.value, &b.value], exactness, |[a, b]| (function(a, b), 0.0))?)])
}

fn arc_tangent(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    let exactness = Exactness::Function { ulp: TRANSCENDENTAL, roundings: 0 };
    Ok(vec![Some(apply(call, [&a.value, &b.value], exactness, |[a, b]| (a.atan2(b), 0.0))?)])
}

/// a^b. Small exponents are products: kernels multiply, and in 16 bits they may round between.
fn power(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    let single = (b.value.len() == 1).then(|| b.value.iter().next().copied()).flatten();
    let (ulp, roundings, products) = match single {
        Some(exponent) if [0.0, 1.0, 2.0].contains(&exponent) => (FEW_ROUNDINGS, 0, true),
        Some(exponent) if [0.5, -0.5, -1.0].contains(&exponent) => (FEW_ROUNDINGS, 0, true),
        Some(exponent) if [3.0, -2.0].contains(&exponent) => (TRANSCENDENTAL, 1, true),
        _ => (TRANSCENDENTAL, 0, false),
    };
    let reference = apply(call, [&a.value, &b.value], Exactness::Function { ulp, roundings }, |[a, b]| {
        let y = a.powf(b);
        // e^(b ln a): the rounding of the argument counts by its magnitude.
        let scale = if products { y.abs() } else { y.abs() * (1.0 + (b * a.abs().ln()).abs()) };
        (y, scale)
    })?;
    Ok(vec![Some(reference)])
}
