//! Comparisons, truth values and bits: right or wrong, nothing between.

use super::super::reference::{EXACT_INTEGERS, round_to};
use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::apply::{Argument, apply, argument};
use crate::tensor::{DType, Kind};

const FIRST: &[&str] = &["self", "input", "x"];
const SECOND: &[&str] = &["other", "y"];

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "eq" => |call| compare(call, |a, b| a == b),
        "ne" | "not_equal" => |call| compare(call, |a, b| a != b),
        "lt" | "less" => |call| compare(call, |a, b| a < b),
        "le" | "less_equal" => |call| compare(call, |a, b| a <= b),
        "gt" | "greater" => |call| compare(call, |a, b| a > b),
        "ge" | "greater_equal" => |call| compare(call, |a, b| a >= b),
        "logical_and" => |call| logical(call, |a, b| a && b),
        "logical_or" => |call| logical(call, |a, b| a || b),
        "logical_xor" => |call| logical(call, |a, b| a != b),
        "bitwise_and" | "__and__" | "and" => |call| bitwise(call, |a, b| Some(a & b)),
        "bitwise_or" | "__or__" | "or" => |call| bitwise(call, |a, b| Some(a | b)),
        "bitwise_xor" | "__xor__" | "xor" => |call| bitwise(call, |a, b| Some(a ^ b)),
        "bitwise_left_shift" | "__lshift__" => |call| bitwise(call, |a, b| shift(a, b, i64::checked_shl)),
        "bitwise_right_shift" | "__rshift__" => |call| bitwise(call, |a, b| shift(a, b, i64::checked_shr)),
        "bitwise_not" => bitwise_not,
        _ => return None,
    })
}

fn truth(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

/// The dtype in which two operands meet is the tensor's where the other is a scalar; a scalar that it
/// does not hold is rounded by some kernels only, so an element between the two readings is refused.
fn compare(call: &Call, holds: fn(f64, f64) -> bool) -> Result<References, Unmodelled> {
    let (a, b) = (argument(call, FIRST, 0)?, argument(call, SECOND, 1)?);
    if let (Some(dtype), None) = (a.dtype, b.dtype)
        && dtype.kind() == Kind::Float
    {
        let exact = b.value.iter().next().copied().unwrap_or(f64::NAN);
        let single = if dtype == DType::F64 { exact } else { f64::from(exact as f32) };
        for other in [Some(single), round_to(dtype, exact)].into_iter().flatten() {
            if a.value.iter().any(|&v| holds(v, exact) != holds(v, other)) {
                return Err(call.unmodelled("an element lies between the scalar and its rounding"));
            }
        }
    }
    if mixes_wide_integers(&a, &b) {
        return Err(call.unmodelled("an integer beyond 2^24 against a float"));
    }
    let reference = apply(call, [&a.value, &b.value], Exactness::Discrete, |[a, b]| (truth(holds(a, b)), 0.0))?;
    Ok(vec![Some(reference)])
}

/// Integers that meet floats are converted to them; beyond 2^24 fp32 does not hold them all.
fn mixes_wide_integers(a: &Argument, b: &Argument) -> bool {
    let kinds = [a, b].map(|operand| operand.dtype.map(DType::kind));
    let wide =
        |operand: &Argument, kind| kind == Some(Kind::Int) && operand.value.iter().any(|v| v.abs() > 16_777_216.0);
    kinds.contains(&Some(Kind::Float)) && (wide(a, kinds[0]) || wide(b, kinds[1]))
        || [a, b]
            .iter()
            .zip(kinds)
            .any(|(operand, kind)| kind == Some(Kind::Int) && operand.value.iter().any(|v| v.abs() > EXACT_INTEGERS))
}

fn logical(call: &Call, holds: fn(bool, bool) -> bool) -> Result<References, Unmodelled> {
    let (a, b) = (argument(call, FIRST, 0)?, argument(call, SECOND, 1)?);
    let function = |[a, b]: [f64; 2]| (truth(holds(a != 0.0, b != 0.0)), 0.0);
    Ok(vec![Some(apply(call, [&a.value, &b.value], Exactness::Discrete, function)?)])
}

/// Whether all values are integers that f64 and i64 tell apart.
fn integers(operand: &Argument) -> bool {
    operand.dtype.is_none_or(|dtype| dtype.kind() != Kind::Float)
        && operand.value.iter().all(|v| v.fract() == 0.0 && v.abs() <= EXACT_INTEGERS)
}

/// Two's complement on 64 bits; a result that the recorded type does not hold is refused by
/// [`apply`] (as NaN, for a shift out of range).
fn bitwise(call: &Call, function: fn(i64, i64) -> Option<i64>) -> Result<References, Unmodelled> {
    let (a, b) = (argument(call, FIRST, 0)?, argument(call, SECOND, 1)?);
    if !integers(&a) || !integers(&b) {
        return Err(call.unmodelled("bits of floats or of integers beyond 2^53"));
    }
    let element = |[a, b]: [f64; 2]| (function(a as i64, b as i64).map_or(f64::NAN, |bits| bits as f64), 0.0);
    Ok(vec![Some(apply(call, [&a.value, &b.value], Exactness::Discrete, element)?)])
}

fn shift(a: i64, by: i64, shift: fn(i64, u32) -> Option<i64>) -> Option<i64> {
    shift(a, u32::try_from(by).ok()?)
}

fn bitwise_not(call: &Call) -> Result<References, Unmodelled> {
    let x = argument(call, FIRST, 0)?;
    if !integers(&x) {
        return Err(call.unmodelled("bits of floats or of integers beyond 2^53"));
    }
    let dtype = call.output(0)?.dtype;
    let top = match dtype {
        DType::U8 | DType::U16 | DType::U32 => Some(2f64.powi(dtype.bits() as i32) - 1.0),
        DType::Bool => Some(1.0),
        DType::U64 => return Err(call.unmodelled("the complement is beyond 2^53")),
        _ => None,
    };
    let element = |[x]: [f64; 1]| (top.map_or(-x - 1.0, |top| top - x), 0.0);
    Ok(vec![Some(apply(call, [&x.value], Exactness::Discrete, element)?)])
}
