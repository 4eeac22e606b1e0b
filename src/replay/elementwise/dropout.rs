//! Dropout where it drops nothing: in evaluation, or with p = 0.

use super::super::reference::{moved, plain};
use super::super::{Call, References, Replay, Unmodelled};

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "dropout"
        | "native_dropout"
        | "_fused_dropout"
        | "alpha_dropout"
        | "feature_dropout"
        | "feature_alpha_dropout"
        | "dropout1d"
        | "dropout2d"
        | "dropout3d"
        | "npu_dropout"
        | "_npu_dropout" => dropout,
        _ => return None,
    })
}

/// The input itself; the mask, where one is written, is no result.
fn dropout(call: &Call) -> Result<References, Unmodelled> {
    // `torch.nn.functional` trains by default, ATen always records the flag.
    let train = call.flag("train", true)? && call.flag("training", true)?;
    if train && call.number("p", Some(0.5))? != 0.0 {
        return Err(call.unmodelled("random"));
    }
    let x = call.input(&["self", "input", "x"], 0)?;
    call.fits(0, x.value.shape())?;
    let value = x.value.as_standard_layout().into_owned();
    let mut references = vec![Some(plain(value, moved([x.dtype], call.output(0)?.dtype)))];
    references.resize_with(call.outputs.len(), || None);
    Ok(references)
}
