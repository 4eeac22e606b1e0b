//! A suspect becomes an origin once everything that could clear it was read.

use std::collections::BTreeSet;

use super::ledger::Ledger;
use super::model::Purpose;
use crate::diagnose::{Origin, Site};
use crate::error::Result;
use crate::judge::Verdict;
use crate::pairing::TensorPair;
use crate::run::{LayerId, LayerKind, Run, TensorId};

/// The origins within `region` (golden layers), after reading whatever speaks for or against each:
/// all that came in, the layers inside a module, the consumers of an output that an in-place operator
/// may have overwritten. Empty where no layer of the region is out by itself.
pub(super) fn origins_in(ledger: &mut Ledger<'_>, region: &BTreeSet<LayerId>) -> Result<Vec<Origin>> {
    let mut region = region.clone();
    let hierarchy = Hierarchy::of(ledger.golden);
    // Each round reads at least one pair, or ends.
    loop {
        let suspects: Vec<Origin> =
            ledger.origins().into_iter().filter(|origin| region.contains(&anchor(origin.site))).collect();
        let mut unread = Vec::new();
        for suspect in &suspects {
            let id = anchor(suspect.site);
            if let Site::Layer(id) = suspect.site {
                for inner in hierarchy.inside(id) {
                    region.insert(inner);
                    unread.extend(ledger.pairs_of(inner));
                }
            }
            unread.extend(inputs(ledger, id));
        }
        unread.retain(|&pair| ledger.is_unread(pair));
        if !unread.is_empty() {
            ledger.read(&unread, Purpose::Confirm, "must be in for a suspect to be an origin")?;
            continue;
        }
        let undecided = suspects.iter().map(|suspect| undecided_consumers(ledger, suspect));
        let Some(consumers) = undecided.into_iter().find(|consumers| !consumers.is_empty()) else {
            return Ok(suspects);
        };
        let pairs: Vec<TensorPair> = consumers.into_iter().flat_map(|id| ledger.pairs_of(id).to_vec()).collect();
        ledger.read(&pairs, Purpose::Confirm, "shows whether a suspect was overwritten after it ran")?;
    }
}

/// The golden layer at which a place stands.
fn anchor(site: Site) -> LayerId {
    match site {
        Site::Layer(id) => id,
        Site::Stretch { before, .. } => before,
    }
}

/// Every pair that came into a layer: those at its slots, and behind layers without partner the
/// outputs of the nearest that have one.
fn inputs(ledger: &Ledger<'_>, layer: LayerId) -> Vec<TensorPair> {
    let judgement = ledger.judgement();
    let mut pairs = judgement.input_pairs(ledger.golden, ledger.candidate, layer);
    let direct: BTreeSet<TensorId> =
        pairs.iter().filter(|pair| judgement.pairing.output_of(pair.0) == Some(pair.1)).map(|pair| pair.0).collect();
    let golden = ledger.golden.layer(layer).inputs.iter().copied().filter(|id| !direct.contains(id)).collect();
    let mut before = nearest_paired(ledger.golden, golden, &|id| judgement.pairing.partner(id).map(|_| id));
    if let Some(partner) = judgement.pairing.partner(layer) {
        let answered: BTreeSet<TensorId> =
            pairs.iter().filter(|pair| direct.contains(&pair.0)).map(|pair| pair.1).collect();
        let inputs = &ledger.candidate.layer(partner.layer).inputs;
        let candidate = inputs.iter().copied().filter(|id| !answered.contains(id)).collect();
        before.extend(nearest_paired(ledger.candidate, candidate, &|id| judgement.pairing.golden_of(id)));
    }
    pairs.extend(before.into_iter().flat_map(|id| ledger.pairs_of(id)));
    pairs
}

/// Golden layers whose outputs reach `tensors` through layers without partner alone.
fn nearest_paired(run: &Run, tensors: Vec<TensorId>, paired: &dyn Fn(LayerId) -> Option<LayerId>) -> BTreeSet<LayerId> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut queue = tensors;
    while let Some(at) = queue.pop() {
        if !seen.insert(at) {
            continue;
        }
        let Some((producer, _)) = run.tensor(at).producer else { continue };
        match paired(producer) {
            Some(layer) => {
                found.insert(layer);
            }
            None => queue.extend(&run.layer(producer).inputs),
        }
    }
    found
}

/// The golden's layers by name and by module, sorted, so that those inside a module stand together.
struct Hierarchy<'a> {
    golden: &'a Run,
    /// Name, or enclosing module, of each layer; whether it is the module.
    names: Vec<(&'a str, bool, LayerId)>,
}

impl<'a> Hierarchy<'a> {
    fn of(golden: &'a Run) -> Self {
        let own = golden.layers.iter().map(|layer| (layer.name.as_str(), false, layer.id));
        let within = golden.layers.iter().filter_map(|layer| Some((layer.module.as_deref()?, true, layer.id)));
        let mut names: Vec<_> = own.chain(within).collect();
        names.sort_unstable();
        Self { golden, names }
    }

    /// Layers recorded inside a module, in execution order; none for an operator.
    fn inside(&self, id: LayerId) -> BTreeSet<LayerId> {
        let module = self.golden.layer(id);
        if module.kind != LayerKind::Module {
            return BTreeSet::new();
        }
        let below = format!("{}.", module.name);
        let from =
            |start: &str| self.names.get(self.names.partition_point(|(name, ..)| *name < start)..).unwrap_or(&[]);
        let named_below = from(&below).iter().take_while(|(name, ..)| name.starts_with(&below));
        let directly = from(&module.name).iter().take_while(|(name, ..)| *name == module.name);
        named_below
            .chain(directly.filter(|(_, is_module, _)| *is_module))
            .map(|(_, _, layer)| *layer)
            .filter(|&layer| layer != id && self.golden.layer(layer).pass == module.pass)
            .collect()
    }
}

/// The next consumers to read of a layer whose recorded output may be its consumer's: none once one of
/// them does not pass, for then nothing was overwritten.
fn undecided_consumers(ledger: &Ledger<'_>, suspect: &Origin) -> Vec<LayerId> {
    let Site::Layer(id) = suspect.site else { return Vec::new() };
    let layer = ledger.golden.layer(id);
    let verdict = |id: LayerId| ledger.judgement().layer(id).verdict;
    if layer.op.is_source() || !matches!(verdict(id), Verdict::Drift | Verdict::Nonfinite) {
        return Vec::new();
    }
    let Some(&output) = layer.outputs.first() else { return Vec::new() };
    let consumers: BTreeSet<LayerId> = ledger
        .golden
        .tensor(output)
        .consumers
        .iter()
        .map(|(consumer, _)| *consumer)
        .filter(|&consumer| ledger.judgement().pairing.partner(consumer).is_some())
        .collect();
    let unread = |id: &LayerId| ledger.pairs_of(*id).iter().any(|&pair| ledger.is_unread(pair));
    if consumers.iter().any(|id| !unread(id) && verdict(*id) != Verdict::Pass) {
        return Vec::new();
    }
    // As many again as were read: a tensor with many readers takes few rounds.
    let (unread, read): (Vec<LayerId>, Vec<LayerId>) = consumers.into_iter().partition(unread);
    unread.into_iter().take(read.len().max(1)).collect()
}
