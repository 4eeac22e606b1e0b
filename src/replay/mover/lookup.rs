//! Elements found by index tensors: index_select, gather, index, embedding, one_hot.

use ndarray::{ArrayView, Axis, IxDyn};

use super::super::reference::{moved, plain};
use super::super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};
use super::{array, at, by_coordinate, position, subject};
use crate::replay::elementwise::broadcast_shape;
use crate::tensor::{DType, Kind};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "index_select" => index_select,
        "gather" => gather,
        "take_along_dim" => take_along_dim,
        "take" => take,
        "index" | "_unsafe_index" => index,
        "embedding" | "npu_embedding" => embedding,
        "embedding_dense_backward" => embedding_backward,
        "one_hot" => one_hot,
        _ => return None,
    })
}

/// An index operand: integers.
pub(super) fn indices<'a>(call: &Call, operand: &'a Operand) -> Result<&'a Operand, Unmodelled> {
    match operand.dtype.kind() {
        Kind::Int => Ok(operand),
        _ => Err(call.unmodelled(&format!("indices of {}", operand.dtype))),
    }
}

/// Attribute `dim` of a tensor; a 0-d tensor counts as one axis of extent 1.
fn axis(call: &Call, rank: usize) -> Result<usize, Unmodelled> {
    let axis = call.axis("dim", None, rank)?;
    if axis < rank { Ok(axis) } else { Err(call.unmodelled("a 0-d tensor has no axis")) }
}

/// `x[index]` with one tensor of positions.
pub(super) fn first_axis(call: &Call, x: &Operand, index: &Operand) -> Result<References, Unmodelled> {
    if x.value.ndim() == 0 {
        return Err(call.unmodelled("a 0-d tensor has no axis"));
    }
    let index = indices(call, index)?;
    rows(call, x, 0, index, index.value.shape())
}

fn index_select(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let index = indices(call, call.input(&["index"], 1)?)?;
    let axis = axis(call, x.value.ndim())?;
    rows(call, x, axis, index, &[index.value.len()])
}

/// Slices of `x` along `axis`, one for each index; `shape` is that of the indices in the result.
fn rows(
    call: &Call,
    x: &Operand,
    axis: usize,
    index: &Operand,
    index_shape: &[usize],
) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let own = x.value.shape();
    let shape = [&own[..axis], index_shape, &own[axis + 1..]].concat();
    call.fits(0, &shape)?;
    let positions: Vec<usize> = index.value.iter().map(|&i| position(call, i, own[axis])).collect::<Result<_, _>>()?;
    let value = x.value.select(Axis(axis), &positions);
    let value = array(call, &shape, value.iter().copied().collect())?;
    Ok(vec![Some(plain(value, moved([x.dtype], call.output(0)?.dtype)))])
}

/// `out[i][j] = self[i][index[i][j]]` along `dim`; other axes of the index may be shorter.
fn gather(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let index = indices(call, call.input(&["index"], 1)?)?;
    along(call, x, &index.value.view())
}

/// [`gather`] with both sides broadcast but for `dim`; without `dim`, on the flattened tensor.
fn take_along_dim(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let index = indices(call, call.input(&["indices", "index"], 1)?)?;
    if call.attr("dim")?.is_none() {
        return take(call);
    }
    let rank = x.value.ndim();
    let axis = axis(call, rank)?;
    if index.value.ndim() != rank {
        return Err(call.unmodelled("tensor and indices differ in rank"));
    }
    let (mut from, mut to) = (x.value.shape().to_vec(), index.value.shape().to_vec());
    let length = std::mem::replace(&mut to[axis], 1);
    let extent = std::mem::replace(&mut from[axis], 1);
    let mut shape = broadcast_shape([&from[..], &to[..]]).ok_or_else(|| call.unmodelled("shapes do not broadcast"))?;
    shape[axis] = length;
    call.fits(0, &shape)?;
    let index = index.value.broadcast(IxDyn(&shape)).ok_or_else(|| call.unmodelled("shapes do not broadcast"))?;
    shape[axis] = extent;
    let view = x.value.broadcast(IxDyn(&shape)).ok_or_else(|| call.unmodelled("shapes do not broadcast"))?;
    lookup(call, x, &view, axis, &index)
}

fn along(call: &Call, x: &Operand, index: &ArrayView<f64, IxDyn>) -> Result<References, Unmodelled> {
    let rank = x.value.ndim();
    if rank == 0 || index.ndim() == 0 {
        return Err(call.unmodelled("0-d tensors"));
    }
    let axis = axis(call, rank)?;
    let fits = index.ndim() == rank && (0..rank).all(|a| a == axis || index.shape()[a] <= x.value.shape()[a]);
    if !fits {
        return Err(call.unmodelled("the index does not fit the tensor"));
    }
    lookup(call, x, &x.value.view(), axis, index)
}

fn lookup(
    call: &Call,
    x: &Operand,
    view: &ArrayView<f64, IxDyn>,
    axis: usize,
    index: &ArrayView<f64, IxDyn>,
) -> Result<References, Unmodelled> {
    let extent = view.shape()[axis];
    let mut from = vec![0; view.ndim()];
    let mut chosen = index.iter();
    by_coordinate(call, index.shape(), moved([x.dtype], call.output(0)?.dtype), |to| {
        from.copy_from_slice(to);
        let next = chosen.next().copied().unwrap_or(f64::NAN);
        from[axis] = position(call, next, extent)?;
        at(call, view, &from)
    })
}

/// Elements of the flattened tensor.
fn take(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let index = indices(call, call.input(&["index", "indices"], 1)?)?;
    let dense = x.value.as_standard_layout();
    let flat = dense.as_slice().unwrap_or(&[]);
    let mut chosen = index.value.iter();
    by_coordinate(call, index.value.shape(), moved([x.dtype], call.output(0)?.dtype), |_| {
        let next = chosen.next().copied().unwrap_or(f64::NAN);
        Ok(flat[position(call, next, flat.len())?])
    })
}

/// Rows of the weight. Without names the operand of integers is the index: ATen puts it second,
/// `torch.nn.functional` first.
fn embedding(call: &Call) -> Result<References, Unmodelled> {
    let named = call.named(&["weight"]).zip(call.named(&["indices", "input", "index"]));
    let (weight, index) = match (named, &call.inputs[..]) {
        (Some(pair), _) => pair,
        (None, [a, b]) if a.dtype.kind() == Kind::Float && b.dtype.kind() == Kind::Int => (a, b),
        (None, [a, b]) if a.dtype.kind() == Kind::Int && b.dtype.kind() == Kind::Float => (b, a),
        _ => return Err(call.unmodelled("weight and indices cannot be told apart")),
    };
    if weight.value.ndim() == 0 {
        return Err(call.unmodelled("the weight has no rows"));
    }
    let index = indices(call, index)?;
    rows(call, weight, 0, index, index.value.shape())
}

/// `embedding_dense_backward(grad_output, indices, num_weights, padding_idx)`: each row of the weight gets the
/// sum of the gradients that were looked up there, the padding's none.
fn embedding_backward(call: &Call) -> Result<References, Unmodelled> {
    let grad = call.input(&["grad_output"], 0)?;
    let index = indices(call, call.input(&["indices"], 1)?)?;
    if call.flag("scale_grad_by_freq", false)? {
        return Err(call.unmodelled("gradients scaled by frequency"));
    }
    let count = usize::try_from(call.integer("num_weights", None)?).map_err(|_| call.unmodelled("no row count"))?;
    let padding = call.integer("padding_idx", Some(-1))?;
    let Some(width) = grad.value.shape().last().copied().filter(|_| grad.value.ndim() == index.value.ndim() + 1) else {
        return Err(call.unmodelled("gradient and indices do not fit"));
    };
    call.output_count(1)?;
    call.fits(0, &[count, width])?;
    if grad.value.len() != index.value.len() * width {
        return Err(call.unmodelled("gradient and indices do not fit"));
    }
    // Kernels add in the result's dtype, so that each partial sum is rounded: the root of the sum of their
    // squares is what the error is held against.
    let (mut value, mut partial) = (vec![0.0; count * width], vec![0.0; count * width]);
    let dense = grad.value.as_standard_layout();
    let rows = dense.as_slice().unwrap_or(&[]).chunks_exact(width.max(1));
    for (row, &at) in rows.zip(&index.value) {
        if at == padding as f64 {
            continue;
        }
        let at = position(call, at, count)?;
        let span = at * width..(at + 1) * width;
        for ((value, partial), g) in value[span.clone()].iter_mut().zip(&mut partial[span]).zip(row) {
            *value += g;
            *partial += *value * *value;
        }
    }
    let shape = [count, width];
    let scale = array(call, &shape, partial.into_iter().map(f64::sqrt).collect())?;
    let exactness = Exactness::Function { ulp: 0.0, roundings: 1 };
    Ok(vec![Some(Reference { value: array(call, &shape, value)?, scale, exactness })])
}

/// Axes of `x` that the index tensors may stand for: they increase, and the result's shape is the
/// recorded one. `None` entries of the list are not recorded, so more than one may fit.
pub(super) fn placements(rank: usize, count: usize) -> Vec<Vec<usize>> {
    // The number of placements grows with the rank; torch's own limit is 64 axes, models use 5.
    if rank > 10 || count == 0 || count > rank {
        return Vec::new();
    }
    (0..1u32 << rank)
        .filter(|set| set.count_ones() as usize == count)
        .map(|set| (0..rank).filter(|axis| set & (1 << axis) != 0).collect())
        .collect()
}

/// Shape of `x[…, indices, …]` with the broadcast index extents `joint` on `axes`: in place of the
/// axes where they are adjacent, else in front.
pub(super) fn indexed_shape(own: &[usize], axes: &[usize], joint: &[usize]) -> (usize, Vec<usize>) {
    let first = axes.first().copied().unwrap_or(0);
    let adjacent = axes.iter().enumerate().all(|(at, &axis)| axis == first + at);
    let lead = if adjacent { first } else { 0 };
    let mut shape: Vec<usize> =
        own.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &extent)| extent).collect();
    shape.splice(lead..lead, joint.iter().copied());
    (lead, shape)
}

/// The index operands of an indexing call, in the order of the axes they stand for.
pub(super) fn index_list<'a>(call: &'a Call, after: usize, before_end: usize) -> Result<Vec<&'a Operand>, Unmodelled> {
    let unnamed = call.inputs.iter().all(|input| input.name.is_none());
    let listed = match call.list("indices") {
        _ if unnamed => {
            let end = call.inputs.len().saturating_sub(before_end);
            call.inputs.get(after..end).unwrap_or(&[]).iter().collect()
        }
        listed => listed,
    };
    if listed.is_empty() {
        return Err(call.unmodelled("indices were not recorded"));
    }
    if listed.iter().any(|operand| operand.dtype == DType::Bool) {
        return Err(call.unmodelled("a mask as index"));
    }
    listed.into_iter().map(|operand| indices(call, operand)).collect()
}

/// `self[indices]`, all index tensors broadcast against one another.
fn index(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let list = index_list(call, 1, 0)?;
    let joint = broadcast_shape(list.iter().map(|operand| operand.value.shape()));
    let joint = joint.ok_or_else(|| call.unmodelled("the indices do not broadcast"))?;
    let recorded = &call.output(0)?.shape;
    let mut fitting = placements(x.value.ndim(), list.len())
        .into_iter()
        .filter(|axes| indexed_shape(x.value.shape(), axes, &joint).1 == *recorded);
    let axes = fitting.next().ok_or_else(|| call.unmodelled("the indices do not fit the recorded shape"))?;
    if fitting.next().is_some() {
        return Err(call.unmodelled("which axes are indexed was not recorded"));
    }
    let (lead, shape) = indexed_shape(x.value.shape(), &axes, &joint);
    let spread: Option<Vec<_>> = list.iter().map(|operand| operand.value.broadcast(IxDyn(&joint))).collect();
    let spread = spread.ok_or_else(|| call.unmodelled("the indices do not broadcast"))?;
    let rest: Vec<usize> = (0..x.value.ndim()).filter(|axis| !axes.contains(axis)).collect();
    let view = x.value.view();
    let mut from = vec![0; x.value.ndim()];
    by_coordinate(call, &shape, moved([x.dtype], call.output(0)?.dtype), |to| {
        let (index_at, after) = (&to[lead..lead + joint.len()], &to[lead + joint.len()..]);
        for (&axis, &coordinate) in rest.iter().zip(to[..lead].iter().chain(after)) {
            from[axis] = coordinate;
        }
        for (&axis, operand) in axes.iter().zip(&spread) {
            from[axis] = position(call, at(call, operand, index_at)?, x.value.shape()[axis])?;
        }
        at(call, &view, &from)
    })
}

fn one_hot(call: &Call) -> Result<References, Unmodelled> {
    let index = indices(call, subject(call)?)?;
    let mut shape = index.value.shape().to_vec();
    // -1 (the default) takes the classes from the data: the recorded extent says how many.
    let classes = match call.integer("num_classes", Some(-1))? {
        -1 => call.output(0)?.shape.last().copied().unwrap_or(0),
        classes => usize::try_from(classes).map_err(|_| call.unmodelled("num_classes is no count"))?,
    };
    shape.push(classes);
    let view = index.value.view();
    by_coordinate(call, &shape, Exactness::Exact, |to| {
        let (class, own) = to.split_last().ok_or_else(|| call.unmodelled("no classes"))?;
        Ok(f64::from(u8::from(at(call, &view, own)? == *class as f64)))
    })
}
