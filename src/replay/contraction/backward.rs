//! Gradients of linear and matmul, as ATen's fused backward functions give them.

use ndarray::{Array2, ArrayViewD, Axis, IxDyn};

use super::matrix::{matrices, product, reshaped, view};
use super::product::{Sums, fits};
use crate::replay::{Call, References, Unmodelled};

/// `linear_backward(self [.., I], grad_output [.., O], weight [O, I], output_mask)` gives the gradients
/// of input, weight and bias.
pub(super) fn linear_backward(call: &Call) -> Result<References, Unmodelled> {
    let input = view(call.input(&["self", "input"], 0)?);
    let grad = view(call.input(&["grad_output"], 1)?);
    let weight = view(call.input(&["weight"], 2)?);
    let (Some(&inner), Some(&outer)) = (input.shape().last(), grad.shape().last()) else {
        return Err(Unmodelled("linear_backward of 0-d tensors".to_string()));
    };
    let rows: usize = grad.shape()[..grad.ndim() - 1].iter().product();
    if input.shape()[..input.ndim() - 1] != grad.shape()[..grad.ndim() - 1] || weight.shape() != [outer, inner] {
        return Err(Unmodelled(format!("linear_backward of {:?}, {:?}", input.shape(), grad.shape())));
    }
    let (input, grad_rows) = (reshaped(input.view(), (rows, inner))?, reshaped(grad.view(), (rows, outer))?);
    masked(call, 3, |gradient, slot| match gradient {
        0 => product(call, slot, grad.view(), weight.view()),
        1 => matrices(call, slot, grad_rows.t(), input.view(), &[outer, inner]),
        _ => {
            fits(call, slot, &[outer])?;
            let grad: ArrayViewD<f64> = grad_rows.view().into_dyn();
            Ok(Sums { value: grad.sum_axis(Axis(0)), squares: grad.mapv(|g| g * g).sum_axis(Axis(0)), terms: rows })
        }
    })
}

/// `matmul_backward(grad, self, other, mask)` for operands of equal batch axes, or a matrix on the right.
pub(super) fn matmul_backward(call: &Call) -> Result<References, Unmodelled> {
    let grad = view(call.input(&["grad"], 0)?);
    let a = view(call.input(&["self"], 1)?);
    let b = view(call.input(&["other"], 2)?);
    if a.ndim() < 2 || b.ndim() < 2 || grad.ndim() != a.ndim() {
        return Err(Unmodelled(format!("matmul_backward of shapes {:?} and {:?}", a.shape(), b.shape())));
    }
    let batched = b.ndim() == a.ndim() && a.shape()[..a.ndim() - 2] == b.shape()[..b.ndim() - 2];
    if !batched && b.ndim() != 2 || grad.shape()[..a.ndim() - 1] != a.shape()[..a.ndim() - 1] {
        return Err(Unmodelled(format!("matmul_backward of shapes {:?} and {:?}", a.shape(), b.shape())));
    }
    masked(call, 2, |gradient, slot| match gradient {
        0 => product(call, slot, grad.view(), transposed(b.view())),
        _ if batched => product(call, slot, transposed(a.view()), grad.view()),
        _ => {
            let flat = |tensor: &ArrayViewD<f64>| -> Result<Array2<f64>, Unmodelled> {
                let columns = tensor.shape()[tensor.ndim() - 1];
                let rows = tensor.shape()[..tensor.ndim() - 1].iter().product();
                Ok(reshaped(tensor.view(), (rows, columns))?.into_owned())
            };
            let (a, grad) = (flat(&a)?, flat(&grad)?);
            matrices(call, slot, a.t(), grad.view(), &[a.ncols(), grad.ncols()])
        }
    })
}

fn transposed(tensor: ArrayViewD<f64>) -> ArrayViewD<f64> {
    let mut axes: Vec<_> = (0..tensor.ndim()).collect();
    let rank = axes.len();
    axes.swap(rank - 2, rank - 1);
    tensor.permuted_axes(IxDyn(&axes))
}

/// The gradients that the call's mask asks for. Recorders leave out the others' slots or keep them.
pub(in crate::replay) fn masked(
    call: &Call,
    gradients: usize,
    gradient: impl Fn(usize, usize) -> Result<Sums, Unmodelled>,
) -> Result<References, Unmodelled> {
    let reference = |which, slot| gradient(which, slot)?.reference(call, slot);
    let mask = match call.attr("output_mask") {
        Ok(Some(mask)) => Some(mask),
        Ok(None) => call.attr("mask")?,
        // Without attributes the mask is known only where every gradient was written.
        Err(_) if call.outputs.len() == gradients => None,
        Err(unknown) => return Err(unknown),
    };
    let wanted: Vec<bool> = match mask.and_then(|mask| mask.as_array()) {
        Some(mask) => mask.iter().map(|flag| flag.as_bool() == Some(true)).collect(),
        None => vec![true; gradients],
    };
    if wanted.len() != gradients {
        return Err(Unmodelled(format!("output mask of {} has {} entries", call.function(), wanted.len())));
    }
    let asked: Vec<_> = (0..gradients).filter(|&at| wanted.get(at) == Some(&true)).collect();
    if call.outputs.len() == asked.len() {
        return asked.iter().enumerate().map(|(slot, &which)| reference(which, slot).map(Some)).collect();
    }
    if call.outputs.len() == gradients {
        return (0..gradients)
            .map(|at| if asked.contains(&at) { reference(at, at).map(Some) } else { Ok(None) })
            .collect();
    }
    Err(Unmodelled(format!("{} outputs of {} do not fit its mask", call.outputs.len(), call.function())))
}
