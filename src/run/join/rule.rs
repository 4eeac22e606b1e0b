//! How the tensors of several ranks are one tensor.

use globset::GlobMatcher;

use crate::run::Layer;

/// What the ranks of a group hold of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Stretches of it along this dim, in the order of the group; negative dims count from the end.
    Concat(i64),
    /// Terms of a sum.
    Sum,
    /// All of it, each.
    Replica,
}

impl How {
    /// As case files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Concat(_) => "concat",
            Self::Sum => "sum",
            Self::Replica => "replica",
        }
    }
}

/// Which ranks hold the parts of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// All ranks of a step, in ascending order.
    All,
    /// These, in this order; at least two.
    Ranks(Vec<u64>),
}

/// One entry of a case's `shards`.
#[derive(Debug, Clone)]
pub struct ShardRule {
    /// The pattern as written, for messages.
    pub pattern: String,
    /// Matches the name of a tensor, or of the layer that wrote it.
    pub matcher: GlobMatcher,
    /// What the ranks hold.
    pub how: How,
    /// The ranks.
    pub group: Group,
}

impl ShardRule {
    /// Whether the rule is about the tensor with this name, written by this layer (where one did).
    pub(super) fn matches(&self, tensor: &str, producer: Option<&Layer>) -> bool {
        self.matcher.is_match(tensor) || producer.is_some_and(|layer| self.matcher.is_match(&layer.name))
    }
}

/// The groups that rules name, each once, in the order of their lowest ranks; `None` where all ranks
/// are one group, or no rule is there.
pub fn groups(rules: &[ShardRule]) -> Option<Vec<Vec<u64>>> {
    let mut groups: Vec<Vec<u64>> = Vec::new();
    for rule in rules {
        let Group::Ranks(ranks) = &rule.group else { return None };
        if !groups.contains(ranks) {
            groups.push(ranks.clone());
        }
    }
    groups.sort_by_key(|ranks| ranks.iter().min().copied());
    (!groups.is_empty()).then_some(groups)
}
