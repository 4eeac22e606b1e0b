//! Layer norm: γ·(x-μ)/sqrt(var+eps)+β over the trailing axes, with mean and rstd as torch saves them.

use super::moments::{Affine, moments, normalise, saved};
use crate::replay::answer::{answer, arguments, elements, expect_shapes, required};
use crate::replay::lanes::Lanes;
use crate::replay::{Call, Operand, References, Unmodelled};

/// `layer_norm(input, normalized_shape, weight, bias, eps)`: y, and for `native_layer_norm` mean and
/// rstd, whose normalised axes have extent 1.
pub(super) fn layer_norm(call: &Call) -> Result<References, Unmodelled> {
    let [input, weight, bias] = arguments(call, [&["input", "self"], &["weight"], &["bias"]])?;
    let input = required(call, input, "input")?;
    let eps = call.number("eps", Some(1e-5))?;
    let lanes = trailing(call, input, &[weight, bias])?;
    let shape = input.value.shape();
    let kept = lanes.kept_shape(true);
    expect_shapes(call, &[shape, &kept, &kept])?;
    let data = lanes.gather(&input.value);
    let stats = lanes.each(&data, moments);
    let affine = Affine { gamma: weight.map(elements), beta: bias.map(elements) };
    let dtype = call.outputs[0].dtype;
    let centre = |row: usize| stats[row].centre(eps, dtype);
    let y = normalise(&lanes, &data, centre, &affine, |_, at| at)?;
    if call.outputs.len() == 1 {
        return Ok(vec![Some(y)]);
    }
    let (mean, rstd) = saved(&stats, eps, lanes.len(), &kept)?;
    answer(call, vec![Some(y), Some(mean), Some(rstd)])
}

/// Rows over the trailing axes that are normalised: `normalized_shape`, else the shape of the affine
/// parameters.
///
/// # Errors
/// Neither was recorded; they do not agree with each other or with the end of the input's shape.
pub(super) fn trailing(call: &Call, input: &Operand, parameters: &[Option<&Operand>]) -> Result<Lanes, Unmodelled> {
    let shape = input.value.shape();
    let stated = match call.attrs {
        Some(_) => call.integers("normalized_shape")?,
        None => None,
    };
    let stated: Option<Vec<usize>> = match stated {
        Some(extents) => Some(
            extents
                .iter()
                .map(|&extent| usize::try_from(extent))
                .collect::<Result<_, _>>()
                .map_err(|_| Unmodelled(format!("normalized_shape {extents:?} has a negative extent")))?,
        ),
        None => None,
    };
    let parameter = parameters.iter().flatten().map(|parameter| parameter.value.shape());
    let normalised = match (&stated, parameter.clone().next()) {
        (Some(stated), _) => stated.as_slice(),
        (None, Some(shape)) => shape,
        (None, None) => return Err(Unmodelled("the normalized shape was not recorded".into())),
    };
    if normalised.is_empty() || !shape.ends_with(normalised) {
        return Err(Unmodelled(format!("normalized shape {normalised:?} is not the end of the input's {shape:?}")));
    }
    if let Some(other) = parameter.clone().find(|shape| *shape != normalised) {
        return Err(Unmodelled(format!("parameter shape {other:?} is not the normalized {normalised:?}")));
    }
    let axes: Vec<usize> = (shape.len() - normalised.len()..shape.len()).collect();
    Ok(Lanes::over(shape, &axes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    #[test]
    fn three_outputs_by_hand() {
        // mean 2, variance 1, so that rstd is 1/sqrt(1 + 3) = 0.5.
        let call = Staged::new("native_layer_norm", json!({"normalized_shape": [2], "eps": 3.0}))
            .input("input", &[1, 2], &[1.0, 3.0])
            .input("weight", &[2], &[2.0, -4.0])
            .input("bias", &[2], &[10.0, 1.0])
            .output(&[1, 2])
            .output(&[1, 1])
            .output(&[1, 1]);
        assert_close(&call.values(0), &[9.0, -1.0]);
        assert_close(&call.values(1), &[2.0]);
        assert_close(&call.values(2), &[0.5]);
        let scale: Vec<f64> = call.reference(0).scale.iter().copied().collect();
        assert_close(&scale, &[2.0 * 0.5 * (1.0 + 2.0 + 2.0) + 10.0, 4.0 * 0.5 * (3.0 + 2.0 + 2.0) + 1.0]);
        let Exactness::Summed { terms, squares } = call.reference(1).exactness else { panic!("a mean is a sum") };
        assert_eq!(terms, 2);
        assert_close(&[squares[[0, 0]]], &[2.5]);
    }

    #[test]
    fn a_mean_that_cancels_blurs_the_row_in_fp32_alone() {
        let scale = |dtype| {
            let call = Staged::new("layer_norm", json!({"normalized_shape": [3], "eps": 0.0}))
                .input("input", &[3], &[0.0, 6.0, -6.0])
                .writes(dtype, &[3]);
            call.reference(0).scale[[0]]
        };
        assert!((scale(DType::F32) - 4.0 / 24f64.sqrt()).abs() < 1e-12, "Σ|x|/n is 4, σ² is 24");
        assert!(scale(DType::BF16) < 1e-4);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let call = |attrs, weight: &[usize]| {
            let ones = vec![1.0; weight.iter().product()];
            Staged::new("layer_norm", attrs).input("input", &[2, 3], &[0.0; 6]).input("weight", weight, &ones)
        };
        let refused = |call: Staged| call.output(&[2, 3]).refusal();
        assert!(refused(call(json!(null), &[3])).contains("not recorded"), "eps is not known");
        assert!(refused(call(json!({"normalized_shape": [4]}), &[3])).contains("end of the input"));
        assert!(refused(call(json!({"normalized_shape": [-1]}), &[3])).contains("negative"));
        assert!(refused(call(json!({"normalized_shape": [3]}), &[2, 3])).contains("not the normalized"));
        assert!(refused(call(json!({"normalized_shape": []}), &[3])).contains("end of the input"));
        let shape = call(json!({"normalized_shape": [3]}), &[3]).output(&[3, 2]).refusal();
        assert!(shape.contains("does not fit the recorded [3, 2]"), "{shape}");
    }

    #[test]
    fn specials_and_empty_rows_follow_ieee() {
        let nan = f64::NAN;
        let call = Staged::new("layer_norm", json!({"normalized_shape": [2]}))
            .input("input", &[2, 2], &[1.0, f64::INFINITY, 1.0, 1.0])
            .output(&[2, 2]);
        assert_close(&call.values(0), &[nan, nan, 0.0, 0.0]);
        let empty = Staged::new("layer_norm", json!({"normalized_shape": [3]})).input("input", &[0, 3], &[]);
        assert!(empty.output(&[0, 3]).values(0).is_empty());
        let empty = Staged::new("layer_norm", json!({"normalized_shape": [0]})).input("input", &[3, 0], &[]);
        assert!(empty.output(&[3, 0]).output(&[3, 1]).output(&[3, 1]).values(1).iter().all(|v| v.is_nan()));
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula_over_any_trailing_axes(
            (shape, inner, data) in (proptest::collection::vec(1usize..5, 1..4)).prop_flat_map(|shape| {
                let n = shape.iter().product::<usize>();
                let rank = shape.len();
                (Just(shape), 1..=rank, proptest::collection::vec(-100.0..100.0f64, n))
            }),
            eps in 1e-8..1.0f64,
        ) {
            let trailing = &shape[shape.len() - inner..];
            let n = trailing.iter().product::<usize>();
            let call = Staged::new("layer_norm", json!({"normalized_shape": trailing, "eps": eps}))
                .input("input", &shape, &data)
                .output(&shape);
            let mut expected = Vec::new();
            for row in data.chunks(n) {
                // The variance as E[x²]-E[x]², unlike the code under test.
                let mean = row.iter().sum::<f64>() / n as f64;
                let var = (row.iter().map(|x| x * x).sum::<f64>() / n as f64 - mean * mean).max(0.0);
                expected.extend(row.iter().map(|x| (x - mean) / (var + eps).sqrt()));
            }
            for (found, expected) in call.values(0).iter().zip(expected) {
                prop_assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{found} against {expected}");
            }
        }
    }
}
