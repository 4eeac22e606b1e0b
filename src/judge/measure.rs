//! Reads each tensor pair once and keeps what was measured.
//!
//! In go two runs and their pairing, out come [`Measurements`]: a comparison for every output pair
//! of paired layers and for every pair at an input slot that is no output pair. At most one pair per
//! worker thread is in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::shards::hinted;
use super::threshold::vendor_tolerance;
use crate::compare::{self, Comparison, Metrics, SideStats};
use crate::error::Result;
use crate::op::Class;
use crate::pairing::{Pairing, TensorPair, slot_pairs};
use crate::run::{RecordedStats, Run, TensorId};
use crate::tensor::{DType, Tensor};

/// Called with every golden tensor as it is read, so that its digest is checked in the same pass.
pub type OnGolden<'a> = &'a (dyn Fn(TensorId, &Tensor) -> Result<()> + Sync);

/// Called with the number of pairs done and in all.
pub type OnProgress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Which elements of a golden tensor count; `None` where all do.
pub(super) type ValidElements<'a> = &'a (dyn Fn(TensorId) -> Option<Vec<bool>> + Sync);

/// What was measured of one tensor pair.
#[derive(Debug, Clone)]
pub enum Measured {
    /// Both tensors were stored and read.
    Tensors(Comparison),
    /// One side was not stored; both have statistics.
    Statistics {
        /// The golden's.
        golden: Box<RecordedStats>,
        /// The candidate's.
        candidate: Box<RecordedStats>,
    },
    /// Nothing to compare, with the reason.
    NotStored(String),
}

impl Measured {
    /// The metrics, where the pair was measured.
    pub fn metrics(&self) -> Option<&Metrics> {
        match self {
            Self::Tensors(Comparison::Measured(metrics)) => Some(metrics),
            _ => None,
        }
    }
}

/// What was measured of all tensor pairs.
#[derive(Debug, Default)]
pub struct Measurements {
    pairs: HashMap<TensorPair, Measured>,
    golden: HashMap<TensorId, SideStats>,
}

impl Measurements {
    /// What was measured of this pair; `None` for a pair that nothing asked for.
    pub fn get(&self, pair: TensorPair) -> Option<&Measured> {
        self.pairs.get(&pair)
    }

    /// Statistics of a golden tensor.
    pub fn golden_stats(&self, tensor: TensorId) -> Option<SideStats> {
        self.golden.get(&tensor).copied()
    }

    /// Adds what was measured later; what is known of a pair or a golden tensor stays.
    pub(super) fn extend(&mut self, later: Self) {
        for (pair, measured) in later.pairs {
            self.pairs.entry(pair).or_insert(measured);
        }
        for (tensor, stats) in later.golden {
            self.golden.entry(tensor).or_insert(stats);
        }
    }
}

/// Pairs to measure, in the golden's execution order: outputs of paired layers, then input slots
/// whose tensors no paired layer wrote together.
pub(super) fn wanted_pairs(golden: &Run, candidate: &Run, pairing: &Pairing) -> Vec<TensorPair> {
    let mut wanted = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for layer in &golden.layers {
        let Some(partner) = pairing.partner(layer.id) else { continue };
        let answer = candidate.layer(partner.layer);
        let bridges = slot_pairs(layer, answer).into_iter().filter(|&(g, c)| pairing.output_of(g) != Some(c));
        let private = |slot: usize| layer.op.is_private(slot) || layer.op.class() == Class::Uninitialised;
        let outputs = layer.outputs.iter().copied().zip(answer.outputs.iter().copied()).enumerate();
        let outputs = outputs.filter(|(slot, _)| !private(*slot)).map(|(_, pair)| pair);
        for pair in bridges.chain(outputs) {
            if seen.insert(pair) {
                wanted.push(pair);
            }
        }
    }
    wanted
}

/// Reads and measures `wanted`.
///
/// # Errors
/// A tensor that cannot be read, or a golden tensor that `on_golden` refuses.
pub(super) fn measure(
    golden: &Run,
    candidate: &Run,
    wanted: &[TensorPair],
    on_golden: OnGolden<'_>,
    valid: ValidElements<'_>,
    on_progress: OnProgress<'_>,
) -> Result<Measurements> {
    let done = AtomicU64::new(0);
    let measured: Vec<Measured> = wanted
        .par_iter()
        .map(|&pair| {
            let measured = measure_pair(golden, candidate, pair, on_golden, valid);
            on_progress(done.fetch_add(1, Ordering::Relaxed) + 1, wanted.len() as u64);
            measured
        })
        .collect::<Result<_>>()?;
    let mut measurements = Measurements::default();
    for (&pair, measured) in wanted.iter().zip(measured) {
        if let Some(metrics) = measured.metrics() {
            // An output pair is wanted before any other pair of the same golden tensor is kept.
            measurements.golden.entry(pair.0).or_insert(metrics.golden);
        }
        measurements.pairs.insert(pair, measured);
    }
    Ok(measurements)
}

fn measure_pair(
    golden: &Run,
    candidate: &Run,
    pair: TensorPair,
    on_golden: OnGolden<'_>,
    valid: ValidElements<'_>,
) -> Result<Measured> {
    let left = golden.load(pair.0)?;
    if let Some(tensor) = &left {
        on_golden(pair.0, tensor)?;
    }
    let right = candidate.load(pair.1)?;
    if let (Some(left), Some(right)) = (&left, &right) {
        let valid = valid(pair.0);
        let tolerance = Some(vendor_tolerance(coarser(left.dtype(), right.dtype())));
        let options = compare::Options { valid: valid.as_deref(), tolerance };
        let comparison = compare::compare(left, right, &options);
        return Ok(Measured::Tensors(hinted([golden, candidate], [left, right], comparison)));
    }
    let recorded = |run: &Run, id: TensorId| run.tensor(id).stats.clone();
    let (of_golden, of_candidate) = (recorded(golden, pair.0), recorded(candidate, pair.1));
    let stats = |tensor: Option<&Tensor>, own: &Option<RecordedStats>, other: &Option<RecordedStats>| match tensor {
        Some(tensor) => Some(Box::new(stats_of(tensor, other.as_ref().and_then(|stats| stats.digest.as_deref())))),
        None => own.clone().map(Box::new),
    };
    let (left, right) = (left.as_ref(), right.as_ref());
    Ok(match (stats(left, &of_golden, &of_candidate), stats(right, &of_candidate, &of_golden)) {
        (Some(golden), Some(candidate)) => Measured::Statistics { golden, candidate },
        (None, _) => Measured::NotStored("not stored in the golden".into()),
        (_, None) => Measured::NotStored("not stored in the candidate".into()),
    })
}

/// How a CRC-32 over a tensor's bytes is recorded.
const CRC32: &str = "crc32:";

/// The statistics that a recorder would have written for a stored tensor, with a digest where `other`, that of
/// the side that was not stored, is one that can be formed.
fn stats_of(tensor: &Tensor, other: Option<&str>) -> RecordedStats {
    let side = compare::measure(tensor);
    let finite = side.finite > 0;
    RecordedStats {
        dtype: Some(tensor.dtype()),
        shape: Some(tensor.shape().to_vec()),
        min: finite.then_some(side.min),
        max: finite.then_some(side.max),
        mean: finite.then(|| side.sum / side.finite as f64),
        l2: Some(side.l2()),
        nan: Some(side.nan),
        inf: Some(side.pos_inf + side.neg_inf),
        specials_uncounted: false,
        digest: other
            .filter(|d| d.starts_with(CRC32))
            .map(|_| format!("{CRC32}{:08x}", crc32fast::hash(tensor.bytes()))),
        alias_of: None,
        view_of: None,
        slice: None,
        samples: None,
    }
}

/// The coarser of two floating-point types.
pub fn coarser(golden: DType, candidate: DType) -> DType {
    let roundoff = |dtype: DType| dtype.unit_roundoff().unwrap_or(0.0);
    if roundoff(candidate) > roundoff(golden) { candidate } else { golden }
}
