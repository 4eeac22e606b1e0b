//! Finding what differs between a golden and a run that would replace it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rayon::prelude::*;

use super::{Changes, FactChange, LayerChange, TensorChange, TensorDifference};
use crate::compare::{self, Comparison};
use crate::error::Result;
use crate::golden::{Golden, GoldenInfo, TensorRecord};
use crate::pairing::{self, Pairing};
use crate::run::{Layer, Run, RunMeta, TensorId};

/// What would change if `new`, of which `info` will be `golden.json`, took the place of `old`. Every
/// tensor of the old golden is read and checked, so that an empty answer says it is sound.
///
/// # Errors
/// A tensor of the new run that cannot be read.
pub(in crate::golden) fn find(
    old: &Golden,
    new: &Run,
    info: &GoldenInfo,
    on_progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Changes> {
    let pairing = pairing::pair(&old.run, new, &|name| name.to_string())?;
    let is_unpaired = |layer: &&Layer| pairing.partner(layer.id).is_none();
    let removed = old.run.layers.iter().filter(is_unpaired).map(|layer| old.run.display_name(layer.id));
    let added = new.layers.iter().filter(|layer| pairing.golden_of(layer.id).is_none());
    let mut facts = of_golden(&old.info, info);
    facts.extend(differing(&of_run(&old.run.meta), &of_run(&new.meta)));
    facts.extend(reordered(&old.run, new, &pairing));
    Ok(Changes {
        damaged: None,
        added: added.map(|layer| new.display_name(layer.id)).collect(),
        removed: removed.collect(),
        layers: layers(&old.run, new, &pairing),
        tensors: tensors(old, new, &info.tensors, &pairing, on_progress)?,
        facts,
        within: BTreeMap::new(),
    })
}

type Facts = BTreeMap<String, String>;

fn differing(old: &Facts, new: &Facts) -> Vec<FactChange> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    changed.map(|key| FactChange { key: key.clone(), from: old.get(key).cloned(), to: new.get(key).cloned() }).collect()
}

fn of_golden(old: &GoldenInfo, new: &GoldenInfo) -> Vec<FactChange> {
    let facts = |info: &GoldenInfo| {
        let mut facts = Facts::new();
        facts.insert("case".into(), info.case.clone());
        facts.insert("approved runs".into(), info.runs.to_string());
        if let Some(source) = &info.source {
            facts.insert("tensors in place".into(), source.clone());
        }
        facts
    };
    let mut changed = differing(&facts(old), &facts(new));
    let noise = |info: &GoldenInfo| -> BTreeMap<_, _> {
        info.noise.iter().map(|n| ((n.layer.clone(), n.pass, n.slot), (n.rel_l2, n.max_abs))).collect()
    };
    let (before, after) = (noise(old), noise(new));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let count = keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).count();
    if count > 0 {
        let known = |noise: &BTreeMap<_, _>| Some(format!("known of {} outputs", noise.len()));
        let to = known(&after).map(|text| format!("{text}, {count} differ"));
        changed.push(FactChange { key: "noise".into(), from: known(&before), to });
    }
    changed
}

/// `run.json` without what differs from run to run by nature.
fn of_run(meta: &RunMeta) -> Facts {
    let mut facts = Facts::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.into(), value);
        }
    };
    put("name", meta.name.clone());
    put("seed", meta.seed.map(|seed| seed.to_string()));
    put("step", meta.step.map(|step| step.to_string()));
    put("rank", meta.rank.map(|rank| rank.to_string()));
    put("world_size", meta.world_size.map(|size| size.to_string()));
    put("inputs_digest", meta.inputs_digest.clone());
    put("precision.compute", meta.compute.map(|dtype| dtype.to_string()));
    put("precision.autocast", meta.autocast.map(|on| on.to_string()));
    put("precision.fp32_ops", (!meta.fp32_ops.is_empty()).then(|| meta.fp32_ops.join(", ")));
    put("complete", Some(meta.complete.to_string()));
    for (key, value) in &meta.environment {
        put(&format!("environment.{key}"), Some(value.clone()));
    }
    facts
}

/// The first layer that runs at another place among the layers of both.
fn reordered(old: &Run, new: &Run, pairing: &Pairing) -> Option<FactChange> {
    let partners: Vec<_> =
        old.layers.iter().filter_map(|layer| Some((layer.id, pairing.partner(layer.id)?.layer))).collect();
    let (before, after) = partners.iter().zip(partners.iter().skip(1)).find(|(a, b)| a.1 > b.1)?;
    Some(FactChange {
        key: "order of layers".into(),
        from: Some(format!("`{}` before `{}`", old.display_name(before.0), old.display_name(after.0))),
        to: Some(format!("`{}` before `{}`", new.display_name(after.1), new.display_name(before.1))),
    })
}

fn layers(old: &Run, new: &Run, pairing: &Pairing) -> Vec<LayerChange> {
    let paired = old.layers.iter().filter_map(|layer| Some((layer, new.layer(pairing.partner(layer.id)?.layer))));
    let changed = paired.filter_map(|(before, after)| {
        let mut facts = differing(&of_layer(before), &of_layer(after));
        facts.extend(rewired(old, new, pairing, before, after));
        (!facts.is_empty()).then(|| LayerChange { layer: old.display_name(before.id), facts })
    });
    changed.collect()
}

/// A line of `layers.jsonl` without tensor ids.
fn of_layer(layer: &Layer) -> Facts {
    let mut facts = Facts::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.into(), value);
        }
    };
    put("name", Some(layer.name.clone()));
    put("op", Some(layer.op_name.clone()));
    put("kind", Some(format!("{:?}", layer.kind).to_lowercase()));
    put("call", Some(layer.call.to_string()));
    put("inputs", Some(layer.inputs.len().to_string()));
    put("outputs", Some(layer.outputs.len().to_string()));
    put("input_names", layer.input_names.as_ref().map(|names| names.join(", ")));
    put("attrs", layer.attrs.as_ref().map(|_| "recorded".into()));
    put("schema", layer.schema.clone());
    put("module", layer.module.clone());
    put("source", layer.source.clone());
    put("compute", layer.compute.map(|dtype| dtype.to_string()));
    put("accumulate", layer.accumulate.map(|dtype| dtype.to_string()));
    put("device", layer.device.clone());
    for (key, value) in layer.attrs.iter().flatten() {
        put(&format!("attrs.{key}"), Some(value.to_string()));
    }
    facts
}

/// Inputs that come from elsewhere.
fn rewired(old: &Run, new: &Run, pairing: &Pairing, before: &Layer, after: &Layer) -> Vec<FactChange> {
    let from = |run: &Run, id: TensorId| match run.tensor(id).producer {
        Some((layer, slot)) => format!("{}:{slot}", run.display_name(layer)),
        None => run.tensor(id).name.clone(),
    };
    let same = |a: TensorId, b: TensorId| match (old.tensor(a).producer, new.tensor(b).producer) {
        (None, None) => old.tensor(a).name == new.tensor(b).name,
        (Some((layer, slot)), Some((answer, there))) => {
            slot == there && pairing.partner(layer).is_some_and(|partner| partner.layer == answer)
        }
        _ => false,
    };
    let slots = before.inputs.iter().zip(&after.inputs).enumerate().filter(|(_, (a, b))| !same(**a, **b));
    slots
        .map(|(slot, (&a, &b))| FactChange {
            key: format!("input {slot}"),
            from: Some(from(old, a)),
            to: Some(from(new, b)),
        })
        .collect()
}

fn tensors(
    old: &Golden,
    new: &Run,
    records: &BTreeMap<String, TensorRecord>,
    pairing: &Pairing,
    on_progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<TensorChange>> {
    let given: HashMap<&str, TensorId> = (0u32..)
        .map(TensorId)
        .zip(&new.tensors)
        .filter(|(_, info)| info.producer.is_none())
        .map(|(id, info)| (info.name.as_str(), id))
        .collect();
    let done = std::sync::atomic::AtomicU64::new(0);
    let all = old.run.tensors.len() as u64;
    let found: Vec<Option<TensorChange>> = old
        .run
        .tensors
        .par_iter()
        .enumerate()
        .map(|(at, info)| {
            let id = TensorId(u32::try_from(at).unwrap_or(u32::MAX));
            let (answer, name) = match info.producer {
                Some((layer, slot)) => (pairing.output_of(id), format!("{}:{slot}", old.run.display_name(layer))),
                None => (given.get(info.name.as_str()).copied(), info.name.clone()),
            };
            let difference = difference(old, id, new, answer, records)?;
            on_progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, all);
            Ok(difference.map(|difference| TensorChange { tensor: name, difference }))
        })
        .collect::<Result<_>>()?;
    let mut found: Vec<TensorChange> = found.into_iter().flatten().collect();
    let known: BTreeSet<&str> =
        old.run.tensors.iter().filter(|info| info.producer.is_none()).map(|info| info.name.as_str()).collect();
    let mut added: Vec<&str> = given
        .iter()
        .filter(|(name, id)| !known.contains(*name) && new.tensor(**id).stored.is_some())
        .map(|(name, _)| *name)
        .collect();
    added.sort_unstable();
    found.extend(
        added.into_iter().map(|name| TensorChange { tensor: name.into(), difference: TensorDifference::NowStored }),
    );
    Ok(found)
}

fn difference(
    old: &Golden,
    id: TensorId,
    new: &Run,
    answer: Option<TensorId>,
    records: &BTreeMap<String, TensorRecord>,
) -> Result<Option<TensorDifference>> {
    let before = match old.run.load(id) {
        Ok(before) => before,
        Err(error) => return Ok(Some(TensorDifference::Damaged(error.to_string()))),
    };
    if let Some(Err(error)) = before.as_ref().map(|tensor| old.check_tensor(id, tensor)) {
        return Ok(Some(TensorDifference::Damaged(error.to_string())));
    }
    let Some(answer) = answer else {
        // An output that went with its layer is listed as that layer.
        let is_given = old.run.tensor(id).producer.is_none();
        return Ok((is_given && before.is_some()).then_some(TensorDifference::NoLongerStored));
    };
    let record = records.get(&new.tensor(answer).name);
    Ok(match (before, record) {
        (None, None) => (old.run.tensor(id).stats != new.tensor(answer).stats).then_some(TensorDifference::Statistics),
        (None, Some(_)) => Some(TensorDifference::NowStored),
        (Some(_), None) => Some(TensorDifference::NoLongerStored),
        (Some(before), Some(record)) => {
            if (before.dtype(), before.shape()) != (record.dtype, record.shape.as_slice()) {
                let from = format!("{} {:?}", before.dtype(), before.shape());
                let to = format!("{} {:?}", record.dtype, record.shape);
                return Ok(Some(TensorDifference::Form { from, to }));
            }
            let known = old.info.tensors.get(&old.run.tensor(id).name);
            if known.is_some_and(|known| known.digest == record.digest) {
                let same = old.run.tensor(id).stats == new.tensor(answer).stats;
                return Ok((!same).then_some(TensorDifference::Statistics));
            }
            let Some(after) = new.load(answer)? else { return Ok(Some(TensorDifference::NoLongerStored)) };
            Some(match compare::compare(&before, &after, &compare::Options::default()) {
                Comparison::Measured(metrics) => TensorDifference::Content {
                    rel_l2: metrics.rel_l2(),
                    max_abs: metrics.max_abs,
                    unequal: metrics.unequal(),
                    elements: metrics.elements,
                    nonfinite: metrics.specials.candidate_only + metrics.specials.golden_only,
                },
                Comparison::Opaque { .. } | Comparison::Mismatch(_) => TensorDifference::Bytes,
            })
        }
    })
}
