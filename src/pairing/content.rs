//! Sources that no name pairs, by content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{PairedBy, Pairing};
use crate::error::Result;
use crate::run::{LayerId, Run};
use crate::tensor::{DType, Shape};

/// What two sources must share to be the same tensor: dtype, shape and digest of the bytes.
type Fingerprint = (DType, Shape, [u8; 32]);

/// Pairs unpaired sources whose dtype, shape and bytes are equal, in execution order where several
/// share one content. Only sources whose dtype and shape occur unpaired on both sides are read.
pub(super) fn pair_sources(golden: &Run, candidate: &Run, pairing: &mut Pairing) -> Result<()> {
    let free = |run: &Run, is_free: &dyn Fn(LayerId) -> bool| -> Vec<LayerId> {
        run.layers
            .iter()
            .filter(|layer| layer.op.is_source() && is_free(layer.id) && layer.outputs.len() == 1)
            .map(|layer| layer.id)
            .collect()
    };
    let left = free(golden, &|id| pairing.partner(id).is_none());
    let right = free(candidate, &|id| pairing.golden_of(id).is_none());
    let kind = |run: &Run, id: LayerId| {
        run.dtype_and_shape(run.layer(id).outputs[0]).map(|(dtype, shape)| (dtype, shape.to_vec()))
    };
    let in_golden: BTreeSet<_> = left.iter().filter_map(|&id| kind(golden, id)).collect();
    let in_candidate: BTreeSet<_> = right.iter().filter_map(|&id| kind(candidate, id)).collect();
    let mut by_content: BTreeMap<Fingerprint, VecDeque<LayerId>> = BTreeMap::new();
    for &id in right.iter().filter(|&&id| kind(candidate, id).is_some_and(|k| in_golden.contains(&k))) {
        if let Some(found) = fingerprint(candidate, id)? {
            by_content.entry(found).or_default().push_back(id);
        }
    }
    for &id in left.iter().filter(|&&id| kind(golden, id).is_some_and(|k| in_candidate.contains(&k))) {
        let Some(answers) = fingerprint(golden, id)?.and_then(|found| by_content.get_mut(&found)) else { continue };
        if let Some(answer) = answers.pop_front() {
            pairing.join(golden.layer(id), candidate.layer(answer), PairedBy::Content);
        }
    }
    Ok(())
}

fn fingerprint(run: &Run, id: LayerId) -> Result<Option<Fingerprint>> {
    let Some(tensor) = run.load(run.layer(id).outputs[0])? else { return Ok(None) };
    // An empty tensor or a single element is no fingerprint.
    if tensor.len() < 2 {
        return Ok(None);
    }
    Ok(Some((tensor.dtype(), tensor.shape().to_vec(), *blake3::hash(tensor.bytes()).as_bytes())))
}
