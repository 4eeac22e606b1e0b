//! Scans along an axis: each element from those up to it.

use super::extremum::replaces;
use super::total::{discrete, whole};
use crate::replay::answer::{answer, expect_shapes, only_tensor, refuse_narrowing, with_summation};
use crate::replay::lanes::Lanes;
use crate::replay::{Call, Reference, References, Unmodelled};

/// ULP of a log-sum-exp: the exponentials, the sum and the logarithm.
const LOG_ULP: f64 = 4.0;

fn along_axis(call: &Call, results: usize) -> Result<(Lanes, Vec<f64>), Unmodelled> {
    let input = only_tensor(call)?;
    refuse_narrowing(call, input)?;
    let shape = input.value.shape();
    let axis = call.axis("dim", None, shape.len())?;
    expect_shapes(call, &[shape, shape][..results])?;
    let lanes = Lanes::over(shape, &[axis]);
    let data = lanes.gather(&input.value);
    Ok((lanes, data))
}

/// `cumsum(self, dim, dtype)`: an element sums as many terms as stand before it; the axis' extent is
/// taken for all.
pub(super) fn cumsum(call: &Call) -> Result<References, Unmodelled> {
    let (lanes, data) = along_axis(call, 1)?;
    let (value, scale) = lanes.map(&data, |_, row, value, scale| {
        let (mut total, mut size) = (0.0, 0.0);
        for ((x, value), scale) in row.iter().zip(value).zip(scale) {
            total += x;
            size += x.abs();
            (*value, *scale) = (total, size);
        }
    });
    let (value, scale) = (lanes.restore(value)?, lanes.restore(scale)?);
    if discrete(call) {
        return Ok(vec![Some(whole(value, &scale)?)]);
    }
    let (squares, _) = lanes.map(&data, |_, row, squares, _| {
        let mut total = 0.0;
        for (x, square) in row.iter().zip(squares) {
            total += x * x;
            *square = total;
        }
    });
    Ok(vec![Some(Reference::summed(value, scale, lanes.len(), lanes.restore(squares)?))])
}

/// `cumprod(self, dim, dtype)`.
pub(super) fn cumprod(call: &Call) -> Result<References, Unmodelled> {
    let (lanes, data) = along_axis(call, 1)?;
    let (value, scale) = lanes.map(&data, |_, row, value, scale| {
        let mut product = 1.0;
        for ((x, value), scale) in row.iter().zip(value).zip(scale) {
            product *= x;
            (*value, *scale) = (product, product.abs());
        }
    });
    let (value, scale) = (lanes.restore(value)?, lanes.restore(scale)?);
    if discrete(call) {
        return Ok(vec![Some(whole(value, &scale)?)]);
    }
    Ok(vec![Some(Reference::function(value, scale, with_summation(1.0, 2 * lanes.len())))])
}

/// `logcumsumexp(self, dim)`, with the largest element so far taken out of the sum.
pub(super) fn logcumsumexp(call: &Call) -> Result<References, Unmodelled> {
    let (lanes, data) = along_axis(call, 1)?;
    let (value, scale) = lanes.map(&data, |_, row, value, scale| {
        let (mut max, mut total) = (f64::NEG_INFINITY, 0.0);
        for ((&x, value), scale) in row.iter().zip(value).zip(scale) {
            if x.is_nan() || max.is_nan() {
                max = f64::NAN;
            } else if x > max {
                total = if max.is_finite() { total * (max - x).exp() + 1.0 } else { 1.0 };
                max = x;
            } else if max.is_finite() {
                total += (x - max).exp();
            }
            *value = if max.is_infinite() { max } else { max + f64::ln(total) };
            // A relative error of the sum is an absolute one of its logarithm.
            *scale = if max.is_finite() { max.abs() + 1.0 + f64::ln(total).abs() } else { 0.0 };
        }
    });
    let ulp = with_summation(LOG_ULP, lanes.len());
    Ok(vec![Some(Reference::function(lanes.restore(value)?, lanes.restore(scale)?, ulp))])
}

/// `cummax(self, dim)` and `cummin`: values and indices. Of equals the last is taken, as torch does.
pub(super) fn running_extreme(call: &Call) -> Result<References, Unmodelled> {
    let largest = call.function() == "cummax";
    let (lanes, data) = along_axis(call, 2)?;
    let (values, indices) = lanes.map(&data, |_, row, values, indices| {
        let mut best: Option<(f64, usize)> = None;
        for (at, ((&x, value), index)) in row.iter().zip(values).zip(indices).enumerate() {
            let taken = best.is_none_or(|(b, _)| x == b || (x.is_nan() && b.is_nan()) || replaces(b, x, largest));
            let now = match best {
                Some(before) if !taken => before,
                _ => (x, at),
            };
            best = Some(now);
            (*value, *index) = (now.0, now.1 as f64);
        }
    });
    let (values, indices) = (lanes.restore(values)?, lanes.restore(indices)?);
    answer(call, vec![Some(Reference::moved(values)), Some(Reference::discrete(indices))])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    fn run(function: &str, values: &[f64]) -> Vec<f64> {
        let n = [values.len()];
        Staged::new(function, json!({"dim": -1})).input("self", &n, values).output(&n).values(0)
    }

    #[test]
    fn by_hand() {
        assert_close(&run("cumsum", &[1.0, -3.0, 5.0]), &[1.0, -2.0, 3.0]);
        assert_close(&run("cumprod", &[2.0, -3.0, 5.0]), &[2.0, -6.0, -30.0]);
        assert_close(&run("logcumsumexp", &[0.0, 0.0, 2f64.ln()]), &[0.0, 2f64.ln(), 4f64.ln()]);
        let max = Staged::new("cummax", json!({"dim": 0}))
            .input("self", &[4], &[1.0, 3.0, 2.0, 3.0])
            .output(&[4])
            .output(&[4]);
        assert_eq!((max.values(0), max.values(1)), (vec![1.0, 3.0, 3.0, 3.0], vec![0.0, 1.0, 1.0, 3.0]));
        assert_eq!(run("cummin", &[1.0, 3.0, 0.0]), [1.0, 1.0, 0.0]);
    }

    #[test]
    fn a_running_sum_is_held_against_what_it_summed() {
        let call = Staged::new("cumsum", json!({"dim": 0})).input("self", &[3, 1], &[1.0, -3.0, 2.0]).output(&[3, 1]);
        let reference = call.reference(0);
        assert_close(&reference.scale.into_raw_vec_and_offset().0, &[1.0, 4.0, 6.0]);
        let Exactness::Summed { terms, squares } = reference.exactness else { panic!("a running sum is a sum") };
        assert_eq!(terms, 3);
        assert_close(&squares.into_raw_vec_and_offset().0, &[1.0, 10.0, 14.0]);
    }

    #[test]
    fn positions_are_counted_exactly() {
        let call = Staged::new("cumsum", json!({"dim": 1}))
            .typed("self", DType::I64, &[2, 3], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
            .writes(DType::I64, &[2, 3]);
        assert_eq!(call.values(0), [1.0, 2.0, 2.0, 1.0, 2.0, 3.0]);
        assert_eq!(call.reference(0).exactness, Exactness::Discrete);
    }

    #[test]
    fn specials_and_missing_attributes() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_close(&run("logcumsumexp", &[-inf, 0.0, -inf, inf, 0.0, nan]), &[-inf, 0.0, 0.0, inf, inf, nan]);
        assert_close(&run("cummax", &[1.0, nan, 2.0]), &[1.0, nan, nan]);
        let unknown = Staged::new("cumsum", json!(null)).input("self", &[2], &[1.0; 2]).output(&[2]);
        assert!(unknown.refusal().contains("attributes"));
        let scalar = Staged::new("cumsum", json!({"dim": 0})).input("self", &[], &[2.0]).output(&[]);
        assert_eq!(scalar.values(0), [2.0]);
    }

    proptest! {
        #[test]
        fn each_element_is_the_reduction_of_its_prefix(x in proptest::collection::vec(-4.0..4.0f64, 1..9)) {
            let (sums, products, logs) = (run("cumsum", &x), run("cumprod", &x), run("logcumsumexp", &x));
            for k in 0..x.len() {
                let prefix = &x[..=k];
                prop_assert!((sums[k] - prefix.iter().sum::<f64>()).abs() < 1e-12);
                prop_assert!((products[k] - prefix.iter().product::<f64>()).abs() < 1e-9);
                prop_assert!((logs[k] - prefix.iter().map(|x| x.exp()).sum::<f64>().ln()).abs() < 1e-12);
            }
        }
    }
}
