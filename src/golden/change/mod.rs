//! What recording a run would change in the golden that is there.
//!
//! In go the old golden and the new run, out come [`Changes`] in the words of layers and outputs, not
//! of tensor ids, which a recorder may number anew. When and by which version a golden was recorded
//! is no change, nor is when its run was made.

mod find;

use std::collections::BTreeMap;
use std::fmt;

pub(super) use find::find;

use crate::error::escape;

/// Everything that would change; empty where nothing would.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Why the old golden cannot be read; then nothing else is known.
    pub damaged: Option<String>,
    /// Layers that only the new run has, in execution order.
    pub added: Vec<String>,
    /// Layers that only the old golden has, in execution order.
    pub removed: Vec<String>,
    /// Layers of both that were recorded differently, in execution order.
    pub layers: Vec<LayerChange>,
    /// Tensors of both that differ, in execution order.
    pub tensors: Vec<TensorChange>,
    /// What differs about the golden as a whole: seed, environment, precision …
    pub facts: Vec<FactChange>,
    /// Of a tree of goldens: what would change in the golden of a step and rank, by its directory.
    pub within: BTreeMap<String, Changes>,
}

/// A layer that was recorded differently.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerChange {
    /// The layer as the old golden names it.
    pub layer: String,
    /// What differs, by the keys of `layers.jsonl`.
    pub facts: Vec<FactChange>,
}

/// One fact that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct FactChange {
    /// Its name.
    pub key: String,
    /// What it was; `None` where it was not recorded.
    pub from: Option<String>,
    /// What it would be.
    pub to: Option<String>,
}

/// A tensor that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorChange {
    /// The tensor's place: `layer:slot` for an output, else its id.
    pub tensor: String,
    /// How it differs.
    pub difference: TensorDifference,
}

/// How a tensor differs.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorDifference {
    /// Other values.
    Content {
        /// Relative error in the Euclidean norm against the old, where it exists.
        rel_l2: Option<f64>,
        /// Largest |new - old|.
        max_abs: f64,
        /// Elements that are not equal; 0 where only bit patterns differ (-0, NaN payloads).
        unequal: u64,
        /// Elements of the tensor.
        elements: u64,
        /// Of the unequal ones, those that are NaN or Inf on one side alone or of another kind; the
        /// other numbers know nothing of them.
        nonfinite: u64,
    },
    /// Other bytes in a dtype whose values cannot be read.
    Bytes,
    /// Another dtype or shape; both in words.
    Form {
        /// What it was.
        from: String,
        /// What it would be.
        to: String,
    },
    /// It was not stored before.
    NowStored,
    /// It was stored before and is not stored in the new run.
    NoLongerStored,
    /// Only the recorded statistics differ.
    Statistics,
    /// The old tensor is not as it was recorded.
    Damaged(String),
}

impl Changes {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One line for each change, safe to print.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.damaged.iter().map(|why| format!("the old golden cannot be read: {why}")));
        lines.extend(self.facts.iter().map(FactChange::to_string));
        lines.extend(self.removed.iter().map(|layer| format!("layer `{layer}` is removed")));
        lines.extend(self.added.iter().map(|layer| format!("layer `{layer}` is added")));
        for LayerChange { layer, facts } in &self.layers {
            lines.extend(facts.iter().map(|fact| format!("layer `{layer}`: {fact}")));
        }
        lines.extend(self.tensors.iter().map(|change| format!("tensor `{}`: {}", change.tensor, change.difference)));
        let mut lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
        for (directory, changes) in &self.within {
            lines.extend(changes.lines().into_iter().map(|line| format!("{}: {line}", escape(directory))));
        }
        lines
    }
}

impl fmt::Display for FactChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not recorded".into());
        write!(f, "{}: {} -> {}", self.key, shown(&self.from), shown(&self.to))
    }
}

impl fmt::Display for TensorDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { unequal: 0, .. } => f.write_str("bit patterns differ, the values do not"),
            Self::Content { rel_l2, max_abs, unequal, elements, nonfinite } => {
                let rel_l2 = rel_l2.map_or_else(|| "undefined".into(), |value| format!("{value:.3e}"));
                write!(f, "{unequal} of {elements} elements differ")?;
                if *nonfinite > 0 {
                    write!(f, ", {nonfinite} of them by NaN or Inf")?;
                }
                if unequal > nonfinite { write!(f, ", rel_l2 {rel_l2}, max_abs {max_abs:.3e}") } else { Ok(()) }
            }
            Self::Bytes => f.write_str("its bytes differ"),
            Self::Form { from, to } => write!(f, "{from} -> {to}"),
            Self::NowStored => f.write_str("is stored now"),
            Self::NoLongerStored => f.write_str("is no longer stored"),
            Self::Statistics => f.write_str("its statistics differ"),
            Self::Damaged(why) => write!(f, "the old one is damaged: {why}"),
        }
    }
}
