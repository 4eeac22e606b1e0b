//! The error budget: how large the error of a correct run may be at each tensor, from its dtype, its
//! operator, what the operator sums, and the budgets of its inputs.
//!
//! In goes one run and the norms of its tensors, out comes one [`Budget`] per tensor. Nothing of the
//! other run enters, so a fault cannot widen its own limit. Roundings of independent layers add as
//! squares; sums add absolute errors, so that a result that cancels is held against what was summed.

use super::threshold::{
    DEFAULT_ACCUMULATOR, FUNCTION_ULP, ORDINARY_GROWTH, ROUNDING, SUM_SHARE, UNRECORDED_LENGTH, UNRECORDED_ROUNDINGS,
};
use crate::compare::SideStats;
use crate::op::{self, Autocast, Class, Conditioning};
use crate::run::{Layer, Run, TensorId};
use crate::tensor::DType;

/// Expected error of one tensor of a correct run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Relative L2 error against the tensor's own norm.
    pub relative: f64,
    /// L2 norm of the error; `None` where the tensor's norm is not known.
    pub absolute: Option<f64>,
    /// Largest unit roundoff on the way to this tensor.
    pub roundoff: f64,
    /// Roundings on the longest way to this tensor.
    pub depth: u32,
    /// Whether these roundings are an assumption, since nothing of the way was recorded.
    pub assumed: bool,
}

/// Budgets of all tensors of a run.
#[derive(Debug, Clone)]
pub struct Budgets(Vec<Budget>);

impl Budgets {
    /// The budget of one tensor; zero for a tensor that no layer makes.
    pub fn of(&self, tensor: TensorId) -> Budget {
        self.0[tensor.0 as usize]
    }
}

/// Derives the budgets of `run`. `stats` gives what was measured of a tensor on this side;
/// `compute` replaces the run's declared compute dtype.
pub fn budgets(run: &Run, compute: Option<DType>, stats: &dyn Fn(TensorId) -> Option<SideStats>) -> Budgets {
    let mut budgets = vec![Budget::default(); run.tensors.len()];
    let compute = compute.or(run.meta.compute);
    // Where a layer's inputs were not recorded, it may follow anything that ran before it.
    let mut widest = Budget::default();
    for layer in &run.layers {
        for (slot, &output) in layer.outputs.iter().enumerate() {
            // What was recorded inside says more than the module around it.
            if run.hands_on(layer.id, output) {
                continue;
            }
            let budget = output_budget(run, layer, slot, output, compute, &budgets, widest, stats);
            budgets[output.0 as usize] = budget;
            if budget.relative > widest.relative && budget.relative.is_finite() {
                widest = Budget { absolute: None, ..budget };
            }
        }
    }
    Budgets(budgets)
}

struct Input {
    budget: Budget,
    norm: Option<f64>,
    stats: Option<SideStats>,
    elements: Option<usize>,
    is_float: bool,
}

#[expect(clippy::too_many_arguments, reason = "one call, from the loop above")]
fn output_budget(
    run: &Run,
    layer: &Layer,
    slot: usize,
    output: TensorId,
    compute: Option<DType>,
    budgets: &[Budget],
    widest: Budget,
    stats: &dyn Fn(TensorId) -> Option<SideStats>,
) -> Budget {
    let Some((dtype, shape)) = run.dtype_and_shape(output) else { return widest };
    let Some(u_out) = dtype.unit_roundoff() else { return Budget::default() };
    let class = layer.op.class();
    let norm = stats(output).map(|s| s.l2());
    // Dropout hands on what it reads, scaled; a draw from nothing is a source.
    let draws = class == Class::Random && layer.inputs.is_empty();
    if draws || matches!(class, Class::Source | Class::Factory | Class::Uninitialised) {
        // A source in 16 bit was rounded once from what the other side may hold in fp32.
        let relative = if u_out > DEFAULT_ACCUMULATOR { ROUNDING * u_out } else { 0.0 };
        return Budget { relative, absolute: norm.map(|n| n * relative), roundoff: u_out, depth: 0, assumed: false };
    }
    if layer.op == op::Op::named(op::UNRECORDED) && layer.inputs.is_empty() {
        return unrecorded(u_out, norm);
    }
    let inputs: Vec<Input> = layer
        .inputs
        .iter()
        .map(|&id| {
            let stats = stats(id);
            let kind = run.dtype_and_shape(id);
            Input {
                budget: budgets[id.0 as usize],
                norm: stats.map(|s| s.l2()),
                stats,
                elements: kind.map(|(_, shape)| shape.iter().product()),
                is_float: kind.is_none_or(|(dtype, _)| dtype.unit_roundoff().is_some()),
            }
        })
        .filter(|input| input.is_float)
        .collect();
    let inputs_known = !layer.inputs.is_empty();
    let incoming = if inputs_known { widest_of(&inputs) } else { widest };

    let u = compute_roundoff(run, layer, u_out, compute);
    let shapes: Vec<Option<&[usize]>> =
        layer.inputs.iter().map(|&id| run.dtype_and_shape(id).map(|(_, s)| s)).collect();
    let length =
        op::reduction_length(layer.op, layer.input_names.as_deref(), &shapes, shape, layer.attrs.as_ref()) as f64;
    let accumulator = layer.accumulate.and_then(DType::unit_roundoff).unwrap_or(DEFAULT_ACCUMULATOR);
    let summing = ROUNDING * accumulator * (SUM_SHARE * length).sqrt();
    let function = ROUNDING * DEFAULT_ACCUMULATOR * FUNCTION_ULP;
    let elements: usize = shape.iter().product();

    let own = match class {
        Class::Mover | Class::Selection | Class::Logic | Class::Quantizer => 0.0,
        Class::Cast => {
            if u_out > incoming.roundoff {
                ROUNDING * u_out
            } else {
                0.0
            }
        }
        Class::Contraction | Class::Reduction => (ROUNDING * u).hypot(summing),
        Class::Norm | Class::Softmax | Class::Unknown => (ROUNDING * u).hypot(summing).hypot(function),
        Class::Elementwise => (ROUNDING * u).hypot(function),
        _ => ROUNDING * u,
    };
    // `summed` is the magnitude that the result is made of: at least its own norm.
    let (carried, summed) = carried_error(layer, slot, shape, &inputs, incoming, norm, length);
    let magnitude = summed.or(norm);
    let (relative, absolute) = match (carried, norm, magnitude) {
        (Carried::Absolute(error), Some(norm), Some(magnitude)) => {
            let absolute = error.hypot(own * magnitude);
            (ratio(absolute, norm), Some(absolute))
        }
        (Carried::Absolute(_), ..) => (incoming.relative.hypot(own), None),
        (Carried::Relative(error), Some(norm), Some(magnitude)) => {
            let absolute = error.hypot(own) * magnitude;
            (ratio(absolute, norm), Some(absolute))
        }
        (Carried::Relative(error), ..) => (error.hypot(own), None),
    };
    // Elements that are expected: where the norm is 0 nothing relative can be said.
    let absolute = absolute.filter(|a| a.is_finite() && elements > 0);
    Budget {
        relative: if relative.is_finite() { relative } else { incoming.relative.hypot(own) },
        absolute,
        roundoff: incoming.roundoff.max(u),
        depth: incoming.depth + u32::from(own > 0.0),
        assumed: incoming.assumed,
    }
}

/// The budget of a tensor of which its content alone is known. It does not grow along the run, for the
/// position of such a tensor says nothing of what it was computed from.
fn unrecorded(u: f64, norm: Option<f64>) -> Budget {
    let accumulator = DEFAULT_ACCUMULATOR.min(u);
    let summing = ROUNDING * accumulator * (SUM_SHARE * UNRECORDED_LENGTH).sqrt();
    let one = (ROUNDING * u).hypot(summing).hypot(ROUNDING * accumulator * FUNCTION_ULP);
    let relative = one * f64::from(UNRECORDED_ROUNDINGS).sqrt();
    let absolute = norm.map(|n| n * relative);
    Budget { relative, absolute, roundoff: u, depth: UNRECORDED_ROUNDINGS, assumed: true }
}

/// The error that comes with the inputs: as L2 norm, or relative to the magnitude summed.
enum Carried {
    Absolute(f64),
    Relative(f64),
}

fn carried_error(
    layer: &Layer,
    slot: usize,
    shape: &[usize],
    inputs: &[Input],
    incoming: Budget,
    norm: Option<f64>,
    length: f64,
) -> (Carried, Option<f64>) {
    let class = layer.op.class();
    let elements: usize = shape.iter().product();
    let at_least = |magnitude: f64| norm.map(|n| n.max(magnitude));
    match class {
        Class::Additive => {
            let (mut square, mut summed) = (0.0, 0.0f64);
            for input in inputs {
                let (Some(norm), Some(n)) = (input.norm, input.elements) else {
                    return (Carried::Relative(incoming.relative), None);
                };
                let repeats = (elements as f64 / n.max(1) as f64).max(1.0);
                let absolute = input.budget.absolute.unwrap_or(input.budget.relative * norm);
                square += absolute * absolute * repeats;
                summed = summed.max(norm * repeats.sqrt());
            }
            (Carried::Absolute(square.sqrt()), at_least(summed))
        }
        Class::Contraction => {
            let relative = inputs.iter().map(|i| i.budget.relative.powi(2)).sum::<f64>().sqrt().max(incoming.relative);
            if layer.op.name() == "linear_backward" {
                return (Carried::Relative(relative), at_least(summed_by_linear_backward(layer, inputs, shape)));
            }
            if layer.op.name() == "conv_backward" && shape.len() == 1 {
                let summed = named(layer, inputs, "grad_output").map_or(0.0, |grad| summed_to_bias(grad, shape));
                return (Carried::Relative(relative), at_least(summed));
            }
            // E ‖ab‖ = ‖a‖‖b‖/sqrt(K) for independent operands: what was summed, where the result cancels.
            let mut large =
                inputs.iter().filter(|i| i.elements.is_some_and(|n| n as f64 >= length) && i.norm.is_some());
            let summed = match (layer.op.name(), large.next(), large.next()) {
                ("linear" | "matmul", Some(a), Some(b)) => {
                    at_least(a.norm.unwrap_or(0.0) * b.norm.unwrap_or(0.0) / length.sqrt())
                }
                _ => None,
            };
            (Carried::Relative(relative), summed)
        }
        Class::Reduction => {
            // A sum of n terms cancels: its terms are what it is held against.
            let summed = inputs.first().and_then(|i| {
                let n = i.elements?.max(1) as f64;
                let scale = if layer.op.name() == "mean" {
                    (n / length).sqrt() / n.sqrt()
                } else {
                    (n * length).sqrt() / n.sqrt()
                };
                at_least(i.norm? * scale)
            });
            (Carried::Relative(incoming.relative), summed)
        }
        Class::Norm => {
            let growth = inputs.first().and_then(|i| i.stats).map_or(1.0, |s| centring_growth(layer.op.name(), &s));
            // Saved statistics: the mean is a sum that may cancel.
            let summed = if layer.op.is_auxiliary(slot) {
                inputs.first().and_then(|i| at_least(i.norm? * (elements as f64 / i.elements?.max(1) as f64).sqrt()))
            } else {
                None
            };
            let rest = inputs.iter().skip(1).map(|i| i.budget.relative).fold(0.0, f64::max);
            let first = inputs.first().map_or(incoming.relative, |i| i.budget.relative);
            (Carried::Relative((first * growth).hypot(rest).max(incoming.relative)), summed)
        }
        Class::Multiplicative => {
            (Carried::Relative(inputs.iter().map(|i| i.budget.relative).sum::<f64>().max(incoming.relative)), None)
        }
        Class::Unknown => {
            (Carried::Relative(inputs.iter().map(|i| i.budget.relative).sum::<f64>().max(incoming.relative)), None)
        }
        _ => {
            let argument = inputs.first().and_then(|i| i.stats).map_or(1.0, |s| s.rms());
            (Carried::Relative(incoming.relative * growth(layer, argument).min(ORDINARY_GROWTH)), None)
        }
    }
}

/// Norm and number of elements of the input with this argument name.
fn named(layer: &Layer, inputs: &[Input], name: &str) -> Option<(f64, f64)> {
    let at = layer.input_names.as_ref()?.iter().position(|own| own == name)?;
    let input = inputs.get(at).filter(|_| inputs.len() == layer.inputs.len())?;
    Some((input.norm?, input.elements?.max(1) as f64))
}

/// The magnitude that the gradient of a bias is summed from, which cancels where a norm follows: over the
/// rows of the result's gradient (its norm, its elements), Σ|g| <= ‖g‖·sqrt(rows).
fn summed_to_bias((norm, elements): (f64, f64), shape: &[usize]) -> f64 {
    norm * (elements / shape.first().copied().unwrap_or(1).max(1) as f64).sqrt()
}

/// The magnitude that a gradient of a linear layer is summed from; 0 where that is not known. The others
/// than the bias's are products as above.
fn summed_by_linear_backward(layer: &Layer, inputs: &[Input], shape: &[usize]) -> f64 {
    let outputs = shape.first().copied().unwrap_or(1).max(1) as f64;
    let of = |name: &str| named(layer, inputs, name);
    let (Some((grad, elements)), Some((x, _)), Some((weight, weights))) = (of("grad_output"), of("self"), of("weight"))
    else {
        return 0.0;
    };
    match shape.len() {
        1 => summed_to_bias((grad, elements), shape),
        // [O, I]: over the rows of the gradient.
        2 if shape.iter().product::<usize>() as f64 == weights => grad * x / (elements / outputs).max(1.0).sqrt(),
        _ => {
            let width = shape.last().copied().unwrap_or(1).max(1) as f64;
            grad * weight / (weights / width).max(1.0).sqrt()
        }
    }
}

/// How much a relative error of the first input grows through `layer`, whose argument has root mean
/// square `argument`: the condition number |x f'(x) / f(x)|, at least 1.
pub fn growth(layer: &Layer, argument: f64) -> f64 {
    if layer.op.conditioning() == Conditioning::AbsoluteArgument {
        return argument.max(1.0);
    }
    if layer.op.name() == "pow" {
        let exponent = layer.attrs.as_ref().and_then(|attrs| attrs.get("exponent")?.as_f64());
        // A square, where the exponent was not recorded: by far the most frequent.
        return exponent.unwrap_or(2.0).abs().max(1.0);
    }
    1.0
}

/// ‖x‖ / ‖x - mean‖: what subtracting the mean makes of a relative error.
fn centring_growth(op: &str, stats: &SideStats) -> f64 {
    if stats.finite == 0 || matches!(op, "rms_norm" | "add_rms_norm" | "normalize") {
        return 1.0;
    }
    let centred = stats.sum_sq - stats.sum * stats.sum / stats.finite as f64;
    if centred > 0.0 { (stats.sum_sq / centred).sqrt().max(1.0) } else { 1.0 }
}

/// Unit roundoff in which a layer computes: its own declaration, else what autocast lowers, else the
/// dtype it wrote. Above autocast a dump holds fp32 although the operator ran in 16 bit.
fn compute_roundoff(run: &Run, layer: &Layer, u_out: f64, compute: Option<DType>) -> f64 {
    let declared = match layer.compute {
        Some(dtype) => dtype.unit_roundoff(),
        None if run.meta.autocast == Some(true) && layer.op.autocast() == Autocast::Lower => {
            compute.and_then(DType::unit_roundoff)
        }
        None => None,
    };
    declared.map_or(u_out, |u| u.max(u_out))
}

fn widest_of(inputs: &[Input]) -> Budget {
    let mut widest = Budget::default();
    for Input { budget, .. } in inputs {
        widest.relative = widest.relative.max(budget.relative);
        widest.roundoff = widest.roundoff.max(budget.roundoff);
        widest.depth = widest.depth.max(budget.depth);
        widest.assumed |= budget.assumed;
    }
    widest
}

fn ratio(error: f64, norm: f64) -> f64 {
    if norm > 0.0 { error / norm } else { f64::INFINITY }
}
