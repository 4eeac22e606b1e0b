//! Negative log-likelihood of class labels, and the reading of labels that cross-entropy shares.

use ndarray::arr0;

use super::reduce::Reduction;
use crate::replay::answer::{answer, arguments, elements, expect_shapes, required};
use crate::replay::lanes::{Lanes, sum};
use crate::replay::{Call, Operand, Reference, References, Unmodelled};

/// Class scores as rows of one position each, in the positions' own order, with the shape of the
/// positions: `[C]`, `[N, C]` or `[N, C, d1, …]`.
pub(super) fn class_rows(input: &Operand) -> Result<(Lanes, Vec<usize>), Unmodelled> {
    let shape = input.value.shape();
    let axis = match shape.len() {
        0 => return Err(Unmodelled("a 0-d tensor has no classes".into())),
        1 => 0,
        _ => 1,
    };
    let lanes = Lanes::over(shape, &[axis]);
    let positions = lanes.kept_shape(false);
    Ok((lanes, positions))
}

/// The label of each position; `None` where it is to be ignored.
///
/// # Errors
/// Labels of another shape, or one that is no class.
pub(super) fn labels(
    call: &Call,
    target: &Operand,
    positions: &[usize],
    classes: usize,
) -> Result<Vec<Option<usize>>, Unmodelled> {
    let ignored = call.integer("ignore_index", Some(-100))? as f64;
    if target.value.shape() != positions {
        return Err(Unmodelled(format!("labels are {:?}, expected {positions:?}", target.value.shape())));
    }
    let label = |&label: &f64| {
        if label == ignored {
            return Ok(None);
        }
        let class = label as usize;
        if label.fract() == 0.0 && label >= 0.0 && class < classes {
            return Ok(Some(class));
        }
        Err(Unmodelled(format!("label {label} is none of {classes} classes")))
    };
    target.value.iter().map(label).collect()
}

/// The weight of each class, 1 where there is none.
///
/// # Errors
/// Another number of weights than classes.
pub(super) fn class_weights(weight: Option<&Operand>, classes: usize) -> Result<Vec<f64>, Unmodelled> {
    match weight {
        None => Ok(vec![1.0; classes]),
        Some(weight) if weight.value.shape() == [classes] => Ok(elements(weight)),
        Some(weight) => Err(Unmodelled(format!("class weights are {:?}, expected [{classes}]", weight.value.shape()))),
    }
}

/// `nll_loss(self, target, weight, reduction, ignore_index)`: -w[label]·x[label], a mean being over
/// the weights of the labels that count; the forward forms return that total weight too.
pub(super) fn nll_loss(call: &Call) -> Result<References, Unmodelled> {
    let [input, target, weight] = arguments(call, [&["self", "input"], &["target"], &["weight"]])?;
    let (input, target) = (required(call, input, "self")?, required(call, target, "target")?);
    let reduction = Reduction::of(call)?;
    let (lanes, positions) = class_rows(input)?;
    // Where nothing is reduced the total weight is not set.
    let unset = call.outputs.get(1).map(|output| output.shape.clone()).unwrap_or_default();
    let total_shape = if reduction == Reduction::None { unset } else { Vec::new() };
    expect_shapes(call, &[&reduction.shape(&positions), &total_shape])?;
    let labels = labels(call, target, &positions, lanes.len())?;
    let weights = class_weights(weight, lanes.len())?;
    let data = lanes.gather(&input.value);
    let term = |(row, label): (usize, &Option<usize>)| {
        label.map_or(0.0, |class| -weights[class] * data[row * lanes.len() + class])
    };
    let value: Vec<f64> = labels.iter().enumerate().map(term).collect();
    let scale = value.iter().map(|v| v.abs()).collect();
    let counted: Vec<f64> = labels.iter().flatten().map(|&class| weights[class]).collect();
    let count = sum(counted.iter().copied());
    let loss = reduction.apply(&positions, value, scale, count)?;
    let total = (reduction != Reduction::None).then(|| {
        let of = |values: &dyn Fn(&f64) -> f64| arr0(sum(counted.iter().map(values))).into_dyn();
        Reference::summed(of(&|w| *w), of(&|w| w.abs()), counted.len(), of(&|w| w * w))
    });
    answer(call, vec![Some(loss), total])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    fn staged(attrs: serde_json::Value, target: &[f64]) -> Staged {
        Staged::new("nll_loss_forward", attrs)
            .input("self", &[3, 2], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0])
            .typed("target", DType::I64, &[3], target)
            .input("weight", &[2], &[1.0, 3.0])
    }

    #[test]
    fn reductions_by_number_and_name() {
        let target = [0.0, 1.0, -100.0];
        let mean = staged(json!({"reduction": 1, "ignore_index": -100}), &target).output(&[]).output(&[]);
        assert_close(&mean.values(0), &[(1.0 + 12.0) / 4.0]);
        assert_close(&mean.values(1), &[4.0]);
        let sum = staged(json!({"reduction": "sum"}), &target).output(&[]).output(&[]);
        assert_close(&sum.values(0), &[13.0]);
        let none = staged(json!({"reduction": 0}), &target).output(&[3]).output(&[]);
        assert_close(&none.values(0), &[1.0, 12.0, 0.0]);
        assert!(none.replay().unwrap()[1].is_none());
    }

    #[test]
    fn positions_may_have_axes_of_their_own() {
        let call = Staged::new("nll_loss2d_forward", json!({"reduction": 0}))
            .input("self", &[1, 2, 1, 2], &[-1.0, -2.0, -3.0, -4.0])
            .typed("target", DType::I64, &[1, 1, 2], &[1.0, 0.0])
            .output(&[1, 1, 2]);
        assert_close(&call.values(0), &[3.0, 2.0]);
    }

    #[test]
    fn labels_outside_the_classes_are_refused() {
        for label in [2.0, -1.0, 0.5, f64::NAN, 1e300] {
            let call = staged(json!({"reduction": 1}), &[0.0, 1.0, label]).output(&[]);
            assert!(call.refusal().contains("is none of 2 classes"), "{label}");
        }
        assert!(staged(json!({"reduction": 3}), &[0.0; 3]).output(&[]).refusal().contains("reduction 3"));
    }

    #[test]
    fn a_mean_over_nothing_is_nan() {
        let call = staged(json!({"reduction": 1, "ignore_index": 0}), &[0.0; 3]).output(&[]);
        assert!(call.values(0)[0].is_nan());
    }
}
