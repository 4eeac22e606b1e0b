//! Grouped products: each group of rows has a weight of its own (mixture of experts).

use ndarray::{ArrayD, ArrayView2, ArrayViewD, Axis, Ix2, IxDyn};
use serde_json::Value;

use super::matrix::{matrices, view};
use super::product::{Sums, fits, multiply};
use crate::replay::{Call, Operand, References, Unmodelled};

/// Tensor arguments that are understood; with any other (scales, offsets: quantised products) the call
/// is not modelled.
const KNOWN: &[&str] = &["x", "weight", "bias", "group_list"];

/// `npu_grouped_matmul(x, weight, bias, group_list, group_type, group_list_type)`: as many products as
/// there are pairs of `x [M, K]` and `weight [K, N]`, or one `x [M, K]` whose rows are cut into groups
/// for the weights `[E, K, N]`. `group_list` holds the ends of the groups, or with `group_list_type` 1
/// their lengths. Groups along K (`group_type` 2) are not modelled.
pub(super) fn npu_grouped_matmul(call: &Call) -> Result<References, Unmodelled> {
    if let Some(odd) = call.inputs.iter().find(|input| !input.name.as_deref().is_some_and(|n| KNOWN.contains(&n))) {
        let name = odd.name.as_deref().unwrap_or("without a name");
        return Err(Unmodelled(format!("argument {name} of {} is not modelled", call.function())));
    }
    if !matches!(call.integer("group_type", Some(-1))?, -1 | 0) || call.integer("act_type", Some(0))? != 0 {
        return Err(Unmodelled(format!("group_type or act_type of {} is not modelled", call.function())));
    }
    let (x, weight, bias) = (call.list("x"), call.list("weight"), call.list("bias"));
    let groups = match call.named(&["group_list"]) {
        Some(list) => Some(whole_numbers(call, list.value.iter().copied())?),
        None => match call.attr("group_list")? {
            Some(Value::Array(list)) => Some(whole_numbers(call, list.iter().map(|v| v.as_f64().unwrap_or(f64::NAN)))?),
            Some(_) => return Err(Unmodelled(format!("attribute group_list of {} is no list", call.function()))),
            None => None,
        },
    };
    match (x.as_slice(), groups) {
        ([x], Some(groups)) => {
            let ends = match call.integer("group_list_type", Some(0))? {
                0 => groups,
                1 => running_sum(&groups),
                _ => return Err(Unmodelled(format!("group_list_type of {} is not modelled", call.function()))),
            };
            Ok(vec![Some(rows_in_groups(call, x, &weight, &bias, &ends)?.reference(call, 0)?)])
        }
        (_, None) if x.len() == weight.len() && (bias.is_empty() || bias.len() == x.len()) => {
            let pairs = x.iter().zip(&weight).enumerate();
            pairs.map(|(slot, (x, weight))| one_pair(call, slot, x, weight, bias.get(slot).copied())).collect()
        }
        _ => Err(Unmodelled(format!("{} of {} x and {} weights", call.function(), x.len(), weight.len()))),
    }
}

/// `_grouped_mm(self [M, K], mat2 [E, K, N], offs [E])`: `offs` holds the ends of the groups.
pub(super) fn grouped_mm(call: &Call) -> Result<References, Unmodelled> {
    let x = call.input(&["self", "mat_a", "input"], 0)?;
    let weight = call.input(&["mat2", "mat_b"], 1)?;
    let ends = call.input(&["offs"], 2)?;
    if call.inputs.len() != 3 || weight.value.ndim() != 3 {
        return Err(Unmodelled(format!("{} without [E, K, N] weights and offsets", call.function())));
    }
    let ends = whole_numbers(call, ends.value.iter().copied())?;
    Ok(vec![Some(rows_in_groups(call, x, &[weight], &[], &ends)?.reference(call, 0)?)])
}

fn one_pair(
    call: &Call,
    slot: usize,
    x: &Operand,
    weight: &Operand,
    bias: Option<&Operand>,
) -> Result<Option<crate::replay::Reference>, Unmodelled> {
    let (x, weight) = (as_matrix(call, view(x))?, as_matrix(call, view(weight))?);
    let sums = matrices(call, slot, x, weight, &[x.nrows(), weight.ncols()])?;
    let sums = match bias {
        Some(bias) => sums.plus(&view(bias), 1.0)?,
        None => sums,
    };
    Ok(Some(sums.reference(call, slot)?))
}

/// Rows of one `x` in consecutive groups; every row must belong to one, what stands in the others
/// depends on the device.
fn rows_in_groups(
    call: &Call,
    x: &Operand,
    weights: &[&Operand],
    biases: &[&Operand],
    ends: &[usize],
) -> Result<Sums, Unmodelled> {
    let x = as_matrix(call, view(x))?;
    let experts = slices(weights, 2)?;
    let biases = slices(biases, 1)?;
    let ordered = ends.windows(2).all(|pair| pair[0] <= pair[1]);
    if experts.len() != ends.len() || !ordered || ends.last().copied().unwrap_or(0) != x.nrows() {
        return Err(Unmodelled(format!(
            "groups of {} do not cover {} rows with {} weights",
            call.function(),
            x.nrows(),
            experts.len()
        )));
    }
    if !biases.is_empty() && biases.len() != experts.len() {
        return Err(Unmodelled(format!("{} biases for {} weights", biases.len(), experts.len())));
    }
    let columns = experts.first().and_then(|weight| weight.shape().last().copied()).unwrap_or(0);
    let shape = [x.nrows(), columns];
    fits(call, 0, &shape)?;
    let mut all = Sums {
        value: ArrayD::zeros(IxDyn(&shape)),
        squares: ArrayD::zeros(IxDyn(&shape)),
        terms: x.ncols().saturating_add(usize::from(!biases.is_empty())),
    };
    let mut start = 0;
    for (group, (&end, weight)) in ends.iter().zip(&experts).enumerate() {
        let weight = as_matrix(call, weight.view())?;
        if weight.dim() != (x.ncols(), columns) {
            return Err(Unmodelled(format!("weight {group} of {} has another shape", call.function())));
        }
        let rows = x.slice_axis(Axis(0), (start..end).into());
        let (value, squares) = multiply(rows.insert_axis(Axis(0)), weight.insert_axis(Axis(0)));
        let mut sums = Sums {
            value: value.index_axis_move(Axis(0), 0).into_dyn(),
            squares: squares.index_axis_move(Axis(0), 0).into_dyn(),
            terms: x.ncols(),
        };
        if let Some(bias) = biases.get(group) {
            sums = sums.plus(bias, 1.0)?;
        }
        all.value.slice_axis_mut(Axis(0), (start..end).into()).assign(&sums.value);
        all.squares.slice_axis_mut(Axis(0), (start..end).into()).assign(&sums.squares);
        start = end;
    }
    Ok(all)
}

/// Tensors of `rank` axes: as they are, or those stacked in a single tensor of one axis more.
fn slices<'a>(tensors: &[&'a Operand], rank: usize) -> Result<Vec<ArrayViewD<'a, f64>>, Unmodelled> {
    match tensors {
        [stacked] if stacked.value.ndim() == rank + 1 => {
            Ok((0..stacked.value.shape()[0]).map(|at| view(stacked).index_axis_move(Axis(0), at)).collect())
        }
        _ if tensors.iter().all(|tensor| tensor.value.ndim() == rank) => {
            Ok(tensors.iter().map(|&tensor| view(tensor)).collect())
        }
        _ => Err(Unmodelled("weights or biases of grouped products have an unexpected rank".to_string())),
    }
}

fn as_matrix<'a>(call: &Call, tensor: ArrayViewD<'a, f64>) -> Result<ArrayView2<'a, f64>, Unmodelled> {
    let shape = tensor.shape().to_vec();
    tensor
        .into_dimensionality::<Ix2>()
        .map_err(|_| Unmodelled(format!("{} of shape {shape:?} is not modelled", call.function())))
}

fn running_sum(lengths: &[usize]) -> Vec<usize> {
    lengths
        .iter()
        .scan(0usize, |end, &length| {
            *end = end.saturating_add(length);
            Some(*end)
        })
        .collect()
}

/// Group bounds from a tensor or an attribute.
fn whole_numbers(call: &Call, values: impl Iterator<Item = f64>) -> Result<Vec<usize>, Unmodelled> {
    values
        .map(|value| {
            let whole = value >= 0.0 && value.fract() == 0.0 && value < 2f64.powi(53);
            whole
                .then_some(value as usize)
                .ok_or_else(|| Unmodelled(format!("a group of {} ends at {value}", call.function())))
        })
        .collect()
}
