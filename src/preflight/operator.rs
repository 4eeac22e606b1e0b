//! What an operator computes inside: squares that a norm sums, arguments of exponentials, long sums, eps.

use serde_json::Value;

use super::Target;
use super::finding::{Finding, FindingKind, Place, Severity};
use super::range::is_sentinel;
use super::threshold::STAGNATION;
use crate::error::Result;
use crate::judge::figure;
use crate::op::{self, Class};
use crate::replay::{Rounding, function_name};
use crate::run::{Layer, LayerKind, Pass, Run, TensorId};
use crate::tensor::{DType, Kind};

/// Reductions that add up terms; others of the class select or multiply.
const SUMS: [&str; 6] = ["sum", "mean", "var", "norm", "cumsum", "mse_loss"];

/// Attributes that are added to keep a denominator from 0.
const EPSILONS: [&str; 3] = ["eps", "epsilon", "variance_epsilon"];

/// What this operator will trip over. A module is left to the operators inside it.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn findings(run: &Run, layer: &Layer, place: &Place, target: &Target) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    if layer.kind == LayerKind::Operator && layer.pass != Pass::Optimizer {
        found.extend(square_sum(run, layer, place, target)?);
        found.extend(exponent(run, layer, place, target)?);
        found.extend(stagnation(run, layer, place, target));
    }
    found.extend(epsilon(layer, place, target));
    Ok(found)
}

/// Elements of one group that a norm sums over, which lie side by side; `None` where they do not.
fn group_width(layer: &Layer, shape: &[usize]) -> Option<usize> {
    let attr = |name: &str| layer.attrs.as_ref()?.get(name).filter(|value| !value.is_null());
    let last = shape.last().copied();
    match layer.op.name() {
        "layer_norm" | "rms_norm" | "add_rms_norm" => match attr("normalized_shape") {
            Some(Value::Array(extents)) => {
                let rank = extents.len().min(shape.len());
                Some(shape.get(shape.len() - rank..)?.iter().product())
            }
            _ => last,
        },
        "group_norm" => {
            let groups = attr("num_groups").or_else(|| attr("group"))?.as_u64()?;
            let channels: usize = shape.get(1..)?.iter().product();
            channels.checked_div(usize::try_from(groups).ok()?)
        }
        "instance_norm" => Some(shape.get(2..)?.iter().product()),
        _ => None,
    }
}

/// Tensors whose sum a norm normalises.
fn normalised(layer: &Layer) -> Vec<TensorId> {
    let named = |names: &[&str]| names.iter().find_map(|name| layer.input(name));
    let first = named(&["input", "x", "x1", "self"]).or_else(|| layer.inputs.first().copied());
    let second = match layer.op.name() {
        "add_rms_norm" => named(&["x2", "residual"])
            .or_else(|| if layer.input_names.is_none() { layer.inputs.get(1).copied() } else { None }),
        _ => None,
    };
    first.into_iter().chain(second).collect()
}

/// Largest sum of squares over the groups of a norm.
fn square_sum(run: &Run, layer: &Layer, place: &Place, target: &Target) -> Result<Option<Finding>> {
    if layer.op.class() != Class::Norm || layer.pass != Pass::Forward {
        return Ok(None);
    }
    let mut values: Vec<f64> = Vec::new();
    let mut width = 0;
    for id in normalised(layer) {
        let Some(tensor) = run.load(id)? else { return Ok(None) };
        let (Some(decoded), Some(group)) = (tensor.decode(), group_width(layer, tensor.shape())) else {
            return Ok(None);
        };
        if values.is_empty() {
            (values, width) = (decoded, group);
        } else if values.len() == decoded.len() {
            values.iter_mut().zip(&decoded).for_each(|(sum, value)| *sum += value);
        }
    }
    if width == 0 {
        return Ok(None);
    }
    let sums = values.chunks(width).map(|row| row.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>());
    let (row, largest) =
        sums.enumerate().fold((0, 0.0), |best, (row, sum)| if sum > best.1 { (row, sum) } else { best });
    Ok((largest > target.max).then(|| {
        place.finding(
            (FindingKind::SquareSum, Severity::Risks),
            &[("square_sum", largest), ("max", target.max), ("row", row as f64), ("width", width as f64)],
            format!(
                "the squares of row {row} ({width} values) add up to {}, {} ends at {}",
                figure(largest),
                target.dtype,
                figure(target.max)
            ),
            "keep the norm in fp32, or make sure that its kernel squares and sums in float32".to_string(),
        )
    }))
}

/// Largest argument that an exponential takes in the dtype; `None` where the function is none.
fn largest_argument(function: &str, max: f64) -> Option<f64> {
    match function {
        "exp" | "expm1" | "_foreach_exp" => Some(max.ln()),
        "exp2" => Some(max.log2()),
        "sinh" | "cosh" => Some((2.0 * max).ln()),
        _ => None,
    }
}

/// Arguments of an exponential that takes no maximum off first. Softmax and its kin do.
fn exponent(run: &Run, layer: &Layer, place: &Place, target: &Target) -> Result<Option<Finding>> {
    let function = function_name(layer.schema.as_deref().unwrap_or(&layer.op_name)).to_lowercase();
    let (Some(limit), Some(&id)) = (largest_argument(&function, target.max), layer.inputs.first()) else {
        return Ok(None);
    };
    let Some(tensor) = run.load(id)? else { return Ok(None) };
    let Some(values) = tensor.decode() else { return Ok(None) };
    let both_signs = matches!(function.as_str(), "sinh" | "cosh");
    let arguments = values.iter().filter(|value| value.is_finite() && !is_sentinel(**value, tensor.dtype()));
    let arguments = arguments.map(|value| if both_signs { value.abs() } else { *value });
    let (count, largest) = arguments
        .filter(|argument| *argument > limit)
        .fold((0u64, f64::NEG_INFINITY), |(n, most), argument| (n + 1, most.max(argument)));
    Ok((count > 0).then(|| {
        place.finding(
            (FindingKind::Exponent, Severity::Breaks),
            &[("argument", largest), ("limit", limit), ("beyond", count as f64)],
            format!(
                "{function} of {} overflows {}: the largest argument it takes is {}; {count} elements are beyond",
                figure(largest),
                target.dtype,
                figure(limit)
            ),
            format!("take the maximum off before {function}, or keep it in fp32 with its consumers"),
        )
    }))
}

/// Sums with so many terms that the last ones no longer count.
fn stagnation(run: &Run, layer: &Layer, place: &Place, target: &Target) -> Option<Finding> {
    let accumulates_low = layer.accumulate.and_then(DType::unit_roundoff).is_some_and(|u| u >= target.u);
    let sums = match layer.op.class() {
        Class::Reduction => SUMS.contains(&layer.op.name()),
        // Matrix units sum in float32, and norms and softmax do under autocast, unless the run says otherwise.
        Class::Contraction | Class::Norm | Class::Softmax => accumulates_low,
        _ => false,
    };
    let (_, output) = layer.outputs.first().filter(|_| sums).and_then(|&id| run.dtype_and_shape(id))?;
    let inputs: Vec<Option<&[usize]>> =
        layer.inputs.iter().map(|&id| run.dtype_and_shape(id).map(|(_, shape)| shape)).collect();
    let is_float =
        layer.inputs.iter().any(|&id| run.dtype_and_shape(id).is_some_and(|(dtype, _)| dtype.kind() == Kind::Float));
    let names = layer.input_names.as_deref();
    let terms = op::reduction_length(layer.op, names, &inputs, output, layer.attrs.as_ref());
    let product = terms as f64 * target.u;
    (is_float && product >= STAGNATION).then(|| {
        place.finding(
            (FindingKind::Stagnation, Severity::Degrades),
            &[("terms", terms as f64), ("terms_times_u", product), ("limit", STAGNATION)],
            format!(
                "sums {terms} terms: a {} sum stagnates from {} on (n·u >= {STAGNATION})",
                target.dtype,
                figure(STAGNATION / target.u)
            ),
            "sum in float32 (keep it in fp32, or check the kernel's accumulator)".to_string(),
        )
    })
}

/// The eps of an operator: an attribute of that name, or a tiny positive number that is added.
fn eps_of(layer: &Layer) -> Option<(&'static str, f64)> {
    let attrs = layer.attrs.as_ref()?;
    let added: &[&'static str] = if layer.op.class() == Class::Additive { &["other"] } else { &[] };
    EPSILONS
        .iter()
        .chain(added)
        .find_map(|name| Some((*name, attrs.get(*name)?.as_f64()?)))
        .filter(|(_, value)| *value > 0.0)
}

fn epsilon(layer: &Layer, place: &Place, target: &Target) -> Option<Finding> {
    let (name, value) = eps_of(layer).filter(|(_, value)| *value < target.subnormal)?;
    let dtype = target.dtype;
    let becomes = target.format.round(value, Rounding::NearestEven);
    Some(place.finding(
        (FindingKind::Epsilon, Severity::Risks),
        &[("eps", value), ("smallest_subnormal", target.subnormal), ("becomes", becomes)],
        format!(
            "{name} {} is below {dtype}'s smallest subnormal {} and becomes {}: nothing keeps the denominator from 0",
            figure(value),
            figure(target.subnormal),
            figure(becomes)
        ),
        if layer.pass == Pass::Optimizer {
            "keep the optimizer's state in fp32, or use a larger eps".to_string()
        } else {
            "use a larger eps, or keep it in fp32".to_string()
        },
    ))
}
