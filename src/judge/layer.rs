//! The judgement of one layer: its outputs by the rules of its operator.

use std::collections::HashMap;

use super::measure::coarser;
use super::threshold::QUANTIZER_STEPS;
use super::valid::ValidPositions;
use super::{Budgets, LayerJudgement, Measured, Measurements, Noise, TensorJudgement, Verdict, index, limit, source};
use crate::case::Case;
use crate::error::Result;
use crate::op::Class;
use crate::pairing::{Pairing, TensorPair};
use crate::run::{LayerId, Run, TensorId};

pub(super) struct Judge<'a> {
    pub(super) golden: &'a Run,
    pub(super) candidate: &'a Run,
    pub(super) case: &'a Case,
    pub(super) pairing: &'a Pairing,
    pub(super) measurements: &'a Measurements,
    pub(super) budgets: &'a (Budgets, Budgets),
    pub(super) valid: &'a ValidPositions,
    pub(super) noise: Noise<'a>,
    pub(super) notes: Vec<String>,
}

impl Judge<'_> {
    pub(super) fn layer(
        &mut self,
        id: LayerId,
        tensors: &mut HashMap<TensorPair, TensorJudgement>,
    ) -> Result<LayerJudgement> {
        let layer = self.golden.layer(id);
        let mut judgement = LayerJudgement {
            layer: id,
            verdict: Verdict::Skipped,
            why: String::new(),
            outputs: Vec::new(),
            flipped: false,
        };
        let Some(partner) = self.pairing.partner(id) else {
            judgement.verdict = Verdict::Missing;
            judgement.why = "no candidate layer answers it".into();
            return Ok(judgement);
        };
        if layer.op.class() == Class::Uninitialised {
            judgement.why = format!("factory: {} leaves its content undefined", layer.op_name);
            return Ok(judgement);
        }
        let answer = self.candidate.layer(partner.layer);
        let name = self.golden.display_name(id);
        for (slot, (&g, &c)) in layer.outputs.iter().zip(&answer.outputs).enumerate() {
            if layer.op.is_private(slot) {
                continue;
            }
            let pair = (g, c);
            let mut tensor = self.tensor(&name, layer.op.name(), pair);
            match layer.op.class() {
                Class::Source => {
                    if let Some(measured) = self.measurements.get(pair) {
                        tensor = source::judge(measured);
                    }
                }
                Class::Selection => self.index(id, slot, pair, &mut tensor)?,
                Class::Quantizer => self.quantizer(pair, &mut tensor),
                _ => {}
            }
            tensors.insert(pair, tensor);
            judgement.outputs.push((slot, pair));
        }
        if layer.outputs.len() > answer.outputs.len() {
            self.notes.push(format!(
                "{name}: the candidate recorded {} of {} outputs",
                answer.outputs.len(),
                layer.outputs.len()
            ));
        }
        summarise(&mut judgement, tensors);
        if let Some(reason) = self.case.layers.decides(&name) {
            judgement.verdict = Verdict::Skipped;
            judgement.why = reason.to_string();
        }
        Ok(judgement)
    }

    pub(super) fn tensor(&self, layer: &str, op: &str, pair: TensorPair) -> TensorJudgement {
        let Some(measured) = self.measurements.get(pair) else {
            return TensorJudgement::new(Verdict::Skipped, "not measured");
        };
        let dtype = measured.metrics().map(|m| coarser(m.golden_dtype, m.candidate_dtype));
        let explicit = match dtype {
            Some(dtype) if !layer.is_empty() => self.case.tolerance.limits(layer, op, dtype),
            _ => Default::default(),
        };
        let noise = self.golden.tensor(pair.0).producer.and_then(|(layer, slot)| (self.noise)(layer, slot));
        let expected = limit::Expected { budget: (self.budgets.0.of(pair.0), self.budgets.1.of(pair.1)), noise };
        limit::judge(measured, &expected, &explicit)
    }

    /// An index output: ties are no difference.
    fn index(&mut self, id: LayerId, slot: usize, pair: TensorPair, tensor: &mut TensorJudgement) -> Result<()> {
        let layer = self.golden.layer(id);
        let Some((_, into)) = layer.op.index_output().filter(|(index_slot, _)| *index_slot == slot) else {
            return Ok(());
        };
        if tensor.verdict != Verdict::Drift {
            return Ok(());
        }
        let values = layer.inputs.first().copied();
        let partner_values =
            self.pairing.partner(id).and_then(|p| self.candidate.layer(p.layer).inputs.first().copied());
        let budget = values
            .map_or(0.0, |v| self.budgets.0.of(v).relative)
            .hypot(partner_values.map_or(0.0, |v| self.budgets.1.of(v).relative));
        let roundoff = |run: &Run, id: Option<TensorId>| {
            id.and_then(|id| run.dtype_and_shape(id)).and_then(|(d, _)| d.unit_roundoff()).unwrap_or(0.0)
        };
        let roundoff = roundoff(self.golden, values).max(roundoff(self.candidate, partner_values));
        let valid = self.valid.elements(self.golden, pair.0);
        let within = index::Within { roundoff, budget, valid: valid.as_deref() };
        let Some(ties) = index::ties(self.golden, self.candidate, layer, pair, into, &within)? else {
            tensor.why.push_str("; the values chosen between were not recorded");
            return Ok(());
        };
        let name = self.golden.display_name(id);
        if ties.apart == 0 {
            tensor.verdict = Verdict::Pass;
            tensor.excess = Some(0.0);
            tensor.near_ties = ties.near;
            tensor.why = if ties.near == 0 {
                format!("{} indices differ, all where the golden's values tie exactly", ties.differing)
            } else {
                format!(
                    "near-ties: {} of {} differing indices choose between values closer than the dtype resolves",
                    ties.near, ties.differing
                )
            };
            self.notes.push(format!("{name}: {}", tensor.why));
        } else {
            tensor.why = format!(
                "{} indices differ: {} tie exactly, {} nearly, {} choose values that are apart",
                ties.differing, ties.exact, ties.near, ties.apart
            );
        }
        Ok(())
    }

    fn quantizer(&mut self, pair: TensorPair, tensor: &mut TensorJudgement) {
        let Some(metrics) = self.measurements.get(pair).and_then(Measured::metrics) else { return };
        if tensor.verdict == Verdict::Drift && metrics.max_abs <= QUANTIZER_STEPS && metrics.max_ulp.is_none() {
            tensor.verdict = Verdict::Pass;
            tensor.excess = Some(0.0);
            tensor.why = format!("{} elements are one quantisation step apart", metrics.unequal());
        }
    }
}

pub(super) fn summarise(judgement: &mut LayerJudgement, tensors: &HashMap<TensorPair, TensorJudgement>) {
    let judged = judgement.outputs.iter().filter_map(|(slot, pair)| Some((*slot, tensors.get(pair)?)));
    // `Skipped` ranks above `Pass`, yet a layer with one compared output was compared.
    let rank = |verdict: Verdict| if verdict == Verdict::Skipped { None } else { Some(verdict) };
    // The first output among equals: reports read from the left.
    if let Some((_, worst)) = judged.min_by_key(|(slot, t)| (std::cmp::Reverse(rank(t.verdict)), *slot)) {
        judgement.verdict = worst.verdict;
        judgement.why.clone_from(&worst.why);
    } else {
        judgement.why = "nothing of it is compared".into();
    }
}
