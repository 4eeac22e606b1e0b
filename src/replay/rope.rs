//! Rotary position embedding: y = x · cos + rotate(x) · sin.
//!
//! In goes a call that says how pairs are formed: `half` pairs element `i` with `i + D/2`, `interleave`
//! pairs neighbours. Both are in use under the same names, so a call that does not say which is not
//! modelled. Out comes the rotation with the magnitude that was summed, |x cos| + |rotate(x) sin|.

use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn, Zip};

use super::contraction::product::fits;
use super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};

/// Two products and a sum, each rounded once in the compute dtype, against the summed magnitude.
const ULP: f64 = 2.0;

/// The products may be rounded to the output's dtype before they are added.
const ROUNDINGS: u32 = 1;

/// The functions of this family.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "rope" => rope,
        "npu_rotary_mul" | "rotary_mul" => npu_rotary_mul,
        "npu_apply_rotary_pos_emb" => npu_apply_rotary_pos_emb,
        _ => return None,
    })
}

/// How the elements of the last axis pair up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pairs {
    /// `i` with `i + D/2`.
    Half,
    /// `2i` with `2i + 1`.
    Interleaved,
}

/// `rope(x, cos, sin)` with `rotary_mode` or `mode` (`half`, `interleave`) or the flag `interleaved`.
fn rope(call: &Call) -> Result<References, Unmodelled> {
    let pairs = match (mode(call, "rotary_mode")?, mode(call, "mode")?) {
        (Some(pairs), None) | (None, Some(pairs)) => pairs,
        (Some(first), Some(second)) if first == second => first,
        (None, None) if call.attr("interleaved")?.is_some() => {
            if call.flag("interleaved", false)? {
                Pairs::Interleaved
            } else {
                Pairs::Half
            }
        }
        _ => return Err(Unmodelled(format!("{} does not say which elements are paired", call.function()))),
    };
    let x = call.input(&["x", "input", "self"], 0)?;
    three_tensors(call)?;
    let (cos, sin) = (call.input(&["cos"], 1)?, call.input(&["sin"], 2)?);
    Ok(vec![Some(rotated(call, 0, x, cos, sin, pairs)?)])
}

/// `npu_rotary_mul(input, r1, r2, rotary_mode = "half")`.
fn npu_rotary_mul(call: &Call) -> Result<References, Unmodelled> {
    let pairs = mode(call, "rotary_mode")?.unwrap_or(Pairs::Half);
    three_tensors(call)?;
    let x = call.input(&["input", "self", "x"], 0)?;
    let (cos, sin) = (call.input(&["r1", "cos"], 1)?, call.input(&["r2", "sin"], 2)?);
    Ok(vec![Some(rotated(call, 0, x, cos, sin, pairs)?)])
}

/// `npu_apply_rotary_pos_emb(query, key, cos, sin, rotary_mode = "half")` gives both rotated.
fn npu_apply_rotary_pos_emb(call: &Call) -> Result<References, Unmodelled> {
    let pairs = mode(call, "rotary_mode")?.unwrap_or(Pairs::Half);
    let (query, key) = (call.input(&["query"], 0)?, call.input(&["key"], 1)?);
    let (cos, sin) = (call.input(&["cos"], 2)?, call.input(&["sin"], 3)?);
    let query = rotated(call, 0, query, cos, sin, pairs)?;
    let key = rotated(call, 1, key, cos, sin, pairs)?;
    Ok(vec![Some(query), Some(key)])
}

fn three_tensors(call: &Call) -> Result<(), Unmodelled> {
    match call.inputs.len() {
        3 => Ok(()),
        count => Err(Unmodelled(format!("{} of {count} tensors", call.function()))),
    }
}

fn mode(call: &Call, name: &str) -> Result<Option<Pairs>, Unmodelled> {
    match call.text(name)? {
        None => Ok(None),
        Some("half") => Ok(Some(Pairs::Half)),
        Some("interleave" | "interleaved") => Ok(Some(Pairs::Interleaved)),
        Some(other) => Err(Unmodelled(format!("{name} {other} of {} is not modelled", call.function()))),
    }
}

fn rotated(
    call: &Call,
    slot: usize,
    x: &Operand,
    cos: &Operand,
    sin: &Operand,
    pairs: Pairs,
) -> Result<Reference, Unmodelled> {
    let x = x.value.view();
    let size = x.shape().last().copied().unwrap_or(1);
    if size % 2 != 0 {
        return Err(Unmodelled(format!("{} of {size} elements, which form no pairs", call.function())));
    }
    fits(call, slot, x.shape())?;
    let (cos, sin) = (spread(call, cos.value.view(), size, pairs)?, spread(call, sin.value.view(), size, pairs)?);
    let over = |table: &ArrayD<f64>| -> Result<ArrayD<f64>, Unmodelled> {
        let table = table.broadcast(x.raw_dim()).map(|table| table.to_owned());
        table.ok_or_else(|| Unmodelled(format!("tables of {} do not fit {:?}", call.function(), x.shape())))
    };
    let (cos, sin) = (over(&cos)?, over(&sin)?);
    let mut turned = ArrayD::zeros(x.raw_dim());
    Zip::from(turned.rows_mut()).and(x.rows()).for_each(|mut turned, x| {
        for at in 0..size / 2 {
            let (first, second) = match pairs {
                Pairs::Half => (at, at + size / 2),
                Pairs::Interleaved => (2 * at, 2 * at + 1),
            };
            (turned[first], turned[second]) = (-x[second], x[first]);
        }
    });
    let mut value = &x * &cos;
    let mut scale = value.mapv(f64::abs);
    Zip::from(&mut value).and(&mut scale).and(&turned).and(&sin).for_each(|value, scale, turned, sin| {
        *value += turned * sin;
        *scale += (turned * sin).abs();
    });
    Ok(Reference { value, scale, exactness: Exactness::Function { ulp: ULP, roundings: ROUNDINGS } })
}

/// A table over all `size` elements; one that holds an entry a pair is laid out over the pairs.
fn spread(call: &Call, table: ArrayViewD<f64>, size: usize, pairs: Pairs) -> Result<ArrayD<f64>, Unmodelled> {
    let entries = table.shape().last().copied().unwrap_or(0);
    if entries == size {
        return Ok(table.to_owned());
    }
    if entries * 2 != size {
        return Err(Unmodelled(format!("tables of {entries} entries of {} for {size} elements", call.function())));
    }
    let axis = Axis(table.ndim() - 1);
    let wrong = |_| Unmodelled(format!("tables of {} have another shape", call.function()));
    match pairs {
        Pairs::Half => ndarray::concatenate(axis, &[table.view(), table.view()]).map_err(wrong),
        Pairs::Interleaved => {
            let mut shape = table.shape().to_vec();
            let twice = ndarray::stack(Axis(table.ndim()), &[table.view(), table.view()]).map_err(wrong)?;
            if let Some(last) = shape.last_mut() {
                *last = size;
            }
            twice.as_standard_layout().into_owned().into_shape_with_order(IxDyn(&shape)).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::contraction::recorded::{Recorded, noise, recorded};

    fn quarter(function: &str, cos: &str, sin: &str) -> Recorded {
        // A quarter turn: cos 0, sin 1.
        let call = recorded(function).input("x", &[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        call.input(cos, &[4], &[0.0; 4]).input(sin, &[4], &[1.0; 4]).output(&[1, 4])
    }

    #[test]
    fn a_quarter_turn_takes_the_partner_of_each_element() {
        let half = quarter("npu_rotary_mul", "r1", "r2").attrs(json!({"rotary_mode": "half"}));
        assert_eq!(half.values(), [-3.0, -4.0, 1.0, 2.0]);
        assert_eq!(quarter("npu_rotary_mul", "r1", "r2").attrs(json!({})).values(), [-3.0, -4.0, 1.0, 2.0]);
        let neighbours = quarter("rope", "cos", "sin").attrs(json!({"interleaved": true}));
        assert_eq!(neighbours.values(), [-2.0, 1.0, -4.0, 3.0]);
    }

    #[test]
    fn which_elements_pair_up_is_never_guessed() {
        assert!(quarter("rope", "cos", "sin").refusal().contains("not recorded"));
        assert!(quarter("rope", "cos", "sin").attrs(json!({})).refusal().contains("paired"));
        let quarters = quarter("npu_rotary_mul", "r1", "r2").attrs(json!({"rotary_mode": "quarter"}));
        assert!(quarters.refusal().contains("quarter"));
    }

    #[test]
    fn tables_of_one_entry_a_pair_are_spread() {
        let call = |mode| {
            let call = recorded("rope").input("x", &[4], &[1.0, 1.0, 1.0, 1.0]).input("cos", &[2], &[10.0, 20.0]);
            call.input("sin", &[2], &[0.0, 0.0]).attrs(json!({"mode": mode})).output(&[4]).values()
        };
        assert_eq!(call("half"), [10.0, 20.0, 10.0, 20.0]);
        assert_eq!(call("interleave"), [10.0, 10.0, 20.0, 20.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let call = |x: &[usize], cos: &[usize]| {
            let of = |shape: &[usize]| vec![1.0; shape.iter().product()];
            let call = recorded("npu_rotary_mul").input("input", x, &of(x)).input("r1", cos, &of(cos));
            call.input("r2", cos, &of(cos)).attrs(json!({})).output(x).refusal()
        };
        assert!(call(&[3], &[3]).contains("pairs"));
        assert!(call(&[8], &[2]).contains("entries"));
        assert!(call(&[2, 4], &[3, 4]).contains("do not fit"));
        assert!(call(&[], &[]).contains("pairs"));
        assert!(call(&[4], &[]).contains("entries"));
    }

    proptest! {
        #[test]
        fn a_rotation_is_a_complex_product(rows in 0usize..4, pairs in 1usize..5, interleaved: bool, seed: u64) {
            let size = 2 * pairs;
            let (x, angle) = (noise(&[rows, size], seed), noise(&[rows, pairs], seed ^ 1));
            let call = recorded("rope").array("x", &x).array("cos", &angle.mapv(f64::cos)).array("sin", &angle.mapv(f64::sin));
            let found = call.attrs(json!({"interleaved": interleaved})).output(&[rows, size]).first();
            for row in 0..rows {
                for pair in 0..pairs {
                    let (a, b) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                    let radius = x[[row, a]].hypot(x[[row, b]]);
                    let turned = x[[row, b]].atan2(x[[row, a]]) + angle[[row, pair]];
                    prop_assert!((found.value[[row, a]] - radius * turned.cos()).abs() < 1e-12);
                    prop_assert!((found.value[[row, b]] - radius * turned.sin()).abs() < 1e-12);
                    prop_assert!(found.scale[[row, a]] >= found.value[[row, a]].abs());
                }
            }
        }
    }
}
