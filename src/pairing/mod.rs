//! Which candidate layer answers which golden layer.
//!
//! In go two runs and the case's rename rules; out comes a [`Pairing`]: at most one partner per
//! layer, each with the rule that found it, and the tensor pairs that follow. Rules in falling
//! trust: equal names, renamed, without wrappers; within one name the calls in order where their
//! counts agree, else alignment; alignment of what is left between paired layers by operator, module
//! and data flow; then sources by content; producers at the same input slot of a paired layer last.
//! Never by shape or position alone. A layer that no rule pairs stays unpaired, and reports list it.

mod align;
mod content;
mod name;
mod slots;

use align::Evidence;

pub use name::{WRAPPERS, without_call, without_wrappers};
pub use slots::slot_pairs;

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::op::Class;
use crate::run::{Layer, LayerId, LayerKind, Pass, Run, TensorId};

/// The rule that paired two layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairedBy {
    /// The recorded names are equal.
    Name,
    /// The case's `rename` rules make the names equal.
    Rename,
    /// The names are equal without wrappers (`module.`, `_orig_mod.` …).
    Wrapper,
    /// Operator, module and data flow between two paired neighbours.
    Alignment,
    /// They produce the tensors at the same input slot of a paired layer.
    Slots,
    /// Sources with equal content.
    Content,
}

impl PairedBy {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Rename => "rename",
            Self::Wrapper => "wrapper",
            Self::Alignment => "alignment",
            Self::Slots => "slots",
            Self::Content => "content",
        }
    }
}

/// The partner of a golden layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partner {
    /// The candidate layer.
    pub layer: LayerId,
    /// The rule that found it.
    pub by: PairedBy,
}

/// A golden and a candidate tensor that answer each other.
pub type TensorPair = (TensorId, TensorId);

/// Which candidate layer answers which golden layer.
#[derive(Debug, Clone)]
pub struct Pairing {
    /// By golden layer id.
    golden: Vec<Option<Partner>>,
    /// By candidate layer id.
    candidate: Vec<Option<LayerId>>,
    /// Output pairs of paired layers.
    outputs: HashMap<TensorId, TensorId>,
}

impl Pairing {
    fn new(golden: &Run, candidate: &Run) -> Self {
        Self {
            golden: vec![None; golden.layers.len()],
            candidate: vec![None; candidate.layers.len()],
            outputs: HashMap::new(),
        }
    }

    /// The partner of a golden layer.
    pub fn partner(&self, golden: LayerId) -> Option<Partner> {
        self.golden[golden.0 as usize]
    }

    /// The golden layer that a candidate layer answers.
    pub fn golden_of(&self, candidate: LayerId) -> Option<LayerId> {
        self.candidate[candidate.0 as usize]
    }

    /// The candidate tensor that answers a golden tensor as output of paired layers.
    pub fn output_of(&self, golden: TensorId) -> Option<TensorId> {
        self.outputs.get(&golden).copied()
    }

    /// Number of paired layers.
    pub fn paired(&self) -> usize {
        self.golden.iter().flatten().count()
    }

    fn is_free(&self, golden: LayerId, candidate: LayerId) -> bool {
        self.golden[golden.0 as usize].is_none() && self.candidate[candidate.0 as usize].is_none()
    }

    fn join(&mut self, golden: &Layer, candidate: &Layer, by: PairedBy) {
        self.golden[golden.id.0 as usize] = Some(Partner { layer: candidate.id, by });
        self.candidate[candidate.id.0 as usize] = Some(golden.id);
        for (&g, &c) in golden.outputs.iter().zip(&candidate.outputs) {
            self.outputs.insert(g, c);
        }
    }
}

/// Pairs the layers of two runs. `rename` turns a candidate's name into the golden's naming.
///
/// # Errors
/// A source tensor that has to be read for its content and cannot be.
pub fn pair(golden: &Run, candidate: &Run, rename: &dyn Fn(&str) -> String) -> Result<Pairing> {
    let mut pairing = Pairing::new(golden, candidate);
    by_name(golden, candidate, &mut pairing, PairedBy::Name, &|name| name.to_string(), &|name| name.to_string());
    by_name(golden, candidate, &mut pairing, PairedBy::Rename, &|name| name.to_string(), rename);
    by_name(golden, candidate, &mut pairing, PairedBy::Wrapper, &without_wrappers, &|name| {
        without_wrappers(&rename(name))
    });
    align::between_anchors(golden, candidate, &mut pairing, rename);
    content::pair_sources(golden, candidate, &mut pairing)?;
    slots::pair_producers(golden, candidate, &mut pairing);
    Ok(pairing)
}

/// Layers of one name (without call suffix), pass, kind and operator.
type Group = (Pass, LayerKind, String, String);

fn groups<'r>(
    run: &'r Run,
    taken: &dyn Fn(LayerId) -> bool,
    key: &dyn Fn(&str) -> String,
) -> BTreeMap<Group, Vec<&'r Layer>> {
    let mut groups: BTreeMap<Group, Vec<&Layer>> = BTreeMap::new();
    for layer in run.layers.iter().filter(|layer| !taken(layer.id)) {
        let base = key(name::without_call(&layer.name));
        groups.entry((layer.pass, layer.kind, base, op_key(layer))).or_default().push(layer);
    }
    groups
}

/// Operators that may answer each other under one name: the canonical name, else the recorded one.
/// A source is a source under any name.
fn op_key(layer: &Layer) -> String {
    match layer.op.class() {
        Class::Source => "source".into(),
        Class::Unknown => layer.op_name.clone(),
        _ => layer.op.name().into(),
    }
}

fn by_name(
    golden: &Run,
    candidate: &Run,
    pairing: &mut Pairing,
    by: PairedBy,
    golden_key: &dyn Fn(&str) -> String,
    candidate_key: &dyn Fn(&str) -> String,
) {
    let mut candidates = groups(candidate, &|id| pairing.golden_of(id).is_some(), candidate_key);
    let mut goldens = groups(golden, &|id| pairing.partner(id).is_some(), golden_key);
    let mut left_golden = Vec::new();
    let mut unequal = counted_apart(golden, candidate, &mut goldens, &mut candidates);
    for (key, layers) in goldens {
        let Some(others) = candidates.remove(&key) else {
            left_golden.extend(layers);
            continue;
        };
        let exact = matches!(layers[0].op.class(), Class::Mover | Class::Cast);
        let answers = |(g, c): (&&Layer, &&Layer)| !exact || align::same_shape(golden, candidate, g, c);
        if layers.len() == others.len() && layers.iter().zip(&others).all(answers) {
            for (g, c) in layers.iter().zip(&others) {
                pairing.join(g, c, by);
            }
        } else {
            unequal.push((layers, others, Evidence::SameName));
        }
    }
    // One side ran it more often (recomputation, an inserted cast), or a mover moves something else:
    // call numbers do not answer each other, so the calls are aligned, once all that surrounds them
    // has its partner.
    for (layers, others, evidence) in unequal {
        align::calls(golden, candidate, pairing, &layers, &others, by, evidence);
    }
    // A module or operator that was replaced by another kind keeps its name: a name that is left on
    // both sides exactly once still pairs, unless one only moves data and the other computes.
    let mut left: BTreeMap<(Pass, LayerKind, String), Vec<&Layer>> = BTreeMap::new();
    for layer in candidates.into_values().flatten() {
        left.entry((layer.pass, layer.kind, candidate_key(&layer.name))).or_default().push(layer);
    }
    let mut golden_left: BTreeMap<(Pass, LayerKind, String), Vec<&Layer>> = BTreeMap::new();
    for layer in left_golden {
        golden_left.entry((layer.pass, layer.kind, golden_key(&layer.name))).or_default().push(layer);
    }
    for (key, layers) in golden_left {
        if let ([g], Some([c])) = (layers.as_slice(), left.get(&key).map(Vec::as_slice))
            && same_nature(g, c)
        {
            pairing.join(g, c, by);
        }
    }
}

/// Two sides of a group of layers that are to be aligned, and what must speak for a pair.
type Unaligned<'g, 'c> = (Vec<&'g Layer>, Vec<&'c Layer>, Evidence);

/// Takes out the layers whose names differ by a counter alone (`view`, `view_1` …) and of which one
/// side has more: there equal counters do not answer each other, for an operator that was inserted
/// on one side shifts all that follow.
fn counted_apart<'g, 'c>(
    golden: &'g Run,
    candidate: &'c Run,
    goldens: &mut BTreeMap<Group, Vec<&'g Layer>>,
    candidates: &mut BTreeMap<Group, Vec<&'c Layer>>,
) -> Vec<Unaligned<'g, 'c>> {
    let family = |(pass, kind, name, op): &Group| {
        let base = name::without_counter(name).unwrap_or(name);
        (*pass, *kind, base.to_string(), op.clone())
    };
    let mut families: BTreeMap<Group, (Vec<Group>, Vec<Group>)> = BTreeMap::new();
    let computed = |layers: &[&Layer]| layers[0].op.class() != Class::Source;
    for (key, _) in goldens.iter().filter(|(_, layers)| computed(layers)) {
        families.entry(family(key)).or_default().0.push(key.clone());
    }
    for (key, _) in candidates.iter().filter(|(_, layers)| computed(layers)) {
        families.entry(family(key)).or_default().1.push(key.clone());
    }
    let mut unaligned = Vec::new();
    for (left, right) in families.into_values().filter(|(left, right)| left != right && left.len() + right.len() > 2) {
        fn members<'r>(groups: &BTreeMap<Group, Vec<&'r Layer>>, keys: &[Group]) -> Vec<&'r Layer> {
            let mut all: Vec<&Layer> = keys.iter().filter_map(|key| groups.get(key)).flatten().copied().collect();
            all.sort_by_key(|layer| layer.id);
            all
        }
        let (ours, theirs) = (members(goldens, &left), members(candidates, &right));
        // Too many to be aligned: their names are the better guess.
        if ours.is_empty() || theirs.is_empty() || align::is_too_long(golden, candidate, &ours, &theirs) {
            continue;
        }
        left.iter().for_each(|key| drop(goldens.remove(key)));
        right.iter().for_each(|key| drop(candidates.remove(key)));
        unaligned.push((ours, theirs, Evidence::Flow));
    }
    unaligned
}

/// Whether two operators of different names may stand for each other at all.
fn same_nature(golden: &Layer, candidate: &Layer) -> bool {
    let exact = |layer: &Layer| {
        matches!(layer.op.class(), Class::Mover | Class::Cast | Class::Source | Class::Factory | Class::Uninitialised)
    };
    exact(golden) == exact(candidate) || [golden, candidate].iter().any(|layer| layer.op.class() == Class::Unknown)
}

#[cfg(test)]
mod tests;
