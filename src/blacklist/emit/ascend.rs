//! The list that CANN's `--modify_mixlist` takes: operator types, so that every layer of a type is
//! hit, wanted or not.
//!
//! `black-list`/`to-add` moves a type from the trust list or the grey list to the block list.
//! `white-list`/`to-remove` moves one from the trust list to the grey list and demands that it stands
//! there, which differs between chips; a type that is blocked needs no such move, so it stays empty.
//! Source: the CANN manual of the ATC tool, `--modify_mixlist`.

use std::collections::BTreeMap;

use serde_json::json;

use super::{EmitOptions, EmitOutput, why_empty};
use crate::blacklist::Advice;
use crate::error::{Error, Result, escape};
use crate::run::{LayerKind, Run};

/// Largest share of the layers a type hits that may be collateral: beyond half of them the list is a
/// decision about the operator type as such, which the evidence about single layers does not carry.
const MAX_COLLATERAL: f64 = 0.5;

/// One layer more in fp32 costs less than a person's decision about it.
const HARMLESS_COLLATERAL: u64 = 1;

/// How often an operator type is meant, and how often it is hit.
struct Hits {
    listed: u64,
    total: u64,
}

impl Hits {
    fn collateral(&self) -> u64 {
        self.total.saturating_sub(self.listed)
    }

    fn is_mostly_collateral(&self) -> bool {
        let collateral = self.collateral();
        collateral > HARMLESS_COLLATERAL && collateral as f64 > MAX_COLLATERAL * self.total as f64
    }
}

pub(super) fn emit(advice: &Advice, golden: &Run, options: EmitOptions) -> Result<EmitOutput> {
    let mut notes = Vec::new();
    // In the order of the entries, the most urgent first, each type once.
    let mut types: Vec<&'static str> = Vec::new();
    let mut listed: BTreeMap<&'static str, u64> = BTreeMap::new();
    for entry in &advice.blacklist {
        let Some(cann) = entry.cann else {
            notes.push(escape(&format!(
                "{}: left out, its operator type in CANN is not known; look it up (OpType) and add it by hand for {}",
                entry.op,
                entry.layers.join(", ")
            )));
            continue;
        };
        if !types.contains(&cann) {
            types.push(cann);
        }
        *listed.entry(cann).or_default() += entry.layers.len() as u64;
    }
    let mut refused = Vec::new();
    for &cann in &types {
        let listed = listed.get(cann).copied().unwrap_or(0);
        let hits = Hits { listed, total: layers_of(golden, cann).max(listed) };
        notes.push(format!("{cann}: {} of {} in this run are meant; a list by type hits all", hits.listed, hits.total));
        if hits.is_mostly_collateral() {
            refused.push(format!("{cann} ({} of {} layers are not on the blacklist)", hits.collateral(), hits.total));
        }
    }
    if !refused.is_empty() && !options.allow_collateral {
        return Err(Error::new(format_args!(
            "a list by operator type would mostly hit layers that need no fp32: {}; allow the collateral, or emit a format that names modules (torch)",
            refused.join(", ")
        )));
    }
    if advice.blacklist.is_empty() {
        notes.extend(why_empty(advice));
    } else if types.is_empty() {
        notes.push("the file is empty: no operator of the blacklist has a type that is known in CANN".into());
    }
    let mixlist = json!({ "black-list": { "to-add": types }, "white-list": { "to-remove": [] } });
    Ok(EmitOutput { text: format!("{mixlist:#}\n"), notes })
}

/// Layers of a CANN type in a run. Where a module was recorded around its operators both have the
/// type, yet the device runs it once: operators count, modules only where there are none.
fn layers_of(golden: &Run, cann: &str) -> u64 {
    let of_kind = |kind: LayerKind| {
        golden.layers.iter().filter(|layer| layer.kind == kind && layer.op.cann_name() == Some(cann)).count() as u64
    };
    match of_kind(LayerKind::Operator) {
        0 => of_kind(LayerKind::Module),
        operators => operators,
    }
}
