//! The convolution itself: columns of what each output position reads, times the weight.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, Array3, ArrayD, ArrayView3, ArrayViewD, CowArray, Ix3, IxDyn};
use rayon::prelude::*;

use super::geometry::{Axis, Geometry, reads};
use crate::replay::contraction::product::{Sums, fits, tiles};
use crate::replay::{Call, References, Unmodelled};

/// Elements that the columns of one task may hold (8 MiB), unless a single column is longer.
const COLUMN_ELEMENTS: usize = 1 << 20;

/// Output positions of one task at most.
const POSITIONS: usize = 4096;

/// `convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)`.
pub(super) fn convolution(call: &Call) -> Result<References, Unmodelled> {
    let transposed = call.flag("transposed", false)?;
    recorded(call, transposed)
}

/// `conv1d`, `conv2d`, `conv3d`.
pub(super) fn plain(call: &Call) -> Result<References, Unmodelled> {
    recorded(call, false)
}

/// `conv_transpose1d`, `conv_transpose2d`, `conv_transpose3d`.
pub(super) fn transposed(call: &Call) -> Result<References, Unmodelled> {
    recorded(call, true)
}

fn recorded(call: &Call, transposed: bool) -> Result<References, Unmodelled> {
    let input = call.input(&["input", "self", "x"], 0)?.value.view();
    let weight = call.input(&["weight"], 1)?.value.view();
    let bias = call.optional_input(&["bias"], 2).map(|bias| bias.value.view());
    if call.inputs.len() != 2 + usize::from(bias.is_some()) || !(3..=5).contains(&weight.ndim()) {
        return Err(Unmodelled(format!(
            "{} of {} tensors, weight {:?}",
            call.function(),
            call.inputs.len(),
            weight.shape()
        )));
    }
    let kernel = &weight.shape()[2..];
    let geometry = Geometry::of(call, kernel, transposed)?;
    let sums = convolve(call, 0, &input, &weight, &geometry, None)?;
    let sums = match bias {
        // One value a channel: [C] -> [C, 1, ..], which broadcasts over batch and positions.
        Some(bias) => {
            let channels = bias.len();
            let shape = [&[channels][..], &vec![1; kernel.len()]].concat();
            let bias = bias.into_shape_with_order(IxDyn(&shape));
            let bias = bias.map_err(|_| Unmodelled(format!("bias of {} is no vector", call.function())))?;
            sums.plus(&bias, 1.0)?
        }
        None => sums,
    };
    Ok(vec![Some(sums.reference(call, 0)?)])
}

/// The sums of a convolution for the output at `slot`. `outputs` gives the number of positions where
/// they do not follow from the geometry alone (a gradient's are those of the forward input).
pub(super) fn convolve(
    call: &Call,
    slot: usize,
    input: &ArrayViewD<f64>,
    weight: &ArrayViewD<f64>,
    geometry: &Geometry,
    outputs: Option<&[usize]>,
) -> Result<Sums, Unmodelled> {
    let misfit = || {
        Unmodelled(format!("weight {:?} of {} does not fit input {:?}", weight.shape(), call.function(), input.shape()))
    };
    let kernel = &weight.shape()[2..];
    let dimensions = kernel.len();
    let batched = input.ndim() == dimensions + 2;
    if !batched && input.ndim() != dimensions + 1 {
        return Err(misfit());
    }
    let extents = &input.shape()[input.ndim() - dimensions..];
    let batch = if batched { input.shape()[0] } else { 1 };
    let channels = input.shape()[input.ndim() - dimensions - 1];
    let (first, second, groups) = (weight.shape()[0], weight.shape()[1], geometry.groups);
    // A plain weight is [out, in / groups, ..], a transposed one [in, out / groups, ..].
    let (group_in, group_out) = if geometry.transposed { (first / groups, second) } else { (second, first / groups) };
    if first % groups != 0 || group_in.checked_mul(groups) != Some(channels) {
        return Err(misfit());
    }
    let counts: Option<Vec<_>> = match outputs {
        Some(outputs) => Some(outputs.to_vec()),
        None => (0..dimensions).map(|at| geometry.outputs(at, extents[at], kernel[at])).collect(),
    };
    let counts = counts.ok_or_else(misfit)?;
    let out_channels = group_out.checked_mul(groups).ok_or_else(misfit)?;
    let lead = if batched { vec![batch, out_channels] } else { vec![out_channels] };
    let shape = [lead.as_slice(), &counts].concat();
    fits(call, slot, &shape)?;

    let terms = group_in.saturating_mul(kernel.iter().product());
    if shape.contains(&0) {
        // Extents beside a zero are bounded by nothing: none of them is multiplied or allocated.
        return Ok(Sums { value: ArrayD::zeros(IxDyn(&shape)), squares: ArrayD::zeros(IxDyn(&shape)), terms });
    }
    if geometry.pads() && weight.iter().any(|w| !w.is_finite()) {
        return Err(Unmodelled("a weight that is not finite meets padding".to_string()));
    }
    let positions = counts.iter().product::<usize>();
    let mut value = Array3::zeros((batch * groups, group_out, positions));
    let mut squares = Array3::zeros((batch * groups, group_out, positions));
    let axes: Vec<_> = (0..dimensions).map(|at| geometry.axis(at, extents[at], counts[at], kernel[at])).collect();
    let weights = weight_matrices(weight, geometry, group_in, group_out)?;
    let input = positions_last(input, (batch * groups, group_in, extents.iter().product()))?;
    fill(&mut value, &mut squares, &input.view(), &weights, &axes);
    let wrong = |_| misfit();
    Ok(Sums {
        value: value.into_shape_with_order(IxDyn(&shape)).map_err(wrong)?,
        squares: squares.into_shape_with_order(IxDyn(&shape)).map_err(wrong)?,
        terms,
    })
}

/// A tensor as `[batch * groups, channels of a group, positions]`.
pub(super) fn positions_last<'a>(
    tensor: &ArrayViewD<'a, f64>,
    shape: (usize, usize, usize),
) -> Result<CowArray<'a, f64, Ix3>, Unmodelled> {
    let wrong = |_| Unmodelled(format!("shape {:?} cannot be cut into groups", tensor.shape()));
    if tensor.is_standard_layout() {
        return tensor.clone().into_shape_with_order(shape).map(Into::into).map_err(wrong);
    }
    tensor.as_standard_layout().into_owned().into_shape_with_order(shape).map(Into::into).map_err(wrong)
}

/// One matrix a group, `[out, in * taps]`.
fn weight_matrices(
    weight: &ArrayViewD<f64>,
    geometry: &Geometry,
    group_in: usize,
    group_out: usize,
) -> Result<Vec<Array2<f64>>, Unmodelled> {
    let wrong = |_| Unmodelled(format!("weight {:?} cannot be cut into groups", weight.shape()));
    let taps: usize = weight.shape()[2..].iter().product();
    let (first, second) = if geometry.transposed { (group_in, group_out) } else { (group_out, group_in) };
    let flat = weight.as_standard_layout();
    let groups = flat.into_shape_with_order((geometry.groups, first, second, taps)).map_err(wrong)?;
    groups
        .outer_iter()
        .map(|group| {
            let group = if geometry.transposed { group.permuted_axes([1, 0, 2]) } else { group };
            let group = group.as_standard_layout().into_owned();
            group.into_shape_with_order((group_out, group_in * taps)).map_err(wrong)
        })
        .collect()
}

/// Computes every group of every sample, block by block of output positions.
fn fill(
    value: &mut Array3<f64>,
    squares: &mut Array3<f64>,
    input: &ArrayView3<f64>,
    weights: &[Array2<f64>],
    axes: &[Axis],
) {
    let squared: Vec<_> = weights.iter().map(|weight| weight.mapv(|w| w * w)).collect();
    let depth = weights.first().map_or(1, Array2::ncols).max(1);
    let block = (COLUMN_ELEMENTS / depth).clamp(1, POSITIONS);
    let cuts = [1, usize::MAX, block];
    let tasks: Vec<_> = tiles(value.view_mut(), cuts).into_iter().zip(tiles(squares.view_mut(), cuts)).collect();
    tasks.into_par_iter().for_each(|(([at, _, start], mut value), (_, mut squares))| {
        let group = at % weights.len().max(1);
        let mut columns = columns(input, at, axes, start, value.dim().2);
        for (mut value, mut squares) in value.outer_iter_mut().zip(squares.outer_iter_mut()) {
            general_mat_mul(1.0, &weights[group], &columns, 0.0, &mut value);
            columns.mapv_inplace(|x| x * x);
            general_mat_mul(1.0, &squared[group], &columns, 0.0, &mut squares);
        }
    });
}

/// What the output positions from `start` on read of one group of one sample, `[in * taps, block]`;
/// padding is zero.
pub(super) fn columns(input: &ArrayView3<f64>, at: usize, axes: &[Axis], start: usize, block: usize) -> Array2<f64> {
    let group = input.index_axis(ndarray::Axis(0), at);
    let table = reads(axes, start, block);
    let taps = table.len() / block.max(1);
    let mut columns = Array2::zeros((group.nrows() * taps, block));
    for (row, mut column) in columns.outer_iter_mut().enumerate() {
        let (channel, tap) = (row / taps.max(1), row % taps.max(1));
        let channel = group.row(channel);
        let reads = table.iter().skip(tap * block).take(block);
        for (slot, read) in column.iter_mut().zip(reads) {
            if let Some(value) = read.and_then(|at| channel.get(at)) {
                *slot = *value;
            }
        }
    }
    columns
}
