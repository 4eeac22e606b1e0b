//! What an explanation is held against: one output, what it should hold, and how it was computed.

use ndarray::ArrayD;

use super::super::birth::In;
use super::super::flow::{Flow, Site};
use super::super::origin::Origin;
use crate::compare::Metrics;
use crate::error::Result;
use crate::judge::{Measured, Replayed, recorded_call};
use crate::replay::{self, Call, Format, Rounding};
use crate::run::{Layer, LayerId, Run, TensorId};
use crate::tensor::DType;

/// Fewest elements of which an explanation with free parameters says anything.
const FEWEST: usize = 8;

/// One output of an origin.
pub(super) struct Evidence<'a> {
    /// The run whose layer is at fault.
    pub(super) run: &'a Run,
    /// The layer at fault.
    pub(super) layer: &'a Layer,
    /// Its output.
    pub(super) output: TensorId,
    /// The slot of that output.
    pub(super) slot: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// What was recorded; where the value or its reference is special, the reference.
    pub(super) recorded: Vec<f64>,
    /// What it should hold, before it is rounded.
    pub(super) exact: Vec<f64>,
    /// The same as the output's dtype holds it.
    pub(super) expected: Vec<f64>,
    /// Sum of (recorded - expected)².
    pub(super) energy: f64,
    /// The call, where the reference is its replay.
    pub(super) call: Option<Call<'a>>,
    /// Compute format that the judgement found to explain the error.
    pub(super) reduced: Option<(&'static str, Rounding)>,
    /// Whether the golden is the side at fault.
    in_golden: bool,
}

impl Evidence<'_> {
    /// A value as the output's dtype holds it.
    pub(super) fn round(&self, value: f64) -> f64 {
        match Format::of(self.dtype) {
            Some(format) => format.round(value, Rounding::NearestEven),
            None => value,
        }
    }

    /// Share of the error's energy that is gone where the output should have been `model`, which is
    /// rounded to the output's dtype; may be negative.
    pub(super) fn share(&self, model: impl Fn(usize) -> f64) -> f64 {
        self.share_unrounded(|at| self.round(model(at)))
    }

    /// The same for a model that is on the dtype's grid.
    pub(super) fn share_unrounded(&self, model: impl Fn(usize) -> f64) -> f64 {
        let mut left = 0.0;
        for (at, y) in self.recorded.iter().enumerate() {
            let model = model(at);
            // Where the model has no finite value, nothing is explained.
            let d = if model.is_finite() { y - model } else { y - self.expected[at] };
            left += d * d;
        }
        1.0 - left / self.energy
    }

    /// The share explained by another reference of the same output.
    pub(super) fn share_of(&self, reference: &ArrayD<f64>) -> f64 {
        let values = reference.as_standard_layout();
        match values.as_slice().filter(|values| values.len() == self.recorded.len()) {
            Some(values) => self.share(|at| values[at]),
            None => 0.0,
        }
    }

    /// Squared error of one element.
    pub(super) fn error_sq(&self, at: usize) -> f64 {
        let d = self.recorded[at] - self.expected[at];
        d * d
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.recorded.len()
    }

    /// Row-major strides.
    pub(super) fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        strides
    }

    /// Sums of `weigh` over the slices along one axis.
    pub(super) fn by_slice(&self, axis: usize, weigh: impl Fn(usize) -> f64) -> Vec<f64> {
        let (stride, extent) = (self.strides()[axis], self.shape[axis]);
        let mut sums = vec![0.0; extent];
        for at in 0..self.len() {
            sums[at / stride % extent] += weigh(at);
        }
        sums
    }

    /// What must be said with every explanation.
    pub(super) fn remark(&self) -> String {
        let side = if self.in_golden { "; it is the golden that is off" } else { "" };
        let against =
            if self.call.is_some() { "" } else { "; held against the golden's output, for it was not replayed" };
        format!("{side}{against}")
    }
}

/// The evidence of an origin; `None` where it is not a float, has no finite error, is larger than
/// `most` elements or was not stored.
pub(super) fn gather<'a>(flow: &Flow<'a>, origin: &Origin, most: usize) -> Result<Option<Evidence<'a>>> {
    let in_golden = origin.side == In::Golden;
    let replays = &flow.judgement.replays;
    let (run, layer, output, replayed): (&Run, LayerId, TensorId, Option<&Replayed>) = match origin.site {
        Site::Layer(id) if in_golden => (flow.golden, id, origin.pair.0, replays.golden(id)),
        Site::Layer(id) => {
            let Some(partner) = flow.judgement.pairing.partner(id) else { return Ok(None) };
            (flow.candidate, partner.layer, origin.pair.1, replays.candidate(partner.layer))
        }
        Site::Stretch { candidate: Some(id), .. } => (flow.candidate, id, origin.pair.1, replays.candidate(id)),
        Site::Stretch { .. } => return Ok(None),
    };
    let layer = run.layer(layer);
    let Some(slot) = layer.outputs.iter().position(|&id| id == output) else { return Ok(None) };
    let Some((dtype, shape)) = run.dtype_and_shape(output) else { return Ok(None) };
    let elements: usize = shape.iter().product();
    let shape = shape.to_vec();
    if dtype.unit_roundoff().is_none() || !(FEWEST..=most).contains(&elements) {
        return Ok(None);
    }
    let Some(recorded) = run.load(output)?.and_then(|tensor| tensor.decode()) else { return Ok(None) };
    let own = match replayed {
        Some(Replayed::Done(outputs)) => outputs.get(slot).and_then(Option::as_ref),
        _ => None,
    };
    let mut call = None;
    let exact = match own {
        // Recomputed it is right: what differs came in, and is no error of this layer.
        Some(own) if !own.is_out => return Ok(None),
        Some(own) => {
            call = recorded_call(run, layer.id)?.ok();
            match (&own.exact, &call) {
                (Some(exact), _) => exact.iter().copied().collect(),
                (None, Some(call)) => reference(call, slot).unwrap_or_default(),
                (None, None) => Vec::new(),
            }
        }
        None => {
            let same = flow.golden.dtype_and_shape(origin.pair.0).is_some_and(|(_, other)| *other == shape);
            let golden = if same { flow.golden.load(origin.pair.0)? } else { None };
            golden.and_then(|tensor| tensor.decode()).unwrap_or_default()
        }
    };
    if exact.len() != recorded.len() || recorded.len() != elements {
        return Ok(None);
    }
    let reduced = own.and_then(|own| own.explained_by);
    let mut evidence = Evidence {
        run,
        layer,
        output,
        slot,
        dtype,
        shape,
        recorded,
        expected: Vec::new(),
        exact,
        energy: 0.0,
        call,
        reduced,
        in_golden,
    };
    evidence.expected = evidence.exact.iter().map(|&value| evidence.round(value)).collect();
    // Padding is as good as not there.
    let valid = flow.judgement.valid.elements(flow.golden, origin.pair.0).unwrap_or_default();
    for (at, _) in valid.iter().enumerate().take(elements).filter(|(_, counts)| !**counts) {
        (evidence.recorded[at], evidence.exact[at], evidence.expected[at]) = (0.0, 0.0, 0.0);
    }
    // Special values have their own analysis.
    for at in 0..elements {
        if !evidence.recorded[at].is_finite() || !evidence.expected[at].is_finite() {
            let neutral = if evidence.expected[at].is_finite() { evidence.expected[at] } else { 0.0 };
            (evidence.recorded[at], evidence.exact[at], evidence.expected[at]) = (neutral, neutral, neutral);
        }
    }
    evidence.energy = (0..elements).map(|at| evidence.error_sq(at)).sum();
    let measured = flow.judgement.measurements.get(origin.pair).and_then(Measured::metrics);
    let special = measured.is_some_and(Metrics::has_unshared_specials);
    Ok((evidence.energy > 0.0 && evidence.energy.is_finite() && !special).then_some(evidence))
}

/// The exact result of one output of a call.
pub(super) fn reference(call: &Call<'_>, slot: usize) -> Option<Vec<f64>> {
    let references = replay::replay(call).ok()?;
    Some(references.into_iter().nth(slot)??.value.iter().copied().collect())
}
