//! Which coordinates of an output a special value at an input coordinate can reach.

use ndarray::{ArrayViewD, IxDyn};

use crate::op::{Reach, axis_index, operands};
use crate::run::Layer;

/// Marks in `reached` (the output, row-major) everything that the marked coordinates of input `slot`
/// can reach through `layer`.
pub(super) fn spread(
    layer: &Layer,
    slot: usize,
    shapes: &[Option<&[usize]>],
    input: &[bool],
    output_shape: &[usize],
    reached: &mut [bool],
) {
    if !input.contains(&true) {
        return;
    }
    let Some(Some(shape)) = shapes.get(slot).copied() else {
        reached.fill(true);
        return;
    };
    let marked = match layer.op.reach() {
        Reach::Elementwise => broadcast(input, shape, output_shape, reached),
        Reach::Row => {
            let axis = axis_index(shape.len(), layer.attrs.as_ref(), "dim").or_else(|| shape.len().checked_sub(1));
            // Scale and shift of a norm reach what they multiply; the first input its whole row.
            if slot == 0 && shape == output_shape {
                axis.is_some_and(|axis| rows(input, shape, axis, reached))
            } else {
                broadcast(input, shape, output_shape, reached)
            }
        }
        Reach::Contraction => match operands(layer.input_names.as_deref(), shapes) {
            Some((first, _)) if first == slot => leading_rows(input, shape, output_shape, reached),
            Some((_, second)) if second == slot => false,
            _ => broadcast(input, shape, output_shape, reached),
        },
        Reach::Anywhere => same_order(layer, input, reached),
    };
    if !marked {
        reached.fill(true);
    }
}

/// Under broadcasting; false where the shapes do not broadcast.
fn broadcast(input: &[bool], shape: &[usize], output_shape: &[usize], reached: &mut [bool]) -> bool {
    let Ok(view) = ArrayViewD::from_shape(IxDyn(shape), input) else { return false };
    let Some(view) = view.broadcast(IxDyn(output_shape)) else { return false };
    for (slot, &mark) in reached.iter_mut().zip(&view) {
        *slot |= mark;
    }
    true
}

/// All elements that share every coordinate but the one on `axis` with a marked element.
fn rows(input: &[bool], shape: &[usize], axis: usize, reached: &mut [bool]) -> bool {
    let along = shape[axis];
    let behind: usize = shape[axis + 1..].iter().product();
    if along == 0 || behind == 0 || input.len() != reached.len() {
        return false;
    }
    for lane in 0..input.len() / along {
        let start = lane / behind * along * behind + lane % behind;
        let lane = || (0..along).map(|k| start + k * behind);
        if lane().any(|at| input[at]) {
            lane().for_each(|at| reached[at] = true);
        }
    }
    true
}

/// The rows of the output that answer the marked rows (all axes but the last) of the first operand.
fn leading_rows(input: &[bool], shape: &[usize], output_shape: &[usize], reached: &mut [bool]) -> bool {
    let (Some((&width, leading)), Some((&out_width, out_leading))) = (shape.split_last(), output_shape.split_last())
    else {
        return false;
    };
    let rows: usize = leading.iter().product();
    if width == 0 || out_width == 0 || rows != out_leading.iter().product::<usize>() {
        return false;
    }
    for (row, values) in input.chunks(width).enumerate() {
        if values.contains(&true)
            && let Some(row) = reached.get_mut(row * out_width..(row + 1) * out_width)
        {
            row.fill(true);
        }
    }
    true
}

/// Movers that keep the order of elements keep their flat index.
fn same_order(layer: &Layer, input: &[bool], reached: &mut [bool]) -> bool {
    if !matches!(layer.op.name(), "view" | "squeeze" | "clone") || input.len() != reached.len() {
        return false;
    }
    for (slot, &mark) in reached.iter_mut().zip(input) {
        *slot |= mark;
    }
    true
}
