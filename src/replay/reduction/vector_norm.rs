//! Vector norms over axes.

use serde_json::Value;

use super::reduced_axes;
use crate::replay::answer::{expect_shapes, only_tensor, refuse_narrowing, with_summation};
use crate::replay::lanes::{array, sum};
use crate::replay::{Call, Reference, References, Unmodelled};

/// ULP of a norm besides its sum: the power of each term and the root.
const NORM_ULP: f64 = 4.0;

/// `linalg_vector_norm(self, ord, dim, keepdim, dtype)`, `norm(self, p, dim, keepdim)`,
/// `frobenius_norm(self, dim, keepdim)`. All terms have one sign, so that the scale is the norm.
pub(super) fn vector_norm(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    refuse_narrowing(call, input)?;
    let order = order(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let data = lanes.gather(&input.value);
    let value = array(&shape, lanes.each(&data, |row| norm(row, order)))?;
    if order == 0.0 {
        return Ok(vec![Some(Reference::discrete(value))]);
    }
    if order.is_infinite() {
        return Ok(vec![Some(Reference::moved(value))]);
    }
    let scale = value.clone();
    Ok(vec![Some(Reference::function(value, scale, with_summation(NORM_ULP, lanes.len())))])
}

fn order(call: &Call) -> Result<f64, Unmodelled> {
    let name = match call.function() {
        "frobenius_norm" => {
            call.attr("dim")?;
            return Ok(2.0);
        }
        "norm" => "p",
        _ => "ord",
    };
    match call.attr(name)? {
        Some(Value::String(text)) if text == "fro" => Ok(2.0),
        _ => call.number(name, Some(2.0)),
    }
}

/// (Σ|x|^p)^(1/p); the number of elements that are not 0 for p = 0, the extremes for ±∞.
fn norm(row: &[f64], p: f64) -> f64 {
    let keeps_nan =
        |a: f64, b: f64, takes: fn(f64, f64) -> f64| if a.is_nan() || b.is_nan() { f64::NAN } else { takes(a, b) };
    let sizes = row.iter().map(|x| x.abs());
    let largest = sizes.clone().fold(0.0, |a, b| keeps_nan(a, b, f64::max));
    if p == f64::INFINITY {
        return largest;
    }
    if p == f64::NEG_INFINITY {
        return sizes.fold(f64::INFINITY, |a, b| keeps_nan(a, b, f64::min));
    }
    if p == 0.0 {
        return row.iter().filter(|x| **x != 0.0).count() as f64;
    }
    // In units of the largest, so that squares of fp64 inputs stay in range.
    let unit = if p > 0.0 && largest.is_finite() && largest > 0.0 { largest } else { 1.0 };
    let total = match p {
        1.0 => sum(sizes.map(|x| x / unit)),
        2.0 => sum(sizes.map(|x| (x / unit).powi(2))),
        p => sum(sizes.map(|x| (x / unit).powf(p))),
    };
    unit * if p == 2.0 { total.sqrt() } else { total.powf(1.0 / p) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};

    fn staged(function: &str, attrs: serde_json::Value) -> Staged {
        Staged::new(function, attrs).input("self", &[1, 3], &[3.0, 0.0, -4.0]).output(&[1])
    }

    #[test]
    fn orders_by_hand() {
        let of =
            |order: serde_json::Value| staged("linalg_vector_norm", json!({"ord": order, "dim": [1]})).values(0)[0];
        assert_close(
            &[of(json!(2)), of(json!(1.0)), of(json!(0)), of(json!("inf")), of(json!("-inf"))],
            &[5.0, 7.0, 2.0, 4.0, 0.0],
        );
        assert_close(&[of(json!(3)), of(json!(-1))], &[91f64.cbrt(), 0.0]);
        assert_close(&staged("norm", json!({"p": "fro", "dim": [1]})).values(0), &[5.0]);
        assert_close(&staged("norm", json!({"p": null, "dim": [1]})).values(0), &[5.0]);
        assert_close(&staged("frobenius_norm", json!({"dim": [1]})).values(0), &[5.0]);
        assert_eq!(staged("norm", json!({"p": "inf", "dim": 1})).reference(0).exactness, Exactness::Exact);
    }

    #[test]
    fn unknown_orders_and_attributes_are_refused() {
        assert!(staged("norm", json!({"p": "nuc", "dim": [1]})).refusal().contains("p of norm is no number"));
        for function in ["norm", "frobenius_norm", "linalg_vector_norm"] {
            assert!(staged(function, json!(null)).refusal().contains("attributes"), "{function}");
        }
    }

    #[test]
    fn nan_and_huge_elements() {
        let of = |values: &[f64], order: serde_json::Value| {
            let n = [values.len()];
            Staged::new("linalg_vector_norm", json!({"ord": order})).input("self", &n, values).output(&[]).values(0)[0]
        };
        assert!(of(&[1.0, f64::NAN], json!("inf")).is_nan());
        assert!(of(&[1.0, f64::NAN], json!(2)).is_nan());
        assert_eq!(of(&[f64::INFINITY, 1.0], json!(2)), f64::INFINITY);
        assert_close(&[of(&[3e200, 4e200], json!(2)) / 1e200], &[5.0]);
        assert_eq!(of(&[], json!(2)), 0.0);
    }

    proptest! {
        #[test]
        fn norms_fall_with_their_order_and_scale(x in proptest::collection::vec(-4.0..4.0f64, 1..8), p in 1.0..5.0f64, factor in 0.1..9.0f64) {
            let of = |x: &[f64], p: f64| Staged::new("norm", json!({"p": p})).input("self", &[x.len()], x).output(&[]).values(0)[0];
            prop_assert!(of(&x, p) >= of(&x, p + 1.0) - 1e-12);
            let larger: Vec<f64> = x.iter().map(|x| x * factor).collect();
            prop_assert!((of(&larger, p) - factor * of(&x, p)).abs() < 1e-9);
            prop_assert!((of(&x, p) - x.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)).abs() < 1e-9);
        }
    }
}
