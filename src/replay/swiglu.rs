//! SwiGLU, silu(a) · b over the two halves of one axis, and its gradient.
//!
//! In goes a call with one tensor and the axis that is halved; out comes the gated half with the
//! magnitude its rounding follows: silu's relative condition, 1 + |a| (1 - σ(a)), times |y|.

use ndarray::{ArrayD, ArrayViewD, Axis, Slice, Zip};

use super::contraction::product::fits;
use super::{Call, Exactness, Reference, References, Replay, Unmodelled};

/// exp, one addition, one division and two products, each within an ULP of the compute dtype.
const ULP: f64 = 4.0;

/// The functions of this family.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "swiglu" | "npu_swiglu" => swiglu,
        "swiglu_backward" | "npu_swiglu_backward" => swiglu_backward,
        _ => return None,
    })
}

/// `npu_swiglu(self, dim = -1)`: the first half along `dim` gates the second.
fn swiglu(call: &Call) -> Result<References, Unmodelled> {
    if call.inputs.len() != 1 {
        return Err(Unmodelled(format!("{} of {} tensors", call.function(), call.inputs.len())));
    }
    let x = call.input(&["self", "input", "x"], 0)?.value.view();
    let (axis, gate, up) = halves(call, &x)?;
    let mut shape = x.shape().to_vec();
    shape[axis.index()] /= 2;
    fits(call, 0, &shape)?;
    let mut value = ArrayD::zeros(gate.raw_dim());
    let mut scale = ArrayD::zeros(gate.raw_dim());
    Zip::from(&mut value).and(&mut scale).and(&gate).and(&up).for_each(|value, scale, &a, &b| {
        *value = silu(a) * b;
        *scale = value.abs() * condition(a);
    });
    Ok(vec![Some(Reference { value, scale, exactness: Exactness::Function { ulp: ULP, roundings: 0 } })])
}

/// `npu_swiglu_backward(grad, self, dim = -1)`: g b σ(a) (1 + a (1 - σ(a))) for the gate, g silu(a) for
/// the other half.
fn swiglu_backward(call: &Call) -> Result<References, Unmodelled> {
    if call.inputs.len() != 2 {
        return Err(Unmodelled(format!("{} of {} tensors", call.function(), call.inputs.len())));
    }
    let grad = call.input(&["grad", "grad_output", "grad_outputs"], 0)?.value.view();
    let x = call.input(&["self", "input", "x"], 1)?.value.view();
    let (axis, gate, up) = halves(call, &x)?;
    if grad.shape() != gate.shape() {
        return Err(Unmodelled(format!("gradient {:?} does not fit {:?}", grad.shape(), x.shape())));
    }
    fits(call, 0, x.shape())?;
    let (mut to_gate, mut gate_scale) = (ArrayD::zeros(gate.raw_dim()), ArrayD::zeros(gate.raw_dim()));
    let (mut to_up, mut up_scale) = (ArrayD::zeros(gate.raw_dim()), ArrayD::zeros(gate.raw_dim()));
    Zip::from(&mut to_gate).and(&mut gate_scale).and(&grad).and(&gate).and(&up).for_each(|value, scale, &g, &a, &b| {
        let sigma = sigmoid(a);
        *value = g * b * sigma * (1.0 + a * sigmoid(-a));
        // The bracket cancels near a = -1.28: what counts is what was added.
        *scale = (g * b * sigma).abs() * (1.0 + (a * sigmoid(-a)).abs()) * condition(a);
    });
    Zip::from(&mut to_up).and(&mut up_scale).and(&grad).and(&gate).for_each(|value, scale, &g, &a| {
        *value = g * silu(a);
        *scale = value.abs() * condition(a);
    });
    let joined = |first: &ArrayD<f64>, second: &ArrayD<f64>| {
        ndarray::concatenate(axis, &[first.view(), second.view()])
            .map_err(|_| Unmodelled(format!("halves of {} do not fit each other", call.function())))
    };
    let (value, scale) = (joined(&to_gate, &to_up)?, joined(&gate_scale, &up_scale)?);
    Ok(vec![Some(Reference { value, scale, exactness: Exactness::Function { ulp: ULP, roundings: 0 } })])
}

/// The axis that is halved, and both halves along it.
fn halves<'a>(
    call: &Call,
    x: &'a ArrayViewD<f64>,
) -> Result<(Axis, ArrayViewD<'a, f64>, ArrayViewD<'a, f64>), Unmodelled> {
    let axis = call.axis("dim", Some(-1), x.ndim())?;
    let extent = x.shape().get(axis).copied().unwrap_or(1);
    if extent % 2 != 0 {
        return Err(Unmodelled(format!("extent {extent} of {} has no halves", call.function())));
    }
    let axis = Axis(axis);
    let part = |from: usize, to: usize| x.slice_axis(axis, Slice::from(from..to));
    Ok((axis, part(0, extent / 2), part(extent / 2, extent)))
}

fn sigmoid(x: f64) -> f64 {
    // exp of a negative number alone: neither overflows nor cancels.
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// How silu magnifies a relative error of its argument; 1 where the argument is not finite.
fn condition(x: f64) -> f64 {
    let growth = 1.0 + (x * sigmoid(-x)).abs();
    if growth.is_finite() { growth } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::contraction::recorded::{noise, recorded};

    #[test]
    fn the_first_half_gates_the_second() {
        // silu(0) = 0, silu(1) = 1 / (1 + 1/e).
        let call = recorded("npu_swiglu").input("self", &[1, 4], &[0.0, 1.0, 5.0, 2.0]).attrs(json!({"dim": -1}));
        let values = call.output(&[1, 2]).values();
        assert_eq!(values[0], 0.0);
        assert!((values[1] - 2.0 / (1.0 + (-1f64).exp())).abs() < 1e-15);
        let rows = recorded("swiglu").input("self", &[2, 1], &[0.0, 9.0]).attrs(json!({"dim": 0}));
        assert_eq!(rows.output(&[1, 1]).values(), [0.0]);
    }

    #[test]
    fn large_arguments_neither_overflow_nor_vanish_early() {
        let x = [-1000.0, 1000.0, f64::NEG_INFINITY, f64::NAN, 1.0, 1.0, 1.0, 1.0];
        let reference = recorded("swiglu").input("self", &[8], &x).attrs(json!({})).output(&[4]).first();
        let values: Vec<_> = reference.value.iter().copied().collect();
        assert!(values[0] == 0.0 && values[1] == 1000.0 && values[2].is_nan() && values[3].is_nan());
        assert!(reference.scale[[1]] >= 1000.0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let odd = recorded("swiglu").input("self", &[3], &[0.0; 3]).attrs(json!({})).output(&[1]);
        assert!(odd.refusal().contains("halves"));
        let scalar = recorded("swiglu").input("self", &[], &[0.0]).attrs(json!({})).output(&[]);
        assert!(scalar.refusal().contains("halves"));
        let axis = recorded("swiglu").input("self", &[2], &[0.0; 2]).attrs(json!({"dim": 1})).output(&[1]);
        assert!(axis.refusal().contains("out of range"));
        let unknown = recorded("swiglu").input("self", &[2], &[0.0; 2]).output(&[1]);
        assert!(unknown.refusal().contains("not recorded"));
    }

    proptest! {
        #[test]
        fn the_gradient_is_the_slope(rows in 1usize..4, half in 1usize..4, across: bool, seed: u64) {
            let shape = if across { [2 * half, rows] } else { [rows, 2 * half] };
            let (x, dim) = (noise(&shape, seed).mapv(|v| 4.0 * v), if across { 0 } else { -1 });
            let out = if across { [half, rows] } else { [rows, half] };
            let g = noise(&out, seed ^ 1);
            let forward = |x: &ndarray::ArrayD<f64>| {
                recorded("npu_swiglu").array("self", x).attrs(json!({"dim": dim})).output(&out).first().value
            };
            let back = recorded("npu_swiglu_backward").array("grad", &g).array("self", &x).attrs(json!({"dim": dim}));
            let found = back.output(&shape).first();
            for (index, &slope) in found.value.indexed_iter() {
                let (mut up, mut down) = (x.clone(), x.clone());
                up[&index] += 1e-5;
                down[&index] -= 1e-5;
                let measured = ((forward(&up) - forward(&down)) * &g).sum() / 2e-5;
                prop_assert!((slope - measured).abs() < 1e-7, "{slope} for {measured}");
                prop_assert!(found.scale[&index] >= slope.abs());
            }
        }
    }
}
