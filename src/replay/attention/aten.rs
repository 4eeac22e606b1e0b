//! ATen's scaled-dot-product attention and the fused kernels behind it.

use ndarray::{ArrayViewD, Axis};

use super::heads::Heads;
use super::layout::{Layout, attended};
use super::mask::Mask;
use super::{must_be, only};
use crate::replay::{Call, References, Unmodelled};

/// `scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
/// enable_gqa)` of `[L, E]`, `[B, L, E]` or `[B, N, L, E]`; a causal mask is aligned to the upper left
/// corner.
pub(super) fn scaled_dot_product(call: &Call) -> Result<References, Unmodelled> {
    only(call, &["query", "key", "value", "attn_mask", "attn_bias"])?;
    must_be(call, "dropout_p", 0.0)?;
    let query = call.input(&["query"], 0)?.value.view();
    let key = call.input(&["key"], 1)?.value.view();
    let value = call.input(&["value"], 2)?.value.view();
    let mut mask = Mask::aten(call.optional_input(&["attn_mask", "attn_bias"], 3))?;
    if call.flag("is_causal", false)? {
        mask.causal = Some(0);
    }
    let size = query.shape().last().copied().unwrap_or(0);
    let scale = call.number("scale", Some(1.0 / (size as f64).sqrt()))?;
    let layout = match query.ndim() {
        2 => Layout::Sd,
        3 => Layout::Bsd,
        4 => Layout::Bnsd,
        rank => return Err(Unmodelled(format!("{} of {rank} axes is not modelled", call.function()))),
    };
    if layout == Layout::Bsd {
        // [B, L, S] -> [B, 1, L, S], as the operands become [B, 1, L, E].
        mask.bias = mask.bias.map(with_heads);
        mask.flags = mask.flags.map(|(flags, keeps)| (with_heads(flags), keeps));
    }
    let heads = |tensor: &ArrayViewD<f64>| layout.heads(tensor.shape(), size).unwrap_or(0);
    let (query_heads, key_heads, value_heads) = (heads(&query), heads(&key), heads(&value));
    let query = layout.split(query, query_heads)?;
    let key = layout.split(key, key_heads)?;
    let value = layout.split(value, value_heads)?;
    let heads = Heads { query: query.view(), key: key.view(), value: value.view() };
    attended(call, &heads, &mask, scale, layout)
}

fn with_heads(mask: ArrayViewD<f64>) -> ArrayViewD<f64> {
    if mask.ndim() == 3 { mask.insert_axis(Axis(1)) } else { mask }
}
