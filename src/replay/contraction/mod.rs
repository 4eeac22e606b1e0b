//! Sums of products: linear layers, matrix products, einsum, grouped products and their gradients.
//!
//! In goes a call of one of these functions; out comes the product in f64 with, per element, the sum
//! of the squares of its terms, which is what the error of a long sum follows (a sum that cancels is
//! no worse than its terms). Every form is brought to batches of matrix products and runs through
//! [`product::multiply`]; result shapes are held against the recorded ones before memory is taken.

mod affine;
pub(super) mod backward;
mod einsum;
mod grouped;
mod matrix;
pub(super) mod product;
#[cfg(test)]
pub(super) mod recorded;
#[cfg(test)]
mod tests;

use super::Replay;

/// The functions of this family.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "linear" | "npu_linear" => affine::linear,
        "addmm" => affine::addmm,
        "addmv" => affine::addmv,
        "addr" => affine::addr,
        "baddbmm" => affine::baddbmm,
        "addbmm" => affine::addbmm,
        "matmul" | "linalg_matmul" | "__matmul__" => matrix::matmul,
        "mm" => matrix::mm,
        "bmm" => matrix::bmm,
        "mv" => matrix::mv,
        "dot" | "vdot" => matrix::dot,
        "inner" => matrix::inner,
        "outer" | "ger" => matrix::outer,
        "einsum" => einsum::einsum,
        "npu_grouped_matmul" | "grouped_matmul" => grouped::npu_grouped_matmul,
        "_grouped_mm" | "grouped_mm" => grouped::grouped_mm,
        "linear_backward" => backward::linear_backward,
        "matmul_backward" => backward::matmul_backward,
        _ => return None,
    })
}
