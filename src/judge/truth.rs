//! A third run of higher precision: who of golden and candidate is nearer to it.
//!
//! In goes a judgement of two runs and a [`Truth`]; out comes the judgement with what the truth says
//! (rho per output, the layers where rho jumps) and the verdicts that this changes: a layer further
//! from the truth than its limit drifts, one that drifts from the golden but is the better of the two
//! does not. A truth that is one of the two runs, or was given other sources, changes nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::limit::{Limit, figure};
use super::measure::{Measured, OnGolden};
use super::ratio::{NoRho, Ratios, ratios};
use super::replaying::Replays;
use super::threshold::{Level, TRUTH_BETTER, TRUTH_JUMP, TRUTH_RHO, vendor_tolerance};
use super::valid::ValidPositions;
use super::verdict::judge_again;
use super::{Judgement, Replayed, Verdict, coarser, layer::summarise, source};
use crate::case::{Case, Metric};
use crate::compare;
use crate::error::Result;
use crate::op::Class;
use crate::pairing::{self, Pairing, TensorPair};
use crate::run::{Layer, LayerId, Run, TensorId};
use crate::tensor::{DType, Kind, Tensor};

/// The third run.
#[derive(Clone, Copy)]
pub struct Truth<'a> {
    /// It.
    pub run: &'a Run,
    /// Called with each of its tensors as it is read.
    pub on_tensor: OnGolden<'a>,
    /// Limits of the dual-benchmark comparison instead of the limit on rho.
    pub level: Option<Level>,
}

/// What the truth says.
#[derive(Debug, Clone, Default)]
pub struct TruthFindings {
    /// Where the third run was read from.
    pub path: PathBuf,
    /// The level that was asked for.
    pub level: Option<Level>,
    /// Why the truth says nothing at all.
    pub unusable: Option<String>,
    /// Layers with a rho where the candidate is the better one.
    pub better: Vec<LayerId>,
    /// Layers that are further from the truth than the limit allows.
    pub beyond: Vec<LayerId>,
    /// Layers that drift from the golden and pass, because the candidate is nearer to the truth.
    pub relieved: Vec<LayerId>,
    /// Floating-point outputs without rho, by reason.
    pub without: Vec<(&'static str, u64)>,
    tensors: HashMap<TensorPair, std::result::Result<Ratios, NoRho>>,
    /// rho of a layer, and how much larger it is than that of its inputs; by golden layer id.
    layers: Vec<Option<(f64, f64)>>,
}

impl TruthFindings {
    /// The ratios of an output pair, or why there are none; `None` where nothing asked for them.
    pub fn of(&self, pair: TensorPair) -> Option<std::result::Result<Ratios, NoRho>> {
        self.tensors.get(&pair).copied()
    }

    /// The largest rho among the outputs of a layer.
    pub fn rho(&self, id: LayerId) -> Option<f64> {
        self.layers.get(id.0 as usize).copied().flatten().map(|(rho, _)| rho)
    }

    /// The jump of rho over max(1, rho of the inputs), where it marks an origin.
    pub fn jump(&self, id: LayerId) -> Option<f64> {
        self.layers.get(id.0 as usize).copied().flatten().map(|(_, jump)| jump).filter(|&jump| jump > TRUTH_JUMP)
    }

    /// Number of layers with a rho, and the one with the largest (the first among equals).
    pub fn largest(&self) -> (u64, Option<(LayerId, f64)>) {
        let mut largest: Option<(LayerId, f64)> = None;
        let mut count = 0;
        for (at, (rho, _)) in self.layers.iter().enumerate().filter_map(|(at, rho)| Some((at, (*rho)?))) {
            count += 1;
            if largest.is_none_or(|(_, best)| rho > best) {
                largest = Some((LayerId(at as u32), rho));
            }
        }
        (count, largest)
    }
}

/// Adds to the judgement what the truth says.
///
/// # Errors
/// A tensor that cannot be read, or that `truth.on_tensor` refuses.
pub(super) fn settle(
    judgement: &mut Judgement,
    golden: &Run,
    candidate: &Run,
    case: &Case,
    truth: Truth<'_>,
    valid: &ValidPositions,
) -> Result<()> {
    let nothing = || TruthFindings { path: truth.run.path.clone(), level: truth.level, ..Default::default() };
    let unusable = |why: String| TruthFindings { unusable: Some(why), ..nothing() };
    for (run, which) in [(golden, "golden"), (candidate, "candidate")] {
        if is_same_place(&run.path, &truth.run.path) {
            judgement.truth = Some(unusable(format!("the truth is the {which} itself")));
            return Ok(());
        }
    }
    let rename = |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
    let of_truth = pairing::pair(golden, truth.run, &rename)?;
    let third = Third { golden, candidate, truth, pairing: &of_truth, valid };
    let seen: Vec<Vec<(TensorPair, Seen)>> =
        judgement.layers.par_iter().map(|judged| third.layer(judged)).collect::<Result<_>>()?;
    if let Some(why) = third.unusable(&seen) {
        judgement.truth = Some(unusable(why));
        return Ok(());
    }
    let mut findings = follow(golden, judgement, &seen, nothing());
    change_verdicts(judgement, &mut findings, golden, case);
    judgement.truth = Some(findings);
    judge_again(judgement, golden, candidate);
    Ok(())
}

fn is_same_place(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// What the three runs say of one output.
#[derive(Debug, Clone)]
enum Seen {
    /// Floating point: the ratios, and whether the truth's bytes are the golden's and the candidate's.
    Float { ratios: std::result::Result<Ratios, NoRho>, same: [bool; 2] },
    /// Integers or truth values; whether they differ anywhere.
    Discrete { differs: bool },
    /// A source, and what is wrong where the truth was given another one.
    Source(Option<String>),
    /// Not in all three runs.
    Absent,
}

struct Third<'a> {
    golden: &'a Run,
    candidate: &'a Run,
    truth: Truth<'a>,
    pairing: &'a Pairing,
    valid: &'a ValidPositions,
}

impl Third<'_> {
    fn layer(&self, judged: &super::LayerJudgement) -> Result<Vec<(TensorPair, Seen)>> {
        let layer = self.golden.layer(judged.layer);
        judged.outputs.iter().map(|&(_, pair)| Ok((pair, self.output(layer, pair)?))).collect()
    }

    fn output(&self, layer: &Layer, pair: TensorPair) -> Result<Seen> {
        let Some(id) = self.pairing.output_of(pair.0) else { return Ok(Seen::Absent) };
        let Some(truth) = self.truth.run.load(id)? else { return Ok(Seen::Absent) };
        (self.truth.on_tensor)(id, &truth)?;
        let (Some(golden), Some(candidate)) = (self.golden.load(pair.0)?, self.candidate.load(pair.1)?) else {
            return Ok(Seen::Absent);
        };
        // At a later step a parameter is what the steps before made of it.
        let is_trained = layer.op.name() == "param" && self.golden.meta.step.is_some_and(|step| step > 0);
        if layer.op.is_source() {
            return Ok(Seen::Source(if is_trained { None } else { other_source(&truth, &golden) }));
        }
        let same = |tensor: &Tensor| tensor.dtype() == truth.dtype() && tensor.bytes() == truth.bytes();
        if golden.dtype().kind() != Kind::Float {
            // One step of a quantizer is rounding, no other way taken.
            let differs = layer.op.class() != Class::Quantizer && !(same(&golden) && same(&candidate));
            return Ok(Seen::Discrete { differs });
        }
        let valid = self.valid.elements(self.golden, pair.0);
        let ratios = ratios(&truth, &golden, &candidate, valid.as_deref());
        Ok(Seen::Float { ratios, same: [same(&golden), same(&candidate)] })
    }

    /// Why the truth cannot tell the two runs apart.
    fn unusable(&self, seen: &[Vec<(TensorPair, Seen)>]) -> Option<String> {
        for (at, outputs) in seen.iter().enumerate() {
            for (_, seen) in outputs {
                if let Seen::Source(Some(why)) = seen {
                    let name = self.golden.display_name(LayerId(at as u32));
                    return Some(format!("the truth was given another {name} than the golden: {why}"));
                }
            }
        }
        let floats = || {
            seen.iter().flatten().filter_map(|(_, seen)| match seen {
                Seen::Float { same, .. } => Some(*same),
                _ => None,
            })
        };
        if floats().next().is_none() {
            return Some("no layer of the truth answers one that golden and candidate share".into());
        }
        for (side, which) in ["golden", "candidate"].into_iter().enumerate() {
            if floats().all(|same| same.get(side).copied().unwrap_or(false)) {
                return Some(format!("the truth is the {which} itself: all its tensors are equal"));
            }
        }
        None
    }
}

fn other_source(truth: &Tensor, golden: &Tensor) -> Option<String> {
    let tolerance = Some(vendor_tolerance(coarser(truth.dtype(), golden.dtype())));
    let options = compare::Options { valid: None, tolerance };
    let judged = source::judge(&Measured::Tensors(compare::compare(truth, golden, &options)));
    judged.verdict.is_out().then_some(judged.why)
}

/// Walks the golden's data flow: what follows a discrete divergence has no rho, and a layer's rho is
/// held against that of what it reads.
fn follow(
    golden: &Run,
    judgement: &Judgement,
    seen: &[Vec<(TensorPair, Seen)>],
    mut findings: TruthFindings,
) -> TruthFindings {
    let mut diverged = vec![false; golden.tensors.len()];
    // The rho that came into a tensor, looked up through those that have none.
    let mut carried = vec![0.0f64; golden.tensors.len()];
    findings.layers = vec![None; golden.layers.len()];
    let mut without: Vec<(&'static str, u64)> = Vec::new();
    for (layer, outputs) in golden.layers.iter().zip(seen) {
        let follows = layer.inputs.iter().any(|id| flag(&diverged, *id));
        let came_in = layer.inputs.iter().map(|id| carried.get(id.0 as usize).copied().unwrap_or(0.0));
        let came_in = came_in.fold(0.0, f64::max);
        let judged = judgement.layer(layer.id);
        let splits = judged.flipped
            || judgement.differing_sources.contains(&layer.id)
            || outputs.iter().any(|(_, seen)| matches!(seen, Seen::Discrete { differs: true }));
        let mut largest: Option<f64> = None;
        for (pair, seen) in outputs {
            let ratios = match seen {
                Seen::Source(_) | Seen::Discrete { .. } => continue,
                Seen::Absent => Err(NoRho::Absent),
                Seen::Float { .. } if follows => Err(NoRho::Diverged),
                Seen::Float { ratios, .. } => *ratios,
            };
            match ratios {
                Ok(ratios) => largest = Some(largest.map_or(ratios.rho, |rho| rho.max(ratios.rho))),
                Err(none) => match without.iter_mut().find(|(kind, _)| *kind == none.kind()) {
                    Some((_, count)) => *count += 1,
                    None => without.push((none.kind(), 1)),
                },
            }
            findings.tensors.insert(*pair, ratios);
        }
        findings.layers[layer.id.0 as usize] = largest.map(|rho| (rho, rho / came_in.max(1.0)));
        for id in &layer.outputs {
            let at = id.0 as usize;
            if let (Some(diverged), Some(carried)) = (diverged.get_mut(at), carried.get_mut(at)) {
                *diverged = follows || splits;
                *carried = largest.unwrap_or(came_in);
            }
        }
    }
    without.sort_unstable();
    findings.without = without;
    findings
}

fn flag(flags: &[bool], id: TensorId) -> bool {
    flags.get(id.0 as usize).copied().unwrap_or(false)
}

/// A limit on one ratio, by the name that reports use.
type RatioLimit = (&'static str, f64);

fn limits(level: Option<Level>) -> Vec<RatioLimit> {
    match level {
        None => vec![("rho", TRUTH_RHO)],
        Some(level) => {
            let [max, mean, rmse] = level.ratios();
            vec![("max_ratio", max), ("mean_ratio", mean), ("rmse_ratio", rmse)]
        }
    }
}

/// A ratio by the name that limits and reports use.
pub fn ratio_of(ratios: &Ratios, name: &str) -> Option<f64> {
    match name {
        "rho" | "rmse_ratio" => Some(ratios.rho),
        "max_ratio" => ratios.max,
        "mean_ratio" => ratios.mean,
        _ => None,
    }
}

fn change_verdicts(judgement: &mut Judgement, findings: &mut TruthFindings, golden: &Run, case: &Case) {
    let limits = limits(findings.level);
    let [most, ..] = findings.level.unwrap_or(Level::L0).ratios();
    // Tensors in whose past the candidate was the better one.
    let mut after_better = vec![false; golden.tensors.len()];
    for layer in &golden.layers {
        let follows = layer.inputs.iter().any(|id| flag(&after_better, *id));
        let at = layer.id.0 as usize;
        let verdict = judgement.layers[at].verdict;
        let (mut better, mut beyond, mut relieved) = (false, false, false);
        let outputs = judgement.layers[at].outputs.clone();
        for (slot, pair) in outputs {
            let Some(Ok(ratios)) = findings.of(pair) else { continue };
            let (left, right) = (judgement.budgets.0.of(pair.0), judgement.budgets.1.of(pair.1));
            // A candidate of coarser dtype is further off by that alone: shown, not judged.
            let is_fair = right.roundoff <= left.roundoff;
            let is_explicit =
                golden.dtype_and_shape(pair.0).is_some_and(|(dtype, _)| explicit(golden, case, layer, dtype));
            let breaks_replay = is_out_by_replay(&judgement.replays, &judgement.pairing, layer.id, slot);
            let Some(tensor) = judgement.tensors.get_mut(&pair) else { continue };
            let broken = limits.iter().find_map(|&(name, limit)| {
                let value = ratio_of(&ratios, name)?;
                (value > limit).then(|| format!("{name} {} is above {}", figure(value), figure(limit)))
            });
            if is_fair {
                let why = match findings.level {
                    None => {
                        "the candidate's error against the truth over the golden's, both floored at 0.42 u".to_string()
                    }
                    Some(level) => format!("level {} of the dual-benchmark comparison", level.as_str()),
                };
                let named = limits.iter().map(|&(name, value)| (name, Limit { value, why: why.clone() }));
                tensor.limits.extend(named);
            }
            let numbers = format!(
                "against the truth rel_l2 is {} in the candidate and {} in the golden",
                figure(ratios.candidate),
                figure(ratios.golden)
            );
            // Few large errors hide in a norm: who makes such is not the better one.
            let is_better = ratios.rho < TRUTH_BETTER && ratios.max.is_none_or(|max| max <= most);
            let is_judged = matches!(verdict, Verdict::Pass | Verdict::Drift);
            better |= is_better;
            if is_better && is_judged {
                if tensor.verdict == Verdict::Drift {
                    relieved = true;
                    tensor.verdict = Verdict::Pass;
                    tensor.why =
                        format!("the candidate is the better one: {numbers} (beside the golden: {})", tensor.why);
                } else {
                    tensor.why = format!("{}; the candidate is the better one: {numbers}", tensor.why);
                }
            } else if tensor.verdict == Verdict::Drift && is_judged && follows && broken.is_none() && !breaks_replay {
                relieved = true;
                tensor.verdict = Verdict::Pass;
                tensor.why = format!(
                    "no further from the truth than the golden, whose own error stands before it: {numbers} (beside the golden: {})",
                    tensor.why
                );
            } else if let Some(broken) = broken.filter(|_| is_fair && is_judged && !is_explicit) {
                beyond = true;
                if tensor.verdict == Verdict::Pass {
                    tensor.verdict = Verdict::Drift;
                    tensor.why = format!("{broken}: {numbers}");
                } else {
                    tensor.why = format!("{}; {broken}: {numbers}", tensor.why);
                }
            }
        }
        for id in &layer.outputs {
            if let Some(after) = after_better.get_mut(id.0 as usize) {
                *after = follows || better;
            }
        }
        if matches!(verdict, Verdict::Pass | Verdict::Drift) && (better || beyond || relieved) {
            summarise(&mut judgement.layers[at], &judgement.tensors);
        }
        for (holds, list) in
            [(better, &mut findings.better), (beyond, &mut findings.beyond), (relieved, &mut findings.relieved)]
        {
            if holds {
                list.push(layer.id);
            }
        }
    }
}

/// Whether the user set a limit on the error of this layer, which then stands instead of ours.
fn explicit(golden: &Run, case: &Case, layer: &Layer, dtype: DType) -> bool {
    case.tolerance.limits(&golden.display_name(layer.id), layer.op.name(), dtype).get(Metric::RelL2).is_some()
}

fn is_out_by_replay(replays: &Replays, pairing: &Pairing, id: LayerId, slot: usize) -> bool {
    let own = pairing.partner(id).and_then(|partner| replays.candidate(partner.layer));
    match own {
        Some(Replayed::Done(outputs)) => outputs.get(slot).and_then(Option::as_ref).is_some_and(|error| error.is_out),
        _ => false,
    }
}
