//! Gradients of a convolution: the input's is the transposed convolution of the output's, the
//! weight's a product over samples and positions.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayD, ArrayViewD, Axis as ArrayAxis, IxDyn};

use super::forward::{columns, convolve, positions_last};
use super::geometry::Geometry;
use crate::replay::contraction::backward::masked;
use crate::replay::contraction::product::{Sums, fits};
use crate::replay::{Call, References, Unmodelled};

/// Elements that the columns of one block may hold (8 MiB), unless a single column is longer.
const COLUMN_ELEMENTS: usize = 1 << 20;

/// `convolution_backward(grad_output, input, weight, …, output_mask)` gives the gradients of input,
/// weight and bias. Transposed convolutions are not modelled, nor input without a batch axis.
pub(super) fn convolution_backward(call: &Call) -> Result<References, Unmodelled> {
    let grad = call.input(&["grad_output"], 0)?.value.view();
    let input = call.input(&["input"], 1)?.value.view();
    let weight = call.input(&["weight"], 2)?.value.view();
    let rank = weight.ndim();
    if call.flag("transposed", false)? || !(3..=5).contains(&rank) || grad.ndim() != rank || input.ndim() != rank {
        return Err(Unmodelled(format!("convolution_backward of {:?} and {:?}", grad.shape(), weight.shape())));
    }
    let kernel = weight.shape()[2..].to_vec();
    let geometry = Geometry::of(call, &kernel, false)?;
    let forward: Option<Vec<_>> =
        (0..kernel.len()).map(|at| geometry.outputs(at, input.shape()[2 + at], kernel[at])).collect();
    let sound = forward.as_deref() == Some(&grad.shape()[2..])
        && grad.shape()[0] == input.shape()[0]
        && grad.shape()[1] == weight.shape()[0]
        && weight.shape()[0] % geometry.groups == 0
        && weight.shape()[1].checked_mul(geometry.groups) == Some(input.shape()[1]);
    if !sound {
        return Err(Unmodelled(format!("gradient {:?} does not fit input {:?}", grad.shape(), input.shape())));
    }
    masked(call, 3, |gradient, slot| match gradient {
        0 => {
            let back = Geometry { transposed: true, ..geometry.clone() };
            convolve(call, slot, &grad, &weight, &back, Some(&input.shape()[2..]))
        }
        1 => weight_gradient(call, slot, &grad, &input, weight.shape(), &geometry),
        _ => bias_gradient(call, slot, &grad),
    })
}

fn bias_gradient(call: &Call, slot: usize, grad: &ArrayViewD<f64>) -> Result<Sums, Unmodelled> {
    let channels = grad.shape()[1];
    fits(call, slot, &[channels])?;
    let over = |tensor: &dyn Fn(f64) -> f64| -> ArrayD<f64> {
        grad.axis_iter(ArrayAxis(1))
            .map(|channel| channel.iter().map(|&g| tensor(g)).sum::<f64>())
            .collect::<ndarray::Array1<_>>()
            .into_dyn()
    };
    Ok(Sums { value: over(&|g| g), squares: over(&|g| g * g), terms: grad.len() / channels.max(1) })
}

fn weight_gradient(
    call: &Call,
    slot: usize,
    grad: &ArrayViewD<f64>,
    input: &ArrayViewD<f64>,
    shape: &[usize],
    geometry: &Geometry,
) -> Result<Sums, Unmodelled> {
    fits(call, slot, shape)?;
    if shape.contains(&0) {
        return Ok(Sums { value: ArrayD::zeros(IxDyn(shape)), squares: ArrayD::zeros(IxDyn(shape)), terms: 0 });
    }
    let (groups, batch) = (geometry.groups, input.shape()[0]);
    let (group_out, group_in, kernel) = (shape[0] / groups, shape[1], &shape[2..]);
    let (taps, positions) = (kernel.iter().product::<usize>(), grad.shape()[2..].iter().product::<usize>());
    let extents = &input.shape()[2..];
    let axes: Vec<_> =
        (0..kernel.len()).map(|at| geometry.axis(at, extents[at], grad.shape()[2 + at], kernel[at])).collect();
    let grad = positions_last(grad, (batch * groups, group_out, positions))?;
    let input = positions_last(input, (batch * groups, group_in, extents.iter().product()))?;
    let mut value = vec![Array2::zeros((group_out, group_in * taps)); groups];
    let mut squares = value.clone();
    let block = (COLUMN_ELEMENTS / (group_in * taps).max(1)).max(1);
    for (at, grad) in grad.outer_iter().enumerate() {
        for start in (0..positions).step_by(block) {
            let length = block.min(positions - start);
            let mut read = columns(&input.view(), at, &axes, start, length);
            let grad = grad.slice_axis(ArrayAxis(1), (start..start + length).into());
            general_mat_mul(1.0, &grad, &read.t(), 1.0, &mut value[at % groups]);
            read.mapv_inplace(|x| x * x);
            general_mat_mul(1.0, &grad.mapv(|g| g * g), &read.t(), 1.0, &mut squares[at % groups]);
        }
    }
    Ok(Sums {
        value: stacked(&value, shape)?,
        squares: stacked(&squares, shape)?,
        terms: batch.saturating_mul(positions),
    })
}

fn stacked(groups: &[Array2<f64>], shape: &[usize]) -> Result<ArrayD<f64>, Unmodelled> {
    let all = groups.iter().flatten().copied().collect();
    ArrayD::from_shape_vec(IxDyn(shape), all)
        .map_err(|_| Unmodelled(format!("the gradient of a weight {shape:?} has another size")))
}
