//! Flash attention as its own package spells it: `[B, S, N, D]`, or packed `[T, N, D]`.

use ndarray::{ArrayView3, ArrayViewD, Ix3};

use super::heads::Heads;
use super::layout::{Layout, attended, ends, packed};
use super::mask::Mask;
use super::{must_be, only};
use crate::replay::{Call, Operand, References, Unmodelled};

/// `flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap)`, or with
/// `cu_seqlens_q` and `cu_seqlens_k` the packed form. A causal mask is aligned to the lower right
/// corner.
pub(super) fn flash_attn(call: &Call) -> Result<References, Unmodelled> {
    only(call, &["q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"])?;
    must_be(call, "dropout_p", 0.0)?;
    must_be(call, "softcap", 0.0)?;
    if call.integers("window_size")?.is_some_and(|window| window.iter().any(|&reach| reach >= 0)) {
        return Err(Unmodelled(format!("window_size of {} is not modelled", call.function())));
    }
    let causal = call.flag("causal", false)?;
    let query = call.input(&["q"], 0)?.value.view();
    let key = call.input(&["k"], 1)?.value.view();
    let value = call.input(&["v"], 2)?.value.view();
    let size = query.shape().last().copied().unwrap_or(0);
    let scale = call.number("softmax_scale", Some(1.0 / (size as f64).sqrt()))?;
    if let (Some(query_ends), Some(key_ends)) =
        (call.optional_input(&["cu_seqlens_q"], 3), call.optional_input(&["cu_seqlens_k"], 4))
    {
        let (query_ends, key_ends) = (cumulative(call, query_ends)?, cumulative(call, key_ends)?);
        let tensors = [three(query)?, three(key)?, three(value)?];
        let diagonal = |queries: usize, keys: usize| causal.then(|| lower_right(queries, keys));
        return packed(call, tensors, [&query_ends, &key_ends], diagonal, scale);
    }
    if call.inputs.len() != 3 {
        return Err(Unmodelled(format!("{} of {} tensors", call.function(), call.inputs.len())));
    }
    let heads = |tensor: &ArrayViewD<f64>| Layout::Bsnd.heads(tensor.shape(), size).unwrap_or(0);
    let (query_heads, key_heads, value_heads) = (heads(&query), heads(&key), heads(&value));
    let query = Layout::Bsnd.split(query, query_heads)?;
    let key = Layout::Bsnd.split(key, key_heads)?;
    let value = Layout::Bsnd.split(value, value_heads)?;
    let heads = Heads { query: query.view(), key: key.view(), value: value.view() };
    let offset = lower_right(query.dim().2, key.dim().2);
    let mask = Mask { causal: causal.then_some(offset), ..Mask::default() };
    attended(call, &heads, &mask, scale, Layout::Bsnd)
}

/// The diagonal that ends in the lower right corner of so many queries and keys.
pub(super) fn lower_right(queries: usize, keys: usize) -> i64 {
    let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    signed(keys) - signed(queries)
}

pub(super) fn three(tensor: ArrayViewD<f64>) -> Result<ArrayView3<f64>, Unmodelled> {
    let shape = tensor.shape().to_vec();
    let three = tensor.into_dimensionality::<Ix3>();
    three.map_err(|_| Unmodelled(format!("packed sequences of shape {shape:?} are not modelled")))
}

/// Ends of sequences where the first entry is the beginning, zero.
fn cumulative(call: &Call, operand: &Operand) -> Result<Vec<usize>, Unmodelled> {
    let all = ends(call, operand.value.iter().copied())?;
    match all.split_first() {
        Some((0, rest)) => Ok(rest.to_vec()),
        _ => Err(Unmodelled(format!("sequences of {} do not begin at 0", call.function()))),
    }
}
