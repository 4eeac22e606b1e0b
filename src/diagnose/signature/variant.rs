//! Explanations by replay: the same call with another argument, or with operands rounded first.

use serde_json::Value;

use super::evidence::Evidence;
use super::{Explanation, SHARE};
use crate::error::Result;
use crate::op::Class;
use crate::replay::{self, Call, Format, REDUCED, Rounding};
use crate::run::Attrs;
use crate::tensor::Kind;

/// What frameworks and devices add to a variance, and decades about them.
const EPSILONS: [f64; 13] = [0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 5e-6, 5e-5, 1e-2];

/// Largest output whose operands are rounded in every way that is known, which replays it twelve times.
const REPLAYED: usize = 1 << 18;

const ROUNDINGS: [Rounding; 3] = [Rounding::NearestEven, Rounding::NearestAway, Rounding::Truncate];

/// The share that a changed call explains; 0 where it cannot be replayed.
fn share(evidence: &Evidence<'_>, call: &Call<'_>) -> f64 {
    let reference = replay::replay(call).ok().and_then(|references| references.into_iter().nth(evidence.slot)?);
    reference.map_or(0.0, |reference| evidence.share_of(&reference.value))
}

/// Operands rounded to a compute format, and the output with them where it was recorded in fp32.
pub(super) fn reduced_operands(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let Some(call) = &evidence.call else { return Ok(Vec::new()) };
    let moves = matches!(evidence.layer.op.class(), Class::Mover | Class::Cast);
    if moves || evidence.reduced.is_none() && evidence.len() > REPLAYED {
        return Ok(Vec::new());
    }
    let output = evidence.dtype.unit_roundoff().unwrap_or(0.0);
    let mut best: Option<(f64, Format, Rounding, bool)> = None;
    for format in REDUCED {
        for rounding in ROUNDINGS {
            if evidence.reduced.is_some_and(|known| known != (format.name, rounding)) {
                continue;
            }
            let reduced = rounded(call, format, rounding);
            let Some(exact) = super::evidence::reference(&reduced, evidence.slot) else { continue };
            if exact.len() != evidence.len() {
                continue;
            }
            let fine = evidence.share(|at| exact[at]);
            // Only a wider output can hold a narrower one.
            let narrow = if output < f64::from(f32::EPSILON) {
                evidence.share_unrounded(|at| format.round(exact[at], rounding))
            } else {
                f64::NEG_INFINITY
            };
            for (share, is_narrow) in [(fine, false), (narrow, true)] {
                if share >= SHARE && best.is_none_or(|(known, ..)| share > known) {
                    best = Some((share, format, rounding, is_narrow));
                }
            }
        }
    }
    Ok(best
        .map(|(share, format, rounding, narrow)| {
            let and = if narrow { " and the result" } else { "" };
            let why = format!(
                "operands{and} rounded to {} ({}): keep this operator in fp32 or forbid the device its fast mode (allow_tf32, allow_hf32, cube math type), or allow it on both sides",
                format.name,
                rounding.name()
            );
            Explanation { kind: "reduced_mantissa", share, why }
        })
        .into_iter()
        .collect())
}

fn rounded<'c>(call: &Call<'c>, format: Format, rounding: Rounding) -> Call<'c> {
    let mut reduced = call.clone();
    for operand in reduced.inputs.iter_mut().filter(|operand| operand.dtype.unit_roundoff().is_some()) {
        operand.value = operand.value.mapv(|v| format.round(v, rounding)).into_shared();
    }
    reduced
}

/// Another eps, GELU's other form, the batch's statistics, the mask's complement.
pub(super) fn other_arguments(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let Some(call) = &evidence.call else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    if let Some(attrs) = call.attrs {
        found.extend(eps(evidence, call, attrs));
        found.extend(gelu(evidence, call, attrs));
        found.extend(training(evidence, call, attrs));
    }
    found.extend(complement(evidence, call));
    Ok(found)
}

fn with(attrs: &Attrs, key: &str, value: impl Into<Value>) -> Attrs {
    let mut changed = attrs.clone();
    changed.insert(key.into(), value.into());
    changed
}

fn eps(evidence: &Evidence<'_>, call: &Call<'_>, attrs: &Attrs) -> Option<Explanation> {
    let key = ["eps", "epsilon"].into_iter().find(|key| attrs.get(*key).is_some_and(Value::is_number))?;
    let declared = attrs.get(key)?.as_f64()?;
    if evidence.layer.op.class() != Class::Norm {
        return None;
    }
    let tried = EPSILONS.into_iter().filter(|&eps| eps != declared).map(|eps| {
        let changed = with(attrs, key, eps);
        (share(evidence, &Call { attrs: Some(&changed), ..call.clone() }), eps)
    });
    let (share, eps) = tried.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let why = format!("an eps of {eps:e} instead of {declared:e}: use the same eps on both sides");
    Some(Explanation { kind: "eps", share, why })
}

fn gelu(evidence: &Evidence<'_>, call: &Call<'_>, attrs: &Attrs) -> Option<Explanation> {
    if !call.function().contains("gelu") {
        return None;
    }
    let declared = attrs.get("approximate").and_then(Value::as_str).unwrap_or("none");
    let other = if declared == "tanh" { "none" } else { "tanh" };
    let changed = with(attrs, "approximate", other);
    let share = share(evidence, &Call { attrs: Some(&changed), ..call.clone() });
    let form = |approximate: &str| if approximate == "tanh" { "tanh's approximation" } else { "the exact erf" };
    let why = format!("GELU by {} instead of {}: use the same form on both sides", form(other), form(declared));
    Some(Explanation { kind: "gelu_tanh", share, why })
}

fn training(evidence: &Evidence<'_>, call: &Call<'_>, attrs: &Attrs) -> Option<Explanation> {
    if !call.function().contains("batch_norm") || attrs.get("training").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let changed = with(attrs, "training", true);
    // The form that never trains has no such argument.
    let function =
        if call.function().contains("no_training") { "native_batch_norm".into() } else { call.function.clone() };
    let mut train = Call { attrs: Some(&changed), function, ..call.clone() };
    // What is saved has other extents in training; only the first output is held against.
    if evidence.slot != 0 {
        return None;
    }
    train.outputs.truncate(1);
    let share = share(evidence, &train);
    let why = "the batch's statistics instead of the running ones: put the model into evaluation mode".to_string();
    Some(Explanation { kind: "train_mode", share, why })
}

/// Every boolean operand that masks, turned round.
fn complement(evidence: &Evidence<'_>, call: &Call<'_>) -> Option<Explanation> {
    let masks = |name: Option<&str>, kind: Kind| {
        kind == Kind::Bool && name.is_none_or(|name| name.contains("mask") || name == "condition")
    };
    let mut turned = call.clone();
    let mut any = false;
    for operand in &mut turned.inputs {
        if masks(operand.name.as_deref(), operand.dtype.kind()) {
            operand.value = operand.value.mapv(|v| if v == 0.0 { 1.0 } else { 0.0 }).into_shared();
            any = true;
        }
    }
    let share = if any { share(evidence, &turned) } else { return None };
    let why = "the mask's complement: true means kept on one side and masked on the other; turn it round".to_string();
    Some(Explanation { kind: "mask_polarity", share, why })
}
