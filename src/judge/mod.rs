//! Error model, limits, verdicts of layers and of the case.
//!
//! In go two runs, their pairing and the case; out comes a [`Judgement`]: what was measured of every
//! tensor pair, its limits with their reasons, the verdict of every layer, and the verdict of the
//! case. A verdict never rests on a single magic number: a limit is the error budget of the tensor
//! (see [`budget`]) times a factor from [`threshold`].

pub mod agreement;
mod alias;
mod allowance;
mod bitwise;
pub mod budget;
mod index;
mod introduced;
mod layer;
mod limit;
mod measure;
mod peers;
mod policy;
mod probe;
mod ratio;
mod recorded;
mod replaying;
mod rows;
mod settle;
mod shards;
mod slope;
mod source;
mod statistics;
pub mod threshold;
mod truth;
mod valid;
mod verdict;

pub use bitwise::{Bitwise, FirstUnequal, OpBits, bitwise};
pub use budget::{Budget, Budgets};
pub use introduced::{OwnError, ReplayMode, Replayed};
pub use limit::{Limit, TensorJudgement, figure, value_of};
pub use measure::{Measured, Measurements, OnGolden, OnProgress, coarser};
pub use policy::{differences, operator_differences};
pub use probe::Probe;
pub use ratio::{NoRho, Ratios};
pub use recorded::recorded_call;
pub use replaying::{Replays, propagated};
pub use threshold::Level;
pub use truth::{Truth, TruthFindings, ratio_of};

use std::collections::HashMap;

use crate::case::Case;
use crate::error::Result;
use crate::pairing::{Pairing, TensorPair, slot_pairs};
use crate::run::{LayerId, Run, TensorId};
use layer::Judge;
use valid::{ValidPositions, valid_positions};
use verdict::case_verdict;

/// Verdict of a tensor or a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Within its limits.
    Pass,
    /// Not compared, with the reason.
    Skipped,
    /// Only in the golden.
    Missing,
    /// Only in the candidate.
    Extra,
    /// Shape or kind of dtype cannot be compared.
    Mismatch,
    /// A finite difference beyond tolerance.
    Drift,
    /// NaN/Inf that the two sides do not share.
    Nonfinite,
}

impl Verdict {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skipped => "skipped",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Mismatch => "mismatch",
            Self::Drift => "drift",
            Self::Nonfinite => "nonfinite",
        }
    }

    /// Whether it speaks against the candidate.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Mismatch | Self::Drift | Self::Nonfinite)
    }
}

/// Verdict of the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaseVerdict {
    /// Every terminal tensor of the golden was compared and nothing is out.
    Pass,
    /// A finite difference beyond tolerance.
    Drift,
    /// NaN/Inf that the two sides do not share.
    Nonfinite,
    /// The runs do not answer the question.
    Incomparable,
}

impl CaseVerdict {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drift => "drift",
            Self::Nonfinite => "nonfinite",
            Self::Incomparable => "incomparable",
        }
    }
}

/// The judgement of one golden layer.
#[derive(Debug, Clone)]
pub struct LayerJudgement {
    /// The golden layer.
    pub layer: LayerId,
    /// The worst verdict of its outputs.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Output pairs that were judged, with their slot.
    pub outputs: Vec<(usize, TensorPair)>,
    /// True where an index output flipped near a tie and a consumer is out.
    pub flipped: bool,
}

/// What came of judging two runs.
#[derive(Debug)]
pub struct Judgement {
    /// Which layer answers which.
    pub pairing: Pairing,
    /// What was measured.
    pub measurements: Measurements,
    /// The judgement of every measured pair.
    pub tensors: HashMap<TensorPair, TensorJudgement>,
    /// By golden layer id.
    pub layers: Vec<LayerJudgement>,
    /// Error budgets of golden and candidate.
    pub budgets: (Budgets, Budgets),
    /// Which positions count.
    pub(crate) valid: ValidPositions,
    /// Sources (and random operators) that differ, which makes the case incomparable, in execution order.
    pub differing_sources: Vec<LayerId>,
    /// Terminal tensors of the golden that were not compared.
    pub uncompared_ends: Vec<TensorId>,
    /// What fp64 replay found.
    pub replays: Replays,
    /// What a third run says, where one was given.
    pub truth: Option<TruthFindings>,
    /// Verdict of the case.
    pub verdict: CaseVerdict,
    /// Why.
    pub why: String,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Judgement {
    /// Pairs at the input slots of a golden layer and its partner.
    pub fn input_pairs(&self, golden: &Run, candidate: &Run, layer: LayerId) -> Vec<TensorPair> {
        match self.pairing.partner(layer) {
            Some(partner) => slot_pairs(golden.layer(layer), candidate.layer(partner.layer)),
            None => Vec::new(),
        }
    }

    /// The judgement of a golden layer.
    pub fn layer(&self, layer: LayerId) -> &LayerJudgement {
        &self.layers[layer.0 as usize]
    }

    /// Whether this pair was measured and is out.
    pub fn is_out(&self, pair: TensorPair) -> bool {
        self.tensors.get(&pair).is_some_and(|judgement| judgement.verdict.is_out())
    }
}

/// Callbacks and choices of one judgement.
pub struct Options<'a> {
    /// See [`OnGolden`].
    pub on_golden: OnGolden<'a>,
    /// See [`OnProgress`].
    pub on_progress: OnProgress<'a>,
    /// Which layers are replayed in fp64.
    pub replay: ReplayMode,
    /// See [`Noise`].
    pub noise: Noise<'a>,
    /// A third run of higher precision.
    pub truth: Option<Truth<'a>>,
}

/// How far approved runs of the golden lie apart at an output slot of a golden layer, as rel_l2; `None`
/// where that is not known. Limits are widened to it by [`threshold::NOISE`], never tightened.
pub type Noise<'a> = &'a (dyn Fn(LayerId, usize) -> Option<f64> + Sync);

/// What is known of the golden beside its tensors.
#[derive(Clone)]
struct Known<'a> {
    valid: &'a ValidPositions,
    noise: Noise<'a>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            on_golden: &|_, _| Ok(()),
            on_progress: &|_, _| {},
            replay: ReplayMode::Auto,
            noise: &|_, _| None,
            truth: None,
        }
    }
}

/// Judges a candidate against a golden.
///
/// # Errors
/// A tensor that cannot be read, or that `options.on_golden` refuses.
pub fn judge(golden: &Run, candidate: &Run, pairing: Pairing, case: &Case, options: &Options<'_>) -> Result<Judgement> {
    let wanted = measure::wanted_pairs(golden, candidate, &pairing);
    let valid = valid_positions(golden, case)?;
    let measurements = measure::measure(
        golden,
        candidate,
        &wanted,
        options.on_golden,
        &|id| valid.elements(golden, id),
        options.on_progress,
    )?;
    let known = Known { valid: &valid, noise: options.noise };
    let mut judgement = judge_measured(golden, candidate, pairing, case, measurements, &wanted, known)?;
    replaying::settle(&mut judgement, golden, candidate, case, options.replay, &valid)?;
    if let Some(truth) = options.truth {
        truth::settle(&mut judgement, golden, candidate, case, truth, &valid)?;
    }
    Ok(judgement)
}

/// Judges what was measured; a pair of `wanted` that was not is `skipped: not measured`.
fn judge_measured(
    golden: &Run,
    candidate: &Run,
    pairing: Pairing,
    case: &Case,
    measurements: Measurements,
    wanted: &[TensorPair],
    known: Known<'_>,
) -> Result<Judgement> {
    let budgets = both_budgets(golden, candidate, &pairing, &measurements, case);

    let mut judge = Judge {
        golden,
        candidate,
        case,
        pairing: &pairing,
        measurements: &measurements,
        budgets: &budgets,
        valid: known.valid,
        noise: known.noise,
        notes: Vec::new(),
    };
    let mut tensors: HashMap<TensorPair, TensorJudgement> = HashMap::new();
    let mut layers = Vec::with_capacity(golden.layers.len());
    for layer in &golden.layers {
        layers.push(judge.layer(layer.id, &mut tensors)?);
    }
    // Pairs at input slots that no paired layer wrote together.
    for &pair in wanted.iter().filter(|pair| pairing.output_of(pair.0) != Some(pair.1)) {
        let judgement = judge.tensor("", "", pair);
        tensors.insert(pair, judgement);
    }
    judge.settle_indices(&mut layers, &mut tensors);
    judge.settle_aliases(&mut layers, &mut tensors)?;
    let differing_sources = judge.settle_sources(&mut layers, &mut tensors)?;
    let uncompared_ends = judge.uncompared_ends(&layers);
    let mut notes = judge.notes;
    notes.extend(known.valid.note.clone());
    let (verdict, why) =
        case_verdict(golden, candidate, &layers, &differing_sources, &uncompared_ends, &tensors, &[], &mut notes);
    Ok(Judgement {
        measurements,
        tensors,
        layers,
        differing_sources,
        uncompared_ends,
        replays: Replays::default(),
        truth: None,
        verdict,
        why,
        notes,
        budgets,
        pairing,
        valid: known.valid.clone(),
    })
}

/// Budgets of both sides. The candidate's rest on the golden's norms where a tensor has a partner, so
/// that a fault cannot widen its own limit.
fn both_budgets(
    golden: &Run,
    candidate: &Run,
    pairing: &Pairing,
    measurements: &Measurements,
    case: &Case,
) -> (Budgets, Budgets) {
    let partners: HashMap<TensorId, TensorId> =
        golden.layers.iter().flat_map(|l| &l.outputs).filter_map(|&g| Some((pairing.output_of(g)?, g))).collect();
    let of_golden = budget::budgets(golden, None, &|id| measurements.golden_stats(id));
    let of_candidate = budget::budgets(candidate, case.precision, &|id| measurements.golden_stats(*partners.get(&id)?));
    (of_golden, of_candidate)
}
