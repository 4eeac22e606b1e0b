//! RMS norm: γ·x/sqrt(mean(x²)+eps), alone and behind a residual addition.

use ndarray::Zip;

use super::NORM_ULP;
use super::layer::trailing;
use crate::replay::answer::{answer, arguments, elements, expect_shapes, required};
use crate::replay::lanes::{Lanes, array, sum};
use crate::replay::{Call, Operand, Reference, References, Unmodelled};

/// `rms_norm(input, normalized_shape, weight, eps)`, eps of the input's dtype where none is given;
/// `_fused_rms_norm` has rstd as a second output.
pub(super) fn rms_norm(call: &Call) -> Result<References, Unmodelled> {
    let [input, weight] = arguments(call, [&["input", "self"], &["weight", "gamma"]])?;
    let input = required(call, input, "input")?;
    let eps = match call.attr("eps")? {
        Some(_) => call.number("eps", None)?,
        // torch takes the machine epsilon, twice the unit roundoff, of the type it computes in.
        None => 2.0 * input.dtype.unit_roundoff().unwrap_or(0.0),
    };
    let lanes = trailing(call, input, &[weight])?;
    // Composed of operators it rounds x·rstd to the input's dtype before the weight.
    let roundings = u32::from(weight.is_some() && call.function() == "rms_norm");
    let data = lanes.gather(&input.value);
    normalised(call, &lanes, input.value.shape(), &data, weight, eps, roundings)
}

/// `npu_rms_norm(self, gamma, epsilon)`: y and rstd.
pub(super) fn npu_rms_norm(call: &Call) -> Result<References, Unmodelled> {
    let [input, gamma] = arguments(call, [&["self", "input"], &["gamma", "weight"]])?;
    let (input, gamma) = (required(call, input, "self")?, required(call, gamma, "gamma")?);
    let eps = call.number("epsilon", Some(1e-6))?;
    let lanes = trailing(call, input, &[Some(gamma)])?;
    let data = lanes.gather(&input.value);
    normalised(call, &lanes, input.value.shape(), &data, Some(gamma), eps, 0)
}

/// `npu_add_rms_norm(x1, x2, gamma, epsilon)`: y, rstd and the sum x1+x2.
pub(super) fn add_rms_norm(call: &Call) -> Result<References, Unmodelled> {
    let [x1, x2, gamma] = arguments(call, [&["x1"], &["x2"], &["gamma"]])?;
    let (x1, x2) = (required(call, x1, "x1")?, required(call, x2, "x2")?);
    let gamma = required(call, gamma, "gamma")?;
    let eps = call.number("epsilon", Some(1e-6))?;
    let shape = x1.value.shape();
    if x2.value.shape() != shape {
        return Err(Unmodelled(format!("x1 is {shape:?} and x2 {:?}", x2.value.shape())));
    }
    let lanes = trailing(call, x1, &[Some(gamma)])?;
    let kept = lanes.kept_shape(true);
    expect_shapes(call, &[shape, &kept, shape])?;
    let total = Zip::from(&x1.value).and(&x2.value).map_collect(|a, b| a + b);
    let data = lanes.gather(&total.clone().into_shared());
    // Whether the sum is rounded before it is normalised depends on the device and the dtype.
    let mut references = norm_references(&lanes, shape, &data, Some(gamma), eps, 1)?;
    references.push(Some(Reference::rounded(total)));
    answer(call, references)
}

fn normalised(
    call: &Call,
    lanes: &Lanes,
    shape: &[usize],
    data: &[f64],
    weight: Option<&Operand>,
    eps: f64,
    roundings: u32,
) -> Result<References, Unmodelled> {
    expect_shapes(call, &[shape, &lanes.kept_shape(true)])?;
    answer(call, norm_references(lanes, shape, data, weight, eps, roundings)?)
}

/// y and rstd. The squares have one sign, so that rstd has no cancellation: its scale is itself.
fn norm_references(
    lanes: &Lanes,
    shape: &[usize],
    data: &[f64],
    weight: Option<&Operand>,
    eps: f64,
    roundings: u32,
) -> Result<References, Unmodelled> {
    let n = lanes.len() as f64;
    let rstd = lanes.each(data, |row| 1.0 / (sum(row.iter().map(|x| x * x)) / n + eps).sqrt());
    let gamma = weight.map(elements);
    let (value, _) = lanes.map(data, |row, x, value, _| {
        for (at, (x, value)) in x.iter().zip(value).enumerate() {
            let gamma = gamma.as_ref().and_then(|gamma| gamma.get(at)).copied().unwrap_or(1.0);
            *value = x * rstd[row] * gamma;
        }
    });
    let value = array(shape, value)?;
    let rstd = array(&lanes.kept_shape(true), rstd)?;
    // |γ|·rstd·|x| is |y|.
    let y = Reference::function(value.clone(), value.mapv(f64::abs), NORM_ULP).with_roundings(roundings);
    let rstd = Reference::function(rstd.clone(), rstd.mapv(f64::abs), NORM_ULP);
    Ok(vec![Some(y), Some(rstd)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    #[test]
    fn by_hand() {
        // mean(x²) = 12.5, eps 12.5: rstd 0.2.
        let call = Staged::new("npu_rms_norm", json!({"epsilon": 12.5}))
            .input("self", &[1, 2], &[3.0, -4.0])
            .input("gamma", &[2], &[1.0, 10.0])
            .output(&[1, 2])
            .output(&[1, 1]);
        assert_close(&call.values(0), &[0.6, -8.0]);
        assert_close(&call.values(1), &[0.2]);
        let torch = Staged::new("rms_norm", json!({"normalized_shape": [2], "eps": 12.5}))
            .input("", &[1, 2], &[3.0, -4.0])
            .input("", &[2], &[1.0, 10.0])
            .output(&[1, 2]);
        assert_close(&torch.values(0), &[0.6, -8.0]);
        assert_eq!(torch.reference(0).exactness, Exactness::Function { ulp: NORM_ULP, roundings: 1 });
    }

    #[test]
    fn eps_defaults_to_that_of_the_inputs_dtype() {
        let call = Staged::new("rms_norm", json!({"normalized_shape": [1], "eps": null}))
            .typed("input", DType::F16, &[1], &[0.0009765625])
            .output(&[1]);
        let x = 2f64.powi(-10);
        assert_close(&call.values(0), &[x / (x * x + x).sqrt()]);
    }

    #[test]
    fn the_residual_sum_is_an_output() {
        let call = Staged::new("npu_add_rms_norm", json!({"epsilon": 0.0}))
            .input("x1", &[2], &[1.0, 2.0])
            .input("x2", &[2], &[2.0, 2.0])
            .input("gamma", &[2], &[1.0, 1.0])
            .output(&[2])
            .output(&[1])
            .output(&[2]);
        let rstd = 1.0 / 12.5f64.sqrt();
        assert_close(&call.values(0), &[3.0 * rstd, 4.0 * rstd]);
        assert_close(&call.values(1), &[rstd]);
        assert_eq!(call.values(2), [3.0, 4.0]);
        assert_eq!(call.reference(2).exactness, Exactness::Rounded);
    }

    #[test]
    fn a_weight_or_a_shape_is_needed() {
        let call = Staged::new("rms_norm", json!({"eps": 1e-6})).input("input", &[2], &[1.0, 2.0]).output(&[2]);
        assert!(call.refusal().contains("normalized shape was not recorded"));
        assert!(
            Staged::new("rms_norm", json!(null))
                .input("", &[2], &[1.0; 2])
                .output(&[2])
                .refusal()
                .contains("attributes")
        );
    }

    proptest! {
        #[test]
        fn rows_have_unit_mean_square(rows in 1usize..4, n in 1usize..9, seed in proptest::collection::vec(0.5..9.0f64, 36)) {
            let data = &seed[..rows * n];
            let call = Staged::new("rms_norm", json!({"normalized_shape": [n], "eps": 0.0}))
                .input("input", &[rows, n], data)
                .output(&[rows, n]);
            for (y, x) in call.values(0).chunks(n).zip(data.chunks(n)) {
                prop_assert!((y.iter().map(|y| y * y).sum::<f64>() / n as f64 - 1.0).abs() < 1e-12);
                prop_assert!((y[0] * x[n - 1] - y[n - 1] * x[0]).abs() < 1e-10, "one factor for the row");
            }
        }
    }
}
