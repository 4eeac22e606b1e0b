//! A dump that an in-place operator overwrote: the recorded output is its consumer's output.

use super::measure::Measurements;
use crate::error::Result;
use crate::op::Class;
use crate::pairing::Pairing;
use crate::run::{LayerId, Run, TensorId};

/// The consumer whose output stands in place of `tensor`'s own content, on either side, where every
/// consumer that was compared agrees (`agrees`). `None` where nothing speaks for it.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn overwriting_consumer(
    golden: &Run,
    candidate: &Run,
    pairing: &Pairing,
    measurements: &Measurements,
    layer: LayerId,
    agrees: &dyn Fn(LayerId) -> bool,
) -> Result<Option<(LayerId, &'static str)>> {
    let Some(&output) = golden.layer(layer).outputs.first() else { return Ok(None) };
    let Some(answer) = pairing.output_of(output) else { return Ok(None) };
    let mut consumers = golden
        .tensor(output)
        .consumers
        .iter()
        .map(|(id, _)| *id)
        .filter(|&id| pairing.partner(id).is_some())
        .peekable();
    if consumers.peek().is_none() || measurements.get((output, answer)).is_none() {
        return Ok(None);
    }
    let consumers: Vec<LayerId> = consumers.collect();
    if !consumers.iter().all(|&id| agrees(id)) {
        return Ok(None);
    }
    for id in consumers {
        // A mover's output is its input by nature.
        if matches!(golden.layer(id).op.class(), Class::Mover | Class::Cast) {
            continue;
        }
        let Some(&made) = golden.layer(id).outputs.first() else { continue };
        let Some(made_there) = pairing.output_of(made) else { continue };
        if same_bytes(candidate, answer, made_there)? {
            return Ok(Some((id, "candidate")));
        }
        if same_bytes(golden, output, made)? {
            return Ok(Some((id, "golden")));
        }
    }
    Ok(None)
}

fn same_bytes(run: &Run, a: TensorId, b: TensorId) -> Result<bool> {
    if a == b || run.dtype_and_shape(a) != run.dtype_and_shape(b) {
        return Ok(false);
    }
    let (Some(a), Some(b)) = (run.load(a)?, run.load(b)?) else { return Ok(false) };
    // A constant tensor equals anything of its kind.
    Ok(a.len() > 1 && a.bytes() == b.bytes())
}
