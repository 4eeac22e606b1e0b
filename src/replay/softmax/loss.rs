//! Losses that are computed element by element and then reduced.

use ndarray::IxDyn;

use super::reduce::Reduction;
use crate::replay::answer::{arguments, broadcast_shape, expect_shapes, required};
use crate::replay::{Call, Operand, References, Unmodelled};

/// `mse_loss(self, target, reduction)`: (x-t)².
pub(super) fn mse_loss(call: &Call) -> Result<References, Unmodelled> {
    pairwise(call, |x, t| ((x - t).powi(2), 0.0))
}

/// `l1_loss(self, target, reduction)`: |x-t|.
pub(super) fn l1_loss(call: &Call) -> Result<References, Unmodelled> {
    pairwise(call, |x, t| ((x - t).abs(), 0.0))
}

/// `smooth_l1_loss(self, target, reduction, beta)`: d²/(2β) below β, else |d|-β/2.
pub(super) fn smooth_l1_loss(call: &Call) -> Result<References, Unmodelled> {
    let beta = call.number("beta", Some(1.0))?;
    pairwise(call, |x, t| {
        let d = (x - t).abs();
        if d < beta { (0.5 * d * d / beta, 0.0) } else { (d - 0.5 * beta, d) }
    })
}

/// `huber_loss(self, target, reduction, delta)`: d²/2 up to δ, else δ·(|d|-δ/2).
pub(super) fn huber_loss(call: &Call) -> Result<References, Unmodelled> {
    let delta = call.number("delta", Some(1.0))?;
    pairwise(call, |x, t| {
        let d = (x - t).abs();
        if d <= delta { (0.5 * d * d, 0.0) } else { (delta * (d - 0.5 * delta), (delta * d).abs()) }
    })
}

/// `kl_div(self, target, reduction, log_target)`: t·(log t - x), of a target in logarithms
/// exp(t)·(t - x); t = 0 gives 0.
pub(super) fn kl_div(call: &Call) -> Result<References, Unmodelled> {
    let logarithmic = call.flag("log_target", false)?;
    pairwise(call, |x, t| {
        if logarithmic {
            return (t.exp() * (t - x), t.exp() * (t.abs() * (1.0 + (t - x).abs()) + x.abs()));
        }
        let entropy = if t == 0.0 { 0.0 } else { t * t.ln() };
        (entropy - t * x, entropy.abs() + (t * x).abs())
    })
}

/// `binary_cross_entropy(self, target, weight, reduction)`: -w·(t·log p + (1-t)·log(1-p)), the
/// logarithms no smaller than -100. 1-p is rounded before its logarithm, which answers absolutely.
pub(super) fn binary_cross_entropy(call: &Call) -> Result<References, Unmodelled> {
    let [input, target, weight] = arguments(call, [&["self", "input"], &["target"], &["weight"]])?;
    let operands = [required(call, input, "self")?, required(call, target, "target")?];
    let operands: Vec<&Operand> = operands.into_iter().chain(weight).collect();
    elementwise(call, &operands, |v| {
        let (p, t, w) = (v[0], v[1], v.get(2).copied().unwrap_or(1.0));
        // The comparison that keeps NaN.
        let clamp = |log: f64| if log < -100.0 { -100.0 } else { log };
        let (yes, no) = (clamp(p.ln()), clamp((-p).ln_1p()));
        (-w * (t * yes + (1.0 - t) * no), w.abs() * ((t * yes).abs() + (1.0 - t).abs() * (no.abs() + 1.0)))
    })
}

/// `binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction)`:
/// w·((1-t)·x + (1+(q-1)·t)·(log(1+exp(-|x|)) + max(-x, 0))).
pub(super) fn binary_cross_entropy_with_logits(call: &Call) -> Result<References, Unmodelled> {
    let [input, target, weight, positive] =
        arguments(call, [&["self", "input"], &["target"], &["weight"], &["pos_weight"]])?;
    let mut operands = vec![required(call, input, "self")?, required(call, target, "target")?];
    operands.extend(weight);
    operands.extend(positive);
    let (weighted, balanced) = (weight.is_some(), positive.is_some());
    elementwise(call, &operands, |v| {
        let (x, t) = (v[0], v[1]);
        let w = if weighted { v[2] } else { 1.0 };
        let q = if balanced { v[v.len() - 1] } else { 1.0 };
        // log(1+exp(-x)), which is at most log(1+exp(-|x|)) + |x|.
        let soft = (-x.abs()).exp().ln_1p() + if x < 0.0 { -x } else { 0.0 };
        let factor = 1.0 + (q - 1.0) * t;
        (
            w * ((1.0 - t) * x + factor * soft),
            w.abs() * (((1.0 - t) * x).abs() + factor.abs() * (soft + x.abs().min(1.0))),
        )
    })
}

fn pairwise(call: &Call, f: impl Fn(f64, f64) -> (f64, f64)) -> Result<References, Unmodelled> {
    let [input, target] = arguments(call, [&["self", "input"], &["target"]])?;
    let operands = [required(call, input, "self")?, required(call, target, "target")?];
    elementwise(call, &operands, |v| f(v[0], v[1]))
}

/// Applies `f` (values of the operands -> value and scale) over the operands broadcast, and reduces.
fn elementwise(call: &Call, operands: &[&Operand], f: impl Fn(&[f64]) -> (f64, f64)) -> Result<References, Unmodelled> {
    let reduction = Reduction::of(call)?;
    let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.value.shape()).collect();
    let unfit = || Unmodelled(format!("shapes {shapes:?} do not broadcast"));
    let shape = broadcast_shape(&shapes).ok_or_else(unfit)?;
    expect_shapes(call, &[&reduction.shape(&shape)])?;
    let count = shape.iter().product::<usize>();
    // Terms that are reduced are no output that a file vouches for.
    let recorded = operands.iter().map(|operand| operand.value.len()).sum::<usize>();
    if reduction != Reduction::None && count > recorded.saturating_mul(4) {
        return Err(Unmodelled(format!("shapes {shapes:?} broadcast to {count} terms from {recorded} elements")));
    }
    let views = operands.iter().map(|operand| operand.value.broadcast(IxDyn(&shape))).collect::<Option<Vec<_>>>();
    let views = views.ok_or_else(unfit)?;
    let mut cursors: Vec<_> = views.iter().map(|view| view.iter()).collect();
    let mut values = vec![0.0; cursors.len()];
    let (mut value, mut scale) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        for (slot, cursor) in values.iter_mut().zip(&mut cursors) {
            *slot = cursor.next().copied().unwrap_or(f64::NAN);
        }
        let (v, s) = f(&values);
        value.push(v);
        scale.push(s.max(v.abs()));
    }
    Ok(vec![Some(reduction.apply(&shape, value, scale, count as f64)?)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::replay::staged::{Staged, assert_close};

    fn none(function: &str, mut attrs: Value, x: &[f64], t: &[f64]) -> Vec<f64> {
        attrs["reduction"] = json!(0);
        let n = [x.len()];
        Staged::new(function, attrs).input("self", &n, x).input("target", &n, t).output(&n).values(0)
    }

    #[test]
    fn each_by_hand() {
        assert_close(&none("mse_loss", json!({}), &[3.0, 1.0], &[1.0, 1.0]), &[4.0, 0.0]);
        assert_close(&none("l1_loss", json!({}), &[3.0, 1.0], &[1.0, 2.0]), &[2.0, 1.0]);
        assert_close(&none("smooth_l1_loss", json!({"beta": 2.0}), &[1.0, 3.0], &[0.0, 0.0]), &[0.25, 2.0]);
        assert_close(&none("huber_loss", json!({"delta": 2.0}), &[1.0, 3.0], &[0.0, 0.0]), &[0.5, 4.0]);
        assert_close(&none("kl_div", json!({}), &[-1.0, -1.0], &[0.5, 0.0]), &[0.5 * 0.5f64.ln() + 0.5, 0.0]);
        assert_close(&none("kl_div", json!({"log_target": true}), &[-1.0], &[0.0]), &[1.0]);
        assert_close(
            &none("binary_cross_entropy", json!({}), &[0.25, 0.25, 0.0], &[1.0, 0.0, 1.0]),
            &[-(0.25f64.ln()), -(0.75f64.ln()), 100.0],
        );
        assert_close(
            &none("binary_cross_entropy_with_logits", json!({}), &[0.0, 1000.0, -1000.0], &[1.0, 0.0, 1.0]),
            &[2f64.ln(), 1000.0, 1000.0],
        );
    }

    #[test]
    fn weights_broadcast_and_means_divide_by_all_terms() {
        let call = Staged::new("binary_cross_entropy_with_logits", json!({"reduction": "mean", "weight": null}))
            .input("self", &[2, 2], &[0.0; 4])
            .input("target", &[2, 2], &[1.0, 1.0, 0.0, 0.0])
            .input("pos_weight", &[2], &[1.0, 3.0])
            .output(&[]);
        assert_close(&call.values(0), &[2f64.ln() * (1.0 + 3.0 + 1.0 + 1.0) / 4.0]);
        let batch = Staged::new("kl_div", json!({"reduction": "batchmean"}))
            .input("self", &[2, 2], &[-1.0; 4])
            .input("target", &[2, 2], &[1.0; 4])
            .output(&[]);
        assert_close(&batch.values(0), &[2.0]);
    }

    #[test]
    fn broadcasts_that_no_file_vouches_for_are_refused() {
        let n = 400;
        let call = Staged::new("mse_loss", json!({"reduction": 1}))
            .input("self", &[n, 1], &vec![0.0; n])
            .input("target", &[1, n], &vec![0.0; n])
            .output(&[]);
        assert!(call.refusal().contains("160000 terms from 800"));
        let unfit = Staged::new("mse_loss", json!({})).input("self", &[2], &[0.0; 2]).input("target", &[3], &[0.0; 3]);
        assert!(unfit.output(&[]).refusal().contains("do not broadcast"));
        let unknown = Staged::new("mse_loss", json!(null)).input("", &[1], &[0.0]).input("", &[1], &[0.0]).output(&[]);
        assert!(unknown.refusal().contains("attributes"));
    }

    #[test]
    fn nan_stays_nan() {
        for function in
            ["mse_loss", "smooth_l1_loss", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits"]
        {
            assert!(none(function, json!({}), &[f64::NAN], &[0.5])[0].is_nan(), "{function}");
        }
    }

    proptest! {
        /// With logits it is the plain loss of the sigmoid.
        #[test]
        fn logits_agree_with_probabilities(x in proptest::collection::vec(-6.0..6.0f64, 5), t in proptest::collection::vec(0.0..1.0f64, 5)) {
            let p: Vec<f64> = x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            let (with, plain) = (none("binary_cross_entropy_with_logits", json!({}), &x, &t), none("binary_cross_entropy", json!({}), &p, &t));
            for (a, b) in with.iter().zip(&plain) {
                prop_assert!((a - b).abs() < 1e-10, "{a} against {b}");
            }
        }

        #[test]
        fn mean_times_count_is_the_sum(x in proptest::collection::vec(-6.0..6.0f64, 1..9), t in -3.0..3.0f64) {
            let reduced = |reduction| Staged::new("mse_loss", json!({"reduction": reduction})).input("self", &[x.len()], &x).input("target", &[1], &[t]).output(&[]).values(0)[0];
            let expected: f64 = x.iter().map(|x| (x - t) * (x - t)).sum();
            prop_assert!((reduced(2) - expected).abs() < 1e-9);
            prop_assert!((reduced(1) * x.len() as f64 - expected).abs() < 1e-9);
        }
    }
}
