//! Normalisations: layer, RMS, batch, group and instance norm, with the statistics that they save.
//!
//! In goes a recorded call; out come references for the normalised tensor and for the saved mean and
//! reciprocal deviation. Invariant: an element is held against what was summed for it,
//! |γ|·rstd·(|x|+|μ|+Σ|x|/n)+|β|, never against the result alone (NUMERICS 1): near the mean the result
//! vanishes and its relative error says nothing.

mod backward;
mod batch;
mod group;
mod layer;
mod moments;
mod rms;

use super::Replay;

/// ULP that a healthy normalisation may be off by, in units of its scale: the roundings of x-μ, rstd,
/// the two products and the sum (36 clean fp32 layer norms of two transformers reached 1.9, ten batch
/// norms 1.1).
const NORM_ULP: f64 = 4.0;

/// The replay of a normalisation.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "layer_norm" | "native_layer_norm" | "npu_layer_norm_eval" => layer::layer_norm,
        "native_layer_norm_backward" | "layer_norm_backward" => backward::layer_norm_backward,
        "rms_norm" | "_fused_rms_norm" => rms::rms_norm,
        "npu_rms_norm" => rms::npu_rms_norm,
        "npu_add_rms_norm" | "add_rms_norm" => rms::add_rms_norm,
        "batch_norm" | "native_batch_norm" | "_native_batch_norm_legit" | "cudnn_batch_norm" => batch::batch_norm,
        "_native_batch_norm_legit_no_training" | "_batch_norm_no_update" => batch::evaluating,
        "_batch_norm_with_update" => batch::training,
        "group_norm" | "native_group_norm" => group::group_norm,
        "instance_norm" => group::instance_norm,
        _ => return None,
    })
}
