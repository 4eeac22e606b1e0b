//! The error that a layer made itself: its recorded output against the operator recomputed in fp64
//! from its own recorded inputs.
//!
//! In goes one layer of one run, out comes a [`Replayed`]: per output how far it is from the exact
//! result, in multiples of what a healthy implementation leaves, or the reason why it cannot be told.

use std::sync::Arc;

use ndarray::ArrayD;

use super::allowance::{allowance, largest_addend, row_floors};
use super::limit::figure;
use super::recorded;
use super::rows::{self, Bounds, Extent};
use super::slope::Slope;
use super::threshold::{DEFAULT_ACCUMULATOR, INTRODUCED, INTRODUCED_ELEMENT, SUM_SPREAD};
use crate::compare::ulp_distance;
use crate::error::Result;
use crate::op::Class;
use crate::replay::{self, Call, Exactness, Format, Operand, REDUCED, Reference, Rounding, Unmodelled};
use crate::run::{Layer, LayerId, LayerKind, Run};
use crate::tensor::{DType, Tensor};

/// When layers are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayMode {
    /// Where it fits the bounds on time and memory.
    #[default]
    Auto,
    /// Whatever it costs.
    Always,
    /// Not at all.
    Never,
}

/// What came of replaying a layer.
#[derive(Debug, Clone)]
pub enum Replayed {
    /// It was recomputed; one entry per output, `None` for those that are never compared.
    Done(Vec<Option<OwnError>>),
    /// The operator or its attributes are not known well enough.
    Unmodelled(String),
    /// It was left out: too large, not stored, a factory.
    Skipped(String),
}

/// The error of one output against the exact result of the layer's own inputs.
#[derive(Debug, Clone)]
pub struct OwnError {
    /// rel_l2 against the exact result; `None` where that is all zero but the error is not.
    pub relative: Option<f64>,
    /// The same error divided by what a healthy implementation leaves.
    pub excess: f64,
    /// The largest element error divided by what one element may be off.
    pub element: f64,
    /// Flat index of that element.
    pub element_at: u64,
    /// Elements of an exact operator that are not bit-equal (a cast: not correctly rounded).
    pub inexact: u64,
    /// Whether it is beyond the limits.
    pub is_out: bool,
    /// A reduced compute format of the operands that explains the error.
    pub explained_by: Option<(&'static str, Rounding)>,
    /// The numbers, in words.
    pub why: String,
    /// The exact result, kept for the comparison of both sides.
    pub exact: Option<Arc<ArrayD<f64>>>,
}

impl Replayed {
    /// The worst error among the outputs.
    pub fn worst(&self) -> Option<&OwnError> {
        match self {
            Self::Done(outputs) => outputs.iter().flatten().max_by(|a, b| {
                (a.is_out, a.excess).partial_cmp(&(b.is_out, b.excess)).unwrap_or(std::cmp::Ordering::Equal)
            }),
            _ => None,
        }
    }

    /// Whether some output is beyond its limits.
    pub fn is_out(&self) -> bool {
        self.worst().is_some_and(|error| error.is_out)
    }

    /// Whether it was recomputed and is within its limits.
    pub fn is_in(&self) -> bool {
        matches!(self, Self::Done(_)) && !self.is_out()
    }
}

/// Which elements of an output slot count; `None` where all do.
pub(super) type ValidElements<'a> = &'a dyn Fn(LayerId, usize) -> Option<Vec<bool>>;

/// The rows of a layer's first output that differ most between the two runs.
pub(super) type DifferingRows<'a> = &'a dyn Fn(LayerId) -> Vec<usize>;

/// Replays one layer of `run`. `keep` asks for the exact results; `valid` says which elements count,
/// `differing` which rows are asked about first where not all can be.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn replay_layer(
    run: &Run,
    id: LayerId,
    mode: ReplayMode,
    keep: bool,
    valid: ValidElements<'_>,
    differing: DifferingRows<'_>,
) -> Result<Replayed> {
    let bounds = match mode {
        ReplayMode::Never => return Ok(Replayed::Skipped("replay is off".into())),
        ReplayMode::Auto => Some(rows::AUTO),
        ReplayMode::Always => None,
    };
    replay_within(run, id, bounds, keep, valid, differing)
}

/// The same within `bounds`, where there are any.
pub(super) fn replay_within(
    run: &Run,
    id: LayerId,
    bounds: Option<Bounds>,
    keep: bool,
    valid: ValidElements<'_>,
    differing: DifferingRows<'_>,
) -> Result<Replayed> {
    let layer = run.layer(id);
    if let Some(reason) = unfit(layer) {
        return Ok(reason);
    }
    let extent = bounds.map_or(Extent::All, |bounds| rows::extent(run, layer, bounds, || differing(id)));
    let rows = match &extent {
        Extent::All => None,
        Extent::Rows(rows) => Some(rows),
        Extent::TooLarge(reason) => return Ok(Replayed::Skipped(reason.clone())),
    };
    let call = match recorded::call(run, id, rows)? {
        Ok(call) => call,
        Err(reason) => return Ok(reason),
    };
    let call = as_computed(layer, call);
    let references = match replay::replay(&call) {
        Ok(references) => references,
        Err(Unmodelled(reason)) => return Ok(Replayed::Unmodelled(reason)),
    };
    let mut errors = Vec::with_capacity(references.len());
    for (slot, reference) in references.into_iter().enumerate() {
        // Among ties any index is right: the values it leads to are held against the reference.
        let is_index = layer.op.index_output().is_some_and(|(index, _)| index == slot);
        let (Some(reference), Some(&output)) = (reference.filter(|_| !is_index), layer.outputs.get(slot)) else {
            errors.push(None);
            continue;
        };
        let Some(tensor) = run.load(output)? else {
            errors.push(None);
            continue;
        };
        let counts = valid(id, slot).map(|counts| rows.map_or(counts.clone(), |rows| rows.mask(&counts)));
        let tensor = match rows.map(|rows| rows.of(&tensor)) {
            None => tensor,
            Some(Ok(part)) => part,
            Some(Err(reason)) => return Ok(Replayed::Unmodelled(reason)),
        };
        let addend = largest_addend(layer, &call);
        let mut error = own_error(layer, &tensor, &reference, addend, counts.as_deref());
        if let Some(error) = error.as_mut().filter(|e| e.is_out && layer.op.class() == Class::Contraction) {
            error.explained_by = reduced_format(&call, slot, layer, &tensor, counts.as_deref(), error.excess);
            if let Some((format, rounding)) = error.explained_by {
                error.why = format!("{}; operands rounded to {format} ({}) explain it", error.why, rounding.name());
            }
        }
        if let (Some(error), Some(rows)) = (&mut error, rows) {
            let width = tensor.shape().last().copied().unwrap_or(1);
            error.element_at = rows.whole_index(error.element_at, width);
            error.why = format!("{} (replayed on {} of {} rows)", error.why, rows.chosen.len(), rows.of);
        }
        if keep && let Some(error) = &mut error {
            error.exact = Some(Arc::new(reference.value));
        }
        errors.push(error);
    }
    Ok(Replayed::Done(errors))
}

/// The call as the layer computed it: above autocast the operands of a product are recorded before they are
/// rounded to the dtype in which it ran.
fn as_computed<'a>(layer: &Layer, mut call: Call<'a>) -> Call<'a> {
    let format = layer.compute.filter(|_| layer.op.class() == Class::Contraction).and_then(Format::of);
    let Some((format, declared)) = format.zip(layer.compute.and_then(DType::unit_roundoff)) else { return call };
    let finer = |operand: &&mut Operand| operand.dtype.unit_roundoff().is_some_and(|own| own < declared);
    for operand in call.inputs.iter_mut().filter(finer) {
        operand.value = operand.value.mapv(|v| format.round(v, Rounding::NearestEven)).into_shared();
    }
    call
}

/// Why a layer is not replayed at all.
fn unfit(layer: &Layer) -> Option<Replayed> {
    if layer.kind == LayerKind::Module {
        return Some(Replayed::Skipped("a module is replayed by the operators inside it".into()));
    }
    if matches!(layer.op.class(), Class::Source | Class::Uninitialised | Class::Random) {
        return Some(Replayed::Skipped("a source or factory has nothing to replay".into()));
    }
    None
}

/// Holds a recorded output against the exact result. `None` where nothing can be said (private, packed).
fn own_error(
    layer: &Layer,
    output: &Tensor,
    reference: &Reference,
    addend: f64,
    valid: Option<&[bool]>,
) -> Option<OwnError> {
    let mut recorded = output.decode()?;
    let exact = reference.value.as_standard_layout();
    let exact = exact.as_slice()?;
    if recorded.len() != exact.len() {
        return None;
    }
    // What does not count is as it should be.
    for ((y, &r), _) in recorded.iter_mut().zip(exact).zip(valid.unwrap_or_default()).filter(|(_, counts)| !**counts) {
        *y = r;
    }
    let dtype = output.dtype();
    let moves =
        matches!(reference.exactness, Exactness::Exact | Exactness::Discrete) || dtype.unit_roundoff().is_none();
    let casts = layer.op.class() == Class::Cast;
    if moves || casts {
        return Some(exactly(&recorded, exact, dtype, casts, &reference.exactness));
    }
    let u_out = dtype.unit_roundoff()?;
    let declared = layer.compute.and_then(DType::unit_roundoff).map_or(u_out, |u| u.max(u_out));
    let u_inner = layer.accumulate.and_then(DType::unit_roundoff).unwrap_or(DEFAULT_ACCUMULATOR).max(f64::MIN_POSITIVE);
    let subnormal = dtype.smallest_subnormal()?;
    let (mut error_sq, mut expected_sq, mut exact_sq) = (0.0, 0.0, 0.0);
    let (mut worst, mut worst_at) = (0.0f64, 0);
    let max = dtype.max_finite()?;
    let floors = row_floors(layer, reference);
    let mut slope = Slope::new(dtype, recorded.len(), reference.value.shape());
    for (at, (&y, &r)) in recorded.iter().zip(exact).enumerate() {
        // Special values have their own analysis; a result beyond the range may round to either.
        if !y.is_finite() || !r.is_finite() || (r.abs() > max && y.abs() >= max) {
            continue;
        }
        let floor = floors.as_ref().map_or(0.0, |(width, rows)| rows[at / width]);
        let allowed = allowance(reference, at, floor, r, addend, declared, u_inner, subnormal);
        let d = y - r;
        slope.add(at, y, r);
        error_sq += d * d;
        exact_sq += r * r;
        expected_sq += allowed.variance;
        let z = if d == 0.0 { 0.0 } else { d.abs() / allowed.bound };
        if z > worst {
            (worst, worst_at) = (z, at as u64);
        }
    }
    let excess = if error_sq == 0.0 { 0.0 } else { (error_sq / expected_sq.max(f64::MIN_POSITIVE)).sqrt() };
    let relative = if error_sq == 0.0 {
        Some(0.0)
    } else {
        (exact_sq > 0.0).then(|| (error_sq / exact_sq).sqrt()).filter(|r| r.is_finite())
    };
    // Few elements say little about the mean: their own bound decides.
    let spread = 1.0 + SUM_SPREAD / (recorded.len() as f64).sqrt();
    let bias = slope.bias();
    let is_out = excess > INTRODUCED * spread || worst > INTRODUCED_ELEMENT || bias.is_some();
    let shown = relative.map_or("not defined".to_string(), figure);
    let mut why = format!(
        "from its own inputs the exact result is rel_l2 {shown} away: {} times what rounding leaves (limit {}), the worst element {} times its bound (limit {INTRODUCED_ELEMENT})",
        figure(excess),
        figure(INTRODUCED * spread),
        figure(worst),
    );
    if let Some(bias) = bias {
        why = format!("{why}; {bias}");
    }
    Some(OwnError {
        relative,
        excess,
        element: worst,
        element_at: worst_at,
        inexact: 0,
        is_out,
        explained_by: None,
        why,
        exact: None,
    })
}

/// Movers, indices and casts: right or wrong, nothing between.
fn exactly(recorded: &[f64], exact: &[f64], dtype: DType, casts: bool, exactness: &Exactness) -> OwnError {
    let is_float = dtype.unit_roundoff().is_some();
    let (mut inexact, mut first, mut error_sq, mut exact_sq) = (0u64, 0u64, 0.0, 0.0);
    for (at, (&y, &r)) in recorded.iter().zip(exact).enumerate() {
        let same = y == r
            || (y.is_nan() && r.is_nan())
            || is_float && casts && rounds_to(r, y, dtype)
            // An integer cast truncates towards zero.
            || !is_float && casts && (r.trunc() == y || !r.is_finite());
        if same {
            continue;
        }
        if inexact == 0 {
            first = at as u64;
        }
        inexact += 1;
        if y.is_finite() && r.is_finite() {
            error_sq += (y - r) * (y - r);
        }
        exact_sq += if r.is_finite() { r * r } else { 0.0 };
    }
    for &r in exact.iter().filter(|r| r.is_finite()) {
        exact_sq = f64::max(exact_sq, r * r);
    }
    let what = match (casts, exactness) {
        (true, _) => "are not correctly rounded",
        (_, Exactness::Discrete) => "differ from what its own inputs give",
        _ => "are not the elements it was given, bit for bit",
    };
    let why = if inexact == 0 {
        "exact: it does just what its inputs say".to_string()
    } else {
        format!("{inexact} of {} elements {what}, the first at {first}", recorded.len())
    };
    let relative = if inexact == 0 { Some(0.0) } else { (exact_sq > 0.0).then(|| (error_sq / exact_sq).sqrt()) };
    let excess = if inexact == 0 { 0.0 } else { f64::MAX };
    OwnError {
        relative,
        excess,
        element: excess,
        element_at: first,
        inexact,
        is_out: inexact > 0,
        explained_by: None,
        why,
        exact: None,
    }
}

/// Whether `recorded` is `exact` correctly rounded to `dtype`; a tie may go either way, for devices
/// round ties to even or away from zero.
fn rounds_to(exact: f64, recorded: f64, dtype: DType) -> bool {
    if !exact.is_finite() || !recorded.is_finite() {
        let beyond = dtype.max_finite().is_some_and(|max| exact.abs() > max * (1.0 - f64::EPSILON));
        return beyond && (recorded.is_infinite() || recorded.abs() == dtype.max_finite().unwrap_or(0.0))
            || exact.is_nan() && recorded.is_nan();
    }
    if ulp_distance(dtype, exact, recorded) == Some(0) {
        return true;
    }
    Format::of(dtype).is_some_and(|format| format.round(exact, Rounding::NearestAway) == recorded)
}

/// The compute format that explains an error best: operands rounded to it leave less than a third of
/// the error, and what is left is within the limits.
fn reduced_format(
    call: &Call,
    slot: usize,
    layer: &Layer,
    output: &Tensor,
    valid: Option<&[bool]>,
    excess: f64,
) -> Option<(&'static str, Rounding)> {
    let addend = largest_addend(layer, call);
    let mut best: Option<(f64, &'static str, Rounding)> = None;
    for format in REDUCED {
        for rounding in [Rounding::NearestEven, Rounding::NearestAway, Rounding::Truncate] {
            let mut reduced = call.clone();
            for operand in reduced.inputs.iter_mut().filter(|operand| operand.dtype.unit_roundoff().is_some()) {
                operand.value = operand.value.mapv(|v| format.round(v, rounding)).into_shared();
            }
            let Ok(references) = replay::replay(&reduced) else { continue };
            let Some(error) = references
                .into_iter()
                .nth(slot)
                .flatten()
                .and_then(|reference| own_error(layer, output, &reference, addend, valid))
            else {
                continue;
            };
            if error.excess < excess / 3.0 && best.is_none_or(|(known, ..)| error.excess < 0.9 * known) {
                best = Some((error.excess, format.name, rounding));
            }
        }
    }
    best.map(|(_, name, rounding)| (name, rounding))
}
