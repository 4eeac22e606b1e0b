//! Scaled-dot-product attention in its many spellings: softmax(scale · Q Kᵀ + mask) V.
//!
//! In goes a call of ATen's forms, of flash attention or of Ascend's fused operators; each is brought to
//! the same heads ([`heads::Heads`], `[B, N, L, E]`) and mask ([`mask::Mask`]) and computed there in
//! f64. By-products (log-sum-exp, running maxima and sums, seeds) differ by design and have no
//! reference. Arguments that are not understood are never ignored: the call is then not modelled.

mod aten;
mod flash;
mod heads;
mod layout;
mod mask;
mod npu;
#[cfg(test)]
mod tests;

use super::{Call, Exactness, Operand, Reference, References, Replay, Unmodelled};

/// The largest error of an element in ULP of the compute dtype, over the root-mean-square that
/// [`heads::Attended::spread`] foresees. Measured on fp32 emulations in blocked and in plain order, of
/// head sizes 8-128, 8-2048 keys and scores up to 25: 1.5 to 3.
const PEAK: f64 = 4.0;

/// ULP for results in 16 bits and less: scores and sums are held in fp32 there, and what they lose does
/// not show.
const NARROW_ULP: f64 = 1.0;

/// The probabilities are rounded to the output's dtype before they meet the values.
const ROUNDINGS: u32 = 1;

/// The functions of this family.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "attention"
        | "scaled_dot_product_attention"
        | "_scaled_dot_product_attention_math"
        | "_scaled_dot_product_flash_attention"
        | "_scaled_dot_product_flash_attention_for_cpu"
        | "_scaled_dot_product_efficient_attention"
        | "_scaled_dot_product_cudnn_attention"
        | "_scaled_dot_product_fused_attention_overrideable" => aten::scaled_dot_product,
        "flash_attn_func" | "flash_attn" | "flash_attn_varlen_func" => flash::flash_attn,
        "npu_fusion_attention" | "npu_fusion_attention_v2" | "flash_attention_score" => npu::fusion,
        "npu_fused_infer_attention_score" | "npu_prompt_flash_attention" | "npu_incre_flash_attention" => {
            npu::inference
        }
        _ => return None,
    })
}

/// That each named tensor of the call is one of `known`; unnamed ones count as the first of them.
fn only(call: &Call, known: &[&str]) -> Result<(), Unmodelled> {
    let odd = call.inputs.iter().find(|input| input.name.as_deref().is_some_and(|name| !known.contains(&name)));
    match odd.and_then(|operand: &Operand| operand.name.as_deref()) {
        Some(name) => Err(Unmodelled(format!("argument {name} of {} is not modelled", call.function()))),
        None if call.inputs.len() > known.len() => {
            Err(Unmodelled(format!("{} of {} tensors", call.function(), call.inputs.len())))
        }
        None => Ok(()),
    }
}

/// The reference of output 0, and none for the by-products.
fn with_by_products(call: &Call, first: Reference) -> References {
    let by_products = call.outputs.len().saturating_sub(1);
    std::iter::once(Some(first)).chain(std::iter::repeat_n(None, by_products)).collect()
}

/// A number that must have the given value for the call to be modelled (`dropout_p` 0, say).
fn must_be(call: &Call, name: &str, value: f64) -> Result<(), Unmodelled> {
    let found = call.number(name, Some(value))?;
    if found == value {
        Ok(())
    } else {
        Err(Unmodelled(format!("{name} = {found} of {} is not modelled", call.function())))
    }
}

/// The budget of an attention whose error is foreseen to be `spread` ULP.
fn budget(call: &Call, spread: f64) -> Exactness {
    let narrow = call.outputs.first().is_some_and(|output| output.dtype.bits() <= 16);
    // Scores that overflowed leave no finite result to hold against a budget.
    let ulp = if narrow || !spread.is_finite() { NARROW_ULP } else { PEAK * spread };
    Exactness::Function { ulp, roundings: ROUNDINGS }
}
