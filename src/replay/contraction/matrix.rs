//! Products of two operands: matmul and its special cases.

use ndarray::{ArrayView2, ArrayViewD, Axis, IxDyn, aview2};

use super::product::{Sums, fits, multiply, multiply_each};
use crate::replay::{Call, Operand, References, Unmodelled};

const LEFT: &[&str] = &["self", "input", "mat1", "tensor1", "a", "x", "x1"];
const RIGHT: &[&str] = &["mat2", "other", "tensor2", "vec2", "vec", "tensor", "b", "y", "x2"];

/// `matmul(self, other)`: vectors are promoted, leading axes broadcast.
pub(super) fn matmul(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    one(call, product(call, 0, a, b)?)
}

/// `mm(self [M, K], mat2 [K, N])`.
pub(super) fn mm(call: &Call) -> Result<References, Unmodelled> {
    of_ranks(call, 2, 2)
}

/// `bmm(self [B, M, K], mat2 [B, K, N])`.
pub(super) fn bmm(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    if a.shape().first() != b.shape().first() {
        return Err(Unmodelled(format!("batches of {:?} and {:?} differ", a.shape(), b.shape())));
    }
    of_ranks(call, 3, 3)
}

/// `mv(self [M, K], vec [K])`.
pub(super) fn mv(call: &Call) -> Result<References, Unmodelled> {
    of_ranks(call, 2, 1)
}

/// `dot(self [K], tensor [K])`.
pub(super) fn dot(call: &Call) -> Result<References, Unmodelled> {
    of_ranks(call, 1, 1)
}

/// `inner(self [.., K], other [.., K])`: the last axes are summed; a 0-d operand scales.
pub(super) fn inner(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    if a.ndim() == 0 || b.ndim() == 0 {
        return Err(Unmodelled("inner with a scalar is a multiplication".to_string()));
    }
    let (left, right) = (&a.shape()[..a.ndim() - 1], &b.shape()[..b.ndim() - 1]);
    let shape = [left, right].concat();
    let rows = matrix_view(&a, left)?;
    let columns = matrix_view(&b, right)?;
    one(call, matrices(call, 0, rows.view(), columns.t(), &shape)?)
}

/// `outer(self [M], vec2 [N])`.
pub(super) fn outer(call: &Call) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    if a.ndim() != 1 || b.ndim() != 1 {
        return Err(Unmodelled(format!("outer of shapes {:?} and {:?}", a.shape(), b.shape())));
    }
    one(call, product(call, 0, a.insert_axis(Axis(1)), b.insert_axis(Axis(0)))?)
}

fn of_ranks(call: &Call, left: usize, right: usize) -> Result<References, Unmodelled> {
    let (a, b) = operands(call)?;
    if a.ndim() != left || b.ndim() != right {
        return Err(Unmodelled(format!("{} of shapes {:?} and {:?}", call.function(), a.shape(), b.shape())));
    }
    one(call, product(call, 0, a, b)?)
}

fn operands<'a>(call: &'a Call) -> Result<(ArrayViewD<'a, f64>, ArrayViewD<'a, f64>), Unmodelled> {
    if call.inputs.len() != 2 {
        return Err(Unmodelled(format!("{} of {} tensors", call.function(), call.inputs.len())));
    }
    if let Some(attrs) = call.attrs {
        // Frameworks that transpose inside the product spell it in many ways; none is guessed at.
        let turned = attrs.iter().find(|(name, value)| {
            (name.starts_with("trans") || name.starts_with("adj")) && value.as_bool() != Some(false) && !value.is_null()
        });
        if let Some((name, _)) = turned {
            return Err(Unmodelled(format!("attribute {name} of {} is not modelled", call.function())));
        }
    }
    Ok((view(call.input(LEFT, 0)?), view(call.input(RIGHT, 1)?)))
}

/// The operand's value.
pub(super) fn view(operand: &Operand) -> ArrayViewD<'_, f64> {
    operand.value.view()
}

/// The references of a call with one sum.
pub(super) fn one(call: &Call, sums: Sums) -> Result<References, Unmodelled> {
    Ok(vec![Some(sums.reference(call, 0)?)])
}

/// A tensor as a matrix whose rows are the leading axes `leading`.
fn matrix_view<'a>(
    tensor: &ArrayViewD<'a, f64>,
    leading: &[usize],
) -> Result<ndarray::CowArray<'a, f64, ndarray::Ix2>, Unmodelled> {
    let rows = leading.iter().product();
    let columns = tensor.shape().last().copied().unwrap_or(1);
    reshaped(tensor.clone(), (rows, columns))
}

/// A tensor in another shape of as many elements; copied only where its strides demand it.
pub(super) fn reshaped<'a, D: ndarray::Dimension>(
    tensor: ArrayViewD<'a, f64>,
    shape: impl ndarray::IntoDimension<Dim = D>,
) -> Result<ndarray::CowArray<'a, f64, D>, Unmodelled> {
    let shape = shape.into_dimension();
    let from = tensor.shape().to_vec();
    let wrong = |_| Unmodelled(format!("shape {from:?} does not hold the elements that are needed"));
    if tensor.is_standard_layout() {
        tensor.into_shape_with_order(shape).map(Into::into).map_err(wrong)
    } else {
        tensor.as_standard_layout().into_owned().into_shape_with_order(shape).map(Into::into).map_err(wrong)
    }
}

/// One matrix product given as two matrices, reshaped to `shape`.
pub(super) fn matrices(
    call: &Call,
    slot: usize,
    a: ndarray::ArrayView2<f64>,
    b: ndarray::ArrayView2<f64>,
    shape: &[usize],
) -> Result<Sums, Unmodelled> {
    if a.ncols() != b.nrows() {
        return Err(Unmodelled(format!("inner extents {} and {} of {} differ", a.ncols(), b.nrows(), call.function())));
    }
    fits(call, slot, shape)?;
    let terms = a.ncols();
    let (value, squares) = multiply(a.insert_axis(Axis(0)), b.insert_axis(Axis(0)));
    sums(value, squares, terms, shape)
}

/// `[B, M, N]` products in the shape that the function gives.
pub(super) fn sums(
    value: ndarray::Array3<f64>,
    squares: ndarray::Array3<f64>,
    terms: usize,
    shape: &[usize],
) -> Result<Sums, Unmodelled> {
    let wrong = |_| Unmodelled(format!("the product does not have the shape {shape:?}"));
    Ok(Sums {
        value: value.into_shape_with_order(IxDyn(shape)).map_err(wrong)?,
        squares: squares.into_shape_with_order(IxDyn(shape)).map_err(wrong)?,
        terms,
    })
}

/// The product of two tensors under matmul's rules, for the output at `slot`.
pub(super) fn product(call: &Call, slot: usize, a: ArrayViewD<f64>, b: ArrayViewD<f64>) -> Result<Sums, Unmodelled> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return Err(Unmodelled(format!("{} of a 0-d tensor", call.function())));
    }
    let (row_vector, column_vector) = (a.ndim() == 1, b.ndim() == 1);
    let a = if row_vector { a.insert_axis(Axis(0)) } else { a };
    let b = if column_vector { b.insert_axis(Axis(1)) } else { b };
    let (rows, depth) = (a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]);
    let (inner, columns) = (b.shape()[b.ndim() - 2], b.shape()[b.ndim() - 1]);
    if depth != inner {
        return Err(Unmodelled(format!(
            "inner extents of {:?} and {:?} differ in {}",
            a.shape(),
            b.shape(),
            call.function()
        )));
    }
    let batch = broadcast_shapes(&a.shape()[..a.ndim() - 2], &b.shape()[..b.ndim() - 2])?;
    let mut shape = batch.clone();
    if !row_vector {
        shape.push(rows);
    }
    if !column_vector {
        shape.push(columns);
    }
    fits(call, slot, &shape)?;
    // One matrix on the right serves all rows on the left: a single tall product.
    if b.ndim() == 2 {
        let tall = a.shape()[..a.ndim() - 1].iter().product::<usize>();
        let (a, b) = (reshaped(a, (1, tall, depth))?, reshaped(b, (1, depth, columns))?);
        let (value, squares) = multiply(a.view(), b.view());
        return sums(value, squares, depth, &shape);
    }
    let (a, b) = (broadcast_stack(&a, &batch)?, broadcast_stack(&b, &batch)?);
    let count = batch.iter().product();
    let (value, squares) = multiply_each(
        (count, rows, columns),
        |at| matrix_at(a.clone(), &batch, at),
        |at| matrix_at(b.clone(), &batch, at),
    );
    sums(value, squares, depth, &shape)
}

/// A stack of matrices broadcast to the batch axes `batch`, without a copy.
fn broadcast_stack<'a>(tensor: &'a ArrayViewD<f64>, batch: &[usize]) -> Result<ArrayViewD<'a, f64>, Unmodelled> {
    let full = [batch, &tensor.shape()[tensor.ndim() - 2..]].concat();
    tensor
        .broadcast(IxDyn(&full))
        .ok_or_else(|| Unmodelled(format!("shape {:?} does not broadcast to {full:?}", tensor.shape())))
}

/// Matrix number `at` of a stack with batch axes `batch`, counted row-major.
fn matrix_at<'a>(mut stack: ArrayViewD<'a, f64>, batch: &[usize], mut at: usize) -> ArrayView2<'a, f64> {
    // From the innermost batch axis outwards, so that the axes still to come keep their numbers.
    for (axis, &extent) in batch.iter().enumerate().rev() {
        stack = stack.index_axis_move(Axis(axis), at % extent.max(1));
        at /= extent.max(1);
    }
    // Two axes are left; an empty view, which gives no sums, where that were ever untrue.
    stack.into_dimensionality().unwrap_or_else(|_| aview2::<f64, 0>(&[]))
}

/// The shape to which two shapes broadcast.
pub(super) fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Unmodelled> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(at) => shape.get(at).copied().unwrap_or(1),
        None => 1,
    };
    (0..rank)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Unmodelled(format!("shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}
