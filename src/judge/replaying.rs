//! Replay on both sides, and what it changes in the verdicts.
//!
//! The candidate's layers are replayed from the candidate's own inputs. Where one made an error of its
//! own, or its outputs are out, the golden's layer is replayed as well: the same operator that
//! misses its own reference in both runs is modelled wrongly, not broken, and says nothing.

use std::sync::Arc;

use ndarray::ArrayD;
use rayon::prelude::*;

use super::introduced::{OwnError, ReplayMode, Replayed, replay_layer};
use super::layer::summarise;
use super::peers;
use super::threshold::{BOTH_SIDES, ROWS_DIFFERING};
use super::valid::ValidPositions;
use super::verdict::judge_again;
use super::{Judgement, TensorJudgement, Verdict};
use crate::case::{Case, Metric};
use crate::error::Result;
use crate::op::{Autocast, Class};
use crate::run::{LayerId, Run};
use crate::tensor::DType;

/// What replay found on both sides.
#[derive(Debug, Default)]
pub struct Replays {
    /// By candidate layer id; empty where nothing was replayed.
    candidate: Vec<Option<Replayed>>,
    /// By golden layer id; only where the candidate's answer asked for it.
    golden: Vec<Option<Replayed>>,
    /// Candidate layers without partner that made an error of their own.
    pub extra_out: Vec<LayerId>,
}

impl Replays {
    /// What replay of a candidate layer gave.
    pub fn candidate(&self, id: LayerId) -> Option<&Replayed> {
        self.candidate.get(id.0 as usize)?.as_ref()
    }

    /// What replay of a golden layer gave, where it was asked for.
    pub fn golden(&self, id: LayerId) -> Option<&Replayed> {
        self.golden.get(id.0 as usize)?.as_ref()
    }

    /// The own error of one output of a candidate layer.
    pub(super) fn own_error_mut(&mut self, id: LayerId, slot: usize) -> Option<&mut OwnError> {
        match self.candidate.get_mut(id.0 as usize)?.as_mut()? {
            Replayed::Done(outputs) => outputs.get_mut(slot)?.as_mut(),
            _ => None,
        }
    }

    /// Candidate layers that were replayed, and those that are not modelled.
    pub fn counts(&self) -> (u64, u64) {
        let count =
            |wanted: &dyn Fn(&Replayed) -> bool| self.candidate.iter().flatten().filter(|r| wanted(r)).count() as u64;
        (count(&|r| matches!(r, Replayed::Done(_))), count(&|r| matches!(r, Replayed::Unmodelled(_))))
    }
}

/// Replays and adds to the judgement what it says.
pub(super) fn settle(
    judgement: &mut Judgement,
    golden: &Run,
    candidate: &Run,
    case: &Case,
    mode: ReplayMode,
    valid: &ValidPositions,
) -> Result<()> {
    if mode == ReplayMode::Never {
        return Ok(());
    }
    let of_golden = |id: LayerId, slot: usize| valid.elements(golden, *golden.layer(id).outputs.get(slot)?);
    let pairing = judgement.pairing.clone();
    let of_candidate = |id: LayerId, slot: usize| of_golden(pairing.golden_of(id)?, slot);
    // The rows on which the two runs differ most, the same for both sides.
    let differing = |pair: Option<(LayerId, LayerId)>| {
        pair.and_then(|(g, c)| differing_rows(golden, candidate, g, c).ok().flatten()).unwrap_or_default()
    };
    let differing_golden = |id: LayerId| differing(pairing.partner(id).map(|partner| (id, partner.layer)));
    let differing_candidate = |id: LayerId| differing(pairing.golden_of(id).map(|golden| (golden, id)));
    let mut replays = Replays {
        candidate: all(candidate, &|_| true, mode, false, &of_candidate, &differing_candidate)?,
        golden: Vec::new(),
        extra_out: Vec::new(),
    };
    let policy = |layer: LayerId| follows_policy(candidate, case, layer);
    for (layer, replayed) in candidate.layers.iter().zip(&mut replays.candidate) {
        if let Some(Replayed::Done(outputs)) = replayed
            && let Some(declared) = policy(layer.id)
        {
            // Above autocast a dump holds fp32 operands of an operator that ran in 16 bit.
            for error in outputs
                .iter_mut()
                .flatten()
                .filter(|error| error.explained_by.is_some_and(|(format, _)| format == declared.name()))
            {
                error.is_out = false;
            }
        }
    }
    let asks = |id: LayerId| {
        let partner = judgement.pairing.partner(id);
        partner.is_some_and(|p| {
            judgement.layer(id).verdict.is_out()
                || replays.candidate[p.layer.0 as usize].as_ref().is_some_and(Replayed::is_out)
        })
    };
    replays.golden = all(golden, &asks, mode, true, &of_golden, &differing_golden)?;
    // Exact results of the candidate, where both sides are to be held against each other.
    let asked: Vec<bool> =
        candidate.layers.iter().map(|l| judgement.pairing.golden_of(l.id).is_some_and(asks)).collect();
    let kept = all(candidate, &|id| asked[id.0 as usize], mode, true, &of_candidate, &differing_candidate)?;
    for (known, kept) in replays.candidate.iter_mut().zip(kept) {
        if let (Some(Replayed::Done(known)), Some(Replayed::Done(kept))) = (known, kept) {
            for (known, kept) in known.iter_mut().flatten().zip(kept.into_iter().flatten()) {
                known.exact = kept.exact;
            }
        }
    }
    let counts = |id: LayerId| {
        let own = replays_of(&replays.candidate, id);
        let theirs = judgement.pairing.golden_of(id).and_then(|golden| replays_of(&replays.golden, golden));
        !misses_on_both_sides(own, theirs)
    };
    let counted: Vec<bool> = candidate.layers.iter().map(|layer| counts(layer.id)).collect();
    let in_total = |id: LayerId| {
        judgement.pairing.golden_of(id).is_some_and(|golden| judgement.layer(golden).verdict == Verdict::Pass)
    };
    let mut notes = peers::settle(candidate, &mut replays, &|id| counted[id.0 as usize], &in_total);
    judgement.notes.append(&mut notes);
    for layer in &golden.layers {
        let Some(partner) = judgement.pairing.partner(layer.id) else { continue };
        let own = replays.candidate[partner.layer.0 as usize].as_ref();
        let theirs = replays.golden[layer.id.0 as usize].as_ref();
        if !own.is_some_and(Replayed::is_out) {
            continue;
        }
        if misses_on_both_sides(own, theirs) {
            let reason =
                format!("{} misses its reference in both runs alike: its arguments are not fully known", layer.op_name);
            replays.candidate[partner.layer.0 as usize] = Some(Replayed::Unmodelled(reason.clone()));
            replays.golden[layer.id.0 as usize] = Some(Replayed::Unmodelled(reason));
            continue;
        }
        escalate(judgement, golden, case, layer.id, own);
    }
    for layer in &candidate.layers {
        let unpaired = judgement.pairing.golden_of(layer.id).is_none();
        let excluded = case.layers.decides(&candidate.display_name(layer.id)).is_some();
        if unpaired && !excluded && replays.candidate[layer.id.0 as usize].as_ref().is_some_and(Replayed::is_out) {
            replays.extra_out.push(layer.id);
        }
    }
    judgement.replays = replays;
    judge_again(judgement, golden, candidate);
    Ok(())
}

fn replays_of(replays: &[Option<Replayed>], id: LayerId) -> Option<&Replayed> {
    replays.get(id.0 as usize)?.as_ref()
}

fn all(
    run: &Run,
    wanted: &(dyn Fn(LayerId) -> bool + Sync),
    mode: ReplayMode,
    keep: bool,
    valid: &(dyn Fn(LayerId, usize) -> Option<Vec<bool>> + Sync),
    differing: &(dyn Fn(LayerId) -> Vec<usize> + Sync),
) -> Result<Vec<Option<Replayed>>> {
    run.layers
        .par_iter()
        .map(|layer| {
            if wanted(layer.id) {
                replay_layer(run, layer.id, mode, keep, &|id, slot| valid(id, slot), &|id| differing(id)).map(Some)
            } else {
                Ok(None)
            }
        })
        .collect()
}

/// The rows (all axes but the last, flattened) of the first outputs of two layers that differ most, the
/// most differing first; `None` where the outputs cannot be held against each other.
fn differing_rows(golden: &Run, candidate: &Run, g: LayerId, c: LayerId) -> Result<Option<Vec<usize>>> {
    let first = |run: &Run, id: LayerId| match run.layer(id).outputs.first() {
        Some(&output) => run.load(output),
        None => Ok(None),
    };
    let (Some(a), Some(b)) = (first(golden, g)?, first(candidate, c)?) else { return Ok(None) };
    let width = a.shape().last().copied().unwrap_or(0);
    if a.shape() != b.shape()
        || width == 0
        || a.dtype().components() != 1
        || !a.dtype().decodes()
        || !b.dtype().decodes()
    {
        return Ok(None);
    }
    let (mut x, mut y) = (vec![0.0; width], vec![0.0; width]);
    let mut rows = Vec::with_capacity(a.len() / width);
    for row in 0..a.len() / width {
        a.dtype().decode_into(a.bytes(), row * width, &mut x);
        b.dtype().decode_into(b.bytes(), row * width, &mut y);
        let difference: f64 = x.iter().zip(&y).map(|(x, y)| (x - y) * (x - y)).sum();
        // What is not finite on one side alone differs more than anything else.
        rows.push((if difference.is_nan() { f64::INFINITY } else { difference }, row));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    Ok(Some(rows.into_iter().take(ROWS_DIFFERING).map(|(_, row)| row).collect()))
}

/// The dtype that autocast makes the operator compute in, where the run declares one.
fn follows_policy(run: &Run, case: &Case, id: LayerId) -> Option<DType> {
    let layer = run.layer(id);
    let lowered = run.meta.autocast == Some(true)
        && layer.op.autocast() == Autocast::Lower
        && layer.op.class() == Class::Contraction;
    layer.compute.or_else(|| if lowered { case.precision.or(run.meta.compute) } else { None })
}

/// Both sides miss the reference by about the same multiple: then the reference is at fault.
fn misses_on_both_sides(own: Option<&Replayed>, theirs: Option<&Replayed>) -> bool {
    let (Some(own), Some(theirs)) = (own.and_then(Replayed::worst), theirs.and_then(Replayed::worst)) else {
        return false;
    };
    if !theirs.is_out {
        return false;
    }
    match (own.relative, theirs.relative) {
        (Some(a), Some(b)) => b * BOTH_SIDES >= a,
        _ => theirs.excess * BOTH_SIDES >= own.excess,
    }
}

/// A layer whose own error is beyond the limits drifts, however small it looks beside the rest.
fn escalate(judgement: &mut Judgement, golden: &Run, case: &Case, id: LayerId, own: Option<&Replayed>) {
    let Some(Replayed::Done(outputs)) = own else { return };
    let layer = golden.layer(id);
    let known = &judgement.layers[id.0 as usize];
    // What the case excludes or the dump spoilt is not judged by replay either.
    if known.verdict == Verdict::Skipped {
        return;
    }
    let name = golden.display_name(id);
    let slots = known.outputs.clone();
    for (slot, pair) in slots {
        let Some(error) = outputs.get(slot).and_then(Option::as_ref).filter(|error| error.is_out) else { continue };
        let dtype = golden.dtype_and_shape(pair.0).map(|(dtype, _)| dtype);
        let explicit = dtype.map(|dtype| case.tolerance.limits(&name, layer.op.name(), dtype)).unwrap_or_default();
        // The user's own limit on the error stands instead of ours.
        if explicit.get(Metric::RelL2).is_some() {
            continue;
        }
        if let Some(tensor) = judgement.tensors.get_mut(&pair) {
            raise(tensor, error);
        }
    }
    let layer = &mut judgement.layers[id.0 as usize];
    summarise(layer, &judgement.tensors);
}

fn raise(tensor: &mut TensorJudgement, error: &OwnError) {
    if tensor.verdict == Verdict::Pass {
        tensor.verdict = Verdict::Drift;
        tensor.why = format!("introduced here: {}", error.why);
    }
}

/// rel_l2 between the exact results of both sides: what the inputs' difference makes of the output.
pub fn propagated(golden: &OwnError, candidate: &OwnError) -> Option<f64> {
    let (a, b): (&Arc<ArrayD<f64>>, _) = (golden.exact.as_ref()?, candidate.exact.as_ref()?);
    if a.shape() != b.shape() {
        return None;
    }
    let (mut error, mut norm) = (0.0, 0.0);
    for (&a, &b) in a.iter().zip(b.iter()).filter(|(a, b)| a.is_finite() && b.is_finite()) {
        error += (a - b) * (a - b);
        norm += a * a;
    }
    if error == 0.0 { Some(0.0) } else { (norm > 0.0).then(|| (error / norm).sqrt()).filter(|r| r.is_finite()) }
}
