//! What a low-precision run will trip over, told from the fp32 run alone.
//!
//! In go one run in full precision and the dtype it shall move to, out comes a [`Preflight`]: findings
//! with layer, numbers, reason and what to do, the worst first; the figures of every layer behind them;
//! and the loss scale that suits the recorded gradients. Nothing is compared with another run: a finding
//! says what the recorded values will do in the dtype, not that an implementation is wrong. Every
//! threshold stands in [`threshold`] with its source. The same run gives the same findings in the same
//! order for any number of threads.

mod emulate;
mod finding;
mod loss_scale;
mod operator;
mod range;
pub mod threshold;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::op::Class;
use crate::replay::Format;
use crate::run::{Layer, LayerKind, Pass, Run, TensorId};
use crate::tensor::{DType, Kind};

use emulate::Emulated;
pub use finding::{Finding, FindingKind, Severity};
pub use loss_scale::LossScale;
use range::Range;

/// Schema identifier of the JSON document.
pub const PREFLIGHT_SCHEMA: &str = "goldline.preflight/1";

/// What a preflight found.
#[derive(Debug, Clone, Serialize)]
pub struct Preflight {
    /// Always [`PREFLIGHT_SCHEMA`].
    pub schema: &'static str,
    /// Path of the run.
    pub run: String,
    /// The dtype that the run shall move to.
    pub dtype: String,
    /// How much was looked at.
    pub summary: Summary,
    /// The loss scale that suits the recorded gradients; null where none were recorded.
    pub loss_scale: Option<LossScale>,
    /// By severity, then in execution order.
    pub findings: Vec<Finding>,
    /// The figures of every layer, in execution order.
    pub layers: Vec<Row>,
    /// What could not be looked at, and other remarks.
    pub notes: Vec<String>,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Layers of the run.
    pub layers: u64,
    /// Floating-point outputs whose values were read.
    pub read: u64,
    /// Floating-point outputs that were not stored; of these the recorded extremes alone count.
    pub not_stored: u64,
    /// Layers that were replayed in the dtype.
    pub replayed: u64,
    /// Layers whose operator or attributes are not known well enough to replay.
    pub unmodelled: u64,
}

/// The figures of one layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Position in execution order.
    pub index: u32,
    /// Name.
    pub layer: String,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Largest finite magnitude of its outputs, mask sentinels left out; null where none is known.
    pub amax: Option<f64>,
    /// log2 of the dtype's largest value over `amax`: bits of range that are left, negative beyond it.
    pub headroom_bits: Option<f64>,
    /// Elements that round to an infinity.
    pub beyond: u64,
    /// Share of the energy (sum of squares) that is lost below the dtype's smallest normal value.
    pub underflow: Option<f64>,
    /// rel_l2 that the layer alone leaves in the dtype, by replay; null where it was not replayed.
    pub predicted_rel_l2: Option<f64>,
    /// Elements that replay in the dtype makes NaN or infinite and the run holds finite.
    pub predicted_overflow: u64,
}

/// The dtype that a run shall move to.
#[derive(Debug, Clone, Copy)]
struct Target {
    dtype: DType,
    format: Format,
    /// Largest finite value.
    max: f64,
    /// Unit roundoff.
    u: f64,
    /// Smallest subnormal.
    subnormal: f64,
}

impl Target {
    fn new(dtype: DType) -> Result<Self> {
        let refused = || Error::new(format_args!("expected float16 or bfloat16 as the dtype, found {dtype}"));
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return Err(refused());
        }
        Ok(Self {
            dtype,
            format: Format::of(dtype).ok_or_else(refused)?,
            max: dtype.max_finite().ok_or_else(refused)?,
            u: dtype.unit_roundoff().ok_or_else(refused)?,
            subnormal: dtype.smallest_subnormal().ok_or_else(refused)?,
        })
    }

    /// Smallest normal value: the subnormals' spacing is u times twice that.
    fn smallest_normal(&self) -> f64 {
        self.subnormal / (2.0 * self.u)
    }
}

/// Looks at `run` as if it were to compute in `dtype`. `on_progress` gets the tensors and layers that are
/// done, and their number.
///
/// # Errors
/// Another dtype than float16 and bfloat16, or a tensor that cannot be read.
pub fn preflight(run: &Run, dtype: DType, on_progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Preflight> {
    let target = Target::new(dtype)?;
    let own = own_outputs(run);
    let all = (run.tensors.len() + run.layers.len()) as u64;
    let done = AtomicU64::new(0);
    let step = || on_progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
    let ranges: Vec<Option<Range>> = (0..run.tensors.len())
        .into_par_iter()
        .map(|at| {
            let range = range::of(run, TensorId(at as u32), &target);
            step();
            range
        })
        .collect::<Result<_>>()?;
    let looked: Vec<(Row, Vec<Finding>, Emulated)> = run
        .layers
        .par_iter()
        .zip(&own)
        .map(|(layer, own)| {
            let looked = look(run, layer, own, &ranges, &target);
            step();
            looked
        })
        .collect::<Result<_>>()?;

    let loss_scale = loss_scale::best(run, &ranges, &target);
    let mut summary = Summary { layers: run.layers.len() as u64, ..Summary::default() };
    let mut findings = Vec::new();
    let mut layers = Vec::with_capacity(looked.len());
    for (row, found, emulated) in looked {
        findings.extend(found);
        layers.push(row);
        match emulated {
            Emulated::Done(_) => summary.replayed += 1,
            Emulated::Unmodelled => summary.unmodelled += 1,
            Emulated::Skipped => {}
        }
    }
    for &id in own.iter().flatten() {
        if run.tensor(id).stored.is_some() {
            summary.read += u64::from(ranges.get(id.0 as usize).is_some_and(Option::is_some));
        } else {
            summary.not_stored += 1;
        }
    }
    if let Some(scale) = &loss_scale {
        findings.iter_mut().for_each(|finding| scale.advise(finding));
    }
    // A stable sort keeps the execution order within a severity.
    findings.sort_by_key(|finding| (finding.severity, finding.index));
    Ok(Preflight {
        schema: PREFLIGHT_SCHEMA,
        run: run.path.to_string_lossy().into_owned(),
        dtype: dtype.name().to_string(),
        notes: notes(run, &own, &summary, &target),
        summary,
        loss_scale,
        findings,
        layers,
    })
}

/// The outputs whose values each layer makes: those of a module belong to the operator inside that
/// wrote them, and a mover's to what it moved.
fn own_outputs(run: &Run) -> Vec<Vec<TensorId>> {
    let of_kind = |kind: LayerKind| run.layers.iter().filter(move |layer| layer.kind == kind);
    let by_operators: HashSet<TensorId> =
        of_kind(LayerKind::Operator).flat_map(|layer| layer.outputs.iter().copied()).collect();
    let mut seen = HashSet::new();
    run.layers
        .iter()
        .map(|layer| {
            let moves = matches!(layer.op.class(), Class::Mover | Class::Cast) && !layer.inputs.is_empty();
            // Optimizers run in fp32 outside of autocast, on what they keep themselves.
            if moves || layer.op.class() == Class::Uninitialised || layer.pass == Pass::Optimizer {
                return Vec::new();
            }
            let is_module = layer.kind == LayerKind::Module;
            layer
                .outputs
                .iter()
                .enumerate()
                .filter(|(slot, id)| {
                    let is_float = run.dtype_and_shape(**id).is_some_and(|(dtype, _)| dtype.kind() == Kind::Float);
                    let inner = is_module && by_operators.contains(id);
                    is_float && !inner && !layer.op.is_private(*slot) && seen.insert(**id)
                })
                .map(|(_, id)| *id)
                .collect()
        })
        .collect()
}

fn look(
    run: &Run,
    layer: &Layer,
    own: &[TensorId],
    ranges: &[Option<Range>],
    target: &Target,
) -> Result<(Row, Vec<Finding>, Emulated)> {
    let place = finding::Place::of(run, layer);
    let range = |id: &TensorId| ranges.get(id.0 as usize).and_then(Option::as_ref);
    let mut findings = operator::findings(run, layer, &place, target)?;
    let names_overflow = findings.iter().any(|finding| finding.kind == FindingKind::Exponent);
    for id in own {
        let Some(range) = range(id) else { continue };
        // That exp overflows is said better by its argument.
        findings.extend(range.overflow(&place, target).filter(|_| !names_overflow));
        findings.extend(range.underflow(&place, target));
    }
    let emulated = emulate::layer(run, layer, target)?;
    if let Emulated::Done(outcome) = &emulated {
        let spoilt = layer.inputs.iter().chain(own).filter_map(range).any(|range| range.is_spoilt(target));
        if !spoilt {
            findings.extend(outcome.findings(&place, target));
        }
    }
    let worst = own.iter().filter_map(range).max_by(|a, b| a.amax.total_cmp(&b.amax));
    let row = Row {
        index: place.index,
        layer: place.layer,
        op: place.op,
        pass: place.pass,
        amax: worst.filter(|range| range.finite > 0).map(|range| range.amax),
        headroom_bits: worst.and_then(|range| range.headroom(target)),
        beyond: own.iter().filter_map(range).map(|range| range.beyond).sum(),
        underflow: own.iter().filter_map(range).filter_map(Range::lost_share).max_by(f64::total_cmp),
        predicted_rel_l2: emulated.done().and_then(|outcome| outcome.relative),
        predicted_overflow: emulated.done().map_or(0, |outcome| outcome.overflow),
    };
    Ok((row, findings, emulated))
}

fn notes(run: &Run, own: &[Vec<TensorId>], summary: &Summary, target: &Target) -> Vec<String> {
    let mut notes = Vec::new();
    let coarse = |id: &&TensorId| {
        run.dtype_and_shape(**id).and_then(|(dtype, _)| dtype.unit_roundoff()).is_some_and(|u| u >= target.u)
            || run.dtype_and_shape(**id).is_some_and(|(dtype, _)| dtype == DType::F16)
    };
    let lowered = own.iter().flatten().filter(coarse).count();
    if lowered > 0 {
        notes.push(format!(
            "{lowered} outputs were recorded in 16 bit or less: what they lost already cannot be seen; preflight wants a run in float32"
        ));
    }
    if summary.not_stored > 0 {
        notes.push(format!(
            "{} outputs were not stored: their recorded extremes alone were looked at",
            summary.not_stored
        ));
    }
    if summary.unmodelled > 0 {
        notes.push(format!("{} layers are not modelled, so that no error is predicted for them", summary.unmodelled));
    }
    notes
}
