//! A function of N operands applied element by element, under broadcasting.

use ndarray::{ArcArray, ArrayD, IxDyn};
use rayon::prelude::*;

use super::super::reference::{graded, integer_range};
use super::super::{Call, Exactness, Operand, Reference, Unmodelled};
use crate::tensor::{DType, Kind, element_count};

/// Elements that one task computes: large against its overhead, small against a tensor.
const BLOCK: usize = 8192;

/// One operand: a recorded tensor, or a scalar attribute in the place of one.
#[derive(Debug, Clone)]
pub(in crate::replay) struct Argument {
    /// Values, 0-d for a scalar.
    pub(in crate::replay) value: ArcArray<f64, IxDyn>,
    /// Recorded dtype; `None` for a scalar attribute.
    pub(in crate::replay) dtype: Option<DType>,
}

impl From<&Operand> for Argument {
    fn from(operand: &Operand) -> Self {
        Self { value: operand.value.clone(), dtype: Some(operand.dtype) }
    }
}

impl Argument {
    /// A scalar attribute.
    pub(in crate::replay) fn scalar(value: f64) -> Self {
        Self { value: ArcArray::from_elem(IxDyn(&[]), value), dtype: None }
    }
}

/// The operand called one of `names`: the tensor, else the tensor at `position` where no names were
/// recorded and there are that many, else the scalar attribute.
pub(in crate::replay) fn argument(call: &Call, names: &[&str], position: usize) -> Result<Argument, Unmodelled> {
    if let Some(operand) = call.optional_input(names, position) {
        return Ok(operand.into());
    }
    for name in names {
        if call.attr(name)?.is_some() {
            return scalar(call, name, None).map(Argument::scalar);
        }
    }
    Err(call.unmodelled(&format!("argument {} was not recorded", names.first().unwrap_or(&"?"))))
}

/// A number attribute as kernels take it: in fp32, where the result has at most that precision.
pub(super) fn scalar(call: &Call, name: &str, default: Option<f64>) -> Result<f64, Unmodelled> {
    let value = call.number(name, default)?;
    let dtype = call.output(0)?.dtype;
    let wide = dtype == DType::F64 || dtype.kind() != Kind::Float;
    Ok(if wide { value } else { f64::from(value as f32) })
}

/// Extents that the operands share under broadcasting, or `None` where they do not.
pub(in crate::replay) fn broadcast_shape<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Vec<usize>> {
    let mut joint: Vec<usize> = Vec::new();
    for shape in shapes {
        if shape.len() > joint.len() {
            let missing = shape.len() - joint.len();
            joint.splice(0..0, std::iter::repeat_n(1, missing));
        }
        let offset = joint.len() - shape.len();
        for (joint, &own) in joint[offset..].iter_mut().zip(shape) {
            if *joint == 1 {
                *joint = own;
            } else if own != 1 && own != *joint {
                return None;
            }
        }
    }
    Some(joint)
}

/// Applies `function`, which gives an element's value and scale, and holds the result's shape against
/// the recorded one first. The scale is raised to |value| where it is less or not a number.
pub(in crate::replay) fn apply<const N: usize>(
    call: &Call,
    operands: [&ArcArray<f64, IxDyn>; N],
    exactness: Exactness,
    function: impl Fn([f64; N]) -> (f64, f64) + Sync,
) -> Result<Reference, Unmodelled> {
    let shape = broadcast_shape(operands.iter().map(|operand| operand.shape()))
        .ok_or_else(|| call.unmodelled("the operands' shapes do not broadcast"))?;
    call.fits(0, &shape)?;
    let (value, scale) = evaluate(call, &shape, operands, function)?;
    let dtype = call.output(0)?.dtype;
    if let Some(range) = integer_range(dtype)
        && !value.iter().all(|v| range.contains(v) && v.fract() == 0.0)
    {
        return Err(call.unmodelled(&format!("an integer result is beyond {dtype} or 2^53")));
    }
    Ok(Reference { value, scale, exactness: graded(dtype, exactness) })
}

/// [`apply`] without a recorded output: values and scales in `shape`, to which the operands broadcast.
pub(in crate::replay) fn evaluate<const N: usize>(
    call: &Call,
    shape: &[usize],
    operands: [&ArcArray<f64, IxDyn>; N],
    function: impl Fn([f64; N]) -> (f64, f64) + Sync,
) -> Result<(ArrayD<f64>, ArrayD<f64>), Unmodelled> {
    let overflow = || call.unmodelled("the result's shape overflows");
    if element_count(shape).is_none() {
        return Err(overflow());
    }
    let (value, scale) = compute(shape, operands, function);
    let value = ArrayD::from_shape_vec(IxDyn(shape), value).map_err(|_| overflow())?;
    let scale = ArrayD::from_shape_vec(IxDyn(shape), scale).map_err(|_| overflow())?;
    Ok((value, scale))
}

/// Values and scales in row-major order. Operands must broadcast to `shape`.
fn compute<const N: usize>(
    shape: &[usize],
    operands: [&ArcArray<f64, IxDyn>; N],
    function: impl Fn([f64; N]) -> (f64, f64) + Sync,
) -> (Vec<f64>, Vec<f64>) {
    let total: usize = shape.iter().product();
    let (mut values, mut scales) = (vec![0.0; total], vec![0.0; total]);
    if total == 0 {
        return (values, scales);
    }
    let dense: [_; N] = operands.map(|operand| operand.as_standard_layout());
    let (extents, strides) = merged_axes(shape, &operands.map(|operand| operand.shape()));
    // `as_standard_layout` is contiguous, so the empty slice is never taken.
    let slices: [&[f64]; N] = std::array::from_fn(|k| dense[k].as_slice().unwrap_or(&[]));
    let inner = extents.last().copied().unwrap_or(1);
    let inner_stride: [usize; N] = std::array::from_fn(|k| strides.last().map_or(0, |stride| stride[k]));

    let blocks = values.par_chunks_mut(BLOCK).zip(scales.par_chunks_mut(BLOCK)).enumerate();
    blocks.for_each(|(block, (values, scales))| {
        let mut done = 0;
        while done < values.len() {
            let at = block * BLOCK + done;
            let (mut row, column) = (at / inner, at % inner);
            let mut base: [usize; N] = std::array::from_fn(|k| column * inner_stride[k]);
            for axis in (0..extents.len().saturating_sub(1)).rev() {
                let coordinate = row % extents[axis];
                row /= extents[axis];
                for k in 0..N {
                    base[k] += coordinate * strides[axis][k];
                }
            }
            let count = (inner - column).min(values.len() - done);
            let span = done..done + count;
            for (i, (value, scale)) in values[span.clone()].iter_mut().zip(&mut scales[span]).enumerate() {
                let (result, magnitude) = function(std::array::from_fn(|k| slices[k][base[k] + i * inner_stride[k]]));
                *value = result;
                // `max` ignores a NaN magnitude (0·inf in a scale's formula).
                *scale = magnitude.abs().max(result.abs());
            }
            done += count;
        }
    });
    (values, scales)
}

/// Axes of the result with each operand's stride along them (0 where it is broadcast); neighbours
/// that every operand walks through as one are merged.
fn merged_axes<const N: usize>(shape: &[usize], operands: &[&[usize]; N]) -> (Vec<usize>, Vec<[usize; N]>) {
    let mut strides = vec![[0; N]; shape.len()];
    for (k, operand) in operands.iter().enumerate() {
        let offset = shape.len() - operand.len();
        let mut step = 1;
        for axis in (0..operand.len()).rev() {
            if operand[axis] != 1 {
                strides[offset + axis][k] = step;
            }
            step *= operand[axis];
        }
    }
    let (mut extents, mut merged): (Vec<usize>, Vec<[usize; N]>) = (Vec::new(), Vec::new());
    for (&extent, stride) in shape.iter().zip(strides) {
        if extent == 1 {
            continue;
        }
        match (extents.last_mut(), merged.last_mut()) {
            (Some(outer), Some(outer_stride)) if (0..N).all(|k| outer_stride[k] == stride[k] * extent) => {
                *outer *= extent;
                *outer_stride = stride;
            }
            _ => {
                extents.push(extent);
                merged.push(stride);
            }
        }
    }
    (extents, merged)
}
