//! Elements chosen by a mask: where, masked_fill, masked_select, masked_scatter.

use ndarray::IxDyn;

use super::super::reference::{moved, plain, round_to};
use super::super::{Call, Exactness, Operand, References, Replay, Unmodelled};
use super::{array, by_coordinate, subject};
use crate::replay::elementwise::{Argument, apply, argument};
use crate::tensor::{DType, Kind};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "where" | "select_v2" => choose,
        "masked_fill" => masked_fill,
        "masked_select" => masked_select,
        "masked_scatter" => masked_scatter,
        _ => return None,
    })
}

/// The value that lands in the result: a scalar is converted to the result's dtype on the way.
fn stored(call: &Call, argument: Argument) -> Result<(Argument, bool), Unmodelled> {
    let output = call.output(0)?.dtype;
    match argument.dtype {
        Some(dtype) => Ok((argument, dtype == output)),
        None => {
            let value = argument.value.iter().next().copied().unwrap_or(f64::NAN);
            let rounded = if output.kind() == Kind::Float { round_to(output, value) } else { Some(value) };
            let rounded = rounded.ok_or_else(|| call.unmodelled("the scalar's rounding is not modelled"))?;
            Ok((Argument::scalar(rounded), true))
        }
    }
}

/// Bools, or bytes as older programs have them.
fn mask<'a>(call: &Call, operand: &'a Operand) -> Result<&'a Operand, Unmodelled> {
    match operand.dtype {
        DType::Bool | DType::U8 => Ok(operand),
        dtype => Err(call.unmodelled(&format!("a mask of {dtype}"))),
    }
}

fn blend(call: &Call, condition: &Operand, yes: Argument, no: Argument) -> Result<References, Unmodelled> {
    call.output_count(1)?;
    let (yes, yes_moves) = stored(call, yes)?;
    let (no, no_moves) = stored(call, no)?;
    let exactness = if yes_moves && no_moves { Exactness::Exact } else { Exactness::Rounded };
    let operands = [&condition.value, &yes.value, &no.value];
    let mut reference =
        apply(call, operands, exactness.clone(), |[c, yes, no]| (if c != 0.0 { yes } else { no }, 0.0))?;
    reference.exactness = exactness;
    Ok(vec![Some(reference)])
}

fn choose(call: &Call) -> Result<References, Unmodelled> {
    let condition = mask(call, call.input(&["condition"], 0)?)?;
    let yes = argument(call, &["self", "input", "x"], 1)?;
    let no = argument(call, &["other", "y"], 2)?;
    blend(call, condition, yes, no)
}

fn masked_fill(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let condition = mask(call, call.input(&["mask"], 1)?)?;
    let value = argument(call, &["value"], 2)?;
    blend(call, condition, value, x.into())
}

/// The mask broadcast to `shape`, in row-major order.
fn spread(call: &Call, mask: &Operand, shape: &[usize]) -> Result<Vec<bool>, Unmodelled> {
    let view = mask.value.broadcast(IxDyn(shape));
    let view = view.ok_or_else(|| call.unmodelled("the mask does not broadcast to the tensor"))?;
    Ok(view.iter().map(|&v| v != 0.0).collect())
}

/// The result's extent depends on the mask's content and must be the recorded one.
fn masked_select(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let mask = mask(call, call.input(&["mask"], 1)?)?;
    let shape = crate::replay::elementwise::broadcast_shape([x.value.shape(), mask.value.shape()]);
    let shape = shape.ok_or_else(|| call.unmodelled("the mask does not broadcast to the tensor"))?;
    // Both broadcasting at once could exceed what was recorded; one side has the joint extents.
    if x.value.shape() != shape && mask.value.shape() != shape {
        return Err(call.unmodelled("tensor and mask both broadcast"));
    }
    let chosen = spread(call, mask, &shape)?;
    let view = x.value.broadcast(IxDyn(&shape));
    let view = view.ok_or_else(|| call.unmodelled("the tensor does not broadcast to the mask"))?;
    call.output_count(1)?;
    call.fits(0, &[chosen.iter().filter(|chosen| **chosen).count()])?;
    let values: Vec<f64> = view.iter().zip(&chosen).filter(|(_, chosen)| **chosen).map(|(&v, _)| v).collect();
    let value = array(call, &[values.len()], values)?;
    Ok(vec![Some(plain(value, moved([x.dtype], call.output(0)?.dtype)))])
}

/// Where the mask is true, the next element of `source`.
fn masked_scatter(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let mask = mask(call, call.input(&["mask"], 1)?)?;
    let source = call.input(&["source"], 2)?;
    let shape = x.value.shape().to_vec();
    let chosen = spread(call, mask, &shape)?;
    let mut elements = x.value.iter().zip(chosen);
    let mut from = source.value.iter();
    by_coordinate(call, &shape, moved([x.dtype, source.dtype], call.output(0)?.dtype), |_| match elements.next() {
        Some((_, true)) => from.next().copied().ok_or_else(|| call.unmodelled("the source is shorter than the mask")),
        Some((&own, false)) => Ok(own),
        None => Err(call.unmodelled("the mask does not fit")),
    })
}
