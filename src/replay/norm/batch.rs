//! Batch norm by channel: with the batch's statistics (training) or the running ones.

use super::moments::{Affine, Centre, moments, normalise, saved};
use crate::replay::answer::{answer, arguments, elements, expect_shapes, required};
use crate::replay::lanes::{Lanes, array};
use crate::replay::{Call, Operand, Reference, References, Unmodelled};

/// `batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)`; the native
/// forms add save_mean and save_invstd, cuDNN's a reserve.
pub(super) fn batch_norm(call: &Call) -> Result<References, Unmodelled> {
    if call.flag("training", false)? { training(call) } else { evaluating(call) }
}

struct Arguments<'c> {
    input: &'c Operand,
    affine: Affine,
    running: Option<(Vec<f64>, Vec<f64>)>,
    eps: f64,
    channels: usize,
}

fn batch_arguments<'c>(call: &'c Call) -> Result<Arguments<'c>, Unmodelled> {
    let [input, weight, bias, mean, var] =
        arguments(call, [&["input", "self"], &["weight"], &["bias"], &["running_mean"], &["running_var"]])?;
    let input = required(call, input, "input")?;
    let Some(&channels) = input.value.shape().get(1) else {
        return Err(Unmodelled(format!("batch norm of shape {:?} has no channel axis", input.value.shape())));
    };
    for parameter in [weight, bias, mean, var].into_iter().flatten() {
        if parameter.value.shape() != [channels] {
            let shape = parameter.value.shape();
            return Err(Unmodelled(format!("a parameter of shape {shape:?} does not fit {channels} channels")));
        }
    }
    // cuDNN's form spells it out.
    let spelling = if call.function() == "cudnn_batch_norm" { "epsilon" } else { "eps" };
    Ok(Arguments {
        input,
        affine: Affine { gamma: weight.map(elements), beta: bias.map(elements) },
        running: mean.map(elements).zip(var.map(elements)),
        eps: call.number(spelling, Some(1e-5))?,
        channels,
    })
}

/// With the statistics of the batch.
pub(super) fn training(call: &Call) -> Result<References, Unmodelled> {
    let Arguments { input, affine, eps, channels, .. } = batch_arguments(call)?;
    let shape = input.value.shape();
    let reserve = reserve_shape(call);
    expect_shapes(call, &[shape, &[channels], &[channels], &reserve])?;
    let lanes = by_channel(shape);
    let data = lanes.gather(&input.value);
    let stats = lanes.each(&data, moments);
    let dtype = call.outputs[0].dtype;
    let y = normalise(&lanes, &data, |c| stats[c].centre(eps, dtype), &affine, |c, _| c)?;
    let (mean, rstd) = saved(&stats, eps, lanes.len(), &[channels])?;
    answer(call, vec![Some(y), Some(mean), Some(rstd), None])
}

/// With the running statistics. What is saved is empty; where a device fills it in, it is not compared.
pub(super) fn evaluating(call: &Call) -> Result<References, Unmodelled> {
    let Arguments { input, affine, running, eps, channels } = batch_arguments(call)?;
    let (mean, var) = running.ok_or_else(|| Unmodelled("running statistics were not recorded".into()))?;
    let shape = input.value.shape();
    let save = |slot: usize| match call.outputs.get(slot) {
        Some(output) if output.shape == [channels] => vec![channels],
        _ => vec![0],
    };
    expect_shapes(call, &[shape, &save(1), &save(2), &reserve_shape(call)])?;
    let lanes = by_channel(shape);
    let data = lanes.gather(&input.value);
    let given = |c: usize| Centre { mean: mean[c], rstd: 1.0 / (var[c] + eps).sqrt(), blur: 0.0 };
    let y = normalise(&lanes, &data, given, &affine, |c, _| c)?;
    let empty = |slot| match save(slot).as_slice() {
        [0] => Ok(Some(Reference::moved(array(&[0], Vec::new())?))),
        _ => Ok(None),
    };
    answer(call, vec![Some(y), empty(1)?, empty(2)?, None])
}

/// The shape of the workspace that some forms return: whatever it is, it is never compared.
fn reserve_shape(call: &Call) -> Vec<usize> {
    call.outputs.get(3).map(|output| output.shape.clone()).unwrap_or_default()
}

/// A row for each channel: over all axes but the second.
fn by_channel(shape: &[usize]) -> Lanes {
    let axes: Vec<usize> = (0..shape.len()).filter(|&axis| axis != 1).collect();
    Lanes::over(shape, &axes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    /// Two channels in two batches: channel 0 holds 1 and 3, channel 1 holds 10 and 10.
    fn staged(function: &str, attrs: serde_json::Value) -> Staged {
        Staged::new(function, attrs)
            .input("input", &[2, 2], &[1.0, 10.0, 3.0, 10.0])
            .input("weight", &[2], &[2.0, 1.0])
            .input("bias", &[2], &[0.5, -1.0])
            .input("running_mean", &[2], &[0.0, 6.0])
            .input("running_var", &[2], &[15.0, 3.0])
    }

    #[test]
    fn both_modes_by_hand() {
        let eval = staged("batch_norm", json!({"training": false, "momentum": 0.1, "eps": 1.0})).output(&[2, 2]);
        assert_close(&eval.values(0), &[1.0, 1.0, 2.0, 1.0]);
        let scale: Vec<f64> = eval.reference(0).scale.iter().copied().collect();
        assert_close(&scale, &[1.0, 9.0, 2.0, 9.0]);
        let train = staged("native_batch_norm", json!({"training": true, "momentum": 0.1, "eps": 3.0}))
            .output(&[2, 2])
            .output(&[2])
            .output(&[2]);
        assert_close(&train.values(0), &[-0.5, -1.0, 1.5, -1.0]);
        assert_close(&train.values(1), &[2.0, 10.0]);
        assert_close(&train.values(2), &[0.5, 1.0 / 3f64.sqrt()]);
    }

    #[test]
    fn evaluation_saves_nothing() {
        let attrs = json!({"momentum": 0.1, "eps": 1.0});
        let call = staged("_native_batch_norm_legit_no_training", attrs.clone());
        let empty = call.clone().output(&[2, 2]).output(&[0]).output(&[0]);
        assert!(empty.values(1).is_empty() && empty.values(2).is_empty());
        let filled = call.output(&[2, 2]).output(&[2]).output(&[2]).replay().unwrap();
        assert!(filled[1].is_none(), "filled in by a device: not compared");
        let update = staged("_batch_norm_with_update", attrs).output(&[2, 2]).output(&[2]).output(&[2]).output(&[64]);
        assert!(update.replay().unwrap()[3].is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let flat = Staged::new("batch_norm", json!({"training": true})).input("input", &[2], &[1.0; 2]).output(&[2]);
        assert!(flat.refusal().contains("no channel axis"));
        let unnamed = Staged::new("batch_norm", json!({"training": false}))
            .input("", &[1, 2], &[1.0; 2])
            .input("", &[2], &[1.0; 2])
            .output(&[1, 2]);
        assert!(unnamed.refusal().contains("running statistics"));
        assert!(staged("batch_norm", json!(null)).output(&[2, 2]).refusal().contains("attributes"));
        let three = Staged::new("batch_norm", json!({"training": true}))
            .input("input", &[1, 2], &[1.0; 2])
            .input("weight", &[3], &[1.0; 3])
            .output(&[1, 2]);
        assert!(three.refusal().contains("2 channels"));
    }

    #[test]
    fn unnamed_arguments_skip_those_that_are_null() {
        let call = Staged::new("batch_norm", json!({"training": false, "eps": 0.0, "weight": null, "bias": null}))
            .input("", &[1, 1], &[5.0])
            .input("", &[1], &[1.0])
            .input("", &[1], &[4.0])
            .output(&[1, 1]);
        assert_close(&call.values(0), &[2.0]);
    }

    proptest! {
        #[test]
        fn channels_are_normalised_apart(
            n in 1usize..4, c in 1usize..4, hw in 1usize..5,
            data in proptest::collection::vec(-8.0..8.0f64, 48),
        ) {
            let data = &data[..n * c * hw];
            let call = Staged::new("native_batch_norm", json!({"training": true, "eps": 0.1}))
                .input("input", &[n, c, hw], data)
                .output(&[n, c, hw]);
            let found = call.values(0);
            for channel in 0..c {
                let at: Vec<usize> =
                    (0..n).flat_map(|b| (0..hw).map(move |i| (b * c + channel) * hw + i)).collect();
                let mean = at.iter().map(|&i| data[i]).sum::<f64>() / at.len() as f64;
                let var = at.iter().map(|&i| (data[i] - mean).powi(2)).sum::<f64>() / at.len() as f64;
                for i in at {
                    prop_assert!((found[i] - (data[i] - mean) / (var + 0.1).sqrt()).abs() < 1e-12);
                }
            }
        }
    }
}
