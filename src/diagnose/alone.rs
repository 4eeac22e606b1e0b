//! Births within one run, without a golden to hold it against.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::birth::SpecialKind;
use super::flow::MOST_FOLLOWED;
use super::reach;
use crate::compare::{self, Side};
use crate::error::Result;
use crate::op::Class;
use crate::run::{LayerId, Run, TensorId};

/// The birth of special values in a run that is looked at alone.
#[derive(Debug, Clone)]
pub struct LoneBirth {
    /// The layer whose output first holds them.
    pub layer: LayerId,
    /// The output.
    pub tensor: TensorId,
    /// NaN or infinity.
    pub kind: SpecialKind,
    /// How many elements.
    pub count: u64,
    /// Coordinates of the first.
    pub first_index: Vec<u64>,
    /// True where they were placed (a mask's fill, a constant, a source), not computed.
    pub placed: bool,
    /// First layer, from the birth on, that holds a NaN.
    pub first_nan: Option<LayerId>,
    /// Layer at which the last of them vanished; `None` where they reach the end.
    pub ended: Option<LayerId>,
    /// Layers they reached.
    pub reached: Vec<LayerId>,
    /// Whether they went further, but were not followed: births are followed to two million layers in
    /// all, for each of many may reach each layer.
    pub is_cut: bool,
}

/// What special values one tensor holds.
#[derive(Debug, Clone, Copy)]
struct Holds {
    nan: bool,
}

/// Every birth of NaN or infinity in `run`, in execution order. Reads every stored tensor once, those
/// with special values again. `on_progress` gets tensors done and in all.
///
/// # Errors
/// A tensor that cannot be read.
pub fn births_within(run: &Run, on_progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Vec<LoneBirth>> {
    let outputs: BTreeSet<TensorId> = run.layers.iter().flat_map(|layer| layer.outputs.iter().copied()).collect();
    let outputs: Vec<TensorId> = outputs.into_iter().collect();
    let done = std::sync::atomic::AtomicU64::new(0);
    let holds: BTreeMap<TensorId, Holds> = outputs
        .par_iter()
        .map(|&id| {
            let stats = run.load(id)?.map(|tensor| compare::measure(&tensor));
            on_progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, outputs.len() as u64);
            Ok(stats.filter(|s| s.specials() > 0).map(|s| (id, Holds { nan: s.nan > 0 })))
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    let mut births = Vec::new();
    let mut left = MOST_FOLLOWED;
    for layer in &run.layers {
        for &output in layer.outputs.iter().filter(|id| holds.contains_key(id)) {
            births.extend(at(run, layer.id, output, &holds, &mut left)?);
        }
    }
    Ok(births)
}

/// Births in one tensor; `left` is how many layers births may still be followed to.
fn at(
    run: &Run,
    id: LayerId,
    output: TensorId,
    holds: &BTreeMap<TensorId, Holds>,
    left: &mut usize,
) -> Result<Vec<LoneBirth>> {
    let layer = run.layer(id);
    let Some(tensor) = run.load(output)? else { return Ok(Vec::new()) };
    let Some(map) = compare::special_map_alone(&tensor) else { return Ok(Vec::new()) };
    let shapes: Vec<Option<&[usize]>> = layer.inputs.iter().map(|&t| run.dtype_and_shape(t).map(|(_, s)| s)).collect();
    let mut reached = vec![false; map.len()];
    for (slot, input) in layer.inputs.iter().enumerate().filter(|(_, input)| holds.contains_key(input)) {
        let flags = run
            .load(*input)?
            .and_then(|tensor| compare::special_map_alone(&tensor))
            .map(|m| m.unshared(Side::Candidate, compare::SpecialFilter::Any));
        if let Some(flags) = flags {
            reach::spread(layer, slot, &shapes, &flags, tensor.shape(), &mut reached);
        }
    }
    let mut births = Vec::new();
    for kind in [SpecialKind::Inf, SpecialKind::Nan] {
        let born: Vec<bool> =
            map.unshared(Side::Candidate, kind.filter()).iter().zip(&reached).map(|(&is, &came)| is && !came).collect();
        let Some(first) = born.iter().position(|&flag| flag) else { continue };
        let placed = matches!(layer.op.class(), Class::Mover | Class::Factory | Class::Source | Class::Uninitialised);
        let (mut went, mut stopped) = (BTreeSet::new(), BTreeSet::new());
        let mut is_cut = false;
        let mut queue = vec![output];
        while let Some(tensor) = queue.pop() {
            for &(consumer, _) in &run.tensor(tensor).consumers {
                let held: Vec<TensorId> =
                    run.layer(consumer).outputs.iter().copied().filter(|t| holds.contains_key(t)).collect();
                if held.is_empty() {
                    stopped.insert(consumer);
                } else if *left == 0 {
                    is_cut |= !went.contains(&consumer);
                } else if went.insert(consumer) {
                    *left -= 1;
                    queue.extend(held);
                }
            }
        }
        let holds_nan = |layer: LayerId| run.layer(layer).outputs.iter().any(|t| holds.get(t).is_some_and(|h| h.nan));
        let is_end = |layer: LayerId| run.layer(layer).outputs.iter().all(|&t| run.tensor(t).consumers.is_empty());
        let reaches_end = is_end(id) || went.iter().any(|&layer| is_end(layer));
        births.push(LoneBirth {
            layer: id,
            tensor: output,
            kind,
            count: born.iter().filter(|&&flag| flag).count() as u64,
            first_index: compare::unravel(first as u64, tensor.shape()),
            placed,
            first_nan: if kind == SpecialKind::Nan {
                Some(id)
            } else {
                went.iter().copied().find(|&layer| holds_nan(layer))
            },
            ended: if reaches_end || is_cut { None } else { stopped.last().copied() },
            reached: went.into_iter().collect(),
            is_cut,
        });
    }
    Ok(births)
}
