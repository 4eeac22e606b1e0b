//! What a bisection tells, in the terms of the report.

use serde::{Deserialize, Serialize};

/// Schema identifier of a bisection.
pub const BISECT_SCHEMA: &str = "goldline.bisect/1";

/// What was searched, found and read. Every number is finite or null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bisection {
    /// Always [`BISECT_SCHEMA`].
    pub schema: String,
    /// `pass`, `drift`, `nonfinite` or `incomparable`, as far as what was read shows it.
    pub verdict: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Everything that was read, in the order in which it was read.
    pub steps: Vec<Step>,
    /// How much was read, of how much.
    pub loaded: Loaded,
    /// Why the search gave way to the scan of all pairs in execution order; null where it did not.
    pub fell_back: Option<String>,
    /// What the result does not say.
    pub caveats: Vec<String>,
}

/// What came of a bisection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// Layers that are out although all that came into them is in.
    Found {
        /// The layers, most upstream first; at least one.
        origins: Vec<Origin>,
    },
    /// The runs do not answer the question.
    Incomparable {
        /// The sources that differ; empty where the runs cannot be paired or end early.
        origins: Vec<Origin>,
        /// The reason.
        why: String,
    },
    /// No layer that was read is out.
    Nothing {
        /// How much that says.
        why: String,
    },
}

/// A layer that is out although what came into it is in, or a source that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The golden's name (a stretch that only the candidate has: the candidate's).
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator as the golden recorded it.
    pub op: String,
    /// `forward`, `backward` or `optimizer`.
    pub pass: String,
    /// Position in the golden's execution order; null for a stretch without partner.
    pub index: Option<u64>,
    /// `introduced`, `amplified`, `accumulated` or `source`.
    pub role: String,
    /// rel_l2 of the output that shows it, where it exists.
    pub rel_l2: Option<f64>,
    /// Largest rel_l2 among its inputs, where it exists.
    pub rel_l2_in: Option<f64>,
    /// The evidence.
    pub why: String,
}

/// What a layer's tensors were read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// An input or a parameter: must be the same in both runs.
    Source,
    /// An output that no layer reads.
    Output,
    /// A tensor that layers read across many cut points (a mask, a table of angles).
    Side,
    /// A tensor through which everything later passes.
    Cut,
    /// A layer between the last cut point that is in and the first that is out.
    Block,
    /// An input or a consumer of a suspect.
    Confirm,
    /// The scan of all pairs.
    Scan,
}

impl Purpose {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Output => "output",
            Self::Side => "side input",
            Self::Cut => "cut point",
            Self::Block => "block",
            Self::Confirm => "confirm",
            Self::Scan => "scan",
        }
    }
}

/// The tensors of one layer, read together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The golden's name.
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator as the golden recorded it.
    pub op: String,
    /// `forward`, `backward` or `optimizer`.
    pub pass: String,
    /// Position in the golden's execution order.
    pub index: u64,
    /// What it was read for.
    pub purpose: Purpose,
    /// Tensor pairs that were read.
    pub pairs: u64,
    /// Bytes that were read, of both runs.
    pub bytes: u64,
    /// `pass`, `skipped`, `mismatch`, `drift` or `nonfinite`, as it stood after this step.
    pub verdict: String,
    /// rel_l2 of the worst of them, where it exists.
    pub rel_l2: Option<f64>,
    /// Its limit, where there is one.
    pub limit: Option<f64>,
    /// Why it was read.
    pub reason: String,
}

/// How much was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// Tensor pairs that were read.
    pub pairs: u64,
    /// Tensor pairs that a whole comparison reads.
    pub of_pairs: u64,
    /// Of the pairs that were read, those of sources.
    pub source_pairs: u64,
    /// Bytes that were read, of both runs.
    pub bytes: u64,
    /// Bytes that a whole comparison reads.
    pub of_bytes: u64,
}
