//! Parts of a tensor: slices, splits, triangles, diagonals, windows.

use ndarray::{ArrayView, Axis, IxDyn, Slice};

use super::super::reference::moved;
use super::super::{Call, Operand, References, Replay, Unmodelled};
use super::{at, by_coordinate, from_view, position, single, subject};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "slice" | "slice_copy" => slice,
        "select" | "select_copy" => select,
        "narrow" | "narrow_copy" => narrow,
        "split"
        | "split_with_sizes"
        | "unsafe_split"
        | "unsafe_split_with_sizes"
        | "split_with_sizes_copy"
        | "split_copy" => split,
        "chunk" | "unsafe_chunk" => chunk,
        "unbind" | "unstack" | "unbind_copy" => unbind,
        "diagonal" | "diagonal_copy" => diagonal,
        "tril" => |call| triangle(call, |row, column, diagonal| column - row <= diagonal),
        "triu" => |call| triangle(call, |row, column, diagonal| column - row >= diagonal),
        "unfold" | "unfold_copy" => unfold,
        _ => return None,
    })
}

/// Attribute `dim`, of a tensor that has axes.
fn axis(call: &Call, default: Option<i64>, x: &Operand) -> Result<usize, Unmodelled> {
    let axis = call.axis("dim", default, x.value.ndim())?;
    if axis < x.value.ndim() { Ok(axis) } else { Err(call.unmodelled("a 0-d tensor has no axis")) }
}

/// A slice bound: negative from the end, cut to the extent.
pub(super) fn bound(value: i64, extent: usize) -> usize {
    let extent = i128::try_from(extent).unwrap_or(i128::MAX);
    let value = i128::from(value);
    let value = if value < 0 { value + extent } else { value };
    usize::try_from(value.clamp(0, extent)).unwrap_or(0)
}

fn slice(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, Some(0), x)?;
    let extent = x.value.shape()[axis];
    let start = bound(call.integer("start", Some(0))?, extent);
    let end = bound(call.integer("end", Some(i64::MAX))?, extent).max(start);
    let step = call.integer("step", Some(1))?;
    let step = isize::try_from(step).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| call.unmodelled("a step below 1"))?;
    let view = x.value.slice_axis(Axis(axis), Slice::new(start as isize, Some(end as isize), step));
    single(call, x, &view)
}

fn select(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, None, x)?;
    let index = position(call, call.integer("index", None)? as f64, x.value.shape()[axis])?;
    single(call, x, &x.value.index_axis(Axis(axis), index))
}

fn narrow(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, None, x)?;
    let extent = x.value.shape()[axis];
    let start = bound(call.integer("start", None)?, extent);
    let length = usize::try_from(call.integer("length", None)?).ok();
    let end = length.and_then(|length| start.checked_add(length)).filter(|end| *end <= extent);
    let end = end.ok_or_else(|| call.unmodelled("the range leaves the axis"))?;
    single(call, x, &x.value.slice_axis(Axis(axis), Slice::from(start..end)))
}

/// Pieces of the recorded outputs along `axis`; their extents are `lengths`.
fn pieces(call: &Call, x: &Operand, axis: usize, lengths: &[usize]) -> Result<References, Unmodelled> {
    call.output_count(lengths.len())?;
    let total = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
    if total != Some(x.value.shape()[axis]) {
        return Err(call.unmodelled("the pieces do not make up the axis"));
    }
    let mut start = 0;
    let piece = |(slot, length): (usize, &usize)| {
        let view = x.value.slice_axis(Axis(axis), Slice::from(start..start + length));
        start += length;
        from_view(call, slot, x, &view).map(Some)
    };
    lengths.iter().enumerate().map(piece).collect()
}

/// Extents of the pieces of `extent` cut every `size`, held against the recorded number of outputs.
fn equal_pieces(call: &Call, extent: usize, size: usize) -> Result<Vec<usize>, Unmodelled> {
    if size == 0 && extent > 0 {
        return Err(call.unmodelled("pieces of no elements"));
    }
    let count = if extent == 0 { 1 } else { extent.div_ceil(size) };
    call.output_count(count)?;
    Ok((0..count).map(|at| size.min(extent - at * size)).collect())
}

fn split(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, Some(0), x)?;
    let mut sizes = None;
    for name in ["split_size", "split_sizes", "split_size_or_sections", "sizes"] {
        if let Some(value) = call.attr(name)? {
            sizes = call.integers(name)?.map(|sizes| (value.is_array(), sizes));
        }
    }
    let (listed, sizes) = sizes.ok_or_else(|| call.unmodelled("no size was recorded"))?;
    let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
    let sizes = sizes.ok_or_else(|| call.unmodelled("a size is no extent"))?;
    let lengths = match sizes[..] {
        [size] if !listed => equal_pieces(call, x.value.shape()[axis], size)?,
        _ => sizes,
    };
    pieces(call, x, axis, &lengths)
}

fn chunk(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, Some(0), x)?;
    let chunks = usize::try_from(call.integer("chunks", None)?).ok().filter(|chunks| *chunks > 0);
    let chunks = chunks.ok_or_else(|| call.unmodelled("fewer than one chunk"))?;
    let extent = x.value.shape()[axis];
    if extent == 0 {
        return Err(call.unmodelled("chunks of an empty axis"));
    }
    pieces(call, x, axis, &equal_pieces(call, extent, extent.div_ceil(chunks))?)
}

fn unbind(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, Some(0), x)?;
    call.output_count(x.value.shape()[axis])?;
    let piece = |(slot, view): (usize, ArrayView<f64, IxDyn>)| from_view(call, slot, x, &view).map(Some);
    x.value.axis_iter(Axis(axis)).enumerate().map(piece).collect()
}

/// The two axes lose their places; the diagonal becomes the last axis.
fn diagonal(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let rank = x.value.ndim();
    let offset = call.integer("offset", Some(0))?;
    let (first, second) = (call.axis("dim1", Some(0), rank)?, call.axis("dim2", Some(1), rank)?);
    if first == second || rank < 2 {
        return Err(call.unmodelled("a diagonal needs two axes"));
    }
    let (rows, columns) = (x.value.shape()[first], x.value.shape()[second]);
    let (skip_rows, skip_columns) = (bound(offset.saturating_neg().max(0), rows), bound(offset.max(0), columns));
    let length = (rows - skip_rows).min(columns - skip_columns);
    let kept: Vec<usize> = (0..rank).filter(|axis| ![first, second].contains(axis)).collect();
    let mut shape: Vec<usize> = kept.iter().map(|&axis| x.value.shape()[axis]).collect();
    shape.push(length);
    let view = x.value.view();
    let mut from = vec![0; rank];
    by_coordinate(call, &shape, moved([x.dtype], call.output(0)?.dtype), |to| {
        for (&axis, &coordinate) in kept.iter().zip(to) {
            from[axis] = coordinate;
        }
        let along = to[kept.len()];
        (from[first], from[second]) = (along + skip_rows, along + skip_columns);
        at(call, &view, &from)
    })
}

/// Zero where `kept(row, column, diagonal)` is false.
fn triangle(call: &Call, kept: fn(i128, i128, i128) -> bool) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let diagonal = i128::from(call.integer("diagonal", Some(0))?);
    let rank = x.value.ndim();
    if rank < 2 {
        return Err(call.unmodelled("a triangle needs two axes"));
    }
    let view = x.value.view();
    by_coordinate(call, x.value.shape(), moved([x.dtype], call.output(0)?.dtype), |to| {
        if kept(to[rank - 2] as i128, to[rank - 1] as i128, diagonal) { at(call, &view, to) } else { Ok(0.0) }
    })
}

/// `Tensor.unfold`: windows of `size` every `step` along `dimension`; the window is the last axis.
fn unfold(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = call.axis("dimension", None, x.value.ndim())?;
    let extent = *x.value.shape().get(axis).ok_or_else(|| call.unmodelled("a 0-d tensor has no axis"))?;
    let size = usize::try_from(call.integer("size", None)?).ok().filter(|size| *size <= extent);
    let step = usize::try_from(call.integer("step", None)?).ok().filter(|step| *step > 0);
    let (Some(size), Some(step)) = (size, step) else {
        return Err(call.unmodelled("size or step does not fit the axis"));
    };
    let mut shape = x.value.shape().to_vec();
    let rank = shape.len();
    shape[axis] = (extent - size) / step + 1;
    shape.push(size);
    let view = x.value.view();
    let mut from = vec![0; rank];
    by_coordinate(call, &shape, moved([x.dtype], call.output(0)?.dtype), |to| {
        from.copy_from_slice(&to[..rank]);
        from[axis] = to[axis] * step + to[rank];
        at(call, &view, &from)
    })
}
