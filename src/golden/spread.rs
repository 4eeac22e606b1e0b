//! How far several runs of one case on one device lie apart.
//!
//! In go runs, out comes for every output of the first run's layers the largest difference of any
//! other run from it. Runs that were given other tensors are no repetitions, and are refused.

use rayon::prelude::*;

use super::Noise;
use crate::compare::{self, Comparison, Metrics};
use crate::error::{Error, Result};
use crate::op::Class;
use crate::pairing::{self, Pairing};
use crate::run::{LayerId, Run, TensorId};
use crate::tensor::Kind;

/// The spread of one layer output.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpread {
    /// The layer of the first run.
    pub layer: LayerId,
    /// Output slot.
    pub slot: usize,
    /// The largest differences from the first run, over elements that are finite on both sides.
    pub noise: Noise,
}

/// The spread of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spread {
    /// By layer and slot, in execution order; sources, and outputs without defined content, are left out.
    pub layers: Vec<LayerSpread>,
    /// What could not be measured, in words.
    pub notes: Vec<String>,
}

/// An output of both runs that is held against each other.
struct Job {
    layer: LayerId,
    slot: usize,
    pair: pairing::TensorPair,
}

/// What came of one pair.
enum Outcome {
    Measured { noise: Noise, equal: bool, unshared: bool },
    Opaque { equal: bool },
    Mismatch(String),
    NotStored,
}

/// The spread of `runs` against the first of them. `on_progress` is called with the number of pairs
/// done and in all.
///
/// # Errors
/// A run whose sources differ from the first's (the error names the source), or that recorded an
/// output with another shape or kind; a tensor that cannot be read.
pub fn spread(
    runs: &[Run],
    rename: &dyn Fn(&str) -> String,
    on_progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Spread> {
    let Some((first, others)) = runs.split_first() else { return Ok(Spread::default()) };
    let plans: Vec<(Pairing, Vec<Job>)> = others
        .iter()
        .map(|other| {
            let pairing = pairing::pair(first, other, rename)?;
            let jobs = jobs(first, other, &pairing);
            Ok((pairing, jobs))
        })
        .collect::<Result<_>>()?;
    let all: u64 = plans.iter().map(|(_, jobs)| jobs.len() as u64).sum();
    let done = std::sync::atomic::AtomicU64::new(0);
    let mut spread = Spread::default();
    for (other, (pairing, jobs)) in others.iter().zip(&plans) {
        let outcomes: Vec<Outcome> = jobs
            .par_iter()
            .map(|job| {
                let outcome = measure(first, other, job);
                on_progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, all);
                outcome
            })
            .collect::<Result<_>>()?;
        refuse_other_sources(first, other, jobs, &outcomes)?;
        spread.add(first, other, pairing, jobs, &outcomes)?;
    }
    spread.layers.sort_by_key(|entry| (entry.layer, entry.slot));
    Ok(spread)
}

fn jobs(first: &Run, other: &Run, pairing: &Pairing) -> Vec<Job> {
    let mut jobs = Vec::new();
    for layer in &first.layers {
        let Some(partner) = pairing.partner(layer.id) else { continue };
        if layer.op.class() == Class::Uninitialised {
            continue;
        }
        let answers = &other.layer(partner.layer).outputs;
        for (slot, (&ours, &theirs)) in layer.outputs.iter().zip(answers).enumerate() {
            if !layer.op.is_private(slot) {
                jobs.push(Job { layer: layer.id, slot, pair: (ours, theirs) });
            }
        }
    }
    jobs
}

fn measure(first: &Run, other: &Run, job: &Job) -> Result<Outcome> {
    let (Some(ours), Some(theirs)) = (first.load(job.pair.0)?, other.load(job.pair.1)?) else {
        return Ok(Outcome::NotStored);
    };
    Ok(match compare::compare(&ours, &theirs, &compare::Options::default()) {
        Comparison::Measured(metrics) => Outcome::Measured {
            noise: Noise { rel_l2: metrics.rel_l2(), max_abs: metrics.max_abs },
            equal: agrees(&metrics),
            unshared: metrics.has_unshared_specials(),
        },
        Comparison::Opaque { equal } => Outcome::Opaque { equal },
        Comparison::Mismatch(why) => Outcome::Mismatch(why),
    })
}

/// Equal after rounding to the coarser of the two dtypes, as sources must be.
fn agrees(metrics: &Metrics) -> bool {
    let is_float = matches!(metrics.golden_dtype.kind(), Kind::Float | Kind::Complex);
    let rounds = is_float && metrics.golden_dtype != metrics.candidate_dtype;
    metrics.unequal() == 0 || (rounds && !metrics.has_unshared_specials() && metrics.max_ulp == Some(0))
}

impl Outcome {
    fn is_equal(&self) -> bool {
        matches!(self, Self::Measured { equal: true, .. } | Self::Opaque { equal: true })
    }
}

/// Two runs with other inputs, parameters or draws do not repeat each other.
fn refuse_other_sources(first: &Run, other: &Run, jobs: &[Job], outcomes: &[Outcome]) -> Result<()> {
    let equal: std::collections::HashMap<TensorId, bool> =
        jobs.iter().zip(outcomes).map(|(job, outcome)| (job.pair.0, outcome.is_equal())).collect();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let layer = first.layer(job.layer);
        let given = match layer.op.class() {
            Class::Source => "was given another tensor",
            // What a random operator makes of other inputs differs even if it drew the same.
            Class::Random if layer.inputs.iter().all(|id| equal.get(id) == Some(&true)) => "drew other values",
            _ => continue,
        };
        let differs = match outcome {
            Outcome::NotStored => {
                let digest = |run: &Run, id| run.tensor(id).stats.as_ref().and_then(|stats| stats.digest.clone());
                let digests = digest(first, job.pair.0).zip(digest(other, job.pair.1));
                digests.is_some_and(|(ours, theirs)| ours != theirs)
            }
            outcome => !outcome.is_equal(),
        };
        if differs {
            let what = format!(
                "`{}` {given} than in `{}`: expected runs with the same sources",
                first.display_name(job.layer),
                first.path.display()
            );
            return Err(Error::at(&other.path, what));
        }
    }
    Ok(())
}

impl Spread {
    fn add(&mut self, first: &Run, other: &Run, pairing: &Pairing, jobs: &[Job], outcomes: &[Outcome]) -> Result<()> {
        let mut at: std::collections::HashMap<(LayerId, usize), usize> =
            self.layers.iter().enumerate().map(|(at, entry)| ((entry.layer, entry.slot), at)).collect();
        let (mut not_stored, mut opaque) = (0u64, 0u64);
        for (job, outcome) in jobs.iter().zip(outcomes) {
            if first.layer(job.layer).op.is_source() {
                continue;
            }
            let name = || first.display_name(job.layer);
            let noise = match outcome {
                Outcome::Measured { noise, unshared, .. } => {
                    if *unshared {
                        let text = "has NaN or Inf where the first run has none, or the reverse";
                        self.notes.push(format!(
                            "{}: output {} of `{}` {text}",
                            other.path.display(),
                            job.slot,
                            name()
                        ));
                    }
                    *noise
                }
                Outcome::Mismatch(why) => {
                    let why = why.replace("in the golden", "in the first run").replace("in the candidate", "here");
                    return Err(Error::at(&other.path, format_args!("output {} of `{}`: {why}", job.slot, name())));
                }
                Outcome::Opaque { equal } => {
                    opaque += u64::from(!equal);
                    continue;
                }
                Outcome::NotStored => {
                    not_stored += 1;
                    continue;
                }
            };
            let slot = *at.entry((job.layer, job.slot)).or_insert_with(|| {
                let noise = Noise { rel_l2: Some(0.0), max_abs: 0.0 };
                self.layers.push(LayerSpread { layer: job.layer, slot: job.slot, noise });
                self.layers.len() - 1
            });
            if let Some(entry) = self.layers.get_mut(slot) {
                entry.noise = entry.noise.or_larger(noise);
            }
        }
        let unpaired = first.layers.len() - pairing.paired();
        let extra = other.layers.len() - pairing.paired();
        for (count, what) in [
            (unpaired as u64, "layers of the first run have no partner"),
            (extra as u64, "layers are not in the first run"),
            (not_stored, "outputs were not stored in both runs"),
            (opaque, "outputs differ in a dtype whose values cannot be read"),
        ] {
            if count > 0 {
                self.notes.push(format!("{}: {count} {what}", other.path.display()));
            }
        }
        Ok(())
    }
}

impl Noise {
    /// The larger of each number; a relative error that does not exist counts as larger than any.
    #[must_use]
    pub fn or_larger(self, other: Self) -> Self {
        let rel_l2 = self.rel_l2.zip(other.rel_l2).map(|(a, b)| a.max(b));
        Self { rel_l2, max_abs: self.max_abs.max(other.max_abs) }
    }
}
