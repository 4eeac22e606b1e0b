//! Sums, means and products.

use super::reduced_axes;
use crate::replay::answer::{expect_shapes, only_tensor, refuse_narrowing, with_summation};
use crate::replay::lanes::{array, sum};
use crate::replay::{Call, Reference, References, Unmodelled};
use crate::tensor::Kind;

/// Integers of this magnitude on are not exact in f64.
const INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;

/// `sum(self, dim, keepdim, dtype)`.
pub(super) fn sum_over(call: &Call) -> Result<References, Unmodelled> {
    scaled_sum(call, |_| 1.0)
}

/// `mean(self, dim, keepdim, dtype)`.
pub(super) fn mean(call: &Call) -> Result<References, Unmodelled> {
    scaled_sum(call, |n| n)
}

/// Σ x/divisor(n), held against Σ|x|/divisor.
fn scaled_sum(call: &Call, divisor: impl Fn(f64) -> f64) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    refuse_narrowing(call, input)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let data = lanes.gather(&input.value);
    let by = divisor(lanes.len() as f64);
    let each = |f: &(dyn Fn(f64) -> f64 + Sync)| array(&shape, lanes.each(&data, |row| sum(row.iter().map(|x| f(*x)))));
    let value = each(&|x| x)? / by;
    let scale = each(&f64::abs)? / by;
    if discrete(call) {
        return Ok(vec![Some(whole(value, &scale)?)]);
    }
    let squares = each(&|x| (x / by).powi(2))?;
    Ok(vec![Some(Reference::summed(value, scale, lanes.len(), squares))])
}

/// `prod(self, dim, keepdim, dtype)`: a rounding for each factor, which add up like a random walk.
pub(super) fn prod(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    refuse_narrowing(call, input)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let data = lanes.gather(&input.value);
    let value = array(&shape, lanes.each(&data, |row| row.iter().product()))?;
    let scale = value.mapv(f64::abs);
    if discrete(call) {
        return Ok(vec![Some(whole(value, &scale)?)]);
    }
    Ok(vec![Some(Reference::function(value, scale, with_summation(1.0, 2 * lanes.len())))])
}

/// Whether the result is recorded as integers or truth values.
pub(super) fn discrete(call: &Call) -> bool {
    call.outputs.first().is_some_and(|output| matches!(output.dtype.kind(), Kind::Int | Kind::Bool))
}

/// An integer result, as long as f64 holds all that went into it.
pub(super) fn whole(value: ndarray::ArrayD<f64>, magnitude: &ndarray::ArrayD<f64>) -> Result<Reference, Unmodelled> {
    match magnitude.iter().find(|m| m.is_nan() || **m >= INTEGER_LIMIT) {
        None => Ok(Reference::discrete(value)),
        Some(m) => Err(Unmodelled(format!("integers up to {m:e} are beyond what fp64 holds exactly"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    #[test]
    fn by_hand() {
        let mean = Staged::new("mean", json!({"dim": [-1, -2], "keepdim": true}))
            .input("self", &[1, 2, 2], &[1.0, -2.0, 3.0, 6.0])
            .output(&[1, 1, 1]);
        assert_close(&mean.values(0), &[2.0]);
        let reference = mean.reference(0);
        assert_close(&[reference.scale[[0, 0, 0]]], &[3.0]);
        let Exactness::Summed { terms, squares } = reference.exactness else { panic!("a mean is a sum") };
        assert_eq!(terms, 4);
        assert_close(&[squares[[0, 0, 0]]], &[50.0 / 16.0]);
        let prod = Staged::new("prod", json!({"dim": 0})).input("self", &[2, 2], &[2.0, 3.0, -4.0, 5.0]).output(&[2]);
        assert_close(&prod.values(0), &[-8.0, 15.0]);
    }

    #[test]
    fn integers_are_exact_or_not_modelled() {
        let sum = |value: f64| {
            Staged::new("sum", json!({})).typed("self", DType::I64, &[2], &[value, 1.0]).writes(DType::I64, &[])
        };
        assert_eq!(sum(41.0).values(0), [42.0]);
        assert_eq!(sum(41.0).reference(0).exactness, Exactness::Discrete);
        assert!(sum(9e15).values(0)[0] > 0.0);
        assert!(sum(1e16).refusal().contains("fp64"));
    }

    #[test]
    fn nothing_sums_to_zero_and_has_no_mean() {
        let empty =
            |function| Staged::new(function, json!({"dim": 1})).input("self", &[2, 0], &[]).output(&[2]).values(0);
        assert_eq!(empty("sum"), [0.0, 0.0]);
        assert_eq!(empty("prod"), [1.0, 1.0]);
        assert!(empty("mean")[0].is_nan());
        let scalar = Staged::new("sum", json!({"dim": 0})).input("self", &[], &[3.0]).output(&[]);
        assert_eq!(scalar.values(0), [3.0]);
    }

    #[test]
    fn specials_follow_ieee() {
        let inf = f64::INFINITY;
        let call = Staged::new("sum", json!({"dim": 1})).input("self", &[2, 2], &[inf, -inf, inf, 1.0]).output(&[2]);
        assert_close(&call.values(0), &[f64::NAN, inf]);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_loop(
            (shape, axis, data) in proptest::collection::vec(1usize..4, 1..4).prop_flat_map(|shape| {
                let n = shape.iter().product::<usize>();
                let rank = shape.len() as i64;
                (Just(shape), -rank..rank, proptest::collection::vec(-4.0..4.0f64, n))
            }),
        ) {
            let at = axis.rem_euclid(shape.len() as i64) as usize;
            let stride: usize = shape[at + 1..].iter().product();
            let mut kept = shape.clone();
            kept.remove(at);
            let n = kept.iter().product();
            let (mut sum, mut prod) = (vec![0.0; n], vec![1.0; n]);
            for (i, x) in data.iter().enumerate() {
                let slot = i / (stride * shape[at]) * stride + i % stride;
                sum[slot] += x;
                prod[slot] *= x;
            }
            let run = |function| Staged::new(function, json!({"dim": axis})).input("self", &shape, &data).output(&kept).values(0);
            assert_close(&run("sum"), &sum);
            assert_close(&run("prod"), &prod);
            assert_close(&run("mean"), &sum.iter().map(|s| s / shape[at] as f64).collect::<Vec<_>>());
        }
    }
}
