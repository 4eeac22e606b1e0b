//! Several tensors as one, one tensor several times, and tensors with a border.

use ndarray::{ArrayView, Axis, IxDyn};

use super::super::reference::{moved, plain, round_to};
use super::super::{Call, Operand, References, Replay, Unmodelled, resolve_axis};
use super::{array, at, by_coordinate, subject};
use crate::tensor::{Kind, element_count};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "cat" | "concat" | "concatenate" => |call| join(call, false),
        "stack" => |call| join(call, true),
        "repeat" | "tile" => repeat,
        "repeat_interleave" => repeat_each,
        "pad" | "constant_pad_nd" | "zero_pad2d" | "reflection_pad1d" | "reflection_pad2d" | "reflection_pad3d"
        | "replication_pad1d" | "replication_pad2d" | "replication_pad3d" | "circular_pad" => pad,
        _ => return None,
    })
}

fn parts<'a>(call: &'a Call) -> Vec<&'a Operand> {
    match call.list("tensors") {
        named if named.is_empty() => call.inputs.iter().collect(),
        named => named,
    }
}

/// `cat` along an axis, or `stack` along a new one.
fn join(call: &Call, stacked: bool) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let dim = match call.attr("axis")? {
        Some(_) => call.integer("axis", None)?,
        None => call.integer("dim", Some(0))?,
    };
    let mut parts = parts(call);
    let dtypes: Vec<_> = parts.iter().map(|part| part.dtype).collect();
    if !stacked && parts.iter().any(|part| part.value.ndim() != 1) {
        // An empty 1-d tensor joins anything (torch keeps this for old programs).
        parts.retain(|part| part.value.shape() != [0]);
    }
    let first = *parts.first().ok_or_else(|| call.unmodelled("nothing to join"))?;
    if parts.iter().any(|part| part.value.ndim() != first.value.ndim()) {
        return Err(call.unmodelled("the parts differ in rank"));
    }
    let rank = first.value.ndim() + usize::from(stacked);
    let axis = resolve_axis(dim, rank).filter(|axis| *axis < rank);
    let axis = axis.ok_or_else(|| call.unmodelled("dim is out of range"))?;
    let views: Vec<ArrayView<f64, IxDyn>> = parts
        .iter()
        .map(|part| if stacked { part.value.view().insert_axis(Axis(axis)) } else { part.value.view() })
        .collect();

    let mut shape = first.value.shape().to_vec();
    if stacked {
        shape.insert(axis, 1);
    }
    let mut along = 0usize;
    for view in &views {
        let agrees = view.ndim() == rank && (0..rank).all(|a| a == axis || view.shape()[a] == shape[a]);
        let grown = if agrees { along.checked_add(view.shape()[axis]) } else { None };
        along = grown.ok_or_else(|| call.unmodelled("the parts' extents do not agree"))?;
    }
    shape[axis] = along;
    call.fits(0, &shape)?;
    let value = ndarray::concatenate(Axis(axis), &views).map_err(|_| call.unmodelled("the parts do not join"))?;
    let value = value.as_standard_layout().into_owned();
    Ok(vec![Some(plain(value, moved(dtypes, call.output(0)?.dtype)))])
}

/// `repeats` per axis; more repeats than axes add axes in front.
pub(super) fn repeat(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let repeats = call.integers("repeats")?.or(call.integers("dims")?);
    let repeats = repeats.ok_or_else(|| call.unmodelled("repeats were not recorded"))?;
    let rank = repeats.len().max(x.value.ndim());
    if rank > repeats.len() && call.function() == "repeat" {
        return Err(call.unmodelled("fewer repeats than axes"));
    }
    let own = [vec![1; rank - x.value.ndim()], x.value.shape().to_vec()].concat();
    let repeats = [vec![1; rank - repeats.len()], repeats].concat();
    let shape = own.iter().zip(&repeats).map(|(&own, &n)| usize::try_from(n).ok()?.checked_mul(own));
    let shape: Vec<usize> = shape.collect::<Option<_>>().ok_or_else(|| call.unmodelled("repeats are no counts"))?;
    let view = x.value.view();
    let skipped = rank - x.value.ndim();
    let mut from = vec![0; x.value.ndim()];
    by_coordinate(call, &shape, moved([x.dtype], call.output(0)?.dtype), |to| {
        for (axis, from) in from.iter_mut().enumerate() {
            *from = to[skipped + axis] % own[skipped + axis].max(1);
        }
        at(call, &view, &from)
    })
}

/// Each element along `dim` the same number of times.
fn repeat_each(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    if call.inputs.len() > 1 {
        return Err(call.unmodelled("repeats that differ per element"));
    }
    let repeats = usize::try_from(call.integer("repeats", None)?).ok().filter(|repeats| *repeats > 0);
    let repeats = repeats.ok_or_else(|| call.unmodelled("repeats are no positive count"))?;
    let overflow = || call.unmodelled("the result's shape overflows");
    let exactness = moved([x.dtype], call.output(0)?.dtype);
    let Some(dim) = call.integers("dim")? else {
        let shape = [x.value.len().checked_mul(repeats).ok_or_else(overflow)?];
        call.fits(0, &shape)?;
        let values = x.value.iter().flat_map(|&v| std::iter::repeat_n(v, repeats)).collect();
        return Ok(vec![Some(plain(array(call, &shape, values)?, exactness))]);
    };
    let rank = x.value.ndim();
    let axis = dim.first().and_then(|&dim| resolve_axis(dim, rank)).filter(|axis| *axis < rank);
    let axis = axis.ok_or_else(|| call.unmodelled("dim is out of range"))?;
    let mut shape = x.value.shape().to_vec();
    shape[axis] = shape[axis].checked_mul(repeats).ok_or_else(overflow)?;
    let view = x.value.view();
    let mut from = vec![0; rank];
    by_coordinate(call, &shape, exactness, |to| {
        from.copy_from_slice(to);
        from[axis] /= repeats;
        at(call, &view, &from)
    })
}

/// How a border is filled.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    Constant(f64),
    Reflect,
    Replicate,
    Circular,
}

/// `pad` counts (before, after) pairs from the last axis on; negative amounts crop.
fn pad(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let amounts = call.integers("pad")?.or(call.integers("padding")?);
    let amounts = amounts.ok_or_else(|| call.unmodelled("pad was not recorded"))?;
    let output = call.output(0)?.dtype;
    let mode = match call.function() {
        "pad" => call.text("mode")?.unwrap_or("constant"),
        name if name.starts_with("reflection") => "reflect",
        name if name.starts_with("replication") => "replicate",
        "circular_pad" => "circular",
        _ => "constant",
    };
    let border = match mode {
        "constant" => {
            let value = call.number("value", Some(0.0))?;
            let stored = if output.kind() == Kind::Float { round_to(output, value) } else { Some(value) };
            Border::Constant(stored.ok_or_else(|| call.unmodelled("the fill's rounding is not modelled"))?)
        }
        "reflect" => Border::Reflect,
        "replicate" => Border::Replicate,
        "circular" => Border::Circular,
        other => return Err(call.unmodelled(&format!("mode {other} is not known"))),
    };
    let rank = x.value.ndim();
    if amounts.len() % 2 != 0 || amounts.len() / 2 > rank {
        return Err(call.unmodelled("pad is no pair per axis"));
    }
    let mut shape = x.value.shape().to_vec();
    let mut before = vec![0i64; rank];
    for (pair, axis) in amounts.chunks_exact(2).zip((0..rank).rev()) {
        let grown = i128::try_from(shape[axis]).unwrap_or(0) + i128::from(pair[0]) + i128::from(pair[1]);
        shape[axis] = usize::try_from(grown).map_err(|_| call.unmodelled("pad crops more than there is"))?;
        before[axis] = pair[0];
    }
    element_count(&shape).ok_or_else(|| call.unmodelled("the result's shape overflows"))?;
    let view = x.value.view();
    let mut from = vec![0; rank];
    by_coordinate(call, &shape, moved([x.dtype], output), |to| {
        for axis in 0..rank {
            let (raw, extent) = (to[axis] as i64 - before[axis], x.value.shape()[axis] as i64);
            let inside = (0..extent).contains(&raw);
            let source = match border {
                Border::Constant(value) if !inside => return Ok(value),
                Border::Constant(_) => raw,
                // One reflection is all that torch allows (a border below the extent).
                Border::Reflect if raw < 0 => -raw,
                Border::Reflect if raw >= extent => 2 * (extent - 1) - raw,
                Border::Reflect => raw,
                Border::Replicate => raw.clamp(0, (extent - 1).max(0)),
                Border::Circular => raw.rem_euclid(extent.max(1)),
            };
            from[axis] = usize::try_from(source).map_err(|_| call.unmodelled("the border exceeds the tensor"))?;
        }
        at(call, &view, &from)
    })
}
