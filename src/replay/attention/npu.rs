//! Ascend's fused attention, for training and for inference.

use ndarray::ArrayViewD;
use serde_json::Value;

use super::flash::{lower_right, three};
use super::heads::Heads;
use super::layout::{Layout, attended, ends, packed};
use super::mask::Mask;
use super::{must_be, only};
use crate::replay::{Call, References, Unmodelled};

/// Tensor arguments that are understood; position shifts, prefixes, block tables and quantisation
/// parameters are not.
const KNOWN: &[&str] = &["query", "key", "value", "atten_mask"];

/// `npu_fusion_attention(query, key, value, head_num, input_layout, atten_mask, scale = 1, keep_prob,
/// pre_tockens, next_tockens, actual_seq_qlen, actual_seq_kvlen, sparse_mode)`.
pub(super) fn fusion(call: &Call) -> Result<References, Unmodelled> {
    must_be(call, "keep_prob", 1.0)?;
    let heads = count(call, &["head_num"])?
        .ok_or_else(|| Unmodelled(format!("attribute head_num of {} is missing", call.function())))?;
    let layout = call.text("input_layout")?;
    let layout =
        layout.ok_or_else(|| Unmodelled(format!("attribute input_layout of {} is missing", call.function())))?;
    fused(call, layout, heads, None, ["actual_seq_qlen", "actual_seq_kvlen"])
}

/// `npu_fused_infer_attention_score(query, key, value, atten_mask, num_heads = 1, scale = 1,
/// input_layout = "BSH", num_key_value_heads, sparse_mode)` and its predecessors.
pub(super) fn inference(call: &Call) -> Result<References, Unmodelled> {
    let heads = count(call, &["num_heads"])?.unwrap_or(1);
    let key_heads = count(call, &["num_key_value_heads"])?.filter(|&heads| heads > 0);
    for by_block in ["block_size", "antiquant_mode", "key_antiquant_mode", "value_antiquant_mode"] {
        must_be(call, by_block, 0.0)?;
    }
    let layout = call.text("input_layout")?.unwrap_or("BSH");
    fused(call, layout, heads, key_heads, ["actual_seq_lengths", "actual_seq_lengths_kv"])
}

fn fused(
    call: &Call,
    layout: &str,
    heads: usize,
    key_heads: Option<usize>,
    lengths: [&str; 2],
) -> Result<References, Unmodelled> {
    only(call, KNOWN)?;
    if call.inputs.iter().any(|input| input.name.is_none()) && call.inputs.len() > 3 {
        return Err(Unmodelled(format!("argument names of {} were not recorded", call.function())));
    }
    let query = call.input(&["query"], 0)?.value.view();
    let key = call.input(&["key"], 1)?.value.view();
    let value = call.input(&["value"], 2)?.value.view();
    let scale = match call.attr("scale_value")? {
        Some(_) => call.number("scale_value", None)?,
        None => call.number("scale", Some(1.0))?,
    };
    let [query_ends, key_ends] = [sequences(call, lengths[0])?, sequences(call, lengths[1])?];
    let mode = call.integer("sparse_mode", Some(0))?;
    if layout == "TND" {
        let (Some(query_ends), Some(key_ends)) = (query_ends, key_ends) else {
            return Err(Unmodelled(format!("sequence lengths of {} were not recorded", call.function())));
        };
        let tensors = [three(query)?, three(key)?, three(value)?];
        if tensors[0].dim().1 != heads {
            return Err(Unmodelled(format!("{} heads of {} do not fit its query", heads, call.function())));
        }
        let lower = match (mode, call.named(&["atten_mask"])) {
            (0, None) => None,
            (2, _) => Some(false),
            (3, _) => Some(true),
            _ => return Err(Unmodelled(format!("sparse_mode {mode} over packed sequences is not modelled"))),
        };
        let diagonal =
            |queries: usize, keys: usize| lower.map(|lower| if lower { lower_right(queries, keys) } else { 0 });
        return packed(call, tensors, [&query_ends, &key_ends], diagonal, scale);
    }
    if query_ends.is_some() || key_ends.is_some() {
        return Err(Unmodelled(format!("sequence lengths of {} in layout {layout} are not modelled", call.function())));
    }
    let Some(layout) = Layout::named(layout) else {
        return Err(Unmodelled(format!("layout {layout} of {} is not modelled", call.function())));
    };
    let query = layout.split(query, heads)?;
    let size = query.dim().3;
    let held = |tensor: &ArrayViewD<f64>| layout.heads(tensor.shape(), size).unwrap_or(0);
    let key_heads = key_heads.unwrap_or_else(|| held(&key));
    let (key, value) = (layout.split(key, key_heads)?, layout.split(value, key_heads)?);
    let heads = Heads { query: query.view(), key: key.view(), value: value.view() };
    let mask = mask(call, mode, query.dim().2, key.dim().2)?;
    attended(call, &heads, &mask, scale, layout)
}

/// The mask that a sparse mode makes. 0 and 1 take `atten_mask` as it is; 2 and 3 are causal, aligned to
/// the upper left and the lower right corner, and their `atten_mask` is a fixed compressed triangle.
fn mask<'a>(call: &'a Call, mode: i64, queries: usize, keys: usize) -> Result<Mask<'a>, Unmodelled> {
    let given = call.named(&["atten_mask"]);
    match (mode, given) {
        // Without a mask the reach in tokens is ignored.
        (0 | 1, None) => Ok(Mask::default()),
        (0 | 1, Some(given)) => {
            let mask = Mask::hiding(given)?;
            if mode == 0 {
                within_reach(call, &mask, queries, keys)?;
            }
            Ok(mask)
        }
        (2, _) => Ok(Mask { causal: Some(0), ..Mask::default() }),
        (3, _) => Ok(Mask { causal: Some(lower_right(queries, keys)), ..Mask::default() }),
        _ => Err(Unmodelled(format!("sparse_mode {mode} of {} is not modelled", call.function()))),
    }
}

/// That the mask itself hides what lies out of reach of `pre_tockens` and `next_tockens`: only then does
/// it not matter whether a kernel skips those blocks.
fn within_reach(call: &Call, mask: &Mask, queries: usize, keys: usize) -> Result<(), Unmodelled> {
    let reach = |names: [&str; 2], default: i64| -> Result<i128, Unmodelled> {
        let name = if call.attr(names[0])?.is_some() { names[0] } else { names[1] };
        Ok(i128::from(call.integer(name, Some(default))?))
    };
    let forward = if call.function() == "npu_prompt_flash_attention" { 0 } else { i64::from(i32::MAX) };
    let before = reach(["pre_tockens", "pre_tokens"], i64::from(i32::MAX))?;
    let after = reach(["next_tockens", "next_tokens"], forward)?;
    let (last_query, last_key) = (queries.saturating_sub(1) as i128, keys.saturating_sub(1) as i128);
    if before >= last_query && after >= last_key {
        return Ok(());
    }
    let Some((flags, _)) = &mask.flags else { return Ok(()) };
    let visible_beyond = flags.indexed_iter().any(|(index, &flag)| {
        let rank = flags.ndim();
        let at = |from_end: usize| rank.checked_sub(from_end).map_or(0, |axis| index[axis]) as i128;
        let (query, key) = (at(2), at(1));
        flag == 0.0 && (key > query + after || key < query - before)
    });
    let whole = flags.shape().iter().rev().take(2).eq([keys, queries].iter());
    if visible_beyond || !whole {
        return Err(Unmodelled(format!("atten_mask of {} shows tokens that are out of reach", call.function())));
    }
    Ok(())
}

fn count(call: &Call, names: &[&str]) -> Result<Option<usize>, Unmodelled> {
    for name in names {
        if call.attr(name)?.is_some() {
            let count = usize::try_from(call.integer(name, None)?).ok().filter(|&count| count > 0);
            return count
                .map(Some)
                .ok_or_else(|| Unmodelled(format!("attribute {name} of {} is no count", call.function())));
        }
    }
    Ok(None)
}

/// Cumulative lengths, where they are recorded.
fn sequences(call: &Call, name: &str) -> Result<Option<Vec<usize>>, Unmodelled> {
    match call.attr(name)? {
        None => Ok(None),
        Some(Value::Array(list)) => ends(call, list.iter().map(|end| end.as_f64().unwrap_or(f64::NAN))).map(Some),
        Some(_) => Err(Unmodelled(format!("attribute {name} of {} is no list", call.function()))),
    }
}
