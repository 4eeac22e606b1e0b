//! Other orders of the same elements: axes permuted, reversed or rolled.

use ndarray::{ArrayView, Axis, IxDyn, Slice};

use super::super::reference::moved;
use super::super::{Call, References, Replay, Unmodelled, resolve_axis};
use super::{at, by_coordinate, single, subject};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "transpose" | "t" | "permute" | "swapaxes" | "swapdims" | "numpy_t" | "numpy_T" | "mT" | "matrix_H"
        | "npu_transpose" | "transpose_copy" | "permute_copy" | "t_copy" => transpose,
        "movedim" | "moveaxis" => move_axes,
        "flip" | "fliplr" | "flipud" => flip,
        "roll" => roll,
        "pixel_shuffle" => pixel_shuffle,
        _ => return None,
    })
}

fn axes(call: &Call, dims: &[i64], rank: usize) -> Result<Vec<usize>, Unmodelled> {
    let resolve = |&dim: &i64| resolve_axis(dim, rank).filter(|axis| *axis < rank);
    dims.iter().map(|dim| resolve(dim).ok_or_else(|| call.unmodelled("an axis is out of range"))).collect()
}

/// Which input axis each output axis is.
fn permutation(call: &Call, rank: usize) -> Result<Vec<usize>, Unmodelled> {
    let mut order: Vec<usize> = (0..rank).collect();
    let swapped = |mut order: Vec<usize>, pair: Vec<usize>| {
        if let [a, b] = pair[..] {
            order.swap(a, b);
        }
        order
    };
    if call.attrs.is_none() {
        // Of one or two axes there is one transposition that moves anything.
        let shape = subject(call)?.value.shape();
        let one_reading = rank < 2 || call.function() == "t" || rank == 2 && shape.first() != shape.last();
        if !one_reading {
            return Err(call.unmodelled("attributes were not recorded"));
        }
        order.reverse();
        return Ok(order);
    }
    for (first, second) in [("dim0", "dim1"), ("axis0", "axis1")] {
        if call.attr(first)?.is_some() {
            // A 0-d tensor has an axis 0 to swap with itself.
            let pair = [call.integer(first, None)?, call.integer(second, None)?];
            return if rank == 0 { Ok(order) } else { Ok(swapped(order, axes(call, &pair, rank)?)) };
        }
    }
    for name in ["dims", "perm"] {
        if let Some(dims) = call.integers(name)? {
            let order = axes(call, &dims, rank)?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let complete = sorted.iter().copied().eq(0..rank);
            return if complete { Ok(order) } else { Err(call.unmodelled("dims are no permutation")) };
        }
    }
    match call.function() {
        "mT" if rank >= 2 => order.swap(rank - 2, rank - 1),
        "numpy_t" | "numpy_T" => order.reverse(),
        _ if rank <= 2 => order.reverse(),
        _ => return Err(call.unmodelled("neither dims nor a pair of axes was recorded")),
    }
    Ok(order)
}

fn transpose(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let order = permutation(call, x.value.ndim())?;
    single(call, x, &x.value.view().permuted_axes(IxDyn(&order)))
}

fn move_axes(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let rank = x.value.ndim();
    let missing = || call.unmodelled("source and destination were not recorded");
    let source = axes(call, &call.integers("source")?.ok_or_else(missing)?, rank)?;
    let destination = axes(call, &call.integers("destination")?.ok_or_else(missing)?, rank)?;
    let mut order = vec![None; rank];
    for (&from, &to) in source.iter().zip(&destination) {
        if let Some(slot) = order.get_mut(to) {
            *slot = Some(from);
        }
    }
    let mut rest = (0..rank).filter(|axis| !source.contains(axis));
    let order: Option<Vec<usize>> = order.into_iter().map(|axis| axis.or_else(|| rest.next())).collect();
    let order = order.filter(|order| {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..rank) && source.len() == destination.len()
    });
    let order = order.ok_or_else(|| call.unmodelled("source and destination are no permutation"))?;
    single(call, x, &x.value.view().permuted_axes(IxDyn(&order)))
}

fn flip(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let dims = match call.function() {
        "flipud" => vec![0],
        "fliplr" => vec![1],
        _ => call.integers("dims")?.ok_or_else(|| call.unmodelled("dims were not recorded"))?,
    };
    let mut view: ArrayView<f64, IxDyn> = x.value.view();
    for axis in axes(call, &dims, x.value.ndim())? {
        view.slice_axis_inplace(Axis(axis), Slice::new(0, None, -1));
    }
    single(call, x, &view)
}

/// Elements shift towards higher indices and wrap; without `dims` the flattened tensor rolls.
fn roll(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let shifts = call.integers("shifts")?.ok_or_else(|| call.unmodelled("shifts were not recorded"))?;
    let dims = call.integers("dims")?.unwrap_or_default();
    let exactness = moved([x.dtype], call.output(0)?.dtype);
    let shape = x.value.shape().to_vec();
    let back = |shift: i64, extent: usize| -> usize {
        let extent = i128::try_from(extent.max(1)).unwrap_or(1);
        usize::try_from((-i128::from(shift)).rem_euclid(extent)).unwrap_or(0)
    };
    let view = x.value.view();
    if dims.is_empty() {
        let [shift] = shifts[..] else { return Err(call.unmodelled("several shifts without dims")) };
        let dense = view.as_standard_layout();
        let flat = dense.as_slice().unwrap_or(&[]);
        let mut order = flat.iter().cycle().skip(back(shift, flat.len()));
        return by_coordinate(call, &shape, exactness, |_| {
            order.next().copied().ok_or_else(|| call.unmodelled("nothing to roll"))
        });
    }
    let axes = axes(call, &dims, shape.len())?;
    if axes.len() != shifts.len() {
        return Err(call.unmodelled("shifts and dims differ in number"));
    }
    let mut offset = vec![0usize; shape.len()];
    for (&axis, &shift) in axes.iter().zip(&shifts) {
        offset[axis] = (offset[axis] + back(shift, shape[axis])) % shape[axis].max(1);
    }
    let mut from = vec![0; shape.len()];
    by_coordinate(call, &shape, exactness, |to| {
        for axis in 0..from.len() {
            from[axis] = (to[axis] + offset[axis]) % shape[axis].max(1);
        }
        at(call, &view, &from)
    })
}

/// `[.., C·r², H, W]` to `[.., C, H·r, W·r]`.
fn pixel_shuffle(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let factor = usize::try_from(call.integer("upscale_factor", None)?).unwrap_or(0);
    let refuse = || call.unmodelled("the channels are no multiple of the factor's square");
    let square = factor.checked_mul(factor).filter(|&square| square > 0).ok_or_else(refuse)?;
    let [batch @ .., channels, height, width] = x.value.shape() else { return Err(refuse()) };
    if channels % square != 0 {
        return Err(refuse());
    }
    let overflow = || call.unmodelled("the result's shape overflows");
    let mut shape = batch.to_vec();
    shape.push(channels / square);
    shape.push(height.checked_mul(factor).ok_or_else(overflow)?);
    shape.push(width.checked_mul(factor).ok_or_else(overflow)?);
    let (view, lead) = (x.value.view(), batch.len());
    let mut from = vec![0; shape.len()];
    by_coordinate(call, &shape, moved([x.dtype], call.output(0)?.dtype), |to| {
        from.copy_from_slice(to);
        let (row, column) = (to[lead + 1], to[lead + 2]);
        from[lead] = to[lead] * square + (row % factor) * factor + column % factor;
        from[lead + 1] = row / factor;
        from[lead + 2] = column / factor;
        at(call, &view, &from)
    })
}
