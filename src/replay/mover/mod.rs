//! Operators that move elements without changing them, and factories.
//!
//! In goes a call that only rearranges, selects, joins or repeats elements (or makes them from
//! attributes alone); out comes the exact result. Where no operand changes its dtype on the way the
//! reference is [`Exactness::Exact`], else each element is converted once. Nothing larger than the
//! recorded outputs is allocated: the result's shape is held against the recorded one first.
//!
//! [`Exactness::Exact`]: super::Exactness::Exact

mod blend;
mod factory;
mod item;
mod join;
mod layout;
mod lookup;
mod order;
mod part;
mod scatter;
#[cfg(test)]
mod tests;

use ndarray::{ArrayD, ArrayView, IxDyn};

use super::reference::{moved, plain};
use super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};
use crate::tensor::element_count;

/// Names under which frameworks record the tensor that is moved.
const SELF: &[&str] = &["self", "input", "x", "tensor"];

pub(super) fn family(function: &str) -> Option<Replay> {
    let families = [
        layout::family,
        order::family,
        part::family,
        item::family,
        join::family,
        blend::family,
        lookup::family,
        scatter::family,
    ];
    families.iter().chain(&[factory::family as fn(&str) -> Option<Replay>]).find_map(|family| family(function))
}

/// The tensor that is moved.
fn subject<'a>(call: &'a Call) -> Result<&'a Operand, Unmodelled> {
    call.input(SELF, 0)
}

/// Output `slot` from a view of `source`.
fn from_view(
    call: &Call,
    slot: usize,
    source: &Operand,
    view: &ArrayView<f64, IxDyn>,
) -> Result<Reference, Unmodelled> {
    call.fits(slot, view.shape())?;
    let value = view.as_standard_layout().into_owned();
    Ok(plain(value, moved([source.dtype], call.output(slot)?.dtype)))
}

/// The only output, from a view of `source`.
fn single(call: &Call, source: &Operand, view: &ArrayView<f64, IxDyn>) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    Ok(vec![Some(from_view(call, 0, source, view)?)])
}

/// Output 0 of `shape`, computed coordinate by coordinate.
fn by_coordinate(
    call: &Call,
    shape: &[usize],
    exactness: Exactness,
    mut element: impl FnMut(&[usize]) -> Result<f64, Unmodelled>,
) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    call.fits(0, shape)?;
    let total = element_count(shape).ok_or_else(|| call.unmodelled("the result's shape overflows"))?;
    let mut values = Vec::with_capacity(total);
    let mut at = vec![0; shape.len()];
    for _ in 0..total {
        values.push(element(&at)?);
        advance(&mut at, shape);
    }
    Ok(vec![Some(plain(array(call, shape, values)?, exactness))])
}

/// The next coordinate in row-major order.
fn advance(at: &mut [usize], shape: &[usize]) {
    for (coordinate, &extent) in at.iter_mut().zip(shape).rev() {
        *coordinate += 1;
        if *coordinate < extent {
            return;
        }
        *coordinate = 0;
    }
}

/// `values` in row-major order as an array of `shape`.
fn array(call: &Call, shape: &[usize], values: Vec<f64>) -> Result<ArrayD<f64>, Unmodelled> {
    ArrayD::from_shape_vec(IxDyn(shape), values).map_err(|_| call.unmodelled("the result's shape overflows"))
}

/// A recorded index, negative ones counted from the end of `extent`.
fn position(call: &Call, index: f64, extent: usize) -> Result<usize, Unmodelled> {
    let wrapped = if index < 0.0 { index + extent as f64 } else { index };
    if wrapped.fract() == 0.0 && wrapped >= 0.0 && wrapped < extent as f64 {
        return Ok(wrapped as usize);
    }
    Err(call.unmodelled(&format!("index {index} is out of range for {extent} elements")))
}

/// An element at a coordinate that the caller has checked; a miss is refused, not a panic.
fn at(call: &Call, array: &ArrayView<f64, IxDyn>, coordinate: &[usize]) -> Result<f64, Unmodelled> {
    array.get(IxDyn(coordinate)).copied().ok_or_else(|| call.unmodelled("a coordinate is out of range"))
}
