//! Largest and smallest elements, and where they stand.

use ndarray::{IxDyn, Zip};

use super::reduced_axes;
use crate::replay::answer::{answer, arguments, broadcast_shape, expect_shapes, only_tensor, required};
use crate::replay::lanes::{Lanes, array};
use crate::replay::{Call, Reference, References, Unmodelled};

/// Whether `b` comes before `a` as an extreme: NaN before everything, the first of equals stays.
pub(super) fn replaces(a: f64, b: f64, largest: bool) -> bool {
    if a.is_nan() {
        return false;
    }
    b.is_nan() || if largest { b > a } else { b < a }
}

/// Value and position of a row's extreme; `None` for an empty row.
fn extreme_of(row: &[f64], largest: bool) -> Option<(f64, usize)> {
    let mut elements = row.iter().copied().zip(0..);
    let first = elements.next()?;
    Some(elements.fold(first, |best, next| if replaces(best.0, next.0, largest) { next } else { best }))
}

fn wants_largest(call: &Call) -> bool {
    call.function().contains("max")
}

fn over(lanes: &Lanes, data: &[f64], largest: bool) -> Result<Vec<(f64, usize)>, Unmodelled> {
    let found: Option<Vec<_>> = lanes.each(data, |row| extreme_of(row, largest)).into_iter().collect();
    found.ok_or_else(|| Unmodelled("an axis without elements has no extreme".into()))
}

/// `amax(self, dim, keepdim)` and `amin`.
pub(super) fn extreme(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let found = over(&lanes, &lanes.gather(&input.value), wants_largest(call))?;
    Ok(vec![Some(Reference::moved(array(&shape, found.into_iter().map(|(v, _)| v).collect())?))])
}

/// `aminmax(self, dim, keepdim)`: both.
pub(super) fn both(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape, &shape])?;
    let data = lanes.gather(&input.value);
    let values = |largest| {
        let found = over(&lanes, &data, largest)?;
        Ok(Some(Reference::moved(array(&shape, found.into_iter().map(|(v, _)| v).collect())?)))
    };
    answer(call, vec![values(false)?, values(true)?])
}

/// `max(self)`, `max(self, dim, keepdim)` with indices, `max(self, other)`; `min` likewise.
pub(super) fn maximum(call: &Call) -> Result<References, Unmodelled> {
    if call.inputs.len() == 2 {
        return elementwise(call);
    }
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape, &shape])?;
    let found = over(&lanes, &lanes.gather(&input.value), wants_largest(call))?;
    let (values, indices): (Vec<f64>, Vec<f64>) = found.into_iter().map(|(v, at)| (v, at as f64)).unzip();
    let indices = Reference::discrete(array(&shape, indices)?);
    answer(call, vec![Some(Reference::moved(array(&shape, values)?)), Some(indices)])
}

fn elementwise(call: &Call) -> Result<References, Unmodelled> {
    let [a, b] = arguments(call, [&["self", "input"], &["other"]])?;
    let (a, b) = (required(call, a, "self")?, required(call, b, "other")?);
    let unfit = || Unmodelled(format!("shapes {:?} and {:?} do not broadcast", a.value.shape(), b.value.shape()));
    let shape = broadcast_shape(&[a.value.shape(), b.value.shape()]).ok_or_else(unfit)?;
    expect_shapes(call, &[&shape])?;
    let largest = wants_largest(call);
    let (a, b) = (a.value.broadcast(IxDyn(&shape)), b.value.broadcast(IxDyn(&shape)));
    let (a, b) = (a.ok_or_else(unfit)?, b.ok_or_else(unfit)?);
    let value = Zip::from(a).and(b).map_collect(|&a, &b| if replaces(a, b, largest) { b } else { a });
    Ok(vec![Some(Reference::moved(value))])
}

/// `argmax(self, dim, keepdim)` and `argmin`: the position within the axis, of the flattened tensor
/// where there is none.
pub(super) fn index_of(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (lanes, shape) = reduced_axes(call, input)?;
    expect_shapes(call, &[&shape])?;
    let found = over(&lanes, &lanes.gather(&input.value), wants_largest(call))?;
    Ok(vec![Some(Reference::discrete(array(&shape, found.into_iter().map(|(_, at)| at as f64).collect())?))])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    fn staged(function: &str, attrs: serde_json::Value) -> Staged {
        Staged::new(function, attrs).input("self", &[2, 3], &[1.0, 5.0, 5.0, -2.0, -7.0, 0.0])
    }

    #[test]
    fn by_hand() {
        assert_eq!(staged("amax", json!({"dim": [0]})).output(&[3]).values(0), [1.0, 5.0, 5.0]);
        assert_eq!(staged("amin", json!({"dim": []})).output(&[]).values(0), [-7.0]);
        let max = staged("max", json!({"dim": 1, "keepdim": true})).output(&[2, 1]).writes(DType::I64, &[2, 1]);
        assert_eq!((max.values(0), max.values(1)), (vec![5.0, 0.0], vec![1.0, 2.0]));
        assert_eq!(max.reference(0).exactness, Exactness::Exact);
        assert_eq!(max.reference(1).exactness, Exactness::Discrete);
        assert_eq!(staged("min", json!({})).output(&[]).values(0), [-7.0]);
        assert_eq!(staged("argmax", json!({"dim": null})).writes(DType::I64, &[]).values(0), [1.0]);
        assert_eq!(staged("argmin", json!({"dim": -1})).writes(DType::I64, &[2]).values(0), [0.0, 1.0]);
        let both = staged("aminmax", json!({"dim": 1})).output(&[2]).output(&[2]);
        assert_eq!((both.values(0), both.values(1)), (vec![1.0, -7.0], vec![5.0, 0.0]));
        let other = staged("max", json!({})).input("other", &[3], &[2.0, 2.0, 2.0]).output(&[2, 3]);
        assert_eq!(other.values(0), [2.0, 5.0, 5.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn nan_is_the_extreme_and_its_first_place_the_index() {
        let nan = f64::NAN;
        let call =
            Staged::new("min", json!({"dim": 0})).input("self", &[4], &[1.0, nan, -5.0, nan]).output(&[]).output(&[]);
        assert_close(&call.values(0), &[nan]);
        assert_eq!(call.values(1), [1.0]);
        let other = Staged::new("max", json!({})).input("self", &[2], &[nan, 1.0]).input("other", &[2], &[1.0, nan]);
        assert_close(&other.output(&[2]).values(0), &[nan, nan]);
    }

    #[test]
    fn nothing_has_no_extreme() {
        let empty = Staged::new("amax", json!({"dim": 1})).input("self", &[2, 0], &[]).output(&[2]);
        assert!(empty.refusal().contains("no extreme"));
    }

    proptest! {
        #[test]
        fn the_index_leads_to_the_value_and_nothing_is_larger(
            x in proptest::collection::vec((-3..3i8).prop_map(f64::from), 12), axis in -2..2i64,
        ) {
            let kept: &[usize] = if axis.rem_euclid(2) == 0 { &[4] } else { &[3] };
            let call = Staged::new("max", json!({"dim": axis})).input("self", &[3, 4], &x).output(kept).output(kept);
            let (values, indices) = (call.values(0), call.values(1));
            for (lane, (value, at)) in values.iter().zip(indices).enumerate() {
                let element = |k: usize| if axis.rem_euclid(2) == 0 { x[k * 4 + lane] } else { x[lane * 4 + k] };
                let extent = 7 - kept[0];
                prop_assert_eq!(element(at as usize), *value);
                prop_assert!((0..extent).all(|k| element(k) <= *value));
                prop_assert!((0..at as usize).all(|k| element(k) < *value), "the first of equals");
            }
        }
    }
}
