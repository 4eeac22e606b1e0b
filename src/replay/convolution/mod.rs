//! Convolutions of one to three dimensions, transposed ones included, and their gradients.
//!
//! In goes a call of one of these functions; out comes the sum in f64 with the sum of the squares of
//! its terms, as for any contraction. Every form is one gather: for each output position and tap of the
//! kernel, [`geometry::Axis`] says which input position is read, if any; the values read are laid out
//! as columns, block by block, and multiplied by the weight.

mod backward;
mod forward;
mod geometry;
#[cfg(test)]
mod tests;

use super::Replay;

/// The functions of this family.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "conv"
        | "convolution"
        | "_convolution"
        | "convolution_overrideable"
        | "cudnn_convolution"
        | "mkldnn_convolution"
        | "miopen_convolution"
        | "slow_conv2d_forward"
        | "npu_convolution" => forward::convolution,
        "conv1d" | "conv2d" | "conv3d" | "npu_conv2d" | "npu_conv3d" => forward::plain,
        "conv_transpose"
        | "conv_transpose1d"
        | "conv_transpose2d"
        | "conv_transpose3d"
        | "cudnn_convolution_transpose"
        | "npu_conv_transpose2d" => forward::transposed,
        "convolution_backward" => backward::convolution_backward,
        _ => return None,
    })
}
