//! Tensors at the same input slot of paired layers.

use std::collections::{HashMap, VecDeque};

use super::{PairedBy, Pairing, TensorPair, op_key};
use crate::op::Class;
use crate::run::{Layer, LayerId, Run, TensorId};

/// Pairs the inputs of two layers that answer each other: by argument name where both sides
/// recorded names, else by position where both have equally many. Where neither holds, nothing is
/// paired: a guess would blame the wrong tensor.
pub fn slot_pairs(golden: &Layer, candidate: &Layer) -> Vec<TensorPair> {
    if let (Some(golden_names), Some(candidate_names)) = (&golden.input_names, &candidate.input_names) {
        let mut answers: HashMap<&str, VecDeque<TensorId>> = HashMap::new();
        for (name, &c) in candidate_names.iter().zip(&candidate.inputs) {
            answers.entry(name).or_default().push_back(c);
        }
        let mut pairs = Vec::new();
        for (name, &g) in golden_names.iter().zip(&golden.inputs) {
            // An entry of a tensor list repeats its name: the k-th answers the k-th.
            if let Some(c) = answers.get_mut(name.as_str()).and_then(VecDeque::pop_front) {
                pairs.push((g, c));
            }
        }
        if !pairs.is_empty() {
            return pairs;
        }
    }
    if golden.inputs.len() == candidate.inputs.len() {
        return golden.inputs.iter().copied().zip(candidate.inputs.iter().copied()).collect();
    }
    Vec::new()
}

/// Pairs unpaired producers of tensors at the same slot of a paired layer, where both run the same
/// operator, and goes on from there towards the inputs.
pub(super) fn pair_producers(golden: &Run, candidate: &Run, pairing: &mut Pairing) {
    let mut queue: Vec<LayerId> =
        golden.layers.iter().rev().map(|layer| layer.id).filter(|&id| pairing.partner(id).is_some()).collect();
    let behind_golden = behind_casts(golden, &|id| pairing.partner(id).is_some());
    let behind_candidate = behind_casts(candidate, &|id| pairing.golden_of(id).is_some());
    let producer = |run: &Run, behind: &[Option<LayerId>], tensor: TensorId| {
        run.tensor(tensor).producer.and_then(|(id, _)| behind.get(id.0 as usize).copied().flatten())
    };
    while let Some(id) = queue.pop() {
        let Some(partner) = pairing.partner(id) else { continue };
        for (g, c) in slot_pairs(golden.layer(id), candidate.layer(partner.layer)) {
            let (Some(g), Some(c)) = (producer(golden, &behind_golden, g), producer(candidate, &behind_candidate, c))
            else {
                continue;
            };
            let (g, c) = (golden.layer(g), candidate.layer(c));
            if pairing.is_free(g.id, c.id) && op_key(g) == op_key(c) && g.kind == c.kind && g.pass == c.pass {
                pairing.join(g, c, PairedBy::Slots);
                queue.push(g.id);
            }
        }
    }
}

/// By layer: itself, or for an unpaired cast that one side inserted the layer that made what it casts.
/// Found once for all, for a long chain of casts may have many readers; it stays true while producers
/// are paired, since nothing here is an unpaired cast.
fn behind_casts(run: &Run, is_paired: &dyn Fn(LayerId) -> bool) -> Vec<Option<LayerId>> {
    let mut behind: Vec<Option<LayerId>> = Vec::with_capacity(run.layers.len());
    for layer in &run.layers {
        let made = if is_paired(layer.id) || layer.op.class() != Class::Cast {
            Some(layer.id)
        } else {
            // Each step goes to an earlier layer, or the recorded flow is cyclic and the search ends.
            let before = layer.inputs.first().and_then(|&input| run.tensor(input).producer);
            before.and_then(|(before, _)| behind.get(before.0 as usize).copied().flatten())
        };
        behind.push(made);
    }
    behind
}
