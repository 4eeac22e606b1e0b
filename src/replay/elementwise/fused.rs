//! Fused arithmetic of three tensors: addcmul, addcdiv, lerp.

use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::apply::{apply, argument, scalar};
use super::budget::FEW_ROUNDINGS;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "addcmul" => |call| with_terms(call, |a, b| a * b),
        "addcdiv" => |call| with_terms(call, |a, b| a / b),
        "lerp" => lerp,
        _ => return None,
    })
}

const SELF: &[&str] = &["self", "input"];
const BUDGET: Exactness = Exactness::Function { ulp: FEW_ROUNDINGS, roundings: 0 };

/// self + value·term(tensor1, tensor2).
fn with_terms(call: &Call, term: fn(f64, f64) -> f64) -> Result<References, Unmodelled> {
    let value = scalar(call, "value", Some(1.0))?;
    let (x, a, b) = (argument(call, SELF, 0)?, argument(call, &["tensor1"], 1)?, argument(call, &["tensor2"], 2)?);
    let reference = apply(call, [&x.value, &a.value, &b.value], BUDGET, |[x, a, b]| {
        let added = value * term(a, b);
        (x + added, x.abs().max(added.abs()))
    })?;
    Ok(vec![Some(reference)])
}

/// self + weight·(end - self); kernels count from the nearer end, so both ends enter the scale.
fn lerp(call: &Call) -> Result<References, Unmodelled> {
    let x = argument(call, SELF, 0)?;
    let (end, weight) = (argument(call, &["end"], 1)?, argument(call, &["weight"], 2)?);
    let reference = apply(call, [&x.value, &end.value, &weight.value], BUDGET, |[x, end, weight]| {
        let y = if weight.abs() < 0.5 { x + weight * (end - x) } else { end - (end - x) * (1.0 - weight) };
        (y, x.abs().max((weight * end).abs()).max((weight * x).abs()))
    })?;
    Ok(vec![Some(reference)])
}
