//! Why a special value was born where it was: the classes of NUMERICS section 4.

use super::birth::SpecialKind;
use super::flow::{Flow, Side};

use crate::error::Result;
use crate::judge::figure;
use crate::op::{Class, Reach};
use crate::pairing::TensorPair;
use crate::run::{LayerId, TensorId};
use crate::tensor::DType;

/// How many producers the search for an underflow goes back.
const MAX_STEPS: usize = 32;

/// Why a special value was born.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A tensor the model was given holds it.
    Source,
    /// The other run's value does not fit this dtype.
    Overflow,
    /// The result would fit; something inside the operator overflowed.
    InternalOverflow,
    /// An operand is 0 here and not in the other run: log(0), 1/0, 0/0.
    Underflow,
    /// The operator's argument is outside its domain here alone.
    Invalid,
    /// Equal inputs that hold special values in both runs; the operators treat them differently.
    Formula,
    /// Inputs and reference are ordinary, and no low precision is involved: the operator is at fault.
    Defect,
    /// Both runs hold it.
    Shared,
    /// The evidence decides nothing.
    Unexplained,
}

impl Cause {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Overflow => "overflow",
            Self::InternalOverflow => "internal_overflow",
            Self::Underflow => "underflow",
            Self::Invalid => "invalid",
            Self::Formula => "formula",
            Self::Defect => "defect",
            Self::Shared => "shared",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A cause and what speaks for it.
pub(super) struct Evidence {
    pub(super) cause: Cause,
    pub(super) layer: Option<LayerId>,
    pub(super) why: String,
}

fn evidence(cause: Cause, why: impl Into<String>) -> Evidence {
    Evidence { cause, layer: None, why: why.into() }
}

/// The cause of the special values that `born` marks in `pair` on `side`.
pub(super) fn of(
    flow: &Flow<'_>,
    id: LayerId,
    pair: TensorPair,
    side: Side,
    kind: SpecialKind,
    born: &[bool],
) -> Result<Evidence> {
    let layer = flow.golden.layer(id);
    if layer.op.class() == Class::Source {
        return Ok(evidence(
            Cause::Source,
            format!("the {} was given a source that holds it; no operator is to blame", side_name(side)),
        ));
    }
    if let Some(found) = by_range(flow, pair, side, kind, born)? {
        return Ok(found);
    }
    if let Some(found) = by_underflow(flow, id, side, born)? {
        return Ok(found);
    }
    let inputs = flow.inputs(id);
    let shared_specials = inputs.iter().any(|&input| {
        flow.judgement
            .measurements
            .get(input)
            .and_then(|m| m.metrics())
            .is_some_and(|m| m.specials.shared_inf + m.specials.shared_nan > 0 && !m.has_unshared_specials())
    });
    if shared_specials && inputs.iter().all(|&input| !flow.pair_is_out(input)) {
        return Ok(evidence(
            Cause::Formula,
            "its inputs hold Inf or NaN at the same places in both runs, and the two implementations treat them differently",
        ));
    }
    let precision = compute_dtype(flow, id, side);
    let low = precision.is_some_and(|dtype| dtype.unit_roundoff() > DType::F32.unit_roundoff());
    if takes_domain(layer.op.name()) && kind == SpecialKind::Nan {
        return Ok(evidence(
            Cause::Invalid,
            format!("{} of an argument outside its domain in the {} alone", layer.op_name, side_name(side)),
        ));
    }
    let reference = reference_range(flow, pair, side, born)?;
    let fits = reference.map_or(String::new(), |amax| format!(" (the other run holds up to {} there)", figure(amax)));
    if low {
        return Ok(evidence(
            Cause::InternalOverflow,
            format!(
                "its inputs are finite and its result would fit {}{fits}: something inside {} overflowed",
                precision.map_or("", |d| d.name()),
                layer.op_name
            ),
        ));
    }
    Ok(evidence(
        Cause::Defect,
        format!("its inputs are finite and agree, its result would fit{fits}, and no low precision is involved"),
    ))
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Golden => "golden",
        Side::Candidate => "candidate",
    }
}

/// Range: the other run's values at these places are beyond the dtype's largest.
pub(super) fn by_range(
    flow: &Flow<'_>,
    pair: TensorPair,
    side: Side,
    kind: SpecialKind,
    born: &[bool],
) -> Result<Option<Evidence>> {
    if kind == SpecialKind::Nan {
        return Ok(None);
    }
    let Some((dtype, _)) = side.run(flow).dtype_and_shape(side.of(pair)) else { return Ok(None) };
    let (Some(max), Some(u)) = (dtype.max_finite(), dtype.unit_roundoff()) else { return Ok(None) };
    let Some(values) = other_values(flow, pair, side)? else { return Ok(None) };
    let there = || values.iter().zip(born).filter(|(_, b)| **b).map(|(v, _)| v.abs());
    // From max·(1 + u) on a correct rounding gives Inf; a step of error on the way is legitimate.
    let beyond = there().filter(|v| *v >= max * (1.0 - 4.0 * u)).count();
    let (count, amax) = (there().count(), there().fold(0.0, f64::max));
    Ok((2 * beyond >= count && beyond > 0).then(|| {
        evidence(
            Cause::Overflow,
            format!(
                "the {} holds up to {} there, which {dtype} (largest {}) cannot",
                side_name(other(side)),
                figure(amax),
                figure(max)
            ),
        )
    }))
}

fn other(side: Side) -> Side {
    if side == Side::Golden { Side::Candidate } else { Side::Golden }
}

fn other_values(flow: &Flow<'_>, pair: TensorPair, side: Side) -> Result<Option<Vec<f64>>> {
    let other = other(side);
    Ok(other.run(flow).load(other.of(pair))?.and_then(|tensor| tensor.decode()))
}

fn reference_range(flow: &Flow<'_>, pair: TensorPair, side: Side, born: &[bool]) -> Result<Option<f64>> {
    Ok(other_values(flow, pair, side)?.map(|values| {
        values.iter().zip(born).filter(|(v, b)| **b && v.is_finite()).map(|(v, _)| v.abs()).fold(0.0, f64::max)
    }))
}

/// Underflow: an operand is exactly 0 at these places here and not in the other run. Follows it back
/// to the layer that flushed it.
fn by_underflow(flow: &Flow<'_>, id: LayerId, side: Side, born: &[bool]) -> Result<Option<Evidence>> {
    let layer = flow.golden.layer(id);
    if !matches!(layer.op.class(), Class::Multiplicative | Class::Elementwise | Class::Additive) {
        return Ok(None);
    }
    let Some(&output) = layer.outputs.first() else { return Ok(None) };
    let Some((_, shape)) = flow.golden.dtype_and_shape(output) else { return Ok(None) };
    let shape = shape.to_vec();
    for pair in flow.inputs(id) {
        let Some(flushed) = flushed_to_zero(flow, pair, side, born, &shape)? else { continue };
        let (culprit, tensor) = follow_back(flow, pair, side, &flushed.mask)?;
        let name = culprit.map(|id| flow.golden.display_name(id));
        let why = format!(
            "an operand is exactly 0 at {} of these places in the {} where the other run holds down to {}{}",
            flushed.count,
            side_name(side),
            figure(flushed.smallest),
            name.map_or(String::new(), |name| format!("; {name} flushed it ({})", dtype_name(flow, tensor, side)))
        );
        return Ok(Some(Evidence { cause: Cause::Underflow, layer: culprit, why }));
    }
    Ok(None)
}

fn dtype_name(flow: &Flow<'_>, tensor: TensorId, side: Side) -> String {
    match side.run(flow).dtype_and_shape(tensor) {
        Some((dtype, _)) => format!("smallest {dtype} is {}", figure(dtype.smallest_subnormal().unwrap_or(0.0))),
        None => "dtype not recorded".into(),
    }
}

struct Flushed {
    mask: Vec<bool>,
    count: u64,
    smallest: f64,
}

/// Elements of `pair` that are 0 on `side` and not on the other, at the places `marked` (of `shape`).
fn flushed_to_zero(
    flow: &Flow<'_>,
    pair: TensorPair,
    side: Side,
    marked: &[bool],
    shape: &[usize],
) -> Result<Option<Flushed>> {
    let (Some(golden), Some(candidate)) = (flow.golden.load(pair.0)?, flow.candidate.load(pair.1)?) else {
        return Ok(None);
    };
    if golden.shape() != candidate.shape() {
        return Ok(None);
    }
    let operand_shape = golden.shape().to_vec();
    let (Some(a), Some(b)) = (golden.decode(), candidate.decode()) else { return Ok(None) };
    let (own, reference) = if side == Side::Golden { (a, b) } else { (b, a) };
    let zero = |at: usize| own.get(at) == Some(&0.0) && reference.get(at).is_some_and(|v| *v != 0.0 && v.is_finite());
    // Which element of the operand each marked place reads, under broadcasting.
    let positions: Vec<usize> = (0..own.len()).collect();
    let Ok(view) = ndarray::ArrayViewD::from_shape(ndarray::IxDyn(&operand_shape), &positions) else { return Ok(None) };
    let Some(view) = view.broadcast(ndarray::IxDyn(shape)) else { return Ok(None) };
    let mut flushed = Flushed { mask: vec![false; own.len()], count: 0, smallest: f64::INFINITY };
    let mut total = 0u64;
    for (&at, _) in view.iter().zip(marked).filter(|(_, marked)| **marked) {
        total += 1;
        if zero(at) {
            flushed.mask[at] = true;
            flushed.count += 1;
            flushed.smallest = flushed.smallest.min(reference[at].abs());
        }
    }
    Ok((flushed.count > 0 && 2 * flushed.count >= total).then_some(flushed))
}

/// The layer that flushed the marked elements of a tensor to zero: the first, going back, whose own
/// operands were not flushed at the same places.
fn follow_back(flow: &Flow<'_>, pair: TensorPair, side: Side, mask: &[bool]) -> Result<(Option<LayerId>, TensorId)> {
    let (mut pair, mut mask) = (pair, mask.to_vec());
    let mut culprit = None;
    for _ in 0..MAX_STEPS {
        let Some((producer, _)) = flow.golden.tensor(pair.0).producer else { break };
        let layer = flow.golden.layer(producer);
        if layer.op.class() == Class::Source {
            break;
        }
        culprit = Some(producer);
        if layer.op.reach() != Reach::Elementwise {
            break;
        }
        let Some((_, shape)) = flow.golden.dtype_and_shape(pair.0) else { break };
        let shape = shape.to_vec();
        let mut earlier = None;
        for input in flow.inputs(producer) {
            if let Some(flushed) = flushed_to_zero(flow, input, side, &mask, &shape)? {
                earlier = Some((input, flushed.mask));
                break;
            }
        }
        let Some((input, flushed)) = earlier else { break };
        (pair, mask) = (input, flushed);
    }
    Ok((culprit, side.of(pair)))
}

/// Dtype that a layer computed in on `side`.
fn compute_dtype(flow: &Flow<'_>, id: LayerId, side: Side) -> Option<DType> {
    let (run, layer) = match side {
        Side::Golden => (flow.golden, flow.golden.layer(id)),
        Side::Candidate => (flow.candidate, flow.candidate.layer(flow.judgement.pairing.partner(id)?.layer)),
    };
    layer.compute.or_else(|| run.dtype_and_shape(*layer.outputs.first()?).map(|(dtype, _)| dtype))
}

/// Functions with arguments that have no real result.
fn takes_domain(op: &str) -> bool {
    matches!(op, "log" | "sqrt" | "rsqrt" | "asin" | "pow" | "div" | "reciprocal")
}
