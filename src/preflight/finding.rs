//! One thing that a low-precision run will trip over.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::run::{Layer, Run};

/// How bad a finding is; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// These values give an infinity or a NaN in the dtype.
    Breaks,
    /// They do so with other inputs, or where the implementation keeps an inner result in the dtype.
    Risks,
    /// Precision beyond that of ordinary rounding is lost.
    Degrades,
}

impl Severity {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Breaks => "breaks",
            Self::Risks => "risks",
            Self::Degrades => "degrades",
        }
    }
}

/// What kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Values are beyond the dtype's largest.
    Overflow,
    /// Values reach into the last bit of range.
    Headroom,
    /// Small values lose more than rounding costs.
    Underflow,
    /// The squares that a norm sums are beyond the dtype's largest value.
    SquareSum,
    /// The argument of an exponential is beyond the logarithm of the dtype's largest value.
    Exponent,
    /// A sum has so many terms that the last ones are rounded away.
    Stagnation,
    /// An eps is 0 or a mere subnormal in the dtype.
    Epsilon,
    /// Replay in the dtype gives infinities or NaN from values that fit.
    ReplayOverflow,
    /// Replay in the dtype loses far more than roundings explain.
    IllConditioned,
}

impl FindingKind {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Headroom => "headroom",
            Self::Underflow => "underflow",
            Self::SquareSum => "square_sum",
            Self::Exponent => "exponent",
            Self::Stagnation => "stagnation",
            Self::Epsilon => "epsilon",
            Self::ReplayOverflow => "replay_overflow",
            Self::IllConditioned => "ill_conditioned",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Position of the layer in execution order.
    pub index: u32,
    /// Layer.
    pub layer: String,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// What kind of trouble it is.
    pub kind: FindingKind,
    /// How bad it is.
    pub severity: Severity,
    /// The numbers it rests on, by name, the limit among them; finite.
    pub numbers: BTreeMap<&'static str, f64>,
    /// Why, in words.
    pub why: String,
    /// What to do.
    pub advice: String,
}

/// Where a finding stands.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) layer: String,
    pub(super) op: String,
    pub(super) pass: String,
}

impl Place {
    pub(super) fn of(run: &Run, layer: &Layer) -> Self {
        Self {
            index: layer.id.0,
            layer: run.display_name(layer.id),
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
        }
    }

    pub(super) fn finding(
        &self,
        (kind, severity): (FindingKind, Severity),
        numbers: &[(&'static str, f64)],
        why: String,
        advice: String,
    ) -> Finding {
        Finding {
            index: self.index,
            layer: self.layer.clone(),
            op: self.op.clone(),
            pass: self.pass.clone(),
            kind,
            severity,
            numbers: numbers.iter().copied().filter(|(_, value)| value.is_finite()).collect(),
            why,
            advice,
        }
    }
}
