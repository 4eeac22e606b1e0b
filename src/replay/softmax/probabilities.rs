//! Softmax, log-softmax and logsumexp along an axis.

use super::SOFTMAX_ULP;
use crate::replay::answer::{answer, expect_shapes, only_tensor, refuse_narrowing};
use crate::replay::lanes::{Lanes, array, sum};
use crate::replay::reduction::reduced_axes;
use crate::replay::{Call, Reference, References, Unmodelled};

/// The largest element (NaN where there is one, -inf of none) and Σ exp(x - max).
fn normaliser(row: &[f64]) -> (f64, f64) {
    let max =
        row.iter().copied().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) });
    (max, sum(row.iter().map(|x| (x - max).exp())))
}

/// log Σ exp x; -inf where all are -inf, as torch has it.
pub(super) fn log_sum_exp(row: &[f64]) -> f64 {
    match normaliser(row) {
        (max, _) if max.is_infinite() => max,
        (max, total) => max + total.ln(),
    }
}

/// `softmax(self, dim)`, `_softmax(self, dim, half_to_float)`; `softmin` is softmax of -x.
pub(super) fn softmax(call: &Call) -> Result<References, Unmodelled> {
    let negate = call.function() == "softmin";
    along_axis(call, |row, value, scale| {
        let signed: Vec<f64>;
        let row = if negate {
            signed = row.iter().map(|x| -x).collect();
            &signed
        } else {
            row
        };
        let (max, total) = normaliser(row);
        for ((x, value), scale) in row.iter().zip(value).zip(scale) {
            *value = (x - max).exp() / total;
            *scale = *value * (1.0 + (x - max).abs());
        }
    })
}

/// `log_softmax(self, dim)`, `_log_softmax(self, dim, half_to_float)`: x - logsumexp(x). The scale
/// is |x| + |logsumexp| + 1, for a relative error of the sum is an absolute one of its logarithm.
pub(super) fn log_softmax(call: &Call) -> Result<References, Unmodelled> {
    along_axis(call, |row, value, scale| {
        let (max, total) = normaliser(row);
        let log = total.ln();
        for ((x, value), scale) in row.iter().zip(value).zip(scale) {
            *value = (x - max) - log;
            *scale = log_scale(*x, max + log);
        }
    })
}

/// What an error of x - logsumexp is held against.
pub(super) fn log_scale(x: f64, log_sum_exp: f64) -> f64 {
    // A masked class (-inf) has no rounding error of its own.
    let x = if x.is_infinite() { 0.0 } else { x.abs() };
    x + log_sum_exp.abs() + 1.0
}

fn along_axis(call: &Call, f: impl Fn(&[f64], &mut [f64], &mut [f64]) + Sync) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    refuse_narrowing(call, input)?;
    let shape = input.value.shape();
    let axis = call.axis("dim", None, shape.len())?;
    expect_shapes(call, &[shape])?;
    let lanes = Lanes::over(shape, &[axis]);
    let data = lanes.gather(&input.value);
    let (value, scale) = lanes.map(&data, |_, row, value, scale| f(row, value, scale));
    Ok(vec![Some(Reference::function(lanes.restore(value)?, lanes.restore(scale)?, SOFTMAX_ULP))])
}

/// `logsumexp(self, dim, keepdim)`: max + log Σ exp(x - max), held against |max| + 1 + Σ p·|x - max|,
/// the last being how the exponentials answer to a rounding of their arguments.
pub(super) fn logsumexp(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let data = lanes.gather(&input.value);
    let rows = lanes.each(&data, |row| {
        let (max, total) = normaliser(row);
        if max.is_infinite() {
            return (max, 0.0);
        }
        let spread = sum(row.iter().filter(|x| x.is_finite()).map(|x| (x - max).exp() * (x - max).abs())) / total;
        (max + total.ln(), max.abs() + 1.0 + spread)
    });
    let (value, scale): (Vec<f64>, Vec<f64>) = rows.into_iter().unzip();
    answer(call, vec![Some(Reference::function(array(&shape, value)?, array(&shape, scale)?, SOFTMAX_ULP))])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    const LN2: f64 = std::f64::consts::LN_2;

    #[test]
    fn by_hand() {
        let attrs = json!({"dim": -1, "half_to_float": false});
        let soft = Staged::new("_softmax", attrs.clone()).input("self", &[1, 2], &[0.0, LN2]).output(&[1, 2]);
        assert_close(&soft.values(0), &[1.0 / 3.0, 2.0 / 3.0]);
        let scale: Vec<f64> = soft.reference(0).scale.iter().copied().collect();
        assert_close(&scale, &[(1.0 + LN2) / 3.0, 2.0 / 3.0]);
        let log = Staged::new("_log_softmax", attrs.clone()).input("self", &[1, 2], &[0.0, LN2]).output(&[1, 2]);
        assert_close(&log.values(0), &[-(3f64.ln()), LN2 - 3f64.ln()]);
        let min = Staged::new("softmin", attrs).input("self", &[1, 2], &[0.0, -LN2]).output(&[1, 2]);
        assert_close(&min.values(0), &[1.0 / 3.0, 2.0 / 3.0]);
        let lse = Staged::new("logsumexp", json!({"dim": [0], "keepdim": false}))
            .input("self", &[2, 1], &[0.0, LN2])
            .output(&[1]);
        assert_close(&lse.values(0), &[3f64.ln()]);
    }

    #[test]
    fn large_arguments_masks_and_nan() {
        let row = |values: &[f64; 3]| {
            Staged::new("softmax", json!({"dim": 0})).input("self", &[3], values).output(&[3]).values(0)
        };
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_close(&row(&[1e4, 1e4, -inf]), &[0.5, 0.5, 0.0]);
        assert_close(&row(&[-inf, -inf, -inf]), &[nan, nan, nan]);
        assert_close(&row(&[inf, 0.0, 0.0]), &[nan, nan, nan]);
        assert_close(&row(&[nan, 0.0, 0.0]), &[nan, nan, nan]);
        let lse = Staged::new("logsumexp", json!({"dim": [0]})).input("self", &[2], &[-inf, -inf]).output(&[]);
        assert_eq!(lse.values(0), [-inf]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let call = |attrs| Staged::new("softmax", attrs).input("self", &[2], &[0.0; 2]);
        assert!(call(json!(null)).output(&[2]).refusal().contains("attributes"));
        assert!(call(json!({})).output(&[2]).refusal().contains("dim"));
        assert!(call(json!({"dim": 1})).output(&[2]).refusal().contains("out of range"));
        assert!(call(json!({"dim": 0})).output(&[3]).refusal().contains("does not fit"));
        assert!(call(json!({"dim": 0})).refusal().contains("outputs"));
        let narrow = call(json!({"dim": 0, "dtype": "float16"})).writes(DType::F16, &[2]);
        assert!(narrow.refusal().contains("rounds its input"));
        let scalar = Staged::new("softmax", json!({"dim": -1})).input("self", &[], &[5.0]).output(&[]);
        assert_eq!(scalar.values(0), [1.0]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_formula(
            (shape, axis, data) in proptest::collection::vec(1usize..4, 1..4).prop_flat_map(|shape| {
                let n = shape.iter().product::<usize>();
                let rank = shape.len() as i64;
                (Just(shape), -rank..rank, proptest::collection::vec(-20.0..20.0f64, n))
            }),
        ) {
            let rank = shape.len();
            let at = if axis < 0 { (axis + rank as i64) as usize } else { axis as usize };
            let stride: usize = shape[at + 1..].iter().product();
            let total = |i: usize| {
                let base = i - (i / stride % shape[at]) * stride;
                (0..shape[at]).map(|k| data[base + k * stride].exp()).sum::<f64>()
            };
            let staged = |function, shape: &[usize]| Staged::new(function, json!({"dim": axis})).input("self", shape, &data).output(shape).values(0);
            let (soft, log) = (staged("softmax", &shape), staged("log_softmax", &shape));
            for i in 0..data.len() {
                prop_assert!((soft[i] - data[i].exp() / total(i)).abs() < 1e-12);
                prop_assert!((log[i] - (data[i] - total(i).ln())).abs() < 1e-11);
            }
        }
    }
}
