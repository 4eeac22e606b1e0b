//! Judging with few tensors in hand: pairs are measured as they are asked for, and after each
//! request everything measured so far is judged by the same code that judges whole runs.

use std::mem;

use super::valid::{ValidPositions, valid_positions};
use super::{Judgement, Known, Measurements, Noise, OnGolden, judge_measured, measure};
use crate::case::Case;
use crate::error::Result;
use crate::pairing::{Pairing, TensorPair};
use crate::run::Run;

/// Two runs of which only the pairs that were asked for are read.
///
/// A pair that was not read is `skipped: not measured`. Error budgets rest on the norms that are
/// known, else on what the data flow alone says, so that a limit may move as more is read; once
/// every pair of [`Probe::pairs`] is read, the judgement is that of [`super::judge`].
pub struct Probe<'a> {
    golden: &'a Run,
    candidate: &'a Run,
    case: &'a Case,
    on_golden: OnGolden<'a>,
    valid: ValidPositions,
    noise: Noise<'a>,
    pairs: Vec<TensorPair>,
    judgement: Judgement,
}

impl<'a> Probe<'a> {
    /// A probe that has read nothing but the case's mask of valid positions.
    ///
    /// # Errors
    /// A mask that cannot be read.
    pub fn new(
        golden: &'a Run,
        candidate: &'a Run,
        pairing: Pairing,
        case: &'a Case,
        on_golden: OnGolden<'a>,
    ) -> Result<Self> {
        let pairs = measure::wanted_pairs(golden, candidate, &pairing);
        let valid = valid_positions(golden, case)?;
        let nothing = Measurements::default();
        let noise: Noise<'a> = &|_, _| None;
        let known = Known { valid: &valid, noise };
        let judgement = judge_measured(golden, candidate, pairing, case, nothing, &pairs, known)?;
        Ok(Self { golden, candidate, case, on_golden, valid, noise, pairs, judgement })
    }

    /// The same with limits that the golden's noise widens.
    #[must_use]
    pub fn with_noise(mut self, noise: Noise<'a>) -> Self {
        self.noise = noise;
        self
    }

    /// Every pair that a whole judgement reads, in the golden's execution order.
    pub fn pairs(&self) -> &[TensorPair] {
        &self.pairs
    }

    /// The judgement of what was read so far.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Whether a pair was read.
    pub fn has_read(&self, pair: TensorPair) -> bool {
        self.judgement.measurements.get(pair).is_some()
    }

    /// Reads `pairs`, as far as they were not read yet, and judges anew.
    ///
    /// # Errors
    /// A tensor that cannot be read, or that `on_golden` refuses; the probe then knows nothing of
    /// these pairs.
    pub fn read(&mut self, pairs: &[TensorPair]) -> Result<()> {
        let new: Vec<TensorPair> = pairs.iter().copied().filter(|&pair| !self.has_read(pair)).collect();
        let valid = &self.valid;
        let later = measure::measure(
            self.golden,
            self.candidate,
            &new,
            self.on_golden,
            &|id| valid.elements(self.golden, id),
            &|_, _| {},
        )?;
        let mut measurements = mem::take(&mut self.judgement.measurements);
        measurements.extend(later);
        let pairing = self.judgement.pairing.clone();
        let known = Known { valid: &self.valid, noise: self.noise };
        self.judgement =
            judge_measured(self.golden, self.candidate, pairing, self.case, measurements, &self.pairs, known)?;
        Ok(())
    }
}
