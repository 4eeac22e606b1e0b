//! The verdict of the case, from the verdicts of its layers.

use std::collections::HashMap;

use super::{CaseVerdict, Judgement, LayerJudgement, TensorJudgement, Verdict};
use crate::op::Class;
use crate::pairing::TensorPair;
use crate::run::{LayerId, Run, TensorId};

#[expect(clippy::too_many_arguments, reason = "the facts that one verdict rests on")]
pub(super) fn case_verdict(
    golden: &Run,
    candidate: &Run,
    layers: &[LayerJudgement],
    differing: &[LayerId],
    uncompared_ends: &[TensorId],
    tensors: &HashMap<TensorPair, TensorJudgement>,
    extra_out: &[String],
    notes: &mut Vec<String>,
) -> (CaseVerdict, String) {
    let name = |id: LayerId| golden.display_name(id);
    let differs_in_seed =
        golden.meta.seed.is_some() && candidate.meta.seed.is_some() && golden.meta.seed != candidate.meta.seed;
    let differs_in_digest = golden.meta.inputs_digest.is_some()
        && candidate.meta.inputs_digest.is_some()
        && golden.meta.inputs_digest != candidate.meta.inputs_digest;
    let sources_compared = layers
        .iter()
        .any(|l| golden.layer(l.layer).op.is_source() && !matches!(l.verdict, Verdict::Missing | Verdict::Skipped));
    if sources_compared && differs_in_seed {
        notes.push(format!(
            "seeds differ ({:?} and {:?}), yet the recorded sources were compared",
            golden.meta.seed, candidate.meta.seed
        ));
    }
    if tensors.is_empty() {
        return (CaseVerdict::Incomparable, "no layer of the candidate answers a layer of the golden".into());
    }
    if !sources_compared && (differs_in_digest || differs_in_seed) {
        let what = if differs_in_digest { "inputs_digest" } else { "seed" };
        return (
            CaseVerdict::Incomparable,
            format!("{what} differs, and no source tensor was recorded in both runs that could show the inputs equal"),
        );
    }
    let first_out = layers.iter().find(|l| l.verdict.is_out() && !differing.contains(&l.layer));
    if let Some(&source) = differing.first() {
        let random_alone = differing.iter().all(|&id| golden.layer(id).op.class() == Class::Random);
        let worse_before = random_alone && first_out.is_some_and(|l| l.layer < source);
        if !worse_before {
            let why = format!("{}: {}", name(source), layers[source.0 as usize].why);
            return (CaseVerdict::Incomparable, why);
        }
    }
    let count = |wanted: &dyn Fn(Verdict) -> bool| layers.iter().filter(|l| wanted(l.verdict)).count();
    let nonfinite = count(&|v| v == Verdict::Nonfinite);
    let drift = count(&|v| matches!(v, Verdict::Drift | Verdict::Mismatch));
    if nonfinite > 0 {
        return (
            CaseVerdict::Nonfinite,
            format!("{nonfinite} layers hold NaN or Inf that the other run does not, {drift} drift"),
        );
    }
    if let (0, Some(first)) = (drift, extra_out.first()) {
        return (
            CaseVerdict::Drift,
            format!("{first}, which only the candidate has, does not compute what its inputs say"),
        );
    }
    if drift > 0 {
        return (CaseVerdict::Drift, format!("{drift} layers are beyond tolerance"));
    }
    if let Some(&end) = uncompared_ends.first() {
        let last = layers.iter().rev().find(|l| l.verdict == Verdict::Pass).map(|l| name(l.layer));
        let why = format!(
            "{} of the golden's final tensors were not compared ({} first); the last layer that was is {}",
            uncompared_ends.len(),
            golden.tensor(end).name,
            last.as_deref().unwrap_or("none")
        );
        return (CaseVerdict::Incomparable, why);
    }
    (
        CaseVerdict::Pass,
        format!("all {} layers that were compared are within tolerance", count(&|v| v == Verdict::Pass)),
    )
}

/// The verdict anew, after layers of `judgement` changed theirs. Its remarks were made the first time.
pub(super) fn judge_again(judgement: &mut Judgement, golden: &Run, candidate: &Run) {
    let extra: Vec<String> = judgement.replays.extra_out.iter().map(|&id| candidate.display_name(id)).collect();
    (judgement.verdict, judgement.why) = case_verdict(
        golden,
        candidate,
        &judgement.layers,
        &judgement.differing_sources,
        &judgement.uncompared_ends,
        &judgement.tensors,
        &extra,
        &mut Vec::new(),
    );
}
