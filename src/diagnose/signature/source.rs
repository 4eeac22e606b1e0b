//! Explanations by what was recorded: the output of another layer in its place.

use ndarray::{ArrayD, IxDyn};

use super::Explanation;
use super::evidence::{Evidence, reference};
use crate::error::Result;
use crate::judge::recorded_call;
use crate::op::Class;
use crate::run::LayerId;

/// The recorded output is bit-equal to what a consumer that computes made of it: an in-place operator
/// wrote over it before it was recorded. Equal bits alone say nothing, for a neutral consumer gives
/// what it reads; its result of the right output must be what was recorded.
pub(super) fn aliasing(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let run = evidence.run;
    for &(consumer, _) in &run.tensor(evidence.output).consumers {
        let layer = run.layer(consumer);
        let Some(&made) = layer.outputs.first().filter(|&&made| made != evidence.output) else { continue };
        // A mover's output is its input by nature.
        let moves = matches!(layer.op.class(), Class::Mover | Class::Cast);
        if moves || run.dtype_and_shape(made) != run.dtype_and_shape(evidence.output) {
            continue;
        }
        let (Some(own), Some(theirs)) = (run.load(evidence.output)?, run.load(made)?) else { continue };
        if own.bytes() != theirs.bytes() {
            continue;
        }
        let Some(overwritten) = result_of_expected(evidence, consumer)? else { continue };
        let name = run.display_name(consumer);
        let why = format!(
            "what was recorded is the output of {name}, bit for bit, which ran in place: record a copy before it runs"
        );
        let share = evidence.share(|at| overwritten[at]);
        return Ok(vec![Explanation { kind: "aliasing", share, why }]);
    }
    Ok(Vec::new())
}

/// What a consumer makes of the output as it should be; `None` where it cannot be recomputed.
fn result_of_expected(evidence: &Evidence<'_>, consumer: LayerId) -> Result<Option<Vec<f64>>> {
    let Ok(mut call) = recorded_call(evidence.run, consumer)? else { return Ok(None) };
    let Ok(expected) = ArrayD::from_shape_vec(IxDyn(&evidence.shape), evidence.expected.clone()) else {
        return Ok(None);
    };
    let expected = expected.into_shared();
    let reads = evidence.run.layer(consumer).inputs.iter();
    for (operand, _) in call.inputs.iter_mut().zip(reads).filter(|(_, read)| **read == evidence.output) {
        operand.value = expected.clone();
    }
    Ok(reference(&call, 0).filter(|result| result.len() == evidence.len()))
}
