//! Reads tensor pairs and keeps the books: what was read, for what, and what it showed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::model::{self, Loaded, Purpose, Step};
use crate::diagnose::{self, Site};
use crate::error::Result;
use crate::judge::{Judgement, Measured, Probe, Verdict};
use crate::op::Class;
use crate::pairing::{TensorPair, slot_pairs};
use crate::run::{LayerId, LayerKind, Run, TensorId};

/// A probe with its books.
pub(super) struct Ledger<'a> {
    pub(super) golden: &'a Run,
    pub(super) candidate: &'a Run,
    probe: Probe<'a>,
    /// The golden layer to which each pair of a whole comparison belongs.
    layer_of: HashMap<TensorPair, LayerId>,
    /// By golden layer.
    pairs_of: Vec<Vec<TensorPair>>,
    /// By golden tensor: the layer after which it holds what was recorded.
    writer_of: Vec<Option<LayerId>>,
    steps: Vec<Step>,
    loaded: Loaded,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(golden: &'a Run, candidate: &'a Run, probe: Probe<'a>) -> Self {
        let wanted: HashSet<TensorPair> = probe.pairs().iter().copied().collect();
        let mut layer_of = HashMap::with_capacity(wanted.len());
        let mut pairs_of = vec![Vec::new(); golden.layers.len()];
        for layer in &golden.layers {
            let Some(partner) = probe.judgement().pairing.partner(layer.id) else { continue };
            let answer = candidate.layer(partner.layer);
            let outputs = layer.outputs.iter().copied().zip(answer.outputs.iter().copied());
            let bridges = slot_pairs(layer, answer)
                .into_iter()
                .filter(|pair| probe.judgement().pairing.output_of(pair.0) != Some(pair.1));
            for pair in bridges.chain(outputs).filter(|pair| wanted.contains(pair)) {
                if layer_of.insert(pair, layer.id).is_none() {
                    pairs_of[layer.id.0 as usize].push(pair);
                } else if layer.outputs.contains(&pair.0) {
                    // A tensor that several layers wrote: each of them is asked for it.
                    pairs_of[layer.id.0 as usize].push(pair);
                }
            }
        }
        // The last operator; a module only where none is recorded, and then the innermost.
        let mut writer_of: Vec<Option<LayerId>> = vec![None; golden.tensors.len()];
        for layer in &golden.layers {
            for id in &layer.outputs {
                let writer = &mut writer_of[id.0 as usize];
                if writer.is_none() || layer.kind == LayerKind::Operator {
                    *writer = Some(layer.id);
                }
            }
        }
        let of_bytes = probe.pairs().iter().map(|&pair| bytes(golden, candidate, pair)).sum();
        let loaded = Loaded { of_pairs: probe.pairs().len() as u64, of_bytes, ..Loaded::default() };
        Self { golden, candidate, probe, layer_of, pairs_of, writer_of, steps: Vec::new(), loaded }
    }

    /// The pairs of a whole comparison, in execution order.
    pub(super) fn all_pairs(&self) -> Vec<TensorPair> {
        self.probe.pairs().to_vec()
    }

    /// The pairs that belong to a golden layer.
    pub(super) fn pairs_of(&self, layer: LayerId) -> &[TensorPair] {
        self.pairs_of.get(layer.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The golden layer to which a pair belongs.
    pub(super) fn layer_of(&self, pair: TensorPair) -> Option<LayerId> {
        self.layer_of.get(&pair).copied()
    }

    /// The golden layer after which the tensor of a pair holds what was recorded.
    pub(super) fn writer_of(&self, pair: TensorPair) -> Option<LayerId> {
        self.writer_of.get(pair.0.0 as usize).copied().flatten()
    }

    /// The pair in which a golden tensor is an output.
    pub(super) fn output_pair(&self, tensor: TensorId) -> Option<TensorPair> {
        let pair = (tensor, self.judgement().pairing.output_of(tensor)?);
        self.layer_of.contains_key(&pair).then_some(pair)
    }

    /// The judgement of what was read so far.
    pub(super) fn judgement(&self) -> &Judgement {
        self.probe.judgement()
    }

    /// Whether a pair could be read and was not.
    pub(super) fn is_unread(&self, pair: TensorPair) -> bool {
        self.layer_of.contains_key(&pair) && !self.probe.has_read(pair)
    }

    /// Whether a pair was read and is out, by a layer that is judged.
    pub(super) fn is_out(&self, pair: TensorPair) -> bool {
        self.judgement().is_out(pair)
            && self.layer_of(pair).is_some_and(|id| self.judgement().layer(id).verdict != Verdict::Skipped)
    }

    /// Whether a pair was compared at all.
    pub(super) fn is_compared(&self, pair: TensorPair) -> bool {
        self.judgement().tensors.get(&pair).is_some_and(|tensor| tensor.verdict != Verdict::Skipped)
    }

    /// Layers that are out although nothing that was read of what came in is.
    pub(super) fn origins(&self) -> Vec<diagnose::Origin> {
        diagnose::origins(self.golden, self.candidate, self.judgement())
    }

    /// Reads those of `pairs` that were not read yet, in execution order, and books them.
    pub(super) fn read(&mut self, pairs: &[TensorPair], purpose: Purpose, reason: &str) -> Result<()> {
        let mut batch: BTreeMap<LayerId, Vec<(TensorPair, bool)>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for &pair in pairs {
            self.enlist(pair, false, &mut batch, &mut seen);
            // A choice is judged by what it chooses between, a random operator by whether its
            // inputs agree.
            let Some(id) = self.layer_of(pair) else { continue };
            if matches!(self.golden.layer(id).op.class(), Class::Selection | Class::Random) {
                for input in self.judgement().input_pairs(self.golden, self.candidate, id) {
                    self.enlist(input, true, &mut batch, &mut seen);
                }
            }
        }
        let new: Vec<TensorPair> = batch.values().flatten().map(|(pair, _)| *pair).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.probe.read(&new)?;
        for (id, pairs) in batch {
            self.book(id, &pairs, purpose, reason);
        }
        Ok(())
    }

    fn enlist(
        &self,
        pair: TensorPair,
        is_companion: bool,
        batch: &mut BTreeMap<LayerId, Vec<(TensorPair, bool)>>,
        seen: &mut HashSet<TensorPair>,
    ) {
        if self.is_unread(pair)
            && seen.insert(pair)
            && let Some(id) = self.layer_of(pair)
        {
            batch.entry(id).or_default().push((pair, is_companion));
        }
    }

    fn book(&mut self, id: LayerId, pairs: &[(TensorPair, bool)], purpose: Purpose, reason: &str) {
        let judgement = self.probe.judgement();
        let judged = |pair: TensorPair| judgement.tensors.get(&pair);
        let rank = |verdict: Verdict| if verdict == Verdict::Skipped { None } else { Some(verdict) };
        let worst = pairs
            .iter()
            .map(|(pair, _)| *pair)
            .min_by_key(|&pair| std::cmp::Reverse(judged(pair).and_then(|tensor| rank(tensor.verdict))));
        let layer = self.golden.layer(id);
        let excluded = judgement.layer(id).verdict == Verdict::Skipped;
        let verdict = match worst.and_then(judged) {
            Some(tensor) if !excluded => tensor.verdict,
            _ => Verdict::Skipped,
        };
        let measured = worst.and_then(|pair| judgement.measurements.get(pair)).and_then(Measured::metrics);
        let bytes = pairs.iter().map(|(pair, _)| bytes(self.golden, self.candidate, *pair)).sum();
        let reason = match pairs.iter().all(|(_, is_companion)| *is_companion) {
            true => "read by a choice or a random operator that was probed".to_string(),
            false => reason.to_string(),
        };
        let step = Step {
            layer: self.golden.display_name(id),
            candidate_layer: candidate_name(self.golden, self.candidate, judgement, id),
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            index: u64::from(id.0),
            purpose,
            pairs: pairs.len() as u64,
            bytes,
            verdict: verdict.as_str().into(),
            rel_l2: measured.and_then(|metrics| metrics.rel_l2()).filter(|value| value.is_finite()),
            limit: worst
                .and_then(judged)
                .and_then(|tensor| tensor.limits.get("rel_l2"))
                .map(|limit| limit.value)
                .filter(|value| value.is_finite()),
            reason,
        };
        self.loaded.pairs += step.pairs;
        self.loaded.bytes += step.bytes;
        if layer.op.is_source() {
            self.loaded.source_pairs += step.pairs;
        }
        self.steps.push(step);
    }

    /// An origin as reports name it.
    pub(super) fn describe(&self, origin: &diagnose::Origin) -> model::Origin {
        let (run, id, index) = match origin.site {
            Site::Layer(id) => (self.golden, id, Some(u64::from(id.0))),
            Site::Stretch { candidate: Some(id), .. } => (self.candidate, id, None),
            Site::Stretch { golden, before, .. } => (self.golden, golden.unwrap_or(before), None),
        };
        let layer = run.layer(id);
        model::Origin {
            layer: run.display_name(id),
            candidate_layer: index.and_then(|_| candidate_name(self.golden, self.candidate, self.judgement(), id)),
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            index,
            role: origin.role.as_str().into(),
            rel_l2: origin.error.filter(|value| value.is_finite()),
            rel_l2_in: origin.error_in.filter(|value| value.is_finite()),
            why: origin.why.clone(),
        }
    }

    /// The books.
    pub(super) fn close(self) -> (Vec<Step>, Loaded) {
        (self.steps, self.loaded)
    }
}

fn candidate_name(golden: &Run, candidate: &Run, judgement: &Judgement, id: LayerId) -> Option<String> {
    let partner = judgement.pairing.partner(id)?;
    let name = candidate.display_name(partner.layer);
    (name != golden.display_name(id)).then_some(name)
}

/// Bytes of both tensors of a pair, as far as they are stored.
fn bytes(golden: &Run, candidate: &Run, pair: TensorPair) -> u64 {
    let stored = |run: &Run, id: TensorId| run.tensor(id).stored.as_ref().map_or(0, |stored| stored.len);
    stored(golden, pair.0).saturating_add(stored(candidate, pair.1))
}
