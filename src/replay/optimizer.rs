//! Optimizer steps where all arguments are recorded: SGD, Adam and AdamW, one tensor or lists.
//!
//! The formulas are those of the fused kernels: state and parameter are updated from the gradient in
//! one pass. What is written in place is recorded as outputs in the schema's order; which lists were
//! recorded follows from their number.

use super::elementwise::evaluate;
use super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};

/// A step's sums, products, one division and one root, against the largest term.
const STEP_ULP: f64 = 4.0;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "sgd" | "_fused_sgd" => sgd,
        "adam" | "_fused_adam" => |call| adam(call, false),
        "adamw" | "_fused_adamw" => |call| adam(call, true),
        _ => return None,
    })
}

/// Entries of the tensor list with one of these names.
fn list<'a>(call: &'a Call, names: &[&str]) -> Vec<&'a Operand> {
    names.iter().map(|name| call.list(name)).find(|list| !list.is_empty()).unwrap_or_default()
}

/// A scalar tensor, or an attribute.
fn setting(call: &Call, name: &str, default: Option<f64>) -> Result<f64, Unmodelled> {
    match call.named(&[name]) {
        Some(operand) if operand.value.len() == 1 => Ok(operand.value.iter().next().copied().unwrap_or(f64::NAN)),
        Some(_) => Err(call.unmodelled(&format!("{name} is no scalar"))),
        None => call.number(name, default),
    }
}

/// What every step has.
struct Step<'a> {
    parameters: Vec<&'a Operand>,
    gradients: Vec<&'a Operand>,
    /// Factor of the recorded gradient: the loss scale's inverse, negative to maximize.
    factor: f64,
    lr: f64,
    decay: f64,
}

fn step<'a>(call: &'a Call) -> Result<Step<'a>, Unmodelled> {
    let parameters = list(call, &["self", "params", "param", "p"]);
    let gradients = list(call, &["grads", "grad"]);
    same_shapes(call, &parameters, &gradients)?;
    if setting(call, "found_inf", Some(0.0))? != 0.0 {
        return Err(call.unmodelled("a skipped step"));
    }
    let sign = if call.flag("maximize", false)? { -1.0 } else { 1.0 };
    Ok(Step {
        factor: sign / setting(call, "grad_scale", Some(1.0))?,
        lr: setting(call, "lr", None)?,
        decay: setting(call, "weight_decay", Some(0.0))?,
        parameters,
        gradients,
    })
}

fn same_shapes(call: &Call, parameters: &[&Operand], others: &[&Operand]) -> Result<(), Unmodelled> {
    let agree = !parameters.is_empty()
        && parameters.len() == others.len()
        && parameters.iter().zip(others).all(|(p, o)| p.value.shape() == o.value.shape());
    if agree { Ok(()) } else { Err(call.unmodelled("parameters, gradients and state do not correspond")) }
}

/// One updated quantity of one parameter. `operands` have the parameter's shape.
fn updated<const N: usize>(
    call: &Call,
    operands: [&Operand; N],
    function: impl Fn([f64; N]) -> (f64, f64) + Sync,
) -> Result<Reference, Unmodelled> {
    let shape = operands.first().map_or(&[][..], |operand| operand.value.shape());
    let (value, scale) = evaluate(call, shape, operands.map(|operand| &operand.value), function)?;
    Ok(Reference { value, scale, exactness: Exactness::Function { ulp: STEP_ULP, roundings: 0 } })
}

/// Puts the references of `parts` (one list per updated quantity) in the order of the recorded
/// outputs: parameters alone, or parameters and state, with or without the gradients between.
fn ordered(call: &Call, parts: Vec<Vec<Reference>>) -> Result<References, Unmodelled> {
    let count = parts.first().map_or(0, Vec::len);
    let (recorded, all) = (call.outputs.len(), parts.len());
    let keep = |part: Vec<Reference>| part.into_iter().map(Some).collect::<Vec<_>>();
    let mut parts = parts.into_iter().map(keep);
    let parameters = parts.next().unwrap_or_default();
    let references: References = if recorded == count {
        parameters
    } else if recorded == all * count {
        [parameters, parts.flatten().collect()].concat()
    } else if recorded == (all + 1) * count {
        let gradients = std::iter::repeat_n(None, count).collect();
        [parameters, gradients, parts.flatten().collect()].concat()
    } else {
        return Err(call.unmodelled("which tensors were written is not clear from their number"));
    };
    for (slot, reference) in references.iter().enumerate() {
        if let Some(reference) = reference {
            call.fits(slot, reference.value.shape())?;
        }
    }
    Ok(references)
}

fn sgd(call: &Call) -> Result<References, Unmodelled> {
    let step = step(call)?;
    let momentum = setting(call, "momentum", Some(0.0))?;
    let dampening = setting(call, "dampening", Some(0.0))?;
    let nesterov = call.flag("nesterov", false)?;
    let first = call.flag("is_first_step", false)?;
    let gradient = |p: f64, g: f64| {
        let (pull, decay) = (step.factor * g, step.decay * p);
        (pull + decay, pull.abs().max(decay.abs()))
    };
    let moved = |p: f64, (direction, size): (f64, f64)| (p - step.lr * direction, p.abs().max((step.lr * size).abs()));
    if momentum == 0.0 {
        let pairs = step.parameters.iter().zip(&step.gradients);
        let parameters = pairs.map(|(&p, &g)| updated(call, [p, g], |[p, g]| moved(p, gradient(p, g))));
        return ordered(call, vec![parameters.collect::<Result<_, _>>()?]);
    }
    let buffers = list(call, &["momentum_buffer_list", "momentum_buffer"]);
    same_shapes(call, &step.parameters, &buffers)?;
    let buffer = |p: f64, g: f64, old: f64| {
        let (gradient, size) = gradient(p, g);
        if first {
            return (gradient, size);
        }
        let (kept, added) = (momentum * old, (1.0 - dampening) * gradient);
        (kept + added, kept.abs().max(((1.0 - dampening) * size).abs()))
    };
    let (mut parameters, mut state) = (Vec::new(), Vec::new());
    for ((&p, &g), &old) in step.parameters.iter().zip(&step.gradients).zip(&buffers) {
        state.push(updated(call, [p, g, old], |[p, g, old]| buffer(p, g, old))?);
        parameters.push(updated(call, [p, g, old], |[p, g, old]| {
            let (new, size) = buffer(p, g, old);
            let (gradient, pull) = gradient(p, g);
            let direction = if nesterov { gradient + momentum * new } else { new };
            moved(p, (direction, size.max(if nesterov { pull } else { 0.0 })))
        })?);
    }
    ordered(call, vec![parameters, state])
}

fn adam(call: &Call, decoupled: bool) -> Result<References, Unmodelled> {
    if call.flag("amsgrad", false)? {
        return Err(call.unmodelled("amsgrad"));
    }
    let step = step(call)?;
    let (beta1, beta2) = betas(call)?;
    let eps = setting(call, "eps", Some(1e-8))?;
    let (firsts, seconds) = (list(call, &["exp_avgs", "exp_avg"]), list(call, &["exp_avg_sqs", "exp_avg_sq"]));
    same_shapes(call, &step.parameters, &firsts)?;
    same_shapes(call, &step.parameters, &seconds)?;
    let times = list(call, &["state_steps", "step"]);
    let gradient = |p: f64, g: f64| step.factor * g + if decoupled { 0.0 } else { step.decay * p };
    let mean = |p: f64, g: f64, m: f64| {
        let (kept, added) = (beta1 * m, (1.0 - beta1) * gradient(p, g));
        (kept + added, kept.abs().max(added.abs()))
    };
    let square = |p: f64, g: f64, v: f64| beta2 * v + (1.0 - beta2) * gradient(p, g).powi(2);

    let (mut parameters, mut means, mut squares) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (&p, &g)) in step.parameters.iter().zip(&step.gradients).enumerate() {
        let (Some(&m), Some(&v)) = (firsts.get(at), seconds.get(at)) else { break };
        let time = match times.get(at).and_then(|time| time.value.iter().next()) {
            Some(&time) => time,
            None => call.number("step", None)?,
        };
        let (correction1, correction2) = (1.0 - beta1.powf(time), 1.0 - beta2.powf(time));
        means.push(updated(call, [p, g, m], |[p, g, m]| mean(p, g, m))?);
        squares.push(updated(call, [p, g, v], |[p, g, v]| (square(p, g, v), 0.0))?);
        parameters.push(updated(call, [p, g, m, v], |[p, g, m, v]| {
            let start = if decoupled { p - step.lr * step.decay * p } else { p };
            let (mean, size) = mean(p, g, m);
            let rate = step.lr / correction1 / ((square(p, g, v) / correction2).sqrt() + eps);
            (start - rate * mean, p.abs().max((rate * size).abs()))
        })?);
    }
    ordered(call, vec![parameters, means, squares])
}

/// `beta1` and `beta2`, or the pair `betas`.
fn betas(call: &Call) -> Result<(f64, f64), Unmodelled> {
    let Some(pair) = call.attr("betas")? else {
        return Ok((setting(call, "beta1", None)?, setting(call, "beta2", None)?));
    };
    let pair = pair.as_array().and_then(|pair| Some((pair.first()?.as_f64()?, pair.get(1)?.as_f64()?)));
    pair.ok_or_else(|| call.unmodelled("betas are no pair of numbers"))
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use serde_json::json;

    use super::super::sample_call::{SampleCall, sample};
    use crate::tensor::DType::F32;

    fn values(call: SampleCall) -> Vec<Option<f64>> {
        call.run().expect("modelled").into_iter().map(|r| r.map(|r| r.value[[0]])).collect()
    }

    #[test]
    fn sgd_by_hand() {
        let call = |attrs| sample("sgd").f32("param", &[1], &[1.0]).f32("grad", &[1], &[0.5]).attrs(attrs);
        assert_eq!(values(call(json!({"lr": 0.5})).out(F32, &[1])), [Some(0.75)]);
        // g = 0.5 + 0.5·1 = 1; with momentum 0.5·2 + 1 = 2; nesterov 1 + 0.5·2 = 2.
        let attrs = json!({"lr": 0.25, "weight_decay": 0.5, "momentum": 0.5, "nesterov": true});
        let stateful = call(attrs).f32("momentum_buffer", &[1], &[2.0]).out(F32, &[1]).out(F32, &[1]);
        assert_eq!(values(stateful), [Some(0.5), Some(2.0)]);
    }

    #[test]
    fn adam_and_adamw_by_hand() {
        let call = |function, attrs| {
            let call =
                sample(function).f32("self", &[1], &[1.0]).f32("grads", &[1], &[2.0]).f32("exp_avgs", &[1], &[0.0]);
            let call = call.f32("exp_avg_sqs", &[1], &[0.0]).f32("state_steps", &[], &[1.0]).attrs(attrs);
            values(call.out(F32, &[1]).out(F32, &[1]).out(F32, &[1]))
        };
        // At the first step the bias corrections leave m/c1 = g and v/c2 = g²: the step is lr·g/(|g| + eps).
        let attrs = json!({"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 0.5, "weight_decay": 0.0});
        let found = call("_fused_adam", attrs);
        assert_relative_eq!(found[0].unwrap(), 1.0 - 0.1 * 2.0 / 2.5, max_relative = 1e-14);
        assert_relative_eq!(found[1].unwrap(), 0.2, max_relative = 1e-14);
        assert_relative_eq!(found[2].unwrap(), 0.04, max_relative = 1e-14);
        // Decay taken from the parameter, not the gradient.
        let attrs = json!({"lr": 0.1, "betas": [0.9, 0.99], "eps": 0.5, "weight_decay": 0.5});
        let found = call("adamw", attrs.clone());
        assert_relative_eq!(found[0].unwrap(), 0.95 - 0.1 * 2.0 / 2.5, max_relative = 1e-14);
        // Adam: g = 2.5.
        let found = call("adam", attrs);
        assert_relative_eq!(found[0].unwrap(), 1.0 - 0.1 * 2.5 / 3.0, max_relative = 1e-14);
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        let call = || sample("sgd").f32("param", &[1], &[1.0]).f32("grad", &[1], &[0.5]);
        assert!(
            call().attrs(json!({"lr": 1})).out(F32, &[1]).out(F32, &[1]).out(F32, &[1]).refusal().contains("number")
        );
        assert!(call().attrs(json!({"lr": 1})).out(F32, &[2]).refusal().contains("does not fit"));
        assert!(call().attrs(json!({"lr": 1, "momentum": 0.9})).out(F32, &[1]).refusal().contains("correspond"));
        assert!(call().out(F32, &[1]).refusal().contains("not recorded"));
        let skipped = call().f32("found_inf", &[], &[1.0]).attrs(json!({"lr": 1})).out(F32, &[1]);
        assert_eq!(skipped.refusal(), "sgd: a skipped step");
    }
}
