//! What a replayed function hands back: references whose shapes are those that were recorded.

use ndarray::{ArrayD, Zip};

use super::{Call, Exactness, Operand, Reference, References, Unmodelled};

impl Reference {
    /// A result whose `scale` is raised to |value| where it is smaller or NaN.
    fn new(value: ArrayD<f64>, mut scale: ArrayD<f64>, exactness: Exactness) -> Self {
        Zip::from(&mut scale).and(&value).for_each(|scale, value| *scale = scale.max(value.abs()));
        Self { value, scale, exactness }
    }

    /// Bits that were moved.
    pub(super) fn moved(value: ArrayD<f64>) -> Self {
        Self { scale: value.mapv(f64::abs), value, exactness: Exactness::Exact }
    }

    /// Indices, truth values, counts.
    pub(super) fn discrete(value: ArrayD<f64>) -> Self {
        Self { scale: value.mapv(f64::abs), value, exactness: Exactness::Discrete }
    }

    /// One correct rounding.
    pub(super) fn rounded(value: ArrayD<f64>) -> Self {
        Self { scale: value.mapv(f64::abs), value, exactness: Exactness::Rounded }
    }

    /// A function with a budget of `ulp`.
    pub(super) fn function(value: ArrayD<f64>, scale: ArrayD<f64>, ulp: f64) -> Self {
        Self::new(value, scale, Exactness::Function { ulp, roundings: 0 })
    }

    /// The same with legitimate internal roundings.
    pub(super) fn with_roundings(mut self, count: u32) -> Self {
        if let Exactness::Function { roundings, .. } = &mut self.exactness {
            *roundings = count;
        }
        self
    }

    /// A sum of `terms` terms whose squares add up to `squares`.
    pub(super) fn summed(value: ArrayD<f64>, scale: ArrayD<f64>, terms: usize, squares: ArrayD<f64>) -> Self {
        Self::new(value, scale, Exactness::Summed { terms, squares })
    }
}

/// ULP budget of a function whose result is summed over `terms` terms: its own budget and the random
/// walk of the additions, 0.42·sqrt(K·(1/3 + 1/6)) (the error model of contractions with block 1 and
/// Q = y², its worst case for terms of one sign).
pub(super) fn with_summation(ulp: f64, terms: usize) -> f64 {
    ulp.hypot(0.42 * (terms as f64 / 2.0).sqrt())
}

/// Holds computed result shapes against the recorded ones before anything is allocated. A recorder
/// may leave by-products out, so that fewer outputs than `shapes` are fine.
///
/// # Errors
/// No output, more outputs than the function has, or another shape.
pub(super) fn expect_shapes(call: &Call, shapes: &[&[usize]]) -> Result<(), Unmodelled> {
    if call.outputs.is_empty() || call.outputs.len() > shapes.len() {
        return Err(Unmodelled(format!(
            "{} has {} outputs, recorded were {}",
            call.function(),
            shapes.len(),
            call.outputs.len()
        )));
    }
    match call.outputs.iter().zip(shapes).find(|(recorded, shape)| recorded.shape != **shape) {
        None => Ok(()),
        Some((recorded, shape)) => {
            Err(Unmodelled(format!("result shape {shape:?} does not fit the recorded {:?}", recorded.shape)))
        }
    }
}

/// The references of the outputs that were recorded.
pub(super) fn answer(call: &Call, mut references: References) -> Result<References, Unmodelled> {
    references.truncate(call.outputs.len());
    Ok(references)
}

/// The tensor arguments of a function, each under the names it may have, in the schema's order.
/// Where no names were recorded they stand in this order, those left out that the attributes give as
/// null.
///
/// # Errors
/// More tensors than arguments.
pub(super) fn arguments<'c, const N: usize>(
    call: &'c Call,
    names: [&[&str]; N],
) -> Result<[Option<&'c Operand>; N], Unmodelled> {
    if call.inputs.iter().any(|input| input.name.is_some()) {
        return Ok(names.map(|names| call.named(names)));
    }
    let mut inputs = call.inputs.iter();
    let null = |name: &&str| call.attrs.and_then(|attrs| attrs.get(*name)).is_some_and(serde_json::Value::is_null);
    let found = names.map(|names| if names.iter().any(&null) { None } else { inputs.next() });
    match inputs.next() {
        None => Ok(found),
        Some(_) => Err(Unmodelled(format!("{} takes {N} tensors, recorded were more", call.function()))),
    }
}

/// The argument, which must be there.
///
/// # Errors
/// It was not recorded.
pub(super) fn required<'c>(call: &Call, argument: Option<&'c Operand>, name: &str) -> Result<&'c Operand, Unmodelled> {
    argument.ok_or_else(|| Unmodelled(format!("argument {name} of {} was not recorded", call.function())))
}

/// The only tensor argument.
///
/// # Errors
/// None or several were recorded.
pub(super) fn only_tensor<'c>(call: &'c Call) -> Result<&'c Operand, Unmodelled> {
    match call.inputs.as_slice() {
        [input] => Ok(input),
        inputs => Err(Unmodelled(format!("{} takes one tensor, recorded were {}", call.function(), inputs.len()))),
    }
}

/// Refuses a `dtype` argument that makes the function round its input before it computes.
///
/// # Errors
/// The first output's type is coarser than the input's and asked for by `dtype`.
pub(super) fn refuse_narrowing(call: &Call, input: &Operand) -> Result<(), Unmodelled> {
    if call.attrs.is_none() || call.attr("dtype")?.is_none() {
        return Ok(());
    }
    let result = call.outputs.first().and_then(|output| output.dtype.unit_roundoff());
    match (input.dtype.unit_roundoff(), result) {
        (Some(from), Some(to)) if to > from => {
            Err(Unmodelled(format!("{} rounds its input to its dtype first", call.function())))
        }
        _ => Ok(()),
    }
}

/// The elements of an operand, row-major.
pub(super) fn elements(operand: &Operand) -> Vec<f64> {
    operand.value.iter().copied().collect()
}

/// The shape that all `shapes` broadcast to.
pub(super) fn broadcast_shape(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (slot, &extent) in result[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*slot, extent) {
                (1, extent) => *slot = extent,
                (_, 1) => {}
                (one, other) if one == other => {}
                _ => return None,
            }
        }
    }
    crate::tensor::element_count(&result).map(|_| result)
}
