//! Orderings: sort and the k largest, with indices.

use std::cmp::Ordering;

use crate::replay::answer::{answer, expect_shapes, only_tensor};
use crate::replay::lanes::Lanes;
use crate::replay::{Call, Reference, References, Unmodelled};

/// Ascending, NaN after everything (as torch sorts), zeros of both signs equal.
fn ascending(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Positions of a row in order; equal elements keep their order.
fn sorted(row: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| {
        let ordering = ascending(row[a], row[b]);
        if descending { ordering.reverse() } else { ordering }
    });
    order
}

/// `sort(self, dim, descending)`: values and indices; `argsort` the indices, `msort` the values alone
/// along the first axis.
pub(super) fn sort(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let shape = input.value.shape();
    let (axis, descending) = match call.function() {
        "msort" => (0, false),
        _ => (call.axis("dim", Some(-1), shape.len())?, call.flag("descending", false)?),
    };
    let shapes: &[&[usize]] = if call.function() == "sort" { &[shape, shape] } else { &[shape] };
    expect_shapes(call, shapes)?;
    let lanes = Lanes::over(shape, &[axis]);
    let data = lanes.gather(&input.value);
    let (values, indices) = lanes.map(&data, |_, row, values, indices| {
        for ((at, value), index) in sorted(row, descending).into_iter().zip(values).zip(indices) {
            *value = row[at];
            *index = at as f64;
        }
    });
    let indices = Some(Reference::discrete(lanes.restore(indices)?));
    let values = Some(Reference::moved(lanes.restore(values)?));
    match call.function() {
        "argsort" => Ok(vec![indices]),
        _ => answer(call, vec![values, indices]),
    }
}

/// `topk(self, k, dim, largest, sorted)`: values and indices.
///
/// # Errors
/// Also where `sorted` is false: the order is then the device's own.
pub(super) fn topk(call: &Call) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let shape = input.value.shape();
    let axis = call.axis("dim", Some(-1), shape.len())?;
    let k = usize::try_from(call.integer("k", None)?).unwrap_or(usize::MAX);
    let largest = call.flag("largest", true)?;
    if !call.flag("sorted", true)? && k > 1 {
        return Err(Unmodelled("topk without sorting leaves the order to the device".into()));
    }
    let extent = shape.get(axis).copied().unwrap_or(1);
    if k > extent {
        return Err(Unmodelled(format!("k {k} is more than the {extent} elements of the axis")));
    }
    let mut kept = shape.to_vec();
    if let Some(slot) = kept.get_mut(axis) {
        *slot = k;
    }
    expect_shapes(call, &[&kept, &kept])?;
    let lanes = Lanes::over(shape, &[axis]);
    let data = lanes.gather(&input.value);
    let rows = lanes.each(&data, |row| {
        let mut order = sorted(row, largest);
        order.truncate(k);
        order.into_iter().map(|at| (row[at], at as f64)).collect::<Vec<_>>()
    });
    let (values, indices) = rows.into_iter().flatten().unzip();
    let kept = Lanes::over(&kept, &[axis]);
    let (values, indices) = (kept.restore(values)?, kept.restore(indices)?);
    answer(call, vec![Some(Reference::moved(values)), Some(Reference::discrete(indices))])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    #[test]
    fn by_hand() {
        let x = [3.0, 1.0, 2.0, 9.0, 7.0, 8.0];
        let sort = Staged::new("sort", json!({"dim": -1, "descending": false})).input("self", &[2, 3], &x);
        let sort = sort.output(&[2, 3]).output(&[2, 3]);
        assert_eq!(sort.values(0), [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
        assert_eq!(sort.values(1), [1.0, 2.0, 0.0, 1.0, 2.0, 0.0]);
        let first =
            Staged::new("msort", json!({})).input("self", &[2, 3], &[3.0, 1.0, 2.0, 1.0, 7.0, 0.0]).output(&[2, 3]);
        assert_eq!(first.values(0), [1.0, 1.0, 0.0, 3.0, 7.0, 2.0]);
        let arg =
            Staged::new("argsort", json!({"dim": 0, "descending": true})).input("self", &[3], &x[..3]).output(&[3]);
        assert_eq!(arg.values(0), [0.0, 2.0, 1.0]);
        let top =
            Staged::new("topk", json!({"k": 2, "dim": 0})).input("self", &[3, 2], &x).output(&[2, 2]).output(&[2, 2]);
        assert_eq!(top.values(0), [7.0, 9.0, 3.0, 8.0]);
        assert_eq!(top.values(1), [2.0, 1.0, 0.0, 2.0]);
        let low = Staged::new("topk", json!({"k": 1, "largest": false, "sorted": false})).input("self", &[2, 3], &x);
        assert_eq!(low.output(&[2, 1]).values(0), [1.0, 7.0]);
    }

    #[test]
    fn nan_comes_last_and_equals_keep_their_order() {
        let nan = f64::NAN;
        let sort = |descending| {
            let attrs = json!({"descending": descending});
            Staged::new("sort", attrs).input("self", &[4], &[nan, 1.0, f64::INFINITY, 1.0]).output(&[4]).output(&[4])
        };
        assert_close(&sort(false).values(0), &[1.0, 1.0, f64::INFINITY, nan]);
        assert_eq!(sort(false).values(1), [1.0, 3.0, 2.0, 0.0]);
        assert_eq!(sort(true).values(1), [0.0, 2.0, 1.0, 3.0]);
    }

    #[test]
    fn what_is_not_determined_is_refused() {
        let call = |attrs| Staged::new("topk", attrs).input("self", &[3], &[1.0, 2.0, 3.0]).output(&[2]);
        assert!(call(json!(null)).refusal().contains("attributes"));
        assert!(call(json!({"k": 4})).refusal().contains("more than the 3"));
        assert!(call(json!({"k": -1})).refusal().contains("more than the 3"));
        assert!(call(json!({"k": 2, "sorted": false})).refusal().contains("to the device"));
    }

    proptest! {
        #[test]
        fn sorting_permutes(x in proptest::collection::vec((-3..3i8).prop_map(f64::from), 12), axis in -2..2i64, k in 1usize..4) {
            let call = Staged::new("sort", json!({"dim": axis})).input("self", &[3, 4], &x).output(&[3, 4]).output(&[3, 4]);
            let (values, indices) = (call.values(0), call.values(1));
            let first = axis.rem_euclid(2) == 0;
            let (lanes, extent) = if first { (4, 3) } else { (3, 4) };
            let at = |lane: usize, k: usize| if first { k * 4 + lane } else { lane * 4 + k };
            for lane in 0..lanes {
                let mut expected: Vec<f64> = (0..extent).map(|k| x[at(lane, k)]).collect();
                expected.sort_by(f64::total_cmp);
                let found: Vec<f64> = (0..extent).map(|k| values[at(lane, k)]).collect();
                prop_assert_eq!(&found, &expected);
                for k in 0..extent {
                    prop_assert_eq!(x[at(lane, indices[at(lane, k)] as usize)], found[k]);
                }
            }
            // The k smallest are the first k of the sorted.
            let shape = if first { [k, 4] } else { [3, k] };
            let top = Staged::new("topk", json!({"k": k, "dim": axis, "largest": false})).input("self", &[3, 4], &x).output(&shape).values(0);
            for lane in 0..lanes {
                for i in 0..k {
                    let slot = if first { i * 4 + lane } else { lane * k + i };
                    prop_assert_eq!(top[slot], values[at(lane, i)]);
                }
            }
        }
    }
}
