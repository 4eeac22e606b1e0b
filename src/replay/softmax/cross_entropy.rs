//! Cross-entropy of logits with class labels or class probabilities.

use super::nll::{class_rows, class_weights, labels};
use super::probabilities::{log_scale, log_sum_exp};
use super::reduce::Reduction;
use crate::replay::answer::{arguments, expect_shapes, required};
use crate::replay::lanes::sum;
use crate::replay::{Call, References, Unmodelled};
use crate::tensor::Kind;

/// `cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing)`. With labels
/// the loss of a position is -(1-ε)·w[y]·log p[y] - ε/C·Σ w[c]·log p[c] and a mean divides by the
/// weights of the labels that count; with probabilities t it is -Σ w[c]·((1-ε)·t[c]+ε/C)·log p[c] and
/// a mean divides by the number of positions (torch.nn.CrossEntropyLoss).
pub(super) fn cross_entropy(call: &Call) -> Result<References, Unmodelled> {
    let [input, target, weight] = arguments(call, [&["self", "input"], &["target"], &["weight"]])?;
    let (input, target) = (required(call, input, "self")?, required(call, target, "target")?);
    let reduction = Reduction::of(call)?;
    let smoothing = call.number("label_smoothing", Some(0.0))?;
    let (lanes, positions) = class_rows(input)?;
    expect_shapes(call, &[&reduction.shape(&positions)])?;
    let classes = lanes.len();
    let weights = class_weights(weight, classes)?;
    let data = lanes.gather(&input.value);
    let share = smoothing / classes as f64;
    let rows = |row: usize| &data[row * classes..(row + 1) * classes];
    let probabilities = target.dtype.kind() == Kind::Float && target.value.shape() == input.value.shape();
    let (terms, count): (Vec<(f64, f64)>, f64) = if probabilities {
        let target = lanes.gather(&target.value);
        let coefficient =
            |row: usize, class: usize| weights[class] * (target[row * classes + class] * (1.0 - smoothing) + share);
        let terms = (0..lanes.rows()).map(|row| position(rows(row), |class| coefficient(row, class))).collect();
        (terms, lanes.rows() as f64)
    } else {
        let labels = labels(call, target, &positions, classes)?;
        let term = |(row, label): (usize, &Option<usize>)| match label {
            None => (0.0, 0.0),
            Some(label) => position(rows(row), |class| {
                let own = if class == *label { 1.0 - smoothing } else { 0.0 };
                weights[class] * (own + share)
            }),
        };
        let terms = labels.iter().enumerate().map(term).collect();
        (terms, sum(labels.iter().flatten().map(|&label| weights[label])))
    };
    let (value, scale) = terms.into_iter().unzip();
    Ok(vec![Some(reduction.apply(&positions, value, scale, count)?)])
}

/// -Σ coefficient·log p of one position, and what it is held against. A class with coefficient 0 does
/// not count: torch picks the label's class, and 0·-inf would be NaN.
fn position(row: &[f64], coefficient: impl Fn(usize) -> f64) -> (f64, f64) {
    let total = log_sum_exp(row);
    let counted = || row.iter().enumerate().map(|(class, x)| (coefficient(class), *x)).filter(|(c, _)| *c != 0.0);
    let value = sum(counted().map(|(c, x)| -c * (x - total)));
    (value, sum(counted().map(|(c, x)| c.abs() * log_scale(x, total))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    /// Row 0 has p = (1/4, 3/4), row 1 has p = (1/2, 1/2).
    fn staged(attrs: serde_json::Value) -> Staged {
        Staged::new("cross_entropy_loss", attrs).input("self", &[2, 2], &[0.0, 3f64.ln(), 7.0, 7.0])
    }

    fn log(p: f64) -> f64 {
        -p.ln()
    }

    #[test]
    fn labels_weights_and_smoothing_by_hand() {
        let labels = |attrs| staged(attrs).typed("target", DType::I64, &[2], &[1.0, 0.0]);
        assert_close(&labels(json!({"reduction": 0})).output(&[2]).values(0), &[log(0.75), log(0.5)]);
        assert_close(&labels(json!({})).output(&[]).values(0), &[(log(0.75) + log(0.5)) / 2.0]);
        let weighted = labels(json!({"reduction": "mean"})).input("weight", &[2], &[1.0, 3.0]).output(&[]);
        assert_close(&weighted.values(0), &[(3.0 * log(0.75) + log(0.5)) / 4.0]);
        let smooth = labels(json!({"reduction": "none", "label_smoothing": 0.2})).output(&[2]);
        assert_close(&smooth.values(0), &[0.9 * log(0.75) + 0.1 * log(0.25), log(0.5)]);
        let ignored = labels(json!({"ignore_index": 0})).output(&[]);
        assert_close(&ignored.values(0), &[log(0.75)]);
    }

    #[test]
    fn probabilities_by_hand() {
        let call = staged(json!({"reduction": 1})).input("target", &[2, 2], &[0.5, 0.5, 1.0, 0.0]).output(&[]);
        assert_close(&call.values(0), &[(0.5 * log(0.25) + 0.5 * log(0.75) + log(0.5)) / 2.0]);
    }

    #[test]
    fn a_class_that_is_masked_does_not_count() {
        let call = Staged::new("cross_entropy_loss", json!({}))
            .input("self", &[2], &[1.0, f64::NEG_INFINITY])
            .typed("target", DType::I64, &[], &[0.0])
            .output(&[]);
        assert_close(&call.values(0), &[0.0]);
        assert!(
            staged(json!(null))
                .typed("target", DType::I64, &[2], &[0.0; 2])
                .output(&[])
                .refusal()
                .contains("attributes")
        );
    }

    proptest! {
        /// Cross-entropy is the negative log-likelihood of the log-softmax.
        #[test]
        fn composes_of_log_softmax_and_nll(
            n in 1usize..4, c in 1usize..5, d in 1usize..3,
            x in proptest::collection::vec(-9.0..9.0f64, 30), picks in proptest::collection::vec(0usize..60, 6),
            weights in proptest::collection::vec(0.1..2.0f64, 4), reduction in 0..3i64,
        ) {
            let shape = [n, c, d];
            let x = &x[..(n * c * d).min(x.len())];
            prop_assume!(x.len() == n * c * d);
            let target: Vec<f64> = picks[..n * d].iter().map(|p| (p % c) as f64).collect();
            let out: &[usize] = if reduction == 0 { &[n, d] } else { &[] };
            let attrs = json!({"reduction": reduction});
            let loss = |function, x: &[f64]| {
                Staged::new(function, attrs.clone())
                    .input("self", &shape, x)
                    .typed("target", DType::I64, &[n, d], &target)
                    .input("weight", &[c], &weights[..c])
                    .output(out)
                    .values(0)
            };
            let log = Staged::new("log_softmax", json!({"dim": 1})).input("self", &shape, x).output(&shape).values(0);
            assert_close(&loss("cross_entropy_loss", x), &loss("nll_loss", &log));
        }
    }
}
