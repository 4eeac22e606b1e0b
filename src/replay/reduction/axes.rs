//! Which axes a call reduces: as its attributes say, else as its shapes leave no doubt.

use serde_json::Value;

use crate::replay::lanes::Lanes;
use crate::replay::{Call, Operand, Unmodelled, resolve_axis};

/// More axes than this are not searched for a reading of the shapes.
const MOST_AXES: usize = 8;

/// Rows over the axes that `dim` names (all where it is absent, null or empty), and the shape of the
/// result under `keepdim`. Where attributes were not recorded, the axes are those that lead from the
/// input's shape to the recorded one, if there is just one such set.
///
/// # Errors
/// An axis out of range or named twice; shapes that leave several readings.
pub(in crate::replay) fn reduced_axes(call: &Call, input: &Operand) -> Result<(Lanes, Vec<usize>), Unmodelled> {
    let shape = input.value.shape();
    if call.attrs.is_none() {
        return from_shapes(call, shape);
    }
    let axes = match call.attr("dim")? {
        None => Vec::new(),
        Some(Value::Array(list)) if list.is_empty() => Vec::new(),
        Some(_) => call.integers("dim")?.unwrap_or_default(),
    };
    let mut named = Vec::new();
    for axis in &axes {
        let axis = resolve_axis(*axis, shape.len())
            .ok_or_else(|| Unmodelled(format!("dim {axis} is out of range for shape {shape:?}")))?;
        if named.contains(&axis) {
            return Err(Unmodelled(format!("dim {axes:?} names an axis twice")));
        }
        named.push(axis);
    }
    if named.is_empty() {
        named = (0..shape.len()).collect();
    }
    let lanes = Lanes::over(shape, &named);
    let kept = lanes.kept_shape(call.flag("keepdim", false)?);
    Ok((lanes, kept))
}

fn from_shapes(call: &Call, shape: &[usize]) -> Result<(Lanes, Vec<usize>), Unmodelled> {
    let recorded = call.outputs.first().map(|output| output.shape.as_slice()).unwrap_or_default();
    let unknown = || Unmodelled(format!("attributes of {} were not recorded", call.function()));
    if shape.len() > MOST_AXES {
        return Err(unknown());
    }
    // At least one axis is reduced, except of a 0-d tensor.
    let subsets = (0u32..1 << shape.len()).filter(|set| *set != 0 || shape.is_empty());
    let mut readings = subsets.filter_map(|set| {
        let axes: Vec<usize> = (0..shape.len()).filter(|axis| set >> axis & 1 == 1).collect();
        let lanes = Lanes::over(shape, &axes);
        [false, true].iter().any(|keep| lanes.kept_shape(*keep) == recorded).then_some(lanes)
    });
    match (readings.next(), readings.next()) {
        (Some(lanes), None) => Ok((lanes, recorded.to_vec())),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::replay::staged::{Staged, assert_close};

    fn sum(attrs: serde_json::Value, output: &[usize]) -> Staged {
        Staged::new("sum", attrs).input("", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).output(output)
    }

    #[test]
    fn axes_as_the_attributes_say() {
        assert_close(&sum(json!({"dim": null}), &[]).values(0), &[21.0]);
        assert_close(&sum(json!({}), &[]).values(0), &[21.0]);
        assert_close(&sum(json!({"dim": []}), &[]).values(0), &[21.0]);
        assert_close(&sum(json!({"dim": -1}), &[2]).values(0), &[6.0, 15.0]);
        assert_close(&sum(json!({"dim": [0], "keepdim": true}), &[1, 3]).values(0), &[5.0, 7.0, 9.0]);
        assert!(sum(json!({"dim": [0, -2]}), &[3]).refusal().contains("twice"));
        assert!(sum(json!({"dim": 2}), &[2]).refusal().contains("out of range"));
        assert!(sum(json!({"dim": "x"}), &[2]).refusal().contains("no list of integers"));
        assert!(sum(json!({"dim": 1}), &[2, 1]).refusal().contains("does not fit"));
    }

    #[test]
    fn axes_as_the_shapes_leave_no_doubt() {
        assert_close(&sum(json!(null), &[]).values(0), &[21.0]);
        assert_close(&sum(json!(null), &[2, 1]).values(0), &[6.0, 15.0]);
        let square = Staged::new("sum", json!(null)).input("", &[2, 2], &[1.0; 4]);
        assert!(square.output(&[2]).refusal().contains("not recorded"), "either axis would do");
        assert!(sum(json!(null), &[4]).refusal().contains("not recorded"));
    }
}
