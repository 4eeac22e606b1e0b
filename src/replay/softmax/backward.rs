//! Gradients of softmax and log-softmax, from the recorded result of the forward.

use super::SOFTMAX_ULP;
use crate::replay::answer::{arguments, expect_shapes, required, with_summation};
use crate::replay::lanes::{Lanes, sum};
use crate::replay::{Call, Reference, References, Unmodelled};

/// `_softmax_backward_data(grad_output, output, dim)`: y·(g - Σ g·y), held against |y|·(|g| + Σ|g·y|).
pub(super) fn softmax_backward(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, |g, y, value, scale| {
        let total = sum(g.iter().zip(y).map(|(g, y)| g * y));
        let size = sum(g.iter().zip(y).map(|(g, y)| (g * y).abs()));
        for at in 0..y.len() {
            value[at] = y[at] * (g[at] - total);
            scale[at] = y[at].abs() * (g[at].abs() + size);
        }
    })
}

/// `_log_softmax_backward_data(grad_output, output, dim)`: g - exp(y)·Σ g, held against
/// |g| + exp(y)·(1+|y|)·Σ|g|.
pub(super) fn log_softmax_backward(call: &Call) -> Result<References, Unmodelled> {
    gradient(call, |g, y, value, scale| {
        let total = sum(g.iter().copied());
        let size = sum(g.iter().map(|g| g.abs()));
        for at in 0..y.len() {
            let p = y[at].exp();
            value[at] = g[at] - p * total;
            // exp(-inf) is 0 without error, and 0·inf would not say so.
            let steep = if p == 0.0 { 0.0 } else { p * (1.0 + y[at].abs()) };
            scale[at] = g[at].abs() + steep * size;
        }
    })
}

fn gradient(call: &Call, f: impl Fn(&[f64], &[f64], &mut [f64], &mut [f64]) + Sync) -> Result<References, Unmodelled> {
    let [grad, output] = arguments(call, [&["grad_output", "grad"], &["output", "result"]])?;
    let (grad, output) = (required(call, grad, "grad_output")?, required(call, output, "output")?);
    let shape = output.value.shape();
    if grad.value.shape() != shape {
        return Err(Unmodelled(format!("gradient {:?} and result {shape:?} differ in shape", grad.value.shape())));
    }
    let axis = call.axis("dim", None, shape.len())?;
    expect_shapes(call, &[shape])?;
    let lanes = Lanes::over(shape, &[axis]);
    let (y, g) = (lanes.gather(&output.value), lanes.gather(&grad.value));
    let (value, scale) =
        lanes.map(&y, |row, y, value, scale| f(&g[row * y.len()..(row + 1) * y.len()], y, value, scale));
    let ulp = with_summation(SOFTMAX_ULP, lanes.len());
    Ok(vec![Some(Reference::function(lanes.restore(value)?, lanes.restore(scale)?, ulp))])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    fn staged(function: &str, shape: &[usize], g: &[f64], y: &[f64], dim: i64) -> Staged {
        Staged::new(function, json!({"dim": dim, "input_dtype": "float32"}))
            .input("grad_output", shape, g)
            .input("output", shape, y)
            .output(shape)
    }

    #[test]
    fn by_hand() {
        let soft = staged("_softmax_backward_data", &[2], &[1.0, 3.0], &[0.25, 0.75], 0);
        assert_close(&soft.values(0), &[0.25 * (1.0 - 2.5), 0.75 * (3.0 - 2.5)]);
        let half = 0.5f64.ln();
        let log = staged("_log_softmax_backward_data", &[2], &[1.0, 3.0], &[half, half], 0);
        assert_close(&log.values(0), &[-1.0, 1.0]);
        let masked = staged("_log_softmax_backward_data", &[2], &[1.0, 0.0], &[0.0, f64::NEG_INFINITY], -1);
        assert_close(&masked.values(0), &[0.0, 0.0]);
    }

    #[test]
    fn shapes_must_agree() {
        let call = Staged::new("_softmax_backward_data", json!({"dim": 0}))
            .input("grad_output", &[1], &[1.0])
            .input("output", &[2], &[0.5; 2])
            .output(&[2]);
        assert!(call.refusal().contains("differ in shape"));
    }

    proptest! {
        /// Against central differences of Σ g·softmax(x), along the first of two axes.
        #[test]
        fn agrees_with_differences(
            x in proptest::collection::vec(-3.0..3.0f64, 6), g in proptest::collection::vec(-2.0..2.0f64, 6),
        ) {
            for (forward, backward) in [("softmax", "_softmax_backward_data"), ("log_softmax", "_log_softmax_backward_data")] {
                let run = |x: &[f64]| Staged::new(forward, json!({"dim": 0})).input("self", &[3, 2], x).output(&[3, 2]).values(0);
                let found = staged(backward, &[3, 2], &g, &run(&x), -2).values(0);
                for at in 0..6 {
                    let loss = |by: f64| {
                        let mut x = x.clone();
                        x[at] += by;
                        run(&x).iter().zip(&g).map(|(y, g)| y * g).sum::<f64>()
                    };
                    let difference = (loss(1e-4) - loss(-1e-4)) / 2e-4;
                    prop_assert!((found[at] - difference).abs() < 1e-6, "{} against {difference}", found[at]);
                }
            }
        }
    }
}
