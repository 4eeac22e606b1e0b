//! `x[index]` as Python writes it: integers, slices, `None`, `...`, or one list or tensor of positions.

use ndarray::{ArrayView, Axis, IxDyn, Slice};
use serde_json::Value;

use super::super::{Call, Operand, References, Replay, Unmodelled};
use super::part::bound;
use super::{lookup, position, single, subject};

pub(super) fn family(function: &str) -> Option<Replay> {
    (function == "getitem" || function == "__getitem__").then_some(getitem as Replay)
}

/// The attribute `index` holds a single index or a tuple of them: numbers, `{"start", "stop", "step"}`, null for
/// a new axis, `"..."`. A list of positions looks like a tuple of numbers; the recorded shape tells them apart.
fn getitem(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    if let Some(index) = call.named(&["index"]) {
        return lookup::first_axis(call, x, index);
    }
    let index = match call.attrs {
        // Null is an index of its own here.
        Some(attrs) => attrs.get("index").ok_or_else(|| call.unmodelled("the index was not recorded"))?,
        None => return Err(call.unmodelled("attributes were not recorded")),
    };
    let one = std::slice::from_ref(index);
    let parts = index.as_array().map_or(one, Vec::as_slice);
    let view = viewed(call, x, parts)?;
    if view.shape() == call.output(0)?.shape {
        return single(call, x, &view);
    }
    let positions: Option<Vec<i64>> = parts.iter().map(Value::as_i64).collect();
    match positions.filter(|_| index.is_array() && x.value.ndim() > 0) {
        Some(positions) => {
            let extent = x.value.shape()[0];
            let rows: Vec<usize> =
                positions.iter().map(|&at| position(call, at as f64, extent)).collect::<Result<_, _>>()?;
            single(call, x, &x.value.select(Axis(0), &rows).view())
        }
        None => single(call, x, &view),
    }
}

fn viewed<'a>(call: &Call, x: &'a Operand, parts: &[Value]) -> Result<ArrayView<'a, f64, IxDyn>, Unmodelled> {
    let is_ellipsis = |part: &&Value| part.as_str() == Some("...");
    let taken = parts.iter().filter(|part| !part.is_null() && !is_ellipsis(part)).count();
    let rank = x.value.ndim();
    let skipped = rank.checked_sub(taken).ok_or_else(|| call.unmodelled("more indices than axes"))?;
    if parts.iter().filter(is_ellipsis).count() > 1 {
        return Err(call.unmodelled("more than one ellipsis"));
    }
    let mut view = x.value.view();
    let mut axis = 0;
    for part in parts {
        match part {
            Value::Null => {
                view = view.insert_axis(Axis(axis));
                axis += 1;
            }
            Value::String(text) if text == "..." => axis += skipped,
            Value::Number(number) => {
                let at = number.as_i64().ok_or_else(|| call.unmodelled("an index is no integer"))?;
                let at = position(call, at as f64, view.shape()[axis])?;
                view = view.index_axis_move(Axis(axis), at);
            }
            Value::Object(slice) => {
                let extent = view.shape()[axis];
                let number = |name: &str, default: i64| match slice.get(name) {
                    None | Some(Value::Null) => Ok(default),
                    Some(value) => value.as_i64().ok_or_else(|| call.unmodelled("a bound is no integer")),
                };
                let start = bound(number("start", 0)?, extent);
                let stop = bound(number("stop", i64::MAX)?, extent).max(start);
                let step = isize::try_from(number("step", 1)?).ok().filter(|step| *step > 0);
                let step = step.ok_or_else(|| call.unmodelled("a step below 1"))?;
                view.slice_axis_inplace(Axis(axis), Slice::new(start as isize, Some(stop as isize), step));
                axis += 1;
            }
            _ => return Err(call.unmodelled("an index of a kind that is not known")),
        }
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::replay::staged::{Staged, assert_close};

    fn item(index: &Value, shape: &[usize]) -> Staged {
        let x: Vec<f64> = (0..12u8).map(f64::from).collect();
        Staged::new("getitem", json!({"index": index})).input("self", &[2, 3, 2], &x).output(shape)
    }

    #[test]
    fn as_python_reads_it() {
        let slice = |start: Value, stop: Value, step: Value| json!({"start": start, "stop": stop, "step": step});
        let all = || slice(json!(null), json!(null), json!(null));
        assert_close(&item(&json!(-1), &[3, 2]).values(0), &[6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_close(&item(&json!([all(), 0]), &[2, 2]).values(0), &[0.0, 1.0, 6.0, 7.0]);
        assert_close(&item(&json!(["...", 1]), &[2, 3]).values(0), &[1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
        let every_other = slice(json!(-3), json!(null), json!(2));
        assert_close(&item(&json!([1, every_other, 0]), &[2]).values(0), &[6.0, 10.0]);
        assert_close(&item(&json!([1, 2, null]), &[1, 2]).values(0), &[10.0, 11.0]);
        assert_close(&item(&json!([1, 0]), &[2]).values(0), &[6.0, 7.0]);
        assert_close(&item(&json!([1, 1]), &[2, 3, 2]).values(0)[6..8], &[6.0, 7.0]);
        assert_eq!(item(&json!(null), &[1, 2, 3, 2]).values(0).len(), 12);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (index, shape) in [
            (json!([0, 0, 0, 0]), &[][..]),
            (json!(["...", "..."]), &[2, 3, 2]),
            (json!(5), &[3, 2]),
            (json!(true), &[2, 3, 2]),
            (json!({"start": 0, "stop": 1, "step": -1}), &[1, 3, 2]),
            (json!(0), &[2, 3]),
        ] {
            assert!(!item(&index, shape).refusal().is_empty(), "{index}");
        }
    }
}
