//! What the third run says, as the report tells it.

use super::figure::{counted, figure, grouped};
use super::model::Truth;
use crate::judge::{TruthFindings, ratio_of};
use crate::pairing::TensorPair;
use crate::run::Run;

/// Ratios that stand among a tensor's metrics.
const RATIOS: &[&str] = &["rho", "max_ratio", "mean_ratio", "rmse_ratio"];

/// The truth's part of the report.
pub(super) fn summarise(golden: &Run, findings: &TruthFindings) -> Truth {
    let (layers, largest) = findings.largest();
    let count = |list: &[crate::run::LayerId]| list.len() as u64;
    let mut truth = Truth {
        path: findings.path.to_string_lossy().into_owned(),
        level: findings.level.map(|level| level.as_str().to_string()),
        unusable: findings.unusable.clone(),
        layers,
        better: count(&findings.better),
        beyond: count(&findings.beyond),
        relieved: count(&findings.relieved),
        largest: largest.map(|(_, rho)| rho),
        largest_layer: largest.map(|(id, _)| golden.display_name(id)),
        without: findings.without.iter().map(|(reason, count)| ((*reason).to_string(), *count)).collect(),
        why: String::new(),
    };
    truth.why = sentence(&truth);
    truth
}

fn sentence(truth: &Truth) -> String {
    if let Some(why) = &truth.unusable {
        return format!("no rho: {why}");
    }
    if truth.layers == 0 {
        let reasons: Vec<String> =
            truth.without.iter().map(|(reason, count)| format!("{} {reason}", grouped(*count))).collect();
        return format!("no rho of any layer ({})", reasons.join(", "));
    }
    let mut parts = vec![format!("rho of {}", counted(truth.layers, "layer"))];
    if let (Some(rho), Some(layer)) = (truth.largest, &truth.largest_layer) {
        parts.push(format!("largest {} at {layer}", figure(Some(rho))));
    }
    let limit = truth.level.as_ref().map_or("the limit".to_string(), |level| format!("level {level}"));
    parts.push(if truth.beyond > 0 {
        format!("{} beyond {limit}", grouped(truth.beyond))
    } else {
        format!("none beyond {limit}")
    });
    if truth.better > 0 {
        parts.push(format!("the candidate is the better one in {}", grouped(truth.better)));
    }
    if truth.relieved > 0 {
        parts.push(format!("{} drift from the golden alone and pass", grouped(truth.relieved)));
    }
    parts.join(", ")
}

/// Metrics that the truth adds to an output: the ratios, and rel_l2 of both sides against it.
pub(super) fn metrics(findings: &TruthFindings, pair: TensorPair) -> Vec<(String, Option<f64>)> {
    let Some(found) = findings.of(pair) else { return Vec::new() };
    let Ok(ratios) = found else { return vec![("rho".into(), None)] };
    let mut values: Vec<(String, Option<f64>)> =
        RATIOS.iter().map(|&name| (name.to_string(), ratio_of(&ratios, name))).collect();
    values.push(("golden_truth_rel_l2".into(), Some(ratios.golden)));
    values.push(("candidate_truth_rel_l2".into(), Some(ratios.candidate).filter(|v| v.is_finite())));
    values
}
