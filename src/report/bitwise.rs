//! Bit equality, as the report tells it, and what it makes of the outcome.

use super::assemble::{Findings, place};
use super::model::{Bitwise, BitwiseOp, Report};
use crate::diagnose::Site;
use crate::judge;

/// The bitwise part of the report.
pub fn tell(findings: Findings<'_>, found: &judge::Bitwise) -> Bitwise {
    let (index, why) = match &found.first {
        Some(first) => (first.index.clone(), first.why.clone()),
        None => (None, String::new()),
    };
    Bitwise {
        equal: found.is_equal(),
        sources: found.sources.iter().map(|&id| findings.golden.display_name(id)).collect(),
        first: found.first.as_ref().map(|first| place(findings, Site::Layer(first.layer))),
        first_index: index,
        why,
        compared: found.compared,
        unequal: found.unequal,
        not_compared: found.not_compared,
        ops: found
            .ops
            .iter()
            .map(|(op, bits)| BitwiseOp {
                op: op.clone(),
                layers: bits.layers,
                unequal: bits.unequal,
                elements: bits.elements,
                equal_bits: (bits.elements > 0).then(|| bits.equal as f64 / bits.elements as f64),
                max_ulp: bits.max_ulp,
            })
            .collect(),
    }
}

/// One sentence: what is not bit-equal, sources first.
pub fn sentence(bitwise: &Bitwise) -> String {
    if bitwise.equal {
        return format!("all {} layers that were compared are bit-equal", bitwise.compared);
    }
    let mut parts = Vec::new();
    match bitwise.sources.as_slice() {
        [] => {}
        [one] => parts.push(format!("the source {one} is not bit-equal")),
        [first, rest @ ..] => parts.push(format!("the source {first} and {} more are not bit-equal", rest.len())),
    }
    if let Some(first) = &bitwise.first {
        let at = bitwise.first_index.as_ref().map_or(String::new(), |index| {
            format!(", first at [{}]", index.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
        });
        parts.push(format!(
            "{} ({}) is the first layer that is not bit-equal: {}{at}",
            first.layer, first.op, bitwise.why
        ));
    }
    parts.join("; ")
}

/// Lets bit equality decide the outcome: unexpected where something is not bit-equal, expected where
/// all is. Runs that are incomparable though their bits agree stay what they are.
pub fn settle_outcome(report: &mut Report) {
    let Some(bitwise) = &report.bitwise else { return };
    if !bitwise.equal {
        report.outcome = "unexpected".into();
        report.outcome_why = Some(sentence(bitwise));
    } else if report.verdict != "incomparable" {
        report.outcome = "expected".into();
        report.outcome_why = Some(sentence(bitwise));
    }
}
