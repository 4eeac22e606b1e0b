//! What to do about it: remedies, and the operators that evidence says must run in fp32.
//!
//! In go a judgement and its diagnosis, out comes [`Advice`]: remedies in the order in which they
//! apply, and a blacklist that is empty unless low precision is the cause. A difference of sources,
//! environment or formula never puts an operator on the list.

mod closure;
pub mod emit;
mod evidence;

pub use evidence::{Entry, Reason};

use crate::diagnose::{Cause, Diagnosis, In, Role, Site};
use crate::error::Result;
use crate::judge::{CaseVerdict, Judgement, Measured};
use crate::op::Class;
use crate::pairing::TensorPair;
use crate::run::{LayerId, Pass, Run};
use crate::tensor::DType;

/// What to do.
#[derive(Debug, Default)]
pub struct Advice {
    /// Operators that must run in fp32, those out of range first.
    pub blacklist: Vec<Entry>,
    /// Remedies, the most fitting first.
    pub remedies: Vec<Remedy>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// What, as reports print it.
    pub kind: RemedyKind,
    /// Names of the layers it concerns.
    pub layers: Vec<String>,
    /// Why, and how.
    pub why: String,
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemedyKind {
    /// Give both runs the same inputs and parameters.
    AlignSources,
    /// Record the candidate to its end.
    CompleteRun,
    /// Make a switch of framework or device equal.
    AlignEnvironment,
    /// Correct an operator that computes something else.
    FixDefect,
    /// Scale the loss so that gradients fit.
    LossScale,
    /// Use an eps that the dtype can hold.
    Eps,
    /// Keep optimizer state in fp32.
    Fp32State,
    /// Use bf16, whose range is fp32's.
    Bf16,
    /// Run the listed operators in fp32.
    KeepFp32,
    /// Nothing jumps: adjust precision as a whole, or the tolerance.
    Accumulated,
    /// Look at the model or its data: both runs do it.
    CheckModel,
}

impl RemedyKind {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlignSources => "align_sources",
            Self::CompleteRun => "complete_run",
            Self::AlignEnvironment => "align_environment",
            Self::FixDefect => "fix_defect",
            Self::LossScale => "loss_scale",
            Self::Eps => "eps",
            Self::Fp32State => "fp32_state",
            Self::Bf16 => "bf16",
            Self::KeepFp32 => "keep_fp32",
            Self::Accumulated => "accumulated",
            Self::CheckModel => "check_model",
        }
    }
}

/// Switches of the environment that change numbers: where they differ, they come before operators.
const NUMERIC_SWITCHES: &[&str] = &[
    "tf32",
    "hf32",
    "reduced_precision",
    "matmul_precision",
    "deterministic",
    "inf_nan",
    "overflow_mode",
    "jit_compile",
];

/// Derives advice from what was found.
pub fn advise(golden: &Run, candidate: &Run, judgement: &Judgement, diagnosis: &Diagnosis) -> Result<Advice> {
    let mut advisor =
        Advisor { golden, candidate, judgement, diagnosis, list: evidence::List::default(), remedies: Vec::new() };
    advisor.environment();
    match judgement.verdict {
        CaseVerdict::Incomparable => advisor.sources(),
        CaseVerdict::Pass => {}
        CaseVerdict::Drift | CaseVerdict::Nonfinite => {
            advisor.births();
            advisor.origins();
        }
    }
    advisor.shared();
    let blacklist = advisor.list.entries(golden);
    let mut remedies = advisor.remedies;
    if !blacklist.is_empty() {
        let layers = blacklist.iter().flat_map(|entry| entry.layers.clone()).collect();
        let why =
            "these operators need more range or precision than the low-precision dtype has; keep them in fp32 together"
                .to_string();
        remedies.push(Remedy { kind: RemedyKind::KeepFp32, layers, why });
    }
    Ok(Advice { blacklist, remedies })
}

struct Advisor<'a> {
    golden: &'a Run,
    candidate: &'a Run,
    judgement: &'a Judgement,
    diagnosis: &'a Diagnosis,
    list: evidence::List,
    remedies: Vec<Remedy>,
}

impl Advisor<'_> {
    fn name(&self, id: LayerId) -> String {
        self.golden.display_name(id)
    }

    fn site_name(&self, site: Site) -> String {
        match site {
            Site::Layer(id) => self.name(id),
            Site::Stretch { candidate: Some(id), .. } => self.candidate.display_name(id),
            Site::Stretch { golden: Some(id), .. } => self.name(id),
            Site::Stretch { before, .. } => self.name(before),
        }
    }

    /// Adds a remedy, or its layers to the one of the same kind and reason.
    fn remedy(&mut self, kind: RemedyKind, layer: Option<String>, why: impl Into<String>) {
        let why = why.into();
        if let Some(known) = self.remedies.iter_mut().find(|remedy| remedy.kind == kind && remedy.why == why) {
            known.layers.extend(layer.filter(|layer| !known.layers.contains(layer)));
        } else {
            self.remedies.push(Remedy { kind, layers: layer.into_iter().collect(), why });
        }
    }

    fn environment(&mut self) {
        if self.judgement.verdict == CaseVerdict::Pass {
            return;
        }
        for line in crate::judge::differences(self.golden, self.candidate) {
            let name = line.split(':').next().unwrap_or("").to_ascii_lowercase();
            if NUMERIC_SWITCHES.iter().any(|switch| name.contains(switch)) {
                self.remedy(
                    RemedyKind::AlignEnvironment,
                    None,
                    format!("{line}: make the switch equal before any operator is blamed"),
                );
            }
        }
    }

    fn sources(&mut self) {
        for &id in &self.judgement.differing_sources {
            let layer = self.golden.layer(id);
            let why = match layer.op.class() {
                Class::Random => {
                    "the runs drew different random numbers: fix the seed, replay the golden's draws, or set its probability to 0"
                }
                _ if layer.op.name() == "param" => {
                    "the parameter differs between the runs: load the same weights, then record again"
                }
                _ => "the input differs between the runs: record both with the same inputs",
            };
            self.remedy(RemedyKind::AlignSources, Some(self.name(id)), why);
        }
        if self.judgement.differing_sources.is_empty() {
            if self.judgement.uncompared_ends.is_empty() {
                self.remedy(RemedyKind::AlignSources, None, self.judgement.why.clone());
            } else {
                let why = "the candidate lacks final tensors of the golden: record it to its end, or exclude them in the case";
                self.remedy(RemedyKind::CompleteRun, None, why);
            }
        }
    }

    fn births(&mut self) {
        let optimizer_steps = closure::optimizer_steps(self.golden);
        for birth in self.diagnosis.births.iter().filter(|birth| birth.side != In::Both) {
            let name = self.site_name(birth.site);
            let on_candidate = birth.side == In::Candidate;
            let low = self.is_low(birth.pair, birth.side);
            let layer = match birth.site {
                Site::Layer(id) => Some(id),
                Site::Stretch { .. } => None,
            };
            let pass = layer.map_or(Pass::Forward, |id| self.golden.layer(id).pass);
            let optimizer = layer.is_some_and(|id| optimizer_steps[id.0 as usize]);
            match birth.cause {
                Cause::Source => {
                    self.remedy(RemedyKind::AlignSources, Some(name), "a tensor that the model is given holds NaN or Inf on one side: look at the data, not at an operator");
                }
                Cause::Formula => {
                    self.remedy(RemedyKind::FixDefect, Some(name), "the two implementations treat the same special inputs differently (a fully masked row, log of 0): align the formula or the mask; no precision list helps");
                }
                Cause::Overflow | Cause::InternalOverflow | Cause::Underflow | Cause::Invalid if !low => {
                    self.remedy(
                        RemedyKind::FixDefect,
                        Some(name),
                        "both runs have the same precision here: the operator computes something else",
                    );
                }
                Cause::Underflow if optimizer => {
                    let cause = birth.cause_layer.map(|id| self.name(id)).unwrap_or(name);
                    self.remedy(
                        RemedyKind::Eps,
                        Some(cause.clone()),
                        "the optimizer's eps is 0 in this dtype: use one it can hold",
                    );
                    self.remedy(
                        RemedyKind::Fp32State,
                        Some(cause),
                        "keep the optimizer's state in fp32: optimizers run outside autocast, so no list reaches them",
                    );
                }
                _ if optimizer && low => {
                    self.remedy(
                        RemedyKind::Fp32State,
                        Some(name),
                        "keep the optimizer's state in fp32: optimizers run outside autocast, so no list reaches them",
                    );
                }
                Cause::Overflow | Cause::InternalOverflow if pass == Pass::Backward => {
                    self.loss_scale(name, birth.pair);
                }
                Cause::Overflow | Cause::InternalOverflow => {
                    self.offer_bf16(&name, birth.pair);
                    match (layer, on_candidate) {
                        (Some(id), true) => self.range(id, birth.pair, &birth.why),
                        (None, true) => self.remedy(RemedyKind::KeepFp32, Some(name), birth.why.clone()),
                        _ => self.remedy(
                            RemedyKind::CheckModel,
                            Some(name),
                            "the golden itself overflows: record it in a wider dtype",
                        ),
                    }
                }
                Cause::Underflow | Cause::Invalid => {
                    if let (Some(id), true) = (layer, on_candidate) {
                        for member in closure::between(self.golden, birth.cause_layer, id) {
                            self.list.add(self.golden, member, Reason::Underflow, 0.9, &birth.why);
                        }
                    }
                }
                Cause::Defect | Cause::Shared | Cause::Unexplained => {
                    self.remedy(RemedyKind::FixDefect, Some(name), "finite inputs that agree, a result that would fit, no low precision: the operator is at fault on this device");
                }
            }
        }
    }

    fn loss_scale(&mut self, name: String, pair: TensorPair) {
        let amax = self.metrics(pair).map_or(0.0, |m| m.golden.amax);
        let scale = if amax > 0.0 { (65504.0 / (8.0 * amax)).log2().floor().exp2() } else { 0.0 };
        let why = format!(
            "the gradient overflows under the loss scale: start at {scale} or lower (2^floor(log2(max / (8 amax)))), a list does not help"
        );
        self.remedy(RemedyKind::LossScale, Some(name), why);
    }

    fn offer_bf16(&mut self, name: &str, pair: TensorPair) {
        let fits = self
            .metrics(pair)
            .is_some_and(|m| m.candidate_dtype == DType::F16 && Some(m.golden.amax) < DType::BF16.max_finite());
        if fits {
            self.remedy(
                RemedyKind::Bf16,
                Some(name.to_string()),
                "the values fit bf16's range: bf16 instead of fp16, or scaling before the product, avoids the list",
            );
        }
    }

    /// The operator whose result does not fit, and its consumers up to where values fit again.
    fn range(&mut self, id: LayerId, pair: TensorPair, why: &str) {
        let Some(max) = self.metrics(pair).and_then(|m| m.candidate_dtype.max_finite()) else { return };
        for (member, fits) in closure::out_of_range(self.golden, self.judgement, id, max) {
            let score = if fits { 0.8 } else { 1.0 };
            let reason = if member == id {
                why.to_string()
            } else {
                format!(
                    "it reads what does not fit behind {}, and would overflow again in low precision",
                    self.name(id)
                )
            };
            self.list.add(self.golden, member, Reason::Range, score, &reason);
        }
    }

    fn origins(&mut self) {
        let born: Vec<Site> = self.diagnosis.births.iter().map(|birth| birth.site).collect();
        for origin in self.diagnosis.origins.iter().filter(|origin| !born.contains(&origin.site)) {
            let name = self.site_name(origin.site);
            let low = self.is_low(origin.pair, In::Candidate);
            let saturated = self.metrics(origin.pair).map_or(0, |m| m.saturated);
            match (origin.site, origin.role) {
                (Site::Layer(id), _) if saturated > 0 && low => {
                    self.offer_bf16(&name, origin.pair);
                    self.range(
                        id,
                        origin.pair,
                        &format!("{saturated} elements saturate at the dtype's largest value; the golden is beyond it"),
                    );
                }
                (Site::Layer(id), Role::Amplified) if low => {
                    for member in closure::producers(self.golden, self.judgement, id) {
                        let why = format!("the dtype's ordinary error is blown up at {name}: {}", origin.why);
                        self.list.add(self.golden, member, Reason::Conditioning, 0.7, &why);
                    }
                }
                (_, Role::Accumulated) => {
                    self.remedy(RemedyKind::Accumulated, Some(name), "no layer jumps: rounding adds up over the depth; compare with a higher-precision run, or state the tolerance in the case");
                }
                (_, Role::Source) => {}
                _ => {
                    let read_nothing =
                        matches!(origin.site, Site::Layer(id) if self.golden.layer(id).inputs.is_empty());
                    let agree = if read_nothing { "" } else { " and its inputs agree" };
                    let why = format!(
                        "the error is beyond what the dtype costs{agree}: another formula, setting or a defect of the operator; compare eps, approximation, mask, layout and mode (train/eval) on both sides"
                    );
                    self.remedy(RemedyKind::FixDefect, Some(name), why);
                }
            }
        }
    }

    fn shared(&mut self) {
        let shared: Vec<String> =
            self.diagnosis.births.iter().filter(|b| b.side == In::Both).map(|b| self.site_name(b.site)).collect();
        for name in shared {
            self.remedy(
                RemedyKind::CheckModel,
                Some(name),
                "NaN or Inf in both runs at the same places: the model or its data, not the device",
            );
        }
    }

    fn metrics(&self, pair: TensorPair) -> Option<&crate::compare::Metrics> {
        self.judgement.measurements.get(pair).and_then(Measured::metrics)
    }

    /// Whether the side at fault computes coarser than the other one, or than fp32.
    fn is_low(&self, pair: TensorPair, side: In) -> bool {
        let Some(metrics) = self.metrics(pair) else { return false };
        let (own, declared) = match side {
            In::Golden => (metrics.golden_dtype, self.golden.meta.compute),
            _ => (metrics.candidate_dtype, self.candidate.meta.compute),
        };
        let roundoff = |dtype: DType| dtype.unit_roundoff().unwrap_or(0.0);
        let fp32 = roundoff(DType::F32);
        roundoff(own) > fp32 || declared.map_or(0.0, roundoff) > fp32 && self.candidate.meta.autocast != Some(false)
    }
}
