//! Variance and standard deviation, alone and with the mean.

use super::reduced_axes;
use crate::replay::answer::{answer, expect_shapes, only_tensor, with_summation};
use crate::replay::lanes::{array, sum};
use crate::replay::{Call, Reference, References, Unmodelled};
use crate::tensor::DType;

/// ULP of a variance besides its sum: the mean, the difference, the square and the division.
const VARIANCE_ULP: f64 = 4.0;

struct Spread {
    mean: f64,
    absolute: f64,
    squares: f64,
    variance: f64,
    /// 2·Σ|x-μ|(|x|+|μ|)/(n-c): what one roundoff in x-μ makes of the variance, to first order.
    first: f64,
    /// Σ(|x|+|μ|)²/(n-c): to second order, which is what is left where all x are equal.
    second: f64,
}

fn spread(row: &[f64], correction: f64) -> Spread {
    let n = row.len() as f64;
    let mean = sum(row.iter().copied()) / n;
    // torch: degrees of freedom never fall below 0.
    let freedom = (n - correction).max(0.0);
    let magnitude = |x: f64| x.abs() + mean.abs();
    Spread {
        mean,
        absolute: sum(row.iter().map(|x| x.abs())) / n,
        squares: sum(row.iter().map(|x| (x / n).powi(2))),
        variance: sum(row.iter().map(|x| (x - mean).powi(2))) / freedom,
        first: 2.0 * sum(row.iter().map(|&x| (x - mean).abs() * magnitude(x))) / freedom,
        second: sum(row.iter().map(|&x| magnitude(x).powi(2))) / freedom,
    }
}

/// `var(self, dim, correction, keepdim)` and `std`; `var_mean` and `std_mean` return the mean too.
pub(super) fn variance(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let correction = match call.attr("correction")? {
        Some(_) => call.number("correction", None)?,
        None => f64::from(u8::from(call.flag("unbiased", true)?)),
    };
    let (lanes, shape) = reduced_axes(call, input)?;
    let shapes: &[&[usize]] = if call.function().ends_with("_mean") { &[&shape, &shape] } else { &[&shape] };
    expect_shapes(call, shapes)?;
    let data = lanes.gather(&input.value);
    let rows = lanes.each(&data, |row| spread(row, correction));
    let each = |f: &dyn Fn(&Spread) -> f64| array(&shape, rows.iter().map(f).collect());
    let roundoff = input.dtype.unit_roundoff().unwrap_or(0.0).min(DType::F32.unit_roundoff().unwrap_or(0.0));
    let (value, scale) = if call.function().starts_with("std") {
        // σ's derivative Σ|x-μ|m/((n-c)σ) is at most sqrt(Σm²/(n-c)) (Cauchy-Schwarz).
        (each(&|s| s.variance.sqrt())?, each(&|s| s.second.sqrt())?)
    } else {
        (each(&|s| s.variance)?, each(&|s| s.first + roundoff * s.second)?)
    };
    let spread = Reference::function(value, scale, with_summation(VARIANCE_ULP, lanes.len()));
    let mean = Reference::summed(each(&|s| s.mean)?, each(&|s| s.absolute)?, lanes.len(), each(&|s| s.squares)?);
    answer(call, vec![Some(spread), Some(mean)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    fn staged(function: &str, attrs: serde_json::Value) -> Staged {
        Staged::new(function, attrs).input("self", &[1, 3], &[1.0, 3.0, 8.0]).output(&[1])
    }

    #[test]
    fn corrections_by_hand() {
        // mean 4, squares 9 + 1 + 16 = 26.
        assert_close(&staged("var", json!({"dim": 1})).values(0), &[13.0]);
        assert_close(&staged("var", json!({"dim": 1, "unbiased": false})).values(0), &[26.0 / 3.0]);
        assert_close(&staged("var", json!({"dim": [1], "correction": 0})).values(0), &[26.0 / 3.0]);
        assert_close(&staged("std", json!({"dim": [1], "correction": 1})).values(0), &[13f64.sqrt()]);
        let both = staged("var_mean", json!({"dim": [1]})).output(&[1]);
        assert_close(&both.values(0), &[13.0]);
        assert_close(&both.values(1), &[4.0]);
        assert_close(&staged("std_mean", json!({"dim": [1]})).output(&[1]).values(0), &[13f64.sqrt()]);
    }

    #[test]
    fn a_constant_row_still_has_something_to_be_held_against() {
        for function in ["var", "std"] {
            let call = Staged::new(function, json!({"dim": 0})).input("self", &[3], &[7.0; 3]).output(&[]);
            let reference = call.reference(0);
            assert_eq!(reference.value[[]], 0.0);
            assert!(reference.scale[[]] > 0.0, "{function}");
        }
    }

    #[test]
    fn one_element_has_no_sample_variance_and_no_attributes_no_correction() {
        assert!(Staged::new("var", json!({})).input("self", &[1], &[7.0]).output(&[]).values(0)[0].is_nan());
        assert!(staged("var", json!(null)).refusal().contains("attributes"));
        assert!(staged("var", json!({"dim": 1})).output(&[1]).refusal().contains("outputs"), "var has one output");
    }

    proptest! {
        #[test]
        fn shifts_do_not_matter_and_factors_square(
            x in proptest::collection::vec(-4.0..4.0f64, 2..9), shift in -9.0..9.0f64, factor in 0.1..3.0f64,
        ) {
            let var = |x: Vec<f64>| Staged::new("var", json!({})).input("self", &[x.len()], &x).output(&[]).values(0)[0];
            let plain = var(x.clone());
            let pairs: f64 = x.iter().flat_map(|a| x.iter().map(move |b| (a - b) * (a - b))).sum();
            let n = x.len() as f64;
            // Independent formula: Σ over pairs (a-b)² = 2n²·var.
            prop_assert!((plain - pairs / (2.0 * n * (n - 1.0))).abs() < 1e-9);
            prop_assert!((var(x.iter().map(|x| x * factor + shift).collect()) - plain * factor * factor).abs() < 1e-9);
        }
    }
}
