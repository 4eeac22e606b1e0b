//! Elements written or added at index tensors: scatter, index_add, index_copy, index_put and kin.

use ndarray::{ArrayD, IxDyn};

use super::super::reference::{graded, integer_range, moved, round_to};
use super::super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};
use super::lookup::{index_list, indexed_shape, indices, placements};
use super::{advance, at, position, subject};
use crate::replay::elementwise::{Argument, argument, broadcast_shape};
use crate::tensor::{Kind, element_count};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "scatter" => |call| scatter(call, false),
        "scatter_add" => |call| scatter(call, true),
        "index_add" => |call| index_rows(call, true),
        "index_copy" => |call| index_rows(call, false),
        "index_fill" => index_fill,
        "index_put" | "_index_put_impl" | "_unsafe_index_put" => index_put,
        "select_scatter" => select_scatter,
        "slice_scatter" => slice_scatter,
        _ => return None,
    })
}

/// A copy of `self` that is written to.
struct Target<'a, 'b> {
    call: &'a Call<'b>,
    base: &'a Operand,
    values: ArrayD<f64>,
    /// Times that each element was written to or added to.
    writes: ArrayD<f64>,
    /// Sum of squares of the terms, and largest magnitude on the way.
    squares: ArrayD<f64>,
    scale: ArrayD<f64>,
    accumulate: bool,
    moves: bool,
}

impl<'a, 'b> Target<'a, 'b> {
    fn new(call: &'a Call<'b>, base: &'a Operand, accumulate: bool, moves: bool) -> Result<Self, Unmodelled> {
        call.output_count(1)?;
        call.fits(0, base.value.shape())?;
        let values = base.value.as_standard_layout().into_owned();
        let writes = values.mapv(|_| 0.0);
        let squares = if accumulate { values.mapv(|v| v * v) } else { ArrayD::from_elem(IxDyn(&[]), 0.0) };
        let scale = values.mapv(f64::abs);
        Ok(Self { call, base, values, writes, squares, scale, accumulate, moves })
    }

    /// Writes or adds `value` at a coordinate.
    fn put(&mut self, coordinate: &[usize], value: f64) -> Result<(), Unmodelled> {
        let key = IxDyn(coordinate);
        let (Some(slot), Some(writes), Some(scale)) =
            (self.values.get_mut(&key), self.writes.get_mut(&key), self.scale.get_mut(&key))
        else {
            return Err(self.call.unmodelled("a coordinate is out of range"));
        };
        if self.accumulate {
            *slot += value;
            if let Some(squares) = self.squares.get_mut(&key) {
                *squares += value * value;
            }
            *scale = scale.max(slot.abs()).max(value.abs());
        } else {
            let same = *slot == value || slot.is_nan() && value.is_nan();
            if *writes > 0.0 && !same {
                return Err(self.call.unmodelled("an element is written twice, and the order is not defined"));
            }
            *slot = value;
            *scale = value.abs();
        }
        *writes += 1.0;
        Ok(())
    }

    fn finish(self) -> Result<References, Unmodelled> {
        let output = self.call.output(0)?.dtype;
        let terms = 1 + self.writes.iter().fold(0.0, |most: f64, &n| most.max(n)) as usize;
        if let Some(range) = integer_range(output)
            && self.accumulate
            && !self.values.iter().all(|v| range.contains(v))
        {
            return Err(self.call.unmodelled(&format!("a sum is beyond {output} or 2^53")));
        }
        let exactness = match self.accumulate {
            true => graded(output, Exactness::Summed { terms, squares: self.squares }),
            false if self.moves => moved([self.base.dtype], output),
            false => Exactness::Rounded,
        };
        Ok(vec![Some(Reference { value: self.values, scale: self.scale, exactness })])
    }
}

/// What is written: a tensor, or a scalar that the kernel converts to the result's dtype.
fn written(call: &Call, names: &[&str], position: usize) -> Result<(Argument, bool), Unmodelled> {
    let output = call.output(0)?.dtype;
    let argument = argument(call, names, position)?;
    match argument.dtype {
        Some(dtype) => Ok((argument, dtype == output)),
        None => {
            let value = argument.value.iter().next().copied().unwrap_or(f64::NAN);
            let rounded = if output.kind() == Kind::Float { round_to(output, value) } else { Some(value) };
            let value = rounded.ok_or_else(|| call.unmodelled("the scalar's rounding is not modelled"))?;
            Ok((Argument::scalar(value), true))
        }
    }
}

fn axis(call: &Call, rank: usize) -> Result<usize, Unmodelled> {
    let axis = call.axis("dim", None, rank)?;
    if axis < rank { Ok(axis) } else { Err(call.unmodelled("a 0-d tensor has no axis")) }
}

/// `self[i][index[i][j]] = src[i][j]` (or `+=`) along `dim`.
fn scatter(call: &Call, add: bool) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let add = match call.text("reduce")? {
        None => add,
        Some("add") => true,
        Some(other) => return Err(call.unmodelled(&format!("reduction {other} is not modelled"))),
    };
    let axis = axis(call, x.value.ndim())?;
    let index = indices(call, call.input(&["index"], 1)?)?;
    let (source, moves) = written(call, &["src", "value"], 2)?;
    let rank = x.value.ndim();
    let (own, extents) = (x.value.shape(), index.value.shape());
    let covered = source.dtype.is_none() || source.value.ndim() == rank;
    if index.value.ndim() != rank || !covered || (0..rank).any(|a| a != axis && extents[a] > own[a]) {
        return Err(call.unmodelled("index and source do not fit the tensor"));
    }
    let scalar = source.dtype.is_none().then(|| source.value.iter().next().copied()).flatten();
    let mut target = Target::new(call, x, add, moves)?;
    let view = source.value.view();
    let mut from = vec![0; rank];
    for &next in &index.value {
        let value = match scalar {
            Some(value) => value,
            None => at(call, &view, &from)?,
        };
        let mut to = from.clone();
        to[axis] = position(call, next, own[axis])?;
        target.put(&to, value)?;
        advance(&mut from, extents);
    }
    target.finish()
}

/// Slices of `source` written to (or, times `alpha`, added to) those that `index` names.
fn index_rows(call: &Call, add: bool) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, x.value.ndim())?;
    let index = indices(call, call.input(&["index"], 1)?)?;
    let source = call.input(&["source"], 2)?;
    let alpha = if add { call.number("alpha", Some(1.0))? } else { 1.0 };
    let mut expected = x.value.shape().to_vec();
    expected[axis] = index.value.len();
    if source.value.shape() != expected {
        return Err(call.unmodelled("the source does not fit index and tensor"));
    }
    let rows: Vec<usize> =
        index.value.iter().map(|&i| position(call, i, x.value.shape()[axis])).collect::<Result<_, _>>()?;
    let mut target = Target::new(call, x, add, source.dtype == call.output(0)?.dtype)?;
    let mut from = vec![0; expected.len()];
    for &value in &source.value {
        let mut to = from.clone();
        to[axis] = rows[from[axis]];
        target.put(&to, if add { alpha * value } else { value })?;
        advance(&mut from, &expected);
    }
    target.finish()
}

fn index_fill(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, x.value.ndim())?;
    let index = indices(call, call.input(&["index"], 1)?)?;
    let (fill, moves) = written(call, &["value"], 2)?;
    let fill = fill.value.iter().next().copied().filter(|_| fill.value.len() == 1);
    let fill = fill.ok_or_else(|| call.unmodelled("the fill is no scalar"))?;
    let mut target = Target::new(call, x, false, moves)?;
    for &next in &index.value {
        let row = position(call, next, x.value.shape()[axis])?;
        fill_row(&mut target, axis, row, |_| Ok(fill))?;
    }
    target.finish()
}

/// Writes all elements with coordinate `row` on `axis`; `value` is asked with the other coordinates.
fn fill_row(
    target: &mut Target,
    axis: usize,
    row: usize,
    value: impl Fn(&[usize]) -> Result<f64, Unmodelled>,
) -> Result<(), Unmodelled> {
    let mut others = target.base.value.shape().to_vec();
    others.remove(axis);
    let mut rest = vec![0; others.len()];
    for _ in 0..others.iter().product::<usize>() {
        let mut to = rest.clone();
        to.insert(axis, row);
        let value = value(&rest)?;
        target.put(&to, value)?;
        advance(&mut rest, &others);
    }
    Ok(())
}

fn select_scatter(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let axis = axis(call, x.value.ndim())?;
    let source = call.input(&["src"], 1)?;
    let row = position(call, call.integer("index", None)? as f64, x.value.shape()[axis])?;
    let mut expected = x.value.shape().to_vec();
    expected.remove(axis);
    if source.value.shape() != expected {
        return Err(call.unmodelled("the source does not fit the tensor"));
    }
    let mut target = Target::new(call, x, false, source.dtype == call.output(0)?.dtype)?;
    let view = source.value.view();
    fill_row(&mut target, axis, row, |rest| at(call, &view, rest))?;
    target.finish()
}

fn slice_scatter(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let rank = x.value.ndim();
    let axis = call.axis("dim", Some(0), rank)?;
    let extent = *x.value.shape().get(axis).ok_or_else(|| call.unmodelled("a 0-d tensor has no axis"))?;
    let source = call.input(&["src"], 1)?;
    let start = super::part::bound(call.integer("start", Some(0))?, extent);
    let end = super::part::bound(call.integer("end", Some(i64::MAX))?, extent).max(start);
    let step = usize::try_from(call.integer("step", Some(1))?).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| call.unmodelled("a step below 1"))?;
    let mut expected = x.value.shape().to_vec();
    expected[axis] = (end - start).div_ceil(step);
    if source.value.shape() != expected {
        return Err(call.unmodelled("the source does not fit the slice"));
    }
    let mut target = Target::new(call, x, false, source.dtype == call.output(0)?.dtype)?;
    let mut from = vec![0; rank];
    for &value in &source.value {
        let mut to = from.clone();
        to[axis] = start + from[axis] * step;
        target.put(&to, value)?;
        advance(&mut from, &expected);
    }
    target.finish()
}

/// `self[indices] = values` (or `+=` with `accumulate`), where the axes leave one reading: all are
/// indexed, or `values` has the full shape of one placement only.
fn index_put(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let accumulate = call.flag("accumulate", false)?;
    let list = index_list(call, 1, 1)?;
    let values = call.input(&["values"], call.inputs.len().saturating_sub(1))?;
    let own = x.value.shape();
    let joint = broadcast_shape(list.iter().map(|operand| operand.value.shape()));
    let joint = joint.ok_or_else(|| call.unmodelled("the indices do not broadcast"))?;
    let mut fitting: Vec<Vec<usize>> = placements(own.len(), list.len());
    fitting.retain(|axes| {
        let shape = indexed_shape(own, axes, &joint).1;
        values.value.shape() == shape || axes.len() == own.len()
    });
    let [axes] = &fitting[..] else {
        return Err(call.unmodelled("which axes are indexed was not recorded"));
    };
    let (lead, shape) = indexed_shape(own, axes, &joint);
    // Index tensors that broadcast against one another could ask for far more writes than there are
    // elements; a recorded assignment has no use for that.
    let total = element_count(&shape).filter(|total| *total <= x.value.len().max(values.value.len()));
    let total = total.ok_or_else(|| call.unmodelled("more writes than elements"))?;
    let source = values.value.broadcast(IxDyn(&shape));
    let source = source.ok_or_else(|| call.unmodelled("the values do not broadcast to the indexed shape"))?;
    let spread: Option<Vec<_>> = list.iter().map(|operand| operand.value.broadcast(IxDyn(&joint))).collect();
    let spread = spread.ok_or_else(|| call.unmodelled("the indices do not broadcast"))?;
    let rest: Vec<usize> = (0..own.len()).filter(|axis| !axes.contains(axis)).collect();
    let mut target = Target::new(call, x, accumulate, values.dtype == call.output(0)?.dtype)?;
    let mut from = vec![0; shape.len()];
    let mut to = vec![0; own.len()];
    let mut values = source.iter();
    for _ in 0..total {
        let (index_at, after) = (&from[lead..lead + joint.len()], &from[lead + joint.len()..]);
        for (&axis, &coordinate) in rest.iter().zip(from[..lead].iter().chain(after)) {
            to[axis] = coordinate;
        }
        for (&axis, operand) in axes.iter().zip(&spread) {
            to[axis] = position(call, at(call, operand, index_at)?, own[axis])?;
        }
        target.put(&to, values.next().copied().unwrap_or(f64::NAN))?;
        advance(&mut from, &shape);
    }
    target.finish()
}
