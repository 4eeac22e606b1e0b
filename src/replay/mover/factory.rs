//! Tensors made from attributes alone: constants, ramps, the identity.

use super::super::reference::{plain, round_to};
use super::super::{Call, Exactness, References, Replay, Unmodelled};
use super::{array, by_coordinate};
use crate::replay::elementwise::argument;
use crate::tensor::{DType, Kind, element_count};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "zeros" | "zeros_like" | "new_zeros" | "zero" | "_efficientzerotensor" => |call| filled(call, 0.0),
        "ones" | "ones_like" | "new_ones" => |call| filled(call, 1.0),
        "full" | "full_like" | "new_full" | "scalar_tensor" | "fill" => full,
        "arange" | "range" => ramp,
        "linspace" => spaced,
        "eye" => eye,
        "empty" | "empty_like" | "new_empty" | "empty_strided" | "new_empty_strided" | "empty_permuted" => {
            |call| Err(Unmodelled(format!("factory: {} leaves its content undefined", call.function())))
        }
        _ => return None,
    })
}

/// `value` in the recorded shape; a recorded size must agree.
fn filled(call: &Call, value: f64) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let output = call.output(0)?;
    if call.attrs.is_some()
        && let Some(size) = call.integers("size")?
    {
        let size: Option<Vec<usize>> = size.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        call.fits(0, &size.ok_or_else(|| call.unmodelled("a size is no extent"))?)?;
    }
    let total = element_count(&output.shape).ok_or_else(|| call.unmodelled("the result's shape overflows"))?;
    let stored = if output.dtype.kind() == Kind::Float { round_to(output.dtype, value) } else { Some(value) };
    // Where no rounding is defined here the judge rounds.
    let (value, exactness) = match stored {
        Some(value) => (value, Exactness::Exact),
        None => (value, Exactness::Rounded),
    };
    let value = array(call, &output.shape, vec![value; total])?;
    Ok(vec![Some(plain(value, exactness))])
}

fn full(call: &Call) -> Result<References, Unmodelled> {
    let names: &[&str] = match call.function() {
        "scalar_tensor" => &["s"],
        "fill" => &["value"],
        _ => &["fill_value", "value", "s"],
    };
    // `fill(self, value)` and the `_like` forms have a tensor first that gives the shape alone.
    let slot = usize::from(!matches!(call.function(), "full" | "scalar_tensor"));
    let value = argument(call, names, slot)?.value;
    let value = value.iter().next().copied().filter(|_| value.len() == 1);
    let mut value = value.ok_or_else(|| call.unmodelled("the fill is no scalar"))?;
    match call.output(0)?.dtype {
        DType::Bool => value = f64::from(u8::from(value != 0.0)),
        dtype if dtype.kind() == Kind::Int => value = value.trunc(),
        _ => {}
    }
    filled(call, value)
}

/// Steps of a ramp are exact up to here in fp32, whichever way a kernel forms them.
const EXACT_IN_F32: f64 = 16_777_216.0;

/// `start + i·step`; `range` includes the end.
fn ramp(call: &Call) -> Result<References, Unmodelled> {
    let (start, step) = (call.number("start", Some(0.0))?, call.number("step", Some(1.0))?);
    let end = call.number("end", None)?;
    let length = (end - start) / step;
    let count = if call.function() == "range" { length.floor() + 1.0 } else { length.ceil() };
    let output = call.output(0)?;
    let recorded = output.shape.first().copied().unwrap_or(0);
    if output.shape.len() != 1 || count != recorded as f64 {
        return Err(call.unmodelled(&format!("{count} elements do not fit the recorded {:?}", output.shape)));
    }
    let integral = [start, end, step].iter().all(|v| v.fract() == 0.0 && v.abs() <= EXACT_IN_F32);
    let exactness = match output.dtype.kind() {
        Kind::Int | Kind::Bool if !integral => return Err(call.unmodelled("a fractional ramp of integers")),
        Kind::Int | Kind::Bool => Exactness::Exact,
        _ if integral => Exactness::Rounded,
        _ => Exactness::Function { ulp: RAMP_ULP, roundings: 0 },
    };
    ramped(call, recorded, exactness, |i| start + i * step, start.abs().max(end.abs()))
}

/// The product i·step, the sum and a rounded step.
const RAMP_ULP: f64 = 3.0;

/// A ramp against whose ends its elements' errors are held.
fn ramped(
    call: &Call,
    count: usize,
    exactness: Exactness,
    element: impl Fn(f64) -> f64,
    ends: f64,
) -> Result<References, Unmodelled> {
    let mut references =
        by_coordinate(call, &[count], exactness, |to| Ok(element(to.first().copied().unwrap_or(0) as f64)))?;
    for reference in references.iter_mut().flatten() {
        if matches!(reference.exactness, Exactness::Function { .. }) {
            reference.scale.mapv_inplace(|own| own.max(ends));
        }
    }
    Ok(references)
}

/// `steps` values from start to end, both included; the second half counts from the end.
fn spaced(call: &Call) -> Result<References, Unmodelled> {
    let (start, end) = (call.number("start", None)?, call.number("end", None)?);
    let steps = usize::try_from(call.integer("steps", None)?).map_err(|_| call.unmodelled("steps are no count"))?;
    if call.output(0)?.dtype.kind() != Kind::Float {
        return Err(call.unmodelled("a ramp of integers"));
    }
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    let exactness = Exactness::Function { ulp: RAMP_ULP, roundings: 0 };
    ramped(call, steps, exactness, |i| start + i * step, start.abs().max(end.abs()))
}

fn eye(call: &Call) -> Result<References, Unmodelled> {
    let rows = call.integer("n", None)?;
    let columns = call.integer("m", Some(rows))?;
    let extents = usize::try_from(rows).ok().zip(usize::try_from(columns).ok());
    let (rows, columns) = extents.ok_or_else(|| call.unmodelled("n or m is no extent"))?;
    by_coordinate(call, &[rows, columns], Exactness::Exact, |to| Ok(f64::from(u8::from(to.first() == to.get(1)))))
}
