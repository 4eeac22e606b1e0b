//! Rounding to a grid of steps: the step is exact, whether a neighbour is as good is the judge's.

use ndarray::{ArrayD, Axis};

use super::elementwise::{Argument, apply, argument};
use super::reference::{integer_range, plain};
use super::{Call, Exactness, References, Replay, Unmodelled};

/// A maximum of magnitudes and one division, in ULP.
const DYNAMIC_SCALE_ULP: f64 = 2.0;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "quantize_per_tensor" => |call| quantize(call, &["scale"], &["zero_point"]),
        "quantize_per_channel" | "npu_quantize" => |call| quantize(call, &["scales"], &["zero_points"]),
        "npu_dynamic_quant" => dynamic,
        _ => return None,
    })
}

/// Lays one value per channel along `axis` of a tensor of `rank` axes; a single value stays one.
fn along(call: &Call, mut values: Argument, axis: Option<usize>, rank: usize) -> Result<Argument, Unmodelled> {
    let mut shape = vec![1; rank];
    if let (Some(axis), true) = (axis, values.value.len() > 1) {
        *shape.get_mut(axis).ok_or_else(|| call.unmodelled("axis is out of range"))? = values.value.len();
    }
    values.value =
        values.value.into_shape_with_order(shape).map_err(|_| call.unmodelled("steps are not one per channel"))?;
    Ok(values)
}

/// clamp(round(x / scale) + zero_point), halves to even.
fn quantize(call: &Call, scales: &[&str], offsets: &[&str]) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let x = argument(call, &["self", "input"], 0)?;
    let rank = x.value.ndim();
    let axis = match call.attr("axis")? {
        Some(_) => Some(call.axis("axis", None, rank)?),
        None => None,
    };
    let scale = along(call, argument(call, scales, 1)?, axis, rank)?;
    let offset = match argument(call, offsets, 2) {
        Ok(offset) => offset,
        // npu_quantize has none where the grid is symmetric.
        Err(_) if call.function() == "npu_quantize" && call.attrs.is_some() => Argument::scalar(0.0),
        Err(reason) => return Err(reason),
    };
    let offset = along(call, offset, axis, rank)?;
    let divides = call.flag("div_mode", true)?;
    let range = integer_range(call.output(0)?.dtype).ok_or_else(|| call.unmodelled("steps recorded as floats"))?;
    let operands = [&x.value, &scale.value, &offset.value];
    let reference = apply(call, operands, Exactness::Discrete, |[x, scale, offset]| {
        let steps = if divides { x / scale } else { x * scale };
        ((steps.round_ties_even() + offset).clamp(*range.start(), *range.end()), 0.0)
    })?;
    Ok(vec![Some(reference)])
}

/// Largest step of the symmetric 8-bit grid.
const TOP: f64 = 127.0;

/// Per row of the last axis: scale = max|x| / 127, steps = round(x / scale). Outputs: steps, scales.
fn dynamic(call: &Call) -> Result<References, Unmodelled> {
    let x = call.input(&["input", "x", "self"], 0)?;
    if call.inputs.len() > 1 {
        return Err(call.unmodelled("smoothing scales"));
    }
    if call.output(0)?.dtype != crate::tensor::DType::I8 {
        return Err(call.unmodelled("a grid that is not of 8 bits"));
    }
    call.output_count(2)?;
    call.fits(0, x.value.shape())?;
    if x.value.iter().any(|v| !v.is_finite()) {
        return Err(call.unmodelled("NaN and infinities have no step"));
    }
    let rank = x.value.ndim();
    let last = rank.checked_sub(1).ok_or_else(|| call.unmodelled("a 0-d tensor has no rows"))?;
    call.fits(1, &x.value.shape()[..last])?;
    let scales: ArrayD<f64> =
        x.value.map_axis(Axis(last), |row| row.iter().fold(0.0f64, |most, v| most.max(v.abs())) / TOP);
    let mut steps = x.value.as_standard_layout().into_owned();
    for (mut row, &scale) in steps.lanes_mut(Axis(last)).into_iter().zip(&scales) {
        row.mapv_inplace(|v| if scale > 0.0 { (v / scale).round_ties_even().clamp(-TOP - 1.0, TOP) } else { 0.0 });
    }
    let scale_exactness = Exactness::Function { ulp: DYNAMIC_SCALE_ULP, roundings: 0 };
    Ok(vec![Some(plain(steps, Exactness::Discrete)), Some(plain(scales, scale_exactness))])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample_call::sample;
    use crate::tensor::DType::{F32, I8, U8};

    #[test]
    fn steps_by_hand() {
        let call = sample("quantize_per_tensor").f32("self", &[4], &[0.25, 0.75, -9.0, 99.0]);
        let call = call.attrs(json!({"scale": 0.5, "zero_point": 3, "dtype": "quint8"})).out(U8, &[4]);
        // 0.5 and 1.5 go to the even neighbours 0 and 2.
        assert_eq!(call.values(), [3.0, 5.0, 0.0, 201.0]);
        let call = sample("quantize_per_channel").f32("self", &[2, 2], &[1.0, 2.0, 3.0, 400.0]);
        let call = call.f32("scales", &[2], &[1.0, 2.0]).f32("zero_points", &[2], &[0.0, 1.0]);
        assert_eq!(call.attrs(json!({"axis": 1})).out(I8, &[2, 2]).values(), [1.0, 2.0, 3.0, 127.0]);
    }

    #[test]
    fn dynamic_steps_per_row() {
        let call = sample("npu_dynamic_quant").f32("input", &[2, 2], &[127.0, -63.6, 0.0, 0.0]);
        let references = call.out(I8, &[2, 2]).out(F32, &[2]).run().unwrap();
        let values = |slot: usize| references[slot].as_ref().unwrap().value.iter().copied().collect::<Vec<_>>();
        assert_eq!(values(0), [127.0, -64.0, 0.0, 0.0]);
        assert_eq!(values(1), [1.0, 0.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let call = sample("quantize_per_tensor").f32("self", &[1], &[1.0]).out(I8, &[1]);
        assert_eq!(call.refusal(), "attributes of quantize_per_tensor were not recorded");
        let call = sample("npu_dynamic_quant").f32("input", &[1], &[f64::NAN]).out(I8, &[1]).out(F32, &[]);
        assert_eq!(call.refusal(), "npu_dynamic_quant: NaN and infinities have no step");
        let call = sample("quantize_per_channel").f32("self", &[2], &[1.0, 2.0]).f32("scales", &[3], &[1.0; 3]);
        let call = call.f32("zero_points", &[3], &[0.0; 3]).attrs(json!({"axis": 0})).out(I8, &[2]);
        assert!(call.refusal().contains("do not broadcast"));
    }
}
