//! A product plus something: linear, addmm and its kin (`beta * self + alpha * product`).

use ndarray::{ArrayViewD, Axis};

use super::matrix::{matrices, one, product, reshaped, view};
use super::product::Sums;
use crate::replay::{Call, References, Unmodelled};

/// `linear(input [.., I], weight [O, I], bias [O])`, or, as some recorders write addmm,
/// `linear(self, mat1, mat2)`. Without argument names a square weight leaves two readings and is not
/// modelled.
pub(super) fn linear(call: &Call) -> Result<References, Unmodelled> {
    if call.named(&["mat1"]).is_some() {
        return addmm(call);
    }
    if call.named(&["mat2"]).is_some() {
        return super::matrix::matmul(call);
    }
    let input = view(call.input(&["input", "x"], 0)?);
    let weight = view(call.input(&["weight"], 1)?);
    let bias = call.optional_input(&["bias"], 2).map(view);
    if call.inputs.len() != 2 + usize::from(bias.is_some()) {
        return Err(Unmodelled(format!("linear of {} tensors", call.inputs.len())));
    }
    let named = call.inputs.iter().any(|input| input.name.is_some());
    let weight = if named { transposed(weight) } else { only_reading(call, &input, weight, bias.as_ref())? };
    let sums = product(call, 0, input, weight)?;
    one(
        call,
        match bias {
            Some(bias) => sums.plus(&bias, 1.0)?,
            None => sums,
        },
    )
}

/// The weight as `[I, O]` where only one of its two readings gives the recorded result.
fn only_reading<'a>(
    call: &Call,
    input: &ArrayViewD<f64>,
    weight: ArrayViewD<'a, f64>,
    bias: Option<&ArrayViewD<f64>>,
) -> Result<ArrayViewD<'a, f64>, Unmodelled> {
    if bias.is_some_and(|bias| bias.ndim() > 1) {
        return Err(Unmodelled("linear of unnamed tensors whose third is no bias".to_string()));
    }
    let (depth, columns) = (input.shape().last(), call.outputs.first().and_then(|output| output.shape.last()));
    let reads = |rows, columns_of| weight.shape().first() == rows && weight.shape().last() == columns_of;
    match (weight.ndim(), reads(columns, depth), reads(depth, columns)) {
        (2, true, false) => Ok(transposed(weight)),
        (2, false, true) => Ok(weight),
        (2, true, true) => Err(Unmodelled("argument names were not recorded and the weight is square".to_string())),
        _ => Err(Unmodelled(format!("weight {:?} does not fit input {:?}", weight.shape(), input.shape()))),
    }
}

fn transposed(weight: ArrayViewD<f64>) -> ArrayViewD<f64> {
    weight.reversed_axes()
}

/// `addmm(self, mat1 [M, K], mat2 [K, N], beta, alpha)`.
pub(super) fn addmm(call: &Call) -> Result<References, Unmodelled> {
    added(call, ["mat1", "mat2"], [2, 2], |a, b| product(call, 0, a, b))
}

/// `addmv(self, mat [M, K], vec [K], beta, alpha)`.
pub(super) fn addmv(call: &Call) -> Result<References, Unmodelled> {
    added(call, ["mat", "vec"], [2, 1], |a, b| product(call, 0, a, b))
}

/// `addr(self, vec1 [M], vec2 [N], beta, alpha)`.
pub(super) fn addr(call: &Call) -> Result<References, Unmodelled> {
    added(call, ["vec1", "vec2"], [1, 1], |a, b| product(call, 0, a.insert_axis(Axis(1)), b.insert_axis(Axis(0))))
}

/// `baddbmm(self, batch1 [B, M, K], batch2 [B, K, N], beta, alpha)`.
pub(super) fn baddbmm(call: &Call) -> Result<References, Unmodelled> {
    added(call, ["batch1", "batch2"], [3, 3], |a, b| {
        same_batches(&a, &b)?;
        product(call, 0, a, b)
    })
}

/// `addbmm(self, batch1 [B, M, K], batch2 [B, K, N], beta, alpha)`: the batches are summed too.
pub(super) fn addbmm(call: &Call) -> Result<References, Unmodelled> {
    added(call, ["batch1", "batch2"], [3, 3], |a, b| {
        same_batches(&a, &b)?;
        let (batches, rows, depth) = (a.shape()[0], a.shape()[1], a.shape()[2]);
        let (inner, columns) = (b.shape()[1], b.shape()[2]);
        // [B, M, K] -> [M, B K] and [B, K, N] -> [B K, N].
        let a = reshaped(a.permuted_axes(ndarray::IxDyn(&[1, 0, 2])), (rows, batches * depth))?;
        let b = reshaped(b, (batches * inner, columns))?;
        matrices(call, 0, a.view(), b.view(), &[rows, columns])
    })
}

fn same_batches(a: &ArrayViewD<f64>, b: &ArrayViewD<f64>) -> Result<(), Unmodelled> {
    if a.shape().first() == b.shape().first() {
        Ok(())
    } else {
        Err(Unmodelled(format!("batches of {:?} and {:?} differ", a.shape(), b.shape())))
    }
}

/// `beta * self + alpha * product(first, second)`; operands of the given names and ranks.
fn added<'a>(
    call: &'a Call,
    [first, second]: [&str; 2],
    [rank_a, rank_b]: [usize; 2],
    product: impl FnOnce(ArrayViewD<'a, f64>, ArrayViewD<'a, f64>) -> Result<Sums, Unmodelled>,
) -> Result<References, Unmodelled> {
    let (beta, alpha) = (call.number("beta", Some(1.0))?, call.number("alpha", Some(1.0))?);
    let addend = view(call.input(&["self", "input"], 0)?);
    let a = view(call.input(&[first], 1)?);
    let b = view(call.input(&[second], 2)?);
    if call.inputs.len() != 3 || a.ndim() != rank_a || b.ndim() != rank_b {
        return Err(Unmodelled(format!("{} of shapes {:?} and {:?}", call.function(), a.shape(), b.shape())));
    }
    one(call, product(a, b)?.scaled(alpha).plus(&addend, beta)?)
}
