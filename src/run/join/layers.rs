//! Which layers and tensors of several ranks are one.

use std::collections::{HashMap, HashSet};

use super::Member;
use crate::run::assemble::RecordedLayer;
use crate::run::{Layer, LayerId, Pass, TensorId};

/// The layers of all ranks in one order, each with the ranks that have it.
#[derive(Debug)]
pub(super) struct Merged {
    layers: Vec<MergedLayer>,
    /// Tensors of the joined run.
    pub(super) slots: Vec<Slot>,
}

#[derive(Debug)]
struct MergedLayer {
    /// The first member, by position, that has the layer.
    member: usize,
    layer: LayerId,
    /// Indices into [`Merged::slots`].
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// A tensor of the joined run.
#[derive(Debug)]
pub(super) struct Slot {
    /// Its name, which no other has.
    pub(super) name: String,
    /// What the members, by position and ascending, hold of it.
    pub(super) held: Vec<(usize, TensorId)>,
}

/// What identifies a layer on every rank.
type Key<'a> = (&'a str, Pass, u32);

/// Merges the ranks' layers: those of the first rank, and those that only a later one has behind what
/// they follow there.
pub(super) fn merge(members: &[Member]) -> Merged {
    let order = order(members);
    let mut slots = Slots {
        known: vec![HashMap::new(); members.len()],
        slots: Vec::new(),
        taken: HashSet::new(),
        names: HashSet::new(),
    };
    let mut layers = Vec::with_capacity(order.len());
    let by_key: Vec<HashMap<Key<'_>, &Layer>> =
        members.iter().map(|m| m.part.run().layers.iter().map(|l| (key(l), l)).collect()).collect();
    for (member, id) in order {
        let Some(first) = members.get(member).map(|m| m.part.run().layer(id)) else { continue };
        let holders: Vec<(usize, &Layer)> = by_key
            .iter()
            .enumerate()
            .skip(member)
            .filter_map(|(at, layers)| Some((at, *layers.get(&key(first))?)))
            .collect();
        let mut of = |ids: &dyn Fn(&Layer) -> &[TensorId], count: usize| -> Vec<usize> {
            (0..count)
                .filter_map(|slot| {
                    let held = holders.iter().filter_map(|(at, layer)| Some((*at, *ids(layer).get(slot)?)));
                    slots.of(members, &held.collect::<Vec<_>>())
                })
                .collect()
        };
        let inputs = of(&|layer| &layer.inputs, first.inputs.len());
        let outputs = of(&|layer| &layer.outputs, first.outputs.len());
        layers.push(MergedLayer { member, layer: id, inputs, outputs });
    }
    for slot in &mut slots.slots {
        slot.held.sort_unstable();
    }
    Merged { layers, slots: slots.slots }
}

fn key(layer: &Layer) -> Key<'_> {
    (&layer.name, layer.pass, layer.call)
}

/// The layers of all members, each by the first member that has it.
fn order(members: &[Member]) -> Vec<(usize, LayerId)> {
    let mut order: Vec<(usize, LayerId)> = Vec::new();
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    for (at, member) in members.iter().enumerate() {
        // Layers that only this member has, by the place in `order` which they follow.
        let mut new: HashMap<usize, Vec<(usize, LayerId)>> = HashMap::new();
        let mut behind = 0;
        for layer in &member.part.run().layers {
            match places.get(&key(layer)) {
                Some(place) => behind = place + 1,
                None => new.entry(behind).or_default().push((at, layer.id)),
            }
        }
        if new.is_empty() {
            continue;
        }
        let mut merged = new.remove(&0).unwrap_or_default();
        for (place, layer) in order.into_iter().enumerate() {
            merged.push(layer);
            merged.extend(new.remove(&(place + 1)).unwrap_or_default());
        }
        order = merged;
        places = order
            .iter()
            .enumerate()
            .filter_map(|(place, (at, id))| Some((key(members.get(*at)?.part.run().layer(*id)), place)))
            .collect();
    }
    order
}

/// Tensors while they are found.
struct Slots {
    /// By member: the joined tensor of each of its tensors.
    known: Vec<HashMap<TensorId, usize>>,
    slots: Vec<Slot>,
    /// Joined tensors with the members that hold a part.
    taken: HashSet<(usize, usize)>,
    names: HashSet<String>,
}

impl Slots {
    /// The joined tensor of those that stand at one slot of one layer; `None` for no tensor.
    fn of(&mut self, members: &[Member], held: &[(usize, TensorId)]) -> Option<usize> {
        let known = held.iter().find_map(|(at, id)| self.known.get(*at)?.get(id).copied());
        let slot = match known {
            Some(slot) => slot,
            None => {
                let (at, id) = held.first()?;
                let member = members.get(*at)?;
                let name = self.unique(&member.part.run().tensor(*id).name, member.rank);
                self.slots.push(Slot { name, held: Vec::new() });
                self.slots.len() - 1
            }
        };
        for (at, id) in held {
            let Some(known) = self.known.get_mut(*at) else { continue };
            let Some(target) = self.slots.get_mut(slot) else { continue };
            // A rank on which two tensors are what is one elsewhere gives the first of them.
            if !known.contains_key(id) {
                known.insert(*id, slot);
                if self.taken.insert((slot, *at)) {
                    target.held.push((*at, *id));
                }
            }
        }
        Some(slot)
    }

    fn unique(&mut self, name: &str, rank: u64) -> String {
        let mut unique = name.to_string();
        while !self.names.insert(unique.clone()) {
            unique = format!("{unique}@rank{rank}");
        }
        unique
    }
}

impl Merged {
    /// The layers as a reader would give them; `is_sharded` says which tensors, by index, are put together.
    pub(super) fn layers(&self, members: &[Member], is_sharded: &dyn Fn(usize) -> bool) -> Vec<RecordedLayer> {
        let names = |slots: &[usize]| slots.iter().filter_map(|at| Some(self.slots.get(*at)?.name.clone())).collect();
        let mut line = 0;
        let layers = self.layers.iter().filter_map(|merged| {
            let layer = members.get(merged.member)?.part.run().layer(merged.layer).clone();
            line += 1;
            let sharded = merged.inputs.iter().chain(&merged.outputs).any(|slot| is_sharded(*slot));
            let inputs: Vec<String> = names(&merged.inputs);
            Some(RecordedLayer {
                line,
                name: layer.name,
                op_name: layer.op_name,
                kind: layer.kind,
                pass: layer.pass,
                call: Some(layer.call),
                input_names: layer.input_names.filter(|names| names.len() == inputs.len()),
                inputs,
                outputs: names(&merged.outputs),
                attrs: layer.attrs.filter(|attrs| !sharded || !attrs.iter().any(|(name, value)| counts(name, value))),
                schema: layer.schema,
                module: layer.module,
                source: layer.source,
                compute: layer.compute,
                accumulate: layer.accumulate,
                device: layer.device,
                grad_of: layer.grad_of,
            })
        });
        layers.collect()
    }
}

/// Whether an argument may be a number of elements, which is another one for the whole: any whole
/// number that is no dim.
fn counts(name: &str, value: &serde_json::Value) -> bool {
    const DIMS: &[&str] = &["dim", "dims", "axis", "axes", "dim0", "dim1", "start_dim", "end_dim", "keepdim"];
    match value {
        serde_json::Value::Number(number) => !number.is_f64() && !DIMS.contains(&name),
        serde_json::Value::Array(items) => items.iter().any(|item| counts(name, item)),
        serde_json::Value::Object(entries) => entries.iter().any(|(_, item)| counts(name, item)),
        _ => false,
    }
}
