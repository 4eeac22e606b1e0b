//! Which layers must go with the one at fault.

use std::collections::{BTreeSet, VecDeque};

use crate::judge::{Judgement, Measured};
use crate::op::Class;
use crate::run::{Layer, LayerId, Pass, Run};

/// How many computing layers a chain of producers goes back: beyond that a list names half the model.
const MAX_PRODUCERS: u32 = 3;

/// The layer at fault and, while golden values do not fit `max`, each consumer, with whether its own
/// result fits. In execution order; movers are passed through.
pub(super) fn out_of_range(golden: &Run, judgement: &Judgement, from: LayerId, max: f64) -> Vec<(LayerId, bool)> {
    let fits = |id: LayerId| {
        golden.layer(id).outputs.iter().all(|&t| {
            judgement.measurements.golden_stats(t).is_none_or(|s| s.amax <= max && s.pos_inf + s.neg_inf == 0)
        })
    };
    let mut members = BTreeSet::new();
    let mut queue = VecDeque::from([from]);
    while let Some(id) = queue.pop_front() {
        if !members.insert(id) || fits(id) {
            continue;
        }
        for &output in &golden.layer(id).outputs {
            queue.extend(golden.tensor(output).consumers.iter().map(|(consumer, _)| *consumer));
        }
    }
    members.into_iter().map(|id| (id, fits(id))).collect()
}

/// The layer and its producers back to tensors that are equal in both runs, at most three computing
/// layers deep.
pub(super) fn producers(golden: &Run, judgement: &Judgement, from: LayerId) -> Vec<LayerId> {
    let mut members = BTreeSet::new();
    let mut queue = VecDeque::from([(from, 0u32)]);
    while let Some((id, depth)) = queue.pop_front() {
        let layer = golden.layer(id);
        if layer.op.is_source() || depth > MAX_PRODUCERS || !members.insert(id) {
            continue;
        }
        let next = depth + u32::from(!matches!(layer.op.class(), Class::Mover | Class::Cast));
        for &input in &layer.inputs {
            let equal = judgement
                .pairing
                .output_of(input)
                .and_then(|c| judgement.measurements.get((input, c)))
                .and_then(Measured::metrics)
                .is_some_and(|m| m.unequal() == 0);
            if let Some((producer, _)) = golden.tensor(input).producer
                && !equal
                && producer < id
            {
                queue.push_back((producer, next));
            }
        }
    }
    members.into_iter().collect()
}

/// `to` and, where `from` is one of its ancestors, every layer on a way between them.
pub(super) fn between(golden: &Run, from: Option<LayerId>, to: LayerId) -> Vec<LayerId> {
    let Some(from) = from else { return vec![to] };
    let mut reaches = BTreeSet::from([from]);
    for layer in &golden.layers[from.0 as usize..=(to.0.max(from.0) as usize)] {
        let fed =
            layer.inputs.iter().any(|&input| golden.tensor(input).producer.is_some_and(|(p, _)| reaches.contains(&p)));
        if fed {
            reaches.insert(layer.id);
        }
    }
    let mut members = BTreeSet::from([to, from]);
    let mut queue = vec![to];
    while let Some(id) = queue.pop() {
        for &input in &golden.layer(id).inputs {
            if let Some((producer, _)) = golden.tensor(input).producer
                && reaches.contains(&producer)
                && members.insert(producer)
            {
                queue.push(producer);
            }
        }
    }
    members.into_iter().collect()
}

/// Names under which optimizers hold gradients and state (torch's).
const OPTIMIZER_STATE: &[&str] = &["grad", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "max_exp_avg_sq"];

/// By layer, whether it belongs to an optimizer step: by its pass, or because a gradient or optimizer
/// state is among its sources. One sweep for all, for there may be as many births as layers.
pub(super) fn optimizer_steps(golden: &Run) -> Vec<bool> {
    let is_state =
        |layer: &Layer| layer.op.is_source() && OPTIMIZER_STATE.contains(&layer.name.rsplit('.').next().unwrap_or(""));
    let mut found: Vec<bool> = golden.layers.iter().map(is_state).collect();
    let mut queue: Vec<LayerId> =
        golden.layers.iter().map(|layer| layer.id).filter(|id| found[id.0 as usize]).collect();
    while let Some(id) = queue.pop() {
        for &output in &golden.layer(id).outputs {
            let tensor = golden.tensor(output);
            if tensor.producer.is_none_or(|(producer, _)| producer != id) {
                continue;
            }
            for &(reader, _) in &tensor.consumers {
                if !std::mem::replace(&mut found[reader.0 as usize], true) {
                    queue.push(reader);
                }
            }
        }
    }
    for (layer, found) in golden.layers.iter().zip(&mut found) {
        *found |= layer.pass == Pass::Optimizer;
    }
    found
}
