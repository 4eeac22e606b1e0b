//! Conversions of the element type: one correct rounding towards floats, truncation towards integers.

use super::reference::{graded, integer_range, plain};
use super::{Call, Exactness, Operand, References, Replay, Unmodelled};
use crate::tensor::{DType, Kind};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "cast"
        | "_to_copy"
        | "to"
        | "type"
        | "type_as"
        | "float"
        | "half"
        | "bfloat16"
        | "double"
        | "int"
        | "long"
        | "bool"
        | "npu_dtype_cast"
        | "_npu_dtype_cast"
        | "convert_element_type"
        | "to_dtype" => cast,
        _ => return None,
    })
}

/// The recorded output's dtype is the target; the judge rounds the exact value itself.
fn cast(call: &Call) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let x = call.input(&["self", "input", "x", "a"], 0)?;
    call.fits(0, x.value.shape())?;
    let output = call.output(0)?.dtype;
    if x.dtype.kind() == Kind::Complex || output.kind() == Kind::Complex {
        return Err(call.unmodelled("complex numbers"));
    }
    let value = match integer_range(output) {
        None => x.value.to_owned(),
        Some(_) if output == DType::Bool => x.value.mapv(|v| f64::from(u8::from(v != 0.0))),
        Some(_) if x.dtype == output => x.value.to_owned(),
        Some(range) if x.dtype.kind() != Kind::Float => wrapped(call, x, output, &range)?,
        Some(range) => {
            // What a float beyond the integers becomes differs between devices.
            if let Some(v) = x.value.iter().find(|v| !range.contains(&v.trunc())) {
                return Err(call.unmodelled(&format!("{v} has no value in {output}")));
            }
            x.value.mapv(|v| v.trunc() + 0.0)
        }
    };
    let value = value.as_standard_layout().into_owned();
    Ok(vec![Some(plain(value, graded(output, Exactness::Rounded)))])
}

/// Integers beyond the target wrap around (two's complement).
fn wrapped(
    call: &Call,
    x: &Operand,
    output: DType,
    range: &std::ops::RangeInclusive<f64>,
) -> Result<ndarray::ArrayD<f64>, Unmodelled> {
    if x.value.iter().all(|v| range.contains(v)) {
        return Ok(x.value.to_owned());
    }
    if output.bits() > 32 || x.value.iter().any(|v| v.abs() > super::reference::EXACT_INTEGERS) {
        return Err(call.unmodelled(&format!("an integer beyond {output} or 2^53")));
    }
    let modulus = 2f64.powi(output.bits() as i32);
    Ok(x.value.mapv(|v| {
        let wrapped = v.rem_euclid(modulus);
        if range.contains(&wrapped) { wrapped } else { wrapped - modulus }
    }))
}

#[cfg(test)]
mod tests {
    use super::super::sample_call::sample;
    use super::*;
    use crate::tensor::DType::{BF16, Bool, F16, F32, I8, I32, I64, U8};

    fn cast(from: DType, to: DType, values: &[f64]) -> Vec<f64> {
        sample("cast").input("self", from, &[values.len()], values).out(to, &[values.len()]).values()
    }

    #[test]
    fn towards_floats_the_exact_value_is_handed_on() {
        let reference = sample("_to_copy").f32("self", &[1], &[0.1]).out(BF16, &[1]).only();
        assert_eq!((reference.value[[0]], reference.exactness), (0.1, Exactness::Rounded));
        assert_eq!(cast(I64, F16, &[3.0]), [3.0]);
        assert_eq!(cast(F16, F32, &[f64::INFINITY]), [f64::INFINITY]);
    }

    #[test]
    fn towards_integers_floats_are_truncated_and_integers_wrap() {
        assert_eq!(cast(F32, I32, &[-1.75, 1.75]), [-1.0, 1.0]);
        assert_eq!(cast(I64, U8, &[300.0, -1.0]), [44.0, 255.0]);
        assert_eq!(cast(I64, I8, &[200.0, -129.0]), [-56.0, 127.0]);
        assert_eq!(cast(F32, Bool, &[0.5, 0.0, f64::NAN]), [1.0, 0.0, 1.0]);
        assert_eq!(cast(Bool, I64, &[1.0]), [1.0]);
        let reference = sample("cast").f32("self", &[1], &[1.5]).out(I32, &[1]).only();
        assert_eq!(reference.exactness, Exactness::Discrete);
    }

    #[test]
    fn what_differs_between_devices_is_refused() {
        for value in [f64::NAN, f64::INFINITY, 1e10] {
            let call = sample("cast").f32("self", &[1], &[value]).out(I32, &[1]);
            assert_eq!(call.refusal(), format!("cast: {value} has no value in int32"));
        }
        let call = sample("cast").f32("self", &[2], &[1.0, 2.0]).out(I32, &[1]);
        assert!(call.refusal().contains("does not fit"));
    }
}
