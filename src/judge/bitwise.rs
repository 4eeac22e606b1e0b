//! Bit equality: for those who align two stacks exactly.
//!
//! In goes a judgement; out come the sources that are not bit-equal, the first layer that is not, and
//! counts by operator. Nothing is read again. An output counts as bit-equal if the dtypes are equal
//! and every element that the case counts has the same bits, NaN payloads and signs of zero included.

use std::collections::BTreeMap;

use super::measure::Measured;
use super::{Judgement, Verdict};
use crate::case::Case;
use crate::compare::{Comparison, unravel};
use crate::run::{LayerId, Run};

/// What the bits say.
#[derive(Debug, Clone, Default)]
pub struct Bitwise {
    /// Sources (inputs, parameters, random operators are not among them) that are not bit-equal.
    pub sources: Vec<LayerId>,
    /// The first layer in execution order that is no source and not bit-equal.
    pub first: Option<FirstUnequal>,
    /// Layers that were compared, sources left out.
    pub compared: u64,
    /// Of those, the ones that are not bit-equal.
    pub unequal: u64,
    /// Golden layers of which nothing could be compared, sources left out.
    pub not_compared: u64,
    /// By operator as recorded, in the order of the names.
    pub ops: BTreeMap<String, OpBits>,
}

/// The first layer that is not bit-equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUnequal {
    /// The golden layer.
    pub layer: LayerId,
    /// Output slot.
    pub slot: usize,
    /// Coordinates of the first element whose value differs; `None` where none does (a sign of zero,
    /// another dtype) or where the tensors were not read.
    pub index: Option<Vec<u64>>,
    /// What differs, in words.
    pub why: String,
}

/// Counts of one operator type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpBits {
    /// Layers that were compared.
    pub layers: u64,
    /// Of those, the ones that are not bit-equal.
    pub unequal: u64,
    /// Elements that were compared bit by bit.
    pub elements: u64,
    /// Of those, the ones with equal bits.
    pub equal: u64,
    /// Largest distance in units in the last place; `None` where no floating-point output was read.
    pub max_ulp: Option<u64>,
}

impl Bitwise {
    /// Whether everything that was compared is bit-equal, sources included.
    pub fn is_equal(&self) -> bool {
        self.sources.is_empty() && self.unequal == 0
    }
}

/// How one output pair stands.
struct Bits {
    elements: u64,
    equal: u64,
    max_ulp: Option<u64>,
    index: Option<Vec<u64>>,
    /// `None` where it is bit-equal.
    why: Option<String>,
}

/// Reads the bit equality of every layer out of a judgement; layers that the case excludes and
/// records that a later operator overwrote are left out.
pub fn bitwise(golden: &Run, judgement: &Judgement, case: &Case) -> Bitwise {
    let mut found = Bitwise::default();
    for layer in &golden.layers {
        if case.layers.decides(&golden.display_name(layer.id)).is_some() {
            continue;
        }
        let mut outputs = judgement.layer(layer.id).outputs.iter().filter_map(|&(slot, pair)| {
            let measured = judgement.measurements.get(pair)?;
            // Only an overwritten record is skipped though both sides were read.
            let overwritten = matches!(measured, Measured::Tensors(_))
                && judgement.tensors.get(&pair).is_some_and(|tensor| tensor.verdict == Verdict::Skipped);
            Some((slot, bits(measured).filter(|_| !overwritten)?))
        });
        let mut count = OpBits::default();
        let mut first: Option<FirstUnequal> = None;
        let mut any = false;
        for (slot, bits) in outputs.by_ref() {
            any = true;
            count.elements += bits.elements;
            count.equal += bits.equal;
            count.max_ulp = count.max_ulp.max(bits.max_ulp);
            if let (None, Some(why)) = (&first, bits.why) {
                first = Some(FirstUnequal { layer: layer.id, slot, index: bits.index, why });
            }
        }
        if layer.op.is_source() {
            found.sources.extend(first.map(|first| first.layer));
            continue;
        }
        if !any {
            found.not_compared += 1;
            continue;
        }
        found.compared += 1;
        found.unequal += u64::from(first.is_some());
        let op = found.ops.entry(layer.op_name.clone()).or_default();
        op.layers += 1;
        op.unequal += u64::from(first.is_some());
        op.elements += count.elements;
        op.equal += count.equal;
        op.max_ulp = op.max_ulp.max(count.max_ulp);
        if found.first.is_none() {
            found.first = first;
        }
    }
    found
}

fn bits(measured: &Measured) -> Option<Bits> {
    let silent =
        |why: Option<&str>| Bits { elements: 0, equal: 0, max_ulp: None, index: None, why: why.map(str::to_string) };
    match measured {
        Measured::Tensors(Comparison::Measured(metrics)) => {
            let elements = metrics.elements - metrics.invalid;
            let equal = metrics.equal_bits.unwrap_or(0);
            let index = metrics.first_unequal.map(|at| unravel(at, &metrics.shape));
            let why = match metrics.equal_bits {
                Some(equal) if equal == elements => None,
                Some(equal) => Some(format!("{} of {elements} elements have other bits", elements - equal)),
                None => Some(format!(
                    "{} in the golden, {} in the candidate",
                    metrics.golden_dtype, metrics.candidate_dtype
                )),
            };
            Some(Bits { elements, equal, max_ulp: metrics.max_ulp, index: index.filter(|_| why.is_some()), why })
        }
        Measured::Tensors(Comparison::Mismatch(why)) => Some(silent(Some(why))),
        Measured::Tensors(Comparison::Opaque { equal }) => Some(silent((!equal).then_some("the bytes differ"))),
        Measured::Statistics { golden, candidate } => {
            let digests = golden.digest.as_ref().zip(candidate.digest.as_ref())?;
            let algorithm = |digest: &str| digest.split_once(':').map(|(algorithm, _)| algorithm.to_string());
            if algorithm(digests.0) != algorithm(digests.1) {
                return None;
            }
            let is_equal = digests.0 == digests.1 && golden.dtype == candidate.dtype;
            Some(silent((!is_equal).then_some("the recorded digests differ")))
        }
        Measured::NotStored(_) => None,
    }
}
