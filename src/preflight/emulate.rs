//! One layer as the dtype would compute it: its recorded inputs rounded, the operator replayed in fp64,
//! the result rounded.
//!
//! What comes out is the error of this layer alone; how errors add up along the network is not told.

use ndarray::{ArrayD, IxDyn};

use super::Target;
use super::finding::{Finding, FindingKind, Place, Severity};
use super::range::is_sentinel;
use super::threshold::GROWTH;
use crate::error::Result;
use crate::judge::figure;
use crate::judge::threshold::{REPLAY_ELEMENTS, REPLAY_PRODUCTS, ROUNDING, SUBNORMAL_FLOOR};
use crate::op::{self, Class};
use crate::replay::{self, Call, Operand, OutputSpec, Reference, Rounding};
use crate::run::{Layer, LayerKind, Pass, Run};
use crate::tensor::{DType, Kind, Tensor};

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Emulated {
    /// It was replayed.
    Done(Outcome),
    /// The operator or its attributes are not known well enough.
    Unmodelled,
    /// Nothing to replay, not stored, or too large.
    Skipped,
}

/// The error of the layer alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outcome {
    /// rel_l2 against the recorded outputs; `None` where these are all zero or none is finite.
    pub(super) relative: Option<f64>,
    /// Elements that the run holds finite and the replay does not.
    pub(super) overflow: u64,
    /// The error against what was summed or passed through, and what roundings of inputs and output leave.
    against: f64,
    expected: f64,
}

impl Emulated {
    pub(super) fn done(&self) -> Option<&Outcome> {
        match self {
            Self::Done(outcome) => Some(outcome),
            _ => None,
        }
    }
}

/// Replays a layer in the dtype.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn layer(run: &Run, layer: &Layer, target: &Target) -> Result<Emulated> {
    if !is_replayed(run, layer) {
        return Ok(Emulated::Skipped);
    }
    let mut inputs = Vec::with_capacity(layer.inputs.len());
    for (slot, &id) in layer.inputs.iter().enumerate() {
        let Some(tensor) = run.load(id)? else { return Ok(Emulated::Skipped) };
        let Some((dtype, value)) = rounded(&tensor, target) else { return Ok(Emulated::Unmodelled) };
        let name = layer.input_names.as_ref().and_then(|names| names.get(slot)).cloned();
        inputs.push(Operand { name, dtype, value: value.into_shared() });
    }
    let mut outputs = Vec::with_capacity(layer.outputs.len());
    for &id in &layer.outputs {
        let Some((dtype, shape)) = run.dtype_and_shape(id) else { return Ok(Emulated::Skipped) };
        let dtype = if dtype.kind() == Kind::Float { target.dtype } else { dtype };
        outputs.push(OutputSpec { dtype, shape: shape.to_vec() });
    }
    let roundings = 1 + inputs.iter().filter(|input| input.dtype.kind() == Kind::Float).count();
    let function = replay::function_name(layer.schema.as_deref().unwrap_or(&layer.op_name));
    let call = Call { function, attrs: layer.attrs.as_ref(), inputs, outputs };
    let Ok(references) = replay::replay(&call) else { return Ok(Emulated::Unmodelled) };
    let mut sum = Sum::default();
    for (slot, (reference, &id)) in references.iter().zip(&layer.outputs).enumerate() {
        let is_float = run.dtype_and_shape(id).is_some_and(|(dtype, _)| dtype.kind() == Kind::Float);
        let Some(reference) = reference.as_ref().filter(|_| is_float && !layer.op.is_auxiliary(slot)) else { continue };
        let Some(tensor) = run.load(id)? else { continue };
        if let Some(recorded) = tensor.decode() {
            sum.add(&recorded, tensor.dtype(), reference, target);
        }
    }
    Ok(Emulated::Done(sum.outcome(layer, roundings, target)))
}

/// Whether the operator has something to replay within the bounds that the judgement keeps by default.
fn is_replayed(run: &Run, layer: &Layer) -> bool {
    if !layer.op.rounds() || layer.kind == LayerKind::Module || layer.pass == Pass::Optimizer {
        return false;
    }
    let extent = |shape: &[usize]| shape.iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64));
    let shape_of = |id: &crate::run::TensorId| run.dtype_and_shape(*id).map(|(_, shape)| shape);
    let tensors = layer.inputs.iter().chain(&layer.outputs);
    let elements = tensors.filter_map(shape_of).fold(0u64, |n, shape| n.saturating_add(extent(shape)));
    let shapes: Vec<Option<&[usize]>> = layer.inputs.iter().map(shape_of).collect();
    let Some(output) = layer.outputs.first().and_then(shape_of) else { return false };
    let names = layer.input_names.as_deref();
    let terms = op::reduction_length(layer.op, names, &shapes, output, layer.attrs.as_ref()) as u64;
    elements <= REPLAY_ELEMENTS && extent(output).saturating_mul(terms) <= REPLAY_PRODUCTS
}

/// The tensor as the dtype holds it; integers and truth values stay. `None` where it cannot be decoded.
fn rounded(tensor: &Tensor, target: &Target) -> Option<(DType, ArrayD<f64>)> {
    let (dtype, kind) = (tensor.dtype(), tensor.dtype().kind());
    if kind == Kind::Complex {
        return None;
    }
    let mut values = tensor.decode()?;
    if kind == Kind::Float {
        values.iter_mut().for_each(|value| {
            *value = if is_sentinel(*value, dtype) { -target.max } else { round(*value, target) };
        });
    }
    let dtype = if kind == Kind::Float { target.dtype } else { dtype };
    ArrayD::from_shape_vec(IxDyn(tensor.shape()), values).ok().map(|array| (dtype, array))
}

fn round(value: f64, target: &Target) -> f64 {
    target.format.round(value, Rounding::NearestEven)
}

/// Sums over the elements of all outputs.
#[derive(Debug, Default)]
struct Sum {
    elements: u64,
    error: f64,
    recorded: f64,
    scale: f64,
    overflow: u64,
}

impl Sum {
    fn add(&mut self, recorded: &[f64], dtype: DType, reference: &Reference, target: &Target) {
        if recorded.len() != reference.value.len() {
            return;
        }
        let exact = reference.value.iter().zip(reference.scale.iter());
        for (&y, (&value, &scale)) in recorded.iter().zip(exact) {
            if !y.is_finite() || is_sentinel(y, dtype) {
                continue;
            }
            let predicted = round(value, target);
            if !predicted.is_finite() {
                self.overflow += 1;
                continue;
            }
            self.elements += 1;
            self.error += (predicted - y) * (predicted - y);
            self.recorded += y * y;
            let scale = scale.abs().max(y.abs());
            self.scale += if scale.is_finite() { scale * scale } else { y * y };
        }
    }

    fn outcome(&self, layer: &Layer, roundings: usize, target: &Target) -> Outcome {
        let ratio = |whole: f64| (whole > 0.0).then(|| (self.error / whole).sqrt()).filter(|ratio| ratio.is_finite());
        // Where terms cancel, an error is held against what was summed; elsewhere against the result, so that
        // a function that blows up the rounding of its argument shows.
        let sums = matches!(layer.op.class(), Class::Additive | Class::Contraction | Class::Reduction | Class::Norm);
        let whole = if sums { self.scale } else { self.recorded };
        let floor = SUBNORMAL_FLOOR * target.subnormal * (self.elements as f64).sqrt();
        let spacing = if whole > 0.0 { floor / whole.sqrt() } else { 0.0 };
        Outcome {
            relative: ratio(self.recorded),
            overflow: self.overflow,
            against: ratio(whole).unwrap_or(0.0),
            expected: ROUNDING * target.u * (roundings as f64).sqrt() + spacing,
        }
    }
}

impl Outcome {
    /// What the prediction says of the layer itself; its inputs and outputs must fit the dtype.
    pub(super) fn findings(&self, place: &Place, target: &Target) -> Option<Finding> {
        if self.overflow > 0 {
            return Some(place.finding(
                (FindingKind::ReplayOverflow, Severity::Breaks),
                &[("overflow", self.overflow as f64)],
                format!(
                    "computed from inputs rounded to {}, {} elements become NaN or Inf although all recorded values fit",
                    target.dtype, self.overflow
                ),
                "keep it in fp32".to_string(),
            ));
        }
        let limit = GROWTH * self.expected;
        (self.against > limit).then(|| {
            place.finding(
                (FindingKind::IllConditioned, Severity::Degrades),
                &[("error", self.against), ("limit", limit), ("predicted_rel_l2", self.relative.unwrap_or(f64::NAN))],
                format!(
                    "rounding its inputs to {} makes an error of {}, {} times what rounding costs (limit {GROWTH} \
                     times): it blows up the error of what it reads",
                    target.dtype,
                    figure(self.against),
                    figure(self.against / self.expected)
                ),
                "keep it and the operators that make its inputs in fp32".to_string(),
            )
        })
    }
}
