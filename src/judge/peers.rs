//! Peer groups: what all layers of one operator and dtype have in common is the device, not a fault.
//!
//! In go the replays of a candidate; out come remarks about groups whose *median* own error is beyond
//! the limit. Where a vendor would accept that median, members near it are no longer out; beyond that
//! they stay out, and the remark says that the error is systematic. A member far above its group stays
//! out in either case.

use std::collections::BTreeMap;

use super::introduced::{OwnError, Replayed};
use super::limit::figure;
use super::replaying::Replays;
use super::threshold::{PEERS_APART, PEERS_LEAST, vendor_tolerance};
use crate::run::{LayerId, Run};
use crate::tensor::DType;

/// One output of one layer in its group.
#[derive(Clone, Copy)]
struct Member {
    layer: LayerId,
    slot: usize,
    excess: f64,
    relative: Option<f64>,
    is_out: bool,
    is_explained: bool,
}

/// Settles the groups of `candidate`. `counts` says which layers belong to a group at all, `in_total`
/// whose total error is in: what is visible in the total is not excused.
pub(super) fn settle(
    candidate: &Run,
    replays: &mut Replays,
    counts: &dyn Fn(LayerId) -> bool,
    in_total: &dyn Fn(LayerId) -> bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    for ((op, dtype), members) in groups(candidate, replays, counts) {
        let Some(median) = median(&members) else { continue };
        if members.len() < PEERS_LEAST || !median.is_out {
            continue;
        }
        let accepted = vendor_tolerance(dtype).rel;
        let numbers = format!(
            "half of its {} layers with {dtype} outputs are {} times what rounding leaves, or more (rel_l2 {})",
            members.len(),
            figure(median.excess),
            median.relative.map_or("not defined".to_string(), figure)
        );
        // An error that a reduced compute format explains has a better name than the device's.
        let is_accepted = !median.is_explained && median.relative.is_some_and(|relative| relative <= accepted);
        if !is_accepted {
            notes.push(format!("systematic in {op}: {numbers}"));
            continue;
        }
        let within = |member: &&Member| member.is_out && member.excess <= PEERS_APART * median.excess;
        let excused: Vec<&Member> = members.iter().filter(within).filter(|member| in_total(member.layer)).collect();
        if excused.is_empty() {
            continue;
        }
        notes.push(format!(
            "device characteristic of {op}: {numbers}, which vendors accept up to {}: {} not counted as out",
            figure(accepted),
            excused.len()
        ));
        for member in excused {
            if let Some(error) = replays.own_error_mut(member.layer, member.slot) {
                error.is_out = false;
            }
        }
    }
    notes
}

/// Members by operator and output dtype, in the order of the names.
fn groups(
    candidate: &Run,
    replays: &Replays,
    counts: &dyn Fn(LayerId) -> bool,
) -> BTreeMap<(String, DType), Vec<Member>> {
    let mut groups: BTreeMap<(String, DType), Vec<Member>> = BTreeMap::new();
    for layer in &candidate.layers {
        // What must be exact is either right or broken.
        let Some(Replayed::Done(outputs)) =
            replays.candidate(layer.id).filter(|_| layer.op.rounds() && counts(layer.id))
        else {
            continue;
        };
        for (slot, error) in outputs.iter().enumerate() {
            let dtype = layer.outputs.get(slot).and_then(|&id| candidate.dtype_and_shape(id)).map(|(dtype, _)| dtype);
            if let (Some(error), Some(dtype)) = (error, dtype) {
                groups.entry((layer.op_name.clone(), dtype)).or_default().push(member(layer.id, slot, error));
            }
        }
    }
    groups
}

fn member(layer: LayerId, slot: usize, error: &OwnError) -> Member {
    Member {
        layer,
        slot,
        excess: error.excess,
        relative: error.relative,
        is_out: error.is_out,
        is_explained: error.explained_by.is_some(),
    }
}

/// The lower median: out only if more than half of the group is.
fn median(members: &[Member]) -> Option<Member> {
    let mut sorted = members.to_vec();
    sorted.sort_by(|a, b| a.is_out.cmp(&b.is_out).then(a.excess.total_cmp(&b.excess)));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_out_only_if_more_than_half_of_it_is() {
        let member = |excess: f64| Member {
            layer: LayerId(0),
            slot: 0,
            excess,
            relative: None,
            is_out: excess > 2.4,
            is_explained: false,
        };
        let of = |excesses: &[f64]| median(&excesses.iter().map(|&e| member(e)).collect::<Vec<_>>());
        assert!(!of(&[9.0, 1.0, 1.0, 9.0]).is_some_and(|m| m.is_out), "half");
        assert!(of(&[9.0, 1.0, 8.0, 9.0]).is_some_and(|m| m.is_out && m.excess == 8.0), "three of four");
        assert!(of(&[]).is_none());
    }
}
