//! Group norm over groups of channels, and instance norm over each channel of each sample.

use super::moments::{Affine, Centre, moments, normalise, saved};
use crate::replay::answer::{answer, arguments, elements, expect_shapes, required};
use crate::replay::lanes::Lanes;
use crate::replay::{Call, Operand, References, Unmodelled};

/// `group_norm(input, num_groups, weight, bias, eps)`, and `native_group_norm(input, weight, bias, N,
/// C, HxW, group, eps)` with mean and rstd of shape `[N, group]`.
pub(super) fn group_norm(call: &Call) -> Result<References, Unmodelled> {
    let [input, weight, bias] = arguments(call, [&["input", "self"], &["weight"], &["bias"]])?;
    let input = required(call, input, "input")?;
    let (samples, channels, area) = extents(input)?;
    per_channel(channels, &[weight, bias])?;
    let attribute = if call.function() == "native_group_norm" { "group" } else { "num_groups" };
    let groups = usize::try_from(call.integer(attribute, None)?).unwrap_or(0);
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(Unmodelled(format!("{channels} channels do not divide into {attribute} {groups}")));
    }
    let eps = call.number("eps", Some(1e-5))?;
    let shape = input.value.shape();
    let kept = [samples, groups];
    expect_shapes(call, &[shape, &kept, &kept])?;
    let width = channels / groups;
    let data = elements(input);
    let lanes = Lanes::over(&[samples, groups, width, area], &[2, 3]);
    let stats = lanes.each(&data, moments);
    let dtype = call.outputs[0].dtype;
    let affine = Affine { gamma: weight.map(elements), beta: bias.map(elements) };
    let channel = |row: usize, at: usize| row % groups * width + at / area.max(1);
    let mut y = normalise(&lanes, &data, |row| stats[row].centre(eps, dtype), &affine, channel)?;
    reshape(&mut y, shape)?;
    if call.outputs.len() == 1 {
        return Ok(vec![Some(y)]);
    }
    let (mean, rstd) = saved(&stats, eps, lanes.len(), &kept)?;
    answer(call, vec![Some(y), Some(mean), Some(rstd)])
}

/// `instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)`.
pub(super) fn instance_norm(call: &Call) -> Result<References, Unmodelled> {
    let [input, weight, bias, mean, var] =
        arguments(call, [&["input", "self"], &["weight"], &["bias"], &["running_mean"], &["running_var"]])?;
    let input = required(call, input, "input")?;
    let (samples, channels, area) = extents(input)?;
    per_channel(channels, &[weight, bias, mean, var])?;
    let eps = call.number("eps", Some(1e-5))?;
    let own = call.flag("use_input_stats", true)?;
    let shape = input.value.shape();
    expect_shapes(call, &[shape])?;
    let data = elements(input);
    let lanes = Lanes::over(&[samples, channels, area], &[2]);
    let affine = Affine { gamma: weight.map(elements), beta: bias.map(elements) };
    let dtype = call.outputs[0].dtype;
    let centres: Vec<Centre> = if own {
        lanes.each(&data, |row| moments(row).centre(eps, dtype))
    } else {
        let mean = elements(required(call, mean, "running_mean")?);
        let var = elements(required(call, var, "running_var")?);
        mean.iter()
            .zip(&var)
            .map(|(mean, var)| Centre { mean: *mean, rstd: 1.0 / (var + eps).sqrt(), blur: 0.0 })
            .collect()
    };
    let centre = |row: usize| centres[if own { row } else { row % channels }];
    let mut y = normalise(&lanes, &data, centre, &affine, |row, _| row % channels)?;
    reshape(&mut y, shape)?;
    Ok(vec![Some(y)])
}

/// Samples, channels and the elements of a channel of `[N, C, …]`.
fn extents(input: &Operand) -> Result<(usize, usize, usize), Unmodelled> {
    match input.value.shape() {
        // A tensor without elements has nothing to normalise, and extents that may not multiply.
        shape if input.value.is_empty() => Err(Unmodelled(format!("shape {shape:?} holds no elements"))),
        [samples, channels, rest @ ..] => Ok((*samples, *channels, rest.iter().product())),
        shape => Err(Unmodelled(format!("shape {shape:?} has no channel axis"))),
    }
}

fn per_channel(channels: usize, parameters: &[Option<&Operand>]) -> Result<(), Unmodelled> {
    match parameters.iter().flatten().find(|parameter| parameter.value.shape() != [channels]) {
        None => Ok(()),
        Some(other) => {
            Err(Unmodelled(format!("a parameter of shape {:?} does not fit {channels} channels", other.value.shape())))
        }
    }
}

fn reshape(reference: &mut crate::replay::Reference, shape: &[usize]) -> Result<(), Unmodelled> {
    let take = |array: &mut ndarray::ArrayD<f64>| {
        let taken = std::mem::take(array);
        taken.into_shape_with_order(shape).map_err(|e| Unmodelled(format!("shape {shape:?} cannot be formed: {e}")))
    };
    reference.value = take(&mut reference.value)?;
    reference.scale = take(&mut reference.scale)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    #[test]
    fn groups_by_hand() {
        // Two groups of two channels; the first holds 1 and 3 (rstd 0.5 with eps 3), the second 5, 5.
        let call = Staged::new("native_group_norm", json!({"N": 1, "C": 4, "HxW": 1, "group": 2, "eps": 3.0}))
            .input("input", &[1, 4, 1], &[1.0, 3.0, 5.0, 5.0])
            .input("weight", &[4], &[2.0, 4.0, 1.0, 1.0])
            .input("bias", &[4], &[0.0, 1.0, 2.0, 3.0])
            .output(&[1, 4, 1])
            .output(&[1, 2])
            .output(&[1, 2]);
        assert_close(&call.values(0), &[-1.0, 3.0, 2.0, 3.0]);
        assert_close(&call.values(1), &[2.0, 5.0]);
        assert_close(&call.values(2), &[0.5, 1.0 / 3f64.sqrt()]);
    }

    #[test]
    fn instances_by_hand_and_with_running_statistics() {
        let own = Staged::new("instance_norm", json!({"use_input_stats": true, "eps": 3.0}))
            .input("input", &[1, 2, 2], &[1.0, 3.0, 8.0, 8.0])
            .output(&[1, 2, 2]);
        assert_close(&own.values(0), &[-0.5, 0.5, 0.0, 0.0]);
        let running = Staged::new("instance_norm", json!({"use_input_stats": false, "eps": 0.0}))
            .input("input", &[2, 1, 1], &[1.0, 3.0])
            .input("running_mean", &[1], &[1.0])
            .input("running_var", &[1], &[4.0])
            .output(&[2, 1, 1]);
        assert_close(&running.values(0), &[0.0, 1.0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let call = |attrs| Staged::new("group_norm", attrs).input("input", &[1, 4], &[1.0; 4]).output(&[1, 4]);
        assert!(call(json!({"num_groups": 3})).refusal().contains("do not divide"));
        assert!(call(json!({"num_groups": -1})).refusal().contains("do not divide"));
        assert!(call(json!({})).refusal().contains("num_groups"));
        assert!(call(json!(null)).refusal().contains("attributes"));
        let statistics = Staged::new("instance_norm", json!({"use_input_stats": false}))
            .input("input", &[1, 1, 1], &[1.0])
            .output(&[1, 1, 1]);
        assert!(statistics.refusal().contains("running_mean"));
    }

    proptest! {
        /// One group is layer norm over everything but the batch; a group per channel is instance norm.
        #[test]
        fn one_group_and_a_group_per_channel_are_other_norms(
            n in 1usize..3, c in 1usize..4, area in 1usize..5,
            data in proptest::collection::vec(-8.0..8.0f64, 24),
        ) {
            let shape = [n, c, area];
            let data = &data[..n * c * area];
            let staged = |function, attrs| Staged::new(function, attrs).input("input", &shape, data).output(&shape).values(0);
            let one = staged("group_norm", json!({"num_groups": 1, "eps": 0.5}));
            assert_close(&one, &staged("layer_norm", json!({"normalized_shape": [c, area], "eps": 0.5})));
            let each = staged("group_norm", json!({"num_groups": c, "eps": 0.5}));
            assert_close(&each, &staged("layer_norm", json!({"normalized_shape": [area], "eps": 0.5})));
            assert_close(&each, &staged("instance_norm", json!({"eps": 0.5})));
        }
    }
}
