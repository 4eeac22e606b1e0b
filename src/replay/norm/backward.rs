//! Gradients of layer norm, from the mean and rstd that the forward saved, or from its eps.

use super::NORM_ULP;
use super::layer::trailing;
use super::moments::moments;
use crate::replay::answer::{arguments, elements, expect_shapes, required, with_summation};
use crate::replay::lanes::{Lanes, array, sum};
use crate::replay::{Call, Reference, References, Unmodelled};

/// `native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias,
/// output_mask)`: the gradients of input, weight and bias that the mask asks for. With
/// x̂ = (x-μ)·rstd and h = g·γ: dx = rstd·(h - mean(h) - x̂·mean(h·x̂)), dγ = Σ g·x̂, dβ = Σ g.
pub(super) fn layer_norm_backward(call: &Call) -> Result<References, Unmodelled> {
    let [grad, input, mean, rstd, weight, bias] =
        arguments(call, [&["grad_out", "grad_output"], &["input"], &["mean"], &["rstd"], &["weight"], &["bias"]])?;
    let (grad, input) = (required(call, grad, "grad_out")?, required(call, input, "input")?);
    let mask = mask(call)?;
    let lanes = trailing(call, input, &[weight, bias])?;
    let shape = input.value.shape();
    let (mean, rstd) = match (mean, rstd) {
        // A recorder above autograd knows the forward's eps and not what it saved.
        (None, None) if call.attr("eps")?.is_some() => {
            let eps = call.number("eps", None)?;
            let data = lanes.gather(&input.value);
            lanes.each(&data, |row| (moments(row).mean, moments(row).rstd(eps))).into_iter().unzip()
        }
        (mean, rstd) => (elements(required(call, mean, "mean")?), elements(required(call, rstd, "rstd")?)),
    };
    if grad.value.shape() != shape || mean.len() != lanes.rows() || rstd.len() != lanes.rows() {
        return Err(Unmodelled("gradient or saved statistics do not fit the input".into()));
    }
    let inner = shape.get(lanes.kept_shape(false).len()..).unwrap_or_default();
    // A recorder leaves gradients that were not asked for out, or records a place holder.
    let slots: Vec<Option<usize>> = if call.outputs.len() == 3 {
        (0..3).map(|at| mask[at].then_some(at)).collect()
    } else {
        (0..3).filter(|&at| mask[at]).map(Some).collect()
    };
    let placeholder: Vec<Vec<usize>> = call.outputs.iter().map(|output| output.shape.clone()).collect();
    let shapes: Vec<&[usize]> = slots
        .iter()
        .enumerate()
        .map(|(at, slot)| match slot {
            Some(0) => shape,
            Some(_) => inner,
            None => placeholder.get(at).map_or(&[][..], Vec::as_slice),
        })
        .collect();
    expect_shapes(call, &shapes)?;
    let task = Task { lanes, x: elements(input), g: elements(grad), mean, rstd, gamma: weight.map(elements) };
    let gradient = |slot: &Option<usize>| match slot {
        None => Ok(None),
        Some(0) => task.of_input(shape).map(Some),
        Some(1) => task
            .of_parameter(inner, |g, x, mean, rstd| (g * (x - mean) * rstd, (x.abs() + mean.abs()) * rstd * g.abs()))
            .map(Some),
        Some(_) => task.of_parameter(inner, |g, _, _, _| (g, g.abs())).map(Some),
    };
    slots.iter().take(call.outputs.len()).map(gradient).collect()
}

/// Which of the three gradients were asked for; all where nothing is said.
fn mask(call: &Call) -> Result<[bool; 3], Unmodelled> {
    let wrong = || Unmodelled("output_mask is no list of three booleans".into());
    let Some(value) = call.attr("output_mask")? else { return Ok([true; 3]) };
    let flags: Option<Vec<bool>> =
        value.as_array().and_then(|list| list.iter().map(serde_json::Value::as_bool).collect());
    flags.and_then(|flags| flags.try_into().ok()).ok_or_else(wrong)
}

struct Task {
    lanes: Lanes,
    x: Vec<f64>,
    g: Vec<f64>,
    mean: Vec<f64>,
    rstd: Vec<f64>,
    gamma: Option<Vec<f64>>,
}

impl Task {
    fn of_input(&self, shape: &[usize]) -> Result<Reference, Unmodelled> {
        let n = self.lanes.len() as f64;
        let (value, scale) = self.lanes.map(&self.x, |row, x, value, scale| {
            let start = row * x.len();
            let (mean, rstd) = (self.mean[row], self.rstd[row]);
            let h: Vec<f64> = (0..x.len())
                .map(|at| self.g[start + at] * self.gamma.as_ref().map_or(1.0, |gamma| gamma[at]))
                .collect();
            let hat = |x: f64| (x - mean) * rstd;
            let size = |x: f64| (x.abs() + mean.abs()) * rstd;
            let of_h = sum(h.iter().copied()) / n;
            let of_hx = sum(h.iter().zip(x).map(|(h, x)| h * hat(*x))) / n;
            let abs_h = sum(h.iter().map(|h| h.abs())) / n;
            let abs_hx = sum(h.iter().zip(x).map(|(h, x)| h.abs() * size(*x))) / n;
            for at in 0..x.len() {
                value[at] = rstd * (h[at] - of_h - hat(x[at]) * of_hx);
                scale[at] = rstd.abs() * (h[at].abs() + abs_h + size(x[at]) * abs_hx);
            }
        });
        let ulp = with_summation(NORM_ULP, self.lanes.len());
        Ok(Reference::function(array(shape, value)?, array(shape, scale)?, ulp))
    }

    /// Sums `term(g, x, μ, rstd)` (a value and its magnitude) over the rows.
    fn of_parameter(
        &self,
        shape: &[usize],
        term: impl Fn(f64, f64, f64, f64) -> (f64, f64),
    ) -> Result<Reference, Unmodelled> {
        let n = self.lanes.len();
        let (mut value, mut scale, mut squares) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let rows = self.x.chunks_exact(n.max(1)).zip(self.g.chunks_exact(n.max(1)));
        for ((x, g), (mean, rstd)) in rows.zip(self.mean.iter().zip(&self.rstd)) {
            for at in 0..n {
                let (v, s) = term(g[at], x[at], *mean, *rstd);
                value[at] += v;
                scale[at] += s;
                squares[at] += v * v;
            }
        }
        Ok(Reference::summed(array(shape, value)?, array(shape, scale)?, self.lanes.rows(), array(shape, squares)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    fn staged(rows: usize, n: usize, x: &[f64], g: &[f64], gamma: &[f64], eps: f64) -> Staged {
        let mut mean = Vec::new();
        let mut rstd = Vec::new();
        for row in x.chunks(n) {
            let m = row.iter().sum::<f64>() / n as f64;
            mean.push(m);
            rstd.push(1.0 / (row.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n as f64 + eps).sqrt());
        }
        let attrs = json!({"normalized_shape": [n], "output_mask": [true, true, true]});
        Staged::new("native_layer_norm_backward", attrs)
            .input("grad_out", &[rows, n], g)
            .input("input", &[rows, n], x)
            .input("mean", &[rows, 1], &mean)
            .input("rstd", &[rows, 1], &rstd)
            .input("weight", &[n], gamma)
    }

    #[test]
    fn by_hand() {
        // x̂ = ∓0.5 (eps 3), h = (2, 0): mean(h) = 1, mean(h·x̂) = -0.5.
        let call = staged(1, 2, &[1.0, 3.0], &[1.0, 0.0], &[2.0, 5.0], 3.0).output(&[1, 2]).output(&[2]).output(&[2]);
        assert_close(&call.values(0), &[0.5 * (2.0 - 1.0 - 0.25), 0.5 * (-1.0 + 0.25)]);
        assert_close(&call.values(1), &[-0.5, 0.0]);
        assert_close(&call.values(2), &[1.0, 0.0]);
    }

    #[test]
    fn gradients_that_were_not_asked_for_are_left_out() {
        let attrs = json!({"normalized_shape": [1], "output_mask": [false, false, true]});
        let call = Staged::new("native_layer_norm_backward", attrs)
            .input("grad_out", &[2, 1], &[1.0, 2.0])
            .input("input", &[2, 1], &[1.0, 2.0])
            .input("mean", &[2, 1], &[1.0, 2.0])
            .input("rstd", &[2, 1], &[1.0, 1.0]);
        assert_eq!(call.clone().output(&[1]).values(0), [3.0]);
        let full = call.output(&[0]).output(&[0]).output(&[1]).replay().unwrap();
        assert!(full[0].is_none() && full[1].is_none() && full[2].is_some());
    }

    #[test]
    fn statistics_of_other_rows_are_refused() {
        let call = Staged::new("native_layer_norm_backward", json!({"normalized_shape": [1]}))
            .input("grad_out", &[2, 1], &[1.0, 2.0])
            .input("input", &[2, 1], &[1.0, 2.0])
            .input("mean", &[1, 1], &[1.0])
            .input("rstd", &[1, 1], &[1.0])
            .output(&[2, 1]);
        assert!(call.refusal().contains("do not fit"));
    }

    #[test]
    fn statistics_that_were_not_saved_follow_from_eps() {
        let (x, g) = ([1.0, 3.0, -2.0, 0.5], [1.0, 0.0, 2.0, -1.0]);
        let saved = staged(2, 2, &x, &g, &[2.0, 5.0], 3.0).output(&[2, 2]);
        let call = |attrs| {
            Staged::new("layer_norm_backward", attrs)
                .input("grad_out", &[2, 2], &g)
                .input("input", &[2, 2], &x)
                .input("weight", &[2], &[2.0, 5.0])
                .output(&[2, 2])
        };
        let known = json!({"normalized_shape": [2], "eps": 3.0, "output_mask": [true, false, false]});
        assert_close(&call(known).values(0), &saved.values(0));
        assert!(call(json!({"normalized_shape": [2]})).refusal().contains("mean"));
    }

    proptest! {
        /// Against central differences of Σ g·layer_norm(x).
        #[test]
        fn agrees_with_differences(
            rows in 1usize..3, n in 2usize..5,
            x in proptest::collection::vec(-3.0..3.0f64, 8), g in proptest::collection::vec(-2.0..2.0f64, 8),
            gamma in proptest::collection::vec(-2.0..2.0f64, 4),
        ) {
            let (x, g, gamma) = (&x[..rows * n], &g[..rows * n], &gamma[..n]);
            let loss = |x: &[f64]| {
                let y = Staged::new("layer_norm", json!({"normalized_shape": [n], "eps": 0.5}))
                    .input("input", &[rows, n], x)
                    .input("weight", &[n], gamma)
                    .output(&[rows, n])
                    .values(0);
                y.iter().zip(g).map(|(y, g)| y * g).sum::<f64>()
            };
            let found = staged(rows, n, x, g, gamma, 0.5).output(&[rows, n]).values(0);
            for at in 0..x.len() {
                let moved = |by: f64| {
                    let mut x = x.to_vec();
                    x[at] += by;
                    loss(&x)
                };
                let difference = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                prop_assert!((found[at] - difference).abs() < 1e-5, "{} against {difference}", found[at]);
            }
        }
    }
}
