//! What only the whole run can settle: flips that matter, overwritten records, differing sources, ends.

use std::collections::{HashMap, HashSet};

use super::layer::{Judge, summarise};
use super::{LayerJudgement, Measured, TensorJudgement, Verdict, alias};
use crate::error::Result;
use crate::op::Class;
use crate::pairing::{TensorPair, slot_pairs};
use crate::run::{LayerId, Run, TensorId};

impl Judge<'_> {
    /// An index that flipped near a tie is a drift where a consumer of the index is out.
    pub(super) fn settle_indices(
        &mut self,
        layers: &mut [LayerJudgement],
        tensors: &mut HashMap<TensorPair, TensorJudgement>,
    ) {
        for at in 0..layers.len() {
            let flips: Vec<TensorPair> = layers[at]
                .outputs
                .iter()
                .map(|(_, pair)| *pair)
                .filter(|pair| tensors.get(pair).is_some_and(|t| t.near_ties > 0))
                .collect();
            for pair in flips {
                let consumer = self
                    .golden
                    .tensor(pair.0)
                    .consumers
                    .iter()
                    .map(|(id, _)| *id)
                    .find(|id| layers[id.0 as usize].verdict.is_out());
                let Some(consumer) = consumer else { continue };
                let name = self.golden.display_name(consumer);
                if let Some(tensor) = tensors.get_mut(&pair) {
                    tensor.verdict = Verdict::Drift;
                    tensor.why = format!("{}; its consumer {name} is out", tensor.why);
                }
                layers[at].flipped = true;
                summarise(&mut layers[at], tensors);
            }
        }
    }

    pub(super) fn settle_aliases(
        &mut self,
        layers: &mut [LayerJudgement],
        tensors: &mut HashMap<TensorPair, TensorJudgement>,
    ) -> Result<()> {
        let suspects: Vec<LayerId> = layers
            .iter()
            .filter(|l| matches!(l.verdict, Verdict::Drift | Verdict::Nonfinite))
            .map(|l| l.layer)
            .collect();
        for id in suspects {
            if self.golden.layer(id).op.is_source() {
                continue;
            }
            let agrees = |consumer: LayerId| layers[consumer.0 as usize].verdict == Verdict::Pass;
            let found =
                alias::overwriting_consumer(self.golden, self.candidate, self.pairing, self.measurements, id, &agrees)?;
            let Some((consumer, side)) = found else { continue };
            let (name, consumer) = (self.golden.display_name(id), self.golden.display_name(consumer));
            let judgement = &mut layers[id.0 as usize];
            judgement.verdict = Verdict::Skipped;
            judgement.why = format!(
                "aliasing: in the {side}, {consumer} overwrote what was recorded (bit-equal outputs), and everything after it agrees"
            );
            for (_, pair) in &judgement.outputs {
                if let Some(tensor) = tensors.get_mut(pair) {
                    tensor.verdict = Verdict::Skipped;
                    tensor.why.clone_from(&judgement.why);
                }
            }
            self.notes.push(format!(
                "{name}: suspected aliasing, recorded after the in-place operator {consumer} ran in the {side}"
            ));
        }
        Ok(())
    }

    /// Sources and random operators that differ; what depends on them is not judged.
    pub(super) fn settle_sources(
        &mut self,
        layers: &mut [LayerJudgement],
        tensors: &mut HashMap<TensorPair, TensorJudgement>,
    ) -> Result<Vec<LayerId>> {
        let later_step = self.golden.meta.step.is_some_and(|step| step > 0);
        let mut tainted: HashSet<TensorId> = HashSet::new();
        let mut differing = Vec::new();
        for layer in &self.golden.layers {
            let at = layer.id.0 as usize;
            let from_differing = layer.inputs.iter().any(|id| tainted.contains(id));
            let is_parameter = layer.op.name() == "param";
            let differs = matches!(layers[at].verdict, Verdict::Drift | Verdict::Mismatch)
                && match layer.op.class() {
                    Class::Source => !(later_step && is_parameter),
                    Class::Random => !self.has_input_out(layer.id, layers, tensors) && !self.hands_through(layer.id)?,
                    _ => false,
                };
            if differs && !from_differing {
                differing.push(layer.id);
                if layer.op.class() == Class::Random {
                    layers[at].why =
                        format!("{} draws at random and drew something else: {}", layer.op_name, layers[at].why);
                }
            } else if from_differing && layers[at].verdict.is_out() {
                layers[at].verdict = Verdict::Skipped;
                layers[at].why = "not judged: it depends on a source that differs".into();
            }
            if differs || from_differing {
                tainted.extend(&layer.outputs);
            }
        }
        Ok(differing)
    }

    /// Whether an operator that may draw at random drew nothing: on both sides its output is its
    /// input, bit for bit (dropout in evaluation).
    fn hands_through(&self, id: LayerId) -> Result<bool> {
        let Some(partner) = self.pairing.partner(id) else { return Ok(false) };
        let equal = |run: &Run, id: LayerId| -> Result<bool> {
            let layer = run.layer(id);
            let (Some(&input), Some(&output)) = (layer.inputs.first(), layer.outputs.first()) else { return Ok(false) };
            Ok(input == output
                || run
                    .load(input)?
                    .is_some_and(|read| run.load(output).is_ok_and(|wrote| wrote.as_ref() == Some(&read))))
        };
        Ok(equal(self.golden, id)? && equal(self.candidate, partner.layer)?)
    }

    fn has_input_out(
        &self,
        id: LayerId,
        layers: &[LayerJudgement],
        tensors: &HashMap<TensorPair, TensorJudgement>,
    ) -> bool {
        let layer = self.golden.layer(id);
        let producers = layer.inputs.iter().filter_map(|&input| self.golden.tensor(input).producer);
        let pairs =
            self.pairing.partner(id).map(|p| slot_pairs(layer, self.candidate.layer(p.layer))).unwrap_or_default();
        producers.into_iter().any(|(producer, _)| layers[producer.0 as usize].verdict.is_out())
            || pairs.iter().any(|pair| tensors.get(pair).is_some_and(|t| t.verdict.is_out()))
    }

    /// Outputs that no layer consumes and that were not compared. By-products, factories and what the
    /// case excludes do not count.
    pub(super) fn uncompared_ends(&self, layers: &[LayerJudgement]) -> Vec<TensorId> {
        let mut ends = Vec::new();
        for layer in &self.golden.layers {
            let excluded =
                matches!(layer.op.class(), Class::Source | Class::Factory | Class::Uninitialised | Class::Random)
                    || self.case.layers.decides(&self.golden.display_name(layer.id)).is_some();
            if excluded {
                continue;
            }
            for (slot, &output) in layer.outputs.iter().enumerate() {
                let is_end = self.golden.tensor(output).consumers.is_empty() && !layer.op.is_auxiliary(slot);
                if is_end && !self.is_compared(layers, layer.id, slot) && !self.moves_compared(layers, layer.id) {
                    ends.push(output);
                }
            }
        }
        ends
    }

    fn is_compared(&self, layers: &[LayerJudgement], id: LayerId, slot: usize) -> bool {
        layers[id.0 as usize]
            .outputs
            .iter()
            .any(|(s, pair)| *s == slot && !matches!(self.measurements.get(*pair), None | Some(Measured::NotStored(_))))
    }

    /// Whether a layer without partner only moves what was compared before it: a copy of a gradient
    /// into a buffer says nothing that the gradient does not.
    fn moves_compared(&self, layers: &[LayerJudgement], id: LayerId) -> bool {
        let mut known = HashSet::new();
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let layer = self.golden.layer(id);
            if !matches!(layer.op.class(), Class::Mover | Class::Cast) {
                return false;
            }
            // What a copy overwrites does not count.
            let source = layer.input("src").or(layer.inputs.last().copied().filter(|_| layer.op_name == "copy_"));
            let read = source.map_or_else(|| layer.inputs.clone(), |source| vec![source]);
            for (producer, slot) in read.iter().filter_map(|&input| self.golden.tensor(input).producer) {
                if !self.is_compared(layers, producer, slot) && known.insert(producer) {
                    pending.push(producer);
                }
            }
            if read.is_empty() {
                return false;
            }
        }
        true
    }
}
