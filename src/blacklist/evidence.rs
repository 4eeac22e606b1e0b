//! The entries of the blacklist, gathered layer by layer.

use std::collections::BTreeMap;

use crate::run::{LayerId, Run};

/// Why an operator must run in fp32, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its result, or what it reads, does not fit the dtype.
    Range,
    /// Its result underflows to 0, which a later operator cannot take.
    Underflow,
    /// It feeds an ill-conditioned step.
    Conditioning,
}

impl Reason {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Underflow => "underflow",
            Self::Conditioning => "conditioning",
        }
    }
}

/// One operator type with the layers of it that need fp32.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Operator as the golden recorded it.
    pub op: String,
    /// Canonical operator type in CANN's spelling, where known.
    pub cann: Option<&'static str>,
    /// Names of the layers.
    pub layers: Vec<String>,
    /// The most urgent reason among them.
    pub reason: Reason,
    /// 0 to 1: 1 where a value was measured out of range, less where it follows from the data flow.
    pub score: f64,
    /// The numbers.
    pub why: String,
    /// Layers of this operator in the run: what a list by type also hits.
    pub total_of_op: u64,
    /// Enclosing modules of the layers, where recorded; else their source lines.
    pub modules: Vec<String>,
}

/// Layers with their reasons.
#[derive(Debug, Default)]
pub(super) struct List(BTreeMap<LayerId, (Reason, f64, String)>);

impl List {
    /// Puts a layer on the list; the more urgent reason stands.
    pub(super) fn add(&mut self, golden: &Run, layer: LayerId, reason: Reason, score: f64, why: &str) {
        let exact = golden.layer(layer).op.is_mover() || golden.layer(layer).op.is_source();
        if exact {
            return;
        }
        let entry = self.0.entry(layer).or_insert((reason, score, why.to_string()));
        if reason < entry.0 || (reason == entry.0 && score > entry.1) {
            *entry = (reason, score, why.to_string());
        }
    }

    /// Groups by operator: the most urgent reason first, then execution order.
    pub(super) fn entries(&self, golden: &Run) -> Vec<Entry> {
        let mut entries: Vec<(LayerId, Entry)> = Vec::new();
        for (&id, (reason, score, why)) in &self.0 {
            let layer = golden.layer(id);
            let place = layer.module.clone().filter(|m| !m.is_empty()).or_else(|| layer.source.clone());
            if let Some((_, entry)) = entries.iter_mut().find(|(_, entry)| entry.op == layer.op_name) {
                entry.layers.push(golden.display_name(id));
                entry.modules.extend(place.filter(|m| !entry.modules.contains(m)));
                if *reason < entry.reason || (*reason == entry.reason && *score > entry.score) {
                    (entry.reason, entry.score, entry.why) = (*reason, *score, why.clone());
                }
                continue;
            }
            let total = golden.layers.iter().filter(|other| other.op_name == layer.op_name).count() as u64;
            entries.push((
                id,
                Entry {
                    op: layer.op_name.clone(),
                    cann: layer.op.cann_name(),
                    layers: vec![golden.display_name(id)],
                    reason: *reason,
                    score: *score,
                    why: why.clone(),
                    total_of_op: total,
                    modules: place.into_iter().collect(),
                },
            ));
        }
        entries.sort_by_key(|(id, entry)| (entry.reason, *id));
        entries.into_iter().map(|(_, entry)| entry).collect()
    }
}
