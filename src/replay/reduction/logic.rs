//! Truth values over axes, and how many elements are not zero.

use super::reduced_axes;
use crate::replay::answer::{expect_shapes, only_tensor};
use crate::replay::lanes::array;
use crate::replay::{Call, Reference, References, Unmodelled};

/// `any(self, dim, keepdim)` and `all`; NaN counts as true, as it is not zero.
pub(super) fn truth(call: &Call) -> Result<References, Unmodelled> {
    let every = call.function() == "all";
    over_rows(call, |row| {
        let mut truths = row.iter().map(|x| *x != 0.0);
        f64::from(u8::from(if every { truths.all(|t| t) } else { truths.any(|t| t) }))
    })
}

/// `count_nonzero(self, dim)`.
pub(super) fn count_nonzero(call: &Call) -> Result<References, Unmodelled> {
    over_rows(call, |row| row.iter().filter(|x| **x != 0.0).count() as f64)
}

fn over_rows(call: &Call, f: impl Fn(&[f64]) -> f64 + Sync) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let data = lanes.gather(&input.value);
    Ok(vec![Some(Reference::discrete(array(&shape, lanes.each(&data, f))?))])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::Staged;
    use crate::tensor::DType;

    #[test]
    fn by_hand() {
        let run = |function, attrs, shape: &[usize]| {
            Staged::new(function, attrs)
                .typed("self", DType::Bool, &[2, 2], &[1.0, 0.0, 1.0, 1.0])
                .writes(DType::Bool, shape)
        };
        assert_eq!(run("all", json!({}), &[]).values(0), [0.0]);
        assert_eq!(run("any", json!({}), &[]).values(0), [1.0]);
        assert_eq!(run("all", json!({"dim": 1}), &[2]).values(0), [0.0, 1.0]);
        assert_eq!(run("any", json!({"dim": 0, "keepdim": true}), &[1, 2]).values(0), [1.0, 1.0]);
        assert_eq!(run("count_nonzero", json!({"dim": [0]}), &[2]).values(0), [2.0, 1.0]);
        assert_eq!(run("all", json!({}), &[]).reference(0).exactness, Exactness::Discrete);
    }

    #[test]
    fn nothing_is_all_true_and_nan_is_true() {
        let run = |function, values: &[f64]| {
            Staged::new(function, json!({})).input("self", &[values.len()], values).writes(DType::Bool, &[]).values(0)
        };
        assert_eq!((run("all", &[]), run("any", &[])), (vec![1.0], vec![0.0]));
        assert_eq!((run("all", &[f64::NAN]), run("any", &[-0.0])), (vec![1.0], vec![0.0]));
    }
}
