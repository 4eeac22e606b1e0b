//! Gradients of sums, products and quotients of two operands: one for each operand that asks for it, summed
//! over the axes along which the operand was broadcast.

use ndarray::{ArrayD, ArrayViewD, Axis};

use super::super::reference::{moved, plain};
use super::super::{Call, Exactness, Reference, References, Replay, Unmodelled};
use super::apply::{Argument, argument, evaluate, scalar};
use super::budget::FEW_ROUNDINGS;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "add_backward" => |call| sum(call, 1.0),
        "sub_backward" => |call| sum(call, -1.0),
        "mul_backward" => product,
        "div_backward" => quotient,
        _ => return None,
    })
}

/// The operand that a gradient belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    First,
    Second,
}

/// The gradients that were recorded, in the order of the operands; `output_mask` says which were asked for.
fn asked(call: &Call) -> Result<Vec<Of>, Unmodelled> {
    let mask = call.attr("output_mask")?.and_then(serde_json::Value::as_array);
    let flags: Vec<bool> = match mask {
        Some(mask) => mask.iter().map(|flag| flag.as_bool() == Some(true)).collect(),
        None => vec![true; call.outputs.len()],
    };
    let both = [Of::First, Of::Second].into_iter().zip(flags);
    let asked: Vec<Of> = both.filter(|(_, asked)| *asked).map(|(of, _)| of).collect();
    if asked.len() == call.outputs.len() { Ok(asked) } else { Err(call.unmodelled("outputs do not fit the mask")) }
}

fn each(call: &Call, one: impl Fn(Of, usize) -> Result<Reference, Unmodelled>) -> Result<References, Unmodelled> {
    asked(call)?.into_iter().enumerate().map(|(slot, of)| one(of, slot).map(Some)).collect()
}

fn gradient(call: &Call) -> Result<Argument, Unmodelled> {
    argument(call, &["grad_output", "grad"], 0)
}

/// grad, and ±alpha·grad.
fn sum(call: &Call, sign: f64) -> Result<References, Unmodelled> {
    let grad = gradient(call)?;
    let alpha = sign * scalar(call, "alpha", Some(1.0))?;
    each(call, |of, slot| {
        let factor = if of == Of::First { 1.0 } else { alpha };
        let (value, scale) = evaluate(call, grad.value.shape(), [&grad.value], |[g]| (g * factor, g))?;
        let exact = factor.abs() == 1.0 && grad.dtype == Some(call.output(slot)?.dtype);
        let exactness = if exact { moved([], call.output(slot)?.dtype) } else { Exactness::Rounded };
        summed(call, slot, value, scale, exactness)
    })
}

/// grad·other and grad·self.
fn product(call: &Call) -> Result<References, Unmodelled> {
    let grad = gradient(call)?;
    each(call, |of, slot| {
        let factor = if of == Of::First { argument(call, &["other"], 2)? } else { argument(call, &["self"], 1)? };
        let (value, scale) = evaluate(call, grad.value.shape(), [&grad.value, &factor.value], |[g, x]| (g * x, g * x))?;
        summed(call, slot, value, scale, Exactness::Rounded)
    })
}

/// grad/other and -grad·self/other².
fn quotient(call: &Call) -> Result<References, Unmodelled> {
    let grad = gradient(call)?;
    let other = argument(call, &["other"], 2)?;
    each(call, |of, slot| {
        let (value, scale) = match of {
            Of::First => evaluate(call, grad.value.shape(), [&grad.value, &other.value], |[g, y]| (g / y, g / y))?,
            Of::Second => {
                let x = argument(call, &["self"], 1)?;
                evaluate(call, grad.value.shape(), [&grad.value, &x.value, &other.value], |[g, x, y]| {
                    let value = -g * x / (y * y);
                    (value, value)
                })?
            }
        };
        summed(call, slot, value, scale, Exactness::Function { ulp: FEW_ROUNDINGS, roundings: 1 })
    })
}

/// Sums over the axes along which the recorded output is shorter; `exactness` where there is none.
fn summed(
    call: &Call,
    slot: usize,
    value: ArrayD<f64>,
    scale: ArrayD<f64>,
    exactness: Exactness,
) -> Result<Reference, Unmodelled> {
    let target = call.output(slot)?.shape.clone();
    if value.shape() == target {
        let mut reference = plain(value, exactness);
        reference.scale.zip_mut_with(&scale, |own, other| *own = own.max(*other));
        return Ok(reference);
    }
    let squares = over(call, value.mapv(|v| v * v).view(), &target)?;
    let scale = over(call, scale.view(), &target)?;
    let terms = value.len() / squares.len().max(1);
    let value = over(call, value.view(), &target)?;
    Ok(Reference { value, scale, exactness: Exactness::Summed { terms: terms.max(1), squares } })
}

/// The sum of `array` over the axes that `target` does not have or has with extent 1.
fn over(call: &Call, array: ArrayViewD<f64>, target: &[usize]) -> Result<ArrayD<f64>, Unmodelled> {
    let unfit = || call.unmodelled(&format!("{:?} does not sum to the recorded {target:?}", array.shape()));
    let lead = array.ndim().checked_sub(target.len()).ok_or_else(unfit)?;
    let mut sums = array.to_owned();
    for _ in 0..lead {
        sums = sums.sum_axis(Axis(0));
    }
    for (axis, &extent) in target.iter().enumerate() {
        if sums.shape()[axis] != extent {
            if extent != 1 {
                return Err(unfit());
            }
            sums = sums.sum_axis(Axis(axis)).insert_axis(Axis(axis));
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};

    fn staged(function: &str, attrs: serde_json::Value) -> Staged {
        Staged::new(function, attrs).input("grad_output", &[2, 2], &[1.0, 2.0, 3.0, 4.0])
    }

    #[test]
    fn each_operand_gets_its_own() {
        let add = staged("add_backward", json!({"alpha": 2})).output(&[2, 2]).output(&[2]);
        assert_close(&add.values(0), &[1.0, 2.0, 3.0, 4.0]);
        assert_close(&add.values(1), &[8.0, 12.0]);
        assert_eq!(add.reference(0).exactness, Exactness::Exact);
        assert!(matches!(add.reference(1).exactness, Exactness::Summed { terms: 2, .. }));
        let sub = staged("sub_backward", json!({"output_mask": [false, true]})).output(&[2, 1]);
        assert_close(&sub.values(0), &[-3.0, -7.0]);
        let mul = staged("mul_backward", json!({"output_mask": [true, true]}))
            .input("self", &[2, 2], &[1.0, 0.0, 2.0, 1.0])
            .input("other", &[2], &[3.0, -1.0])
            .output(&[2, 2])
            .output(&[2]);
        assert_close(&mul.values(0), &[3.0, -2.0, 9.0, -4.0]);
        assert_close(&mul.values(1), &[7.0, 4.0]);
        let by_number = staged("mul_backward", json!({"other": 0.5, "output_mask": [true, false]})).output(&[2, 2]);
        assert_close(&by_number.values(0), &[0.5, 1.0, 1.5, 2.0]);
        let div = staged("div_backward", json!({}))
            .input("self", &[], &[3.0])
            .input("other", &[], &[2.0])
            .output(&[2, 2])
            .output(&[]);
        assert_close(&div.values(0), &[0.5, 1.0, 1.5, 2.0]);
        assert_close(&div.values(1), &[-7.5]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(
            staged("add_backward", json!({"output_mask": [true, true]})).output(&[2, 2]).refusal().contains("mask")
        );
        assert!(staged("add_backward", json!({})).output(&[3]).refusal().contains("does not sum"));
        assert!(staged("add_backward", json!({})).output(&[1, 2, 2]).refusal().contains("does not sum"));
        assert!(staged("mul_backward", json!({})).output(&[2, 2]).refusal().contains("not recorded"));
    }
}
