use ndarray::{ArrayD, Axis, IxDyn};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::replay::Exactness;
use crate::replay::contraction::recorded::{Recorded, assert_close, noise, recorded};
use crate::tensor::DType;

fn aten(causal: bool) -> Value {
    json!({"dropout_p": 0.0, "is_causal": causal, "scale": 1.0})
}

/// One head of two tokens whose scores are log 1 and log 3: probabilities 1/4 and 3/4.
fn two_tokens(function: &str) -> Recorded {
    let log3 = 3f64.ln();
    let call = recorded(function).input("query", &[1, 1, 2, 1], &[1.0, 1.0]).input("key", &[1, 1, 2, 1], &[0.0, log3]);
    call.input("value", &[1, 1, 2, 1], &[4.0, 8.0]).output(&[1, 1, 2, 1]).output(&[1, 1, 2])
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} for {expected:?}");
}

#[test]
fn probabilities_weigh_the_values() {
    let call = two_tokens("attention").attrs(aten(false));
    near(&call.values(), &[7.0, 7.0]);
    // sqrt(1² + 6²) < 7: the value itself.
    assert!((call.first().scale[[0, 0, 0, 0]] - 7.0).abs() < 1e-12);
    assert!(matches!(call.first().exactness, Exactness::Function { ulp, roundings: 1 } if ulp > 1.0 && ulp < 16.0));
    assert!(call.replay().unwrap()[1].is_none(), "the log-sum-exp is never compared");
}

#[test]
fn masks_hide_or_add() {
    near(&two_tokens("attention").attrs(aten(true)).values(), &[4.0, 7.0]);
    let flags = two_tokens("scaled_dot_product_attention");
    let flags = flags.typed("attn_mask", DType::Bool, &[2, 2], &[0.0, 1.0, 1.0, 1.0]);
    near(&flags.attrs(aten(false)).values(), &[8.0, 7.0]);
    let added = two_tokens("_scaled_dot_product_efficient_attention");
    let added = added.input("attn_bias", &[1, 2], &[3f64.ln(), 0.0]);
    near(&added.attrs(aten(false)).values(), &[6.0, 6.0]);
}

#[test]
fn the_scale_defaults_to_the_root_of_the_head_size() {
    let call = |attrs| {
        let call = recorded("attention").input("query", &[1, 4], &[1.0; 4]).input(
            "key",
            &[2, 4],
            &[0.0, 0.0, 0.0, 0.0, 0.5 * 3f64.ln(), 0.5 * 3f64.ln(), 0.5 * 3f64.ln(), 0.5 * 3f64.ln()],
        );
        call.input("value", &[2, 1], &[4.0, 8.0]).attrs(attrs).output(&[1, 1]).values()
    };
    near(&call(json!({"scale": null})), &[7.0]);
    near(&call(json!({"scale": 0.0})), &[6.0]);
}

#[test]
fn arguments_that_are_not_understood_are_never_ignored() {
    assert!(two_tokens("attention").refusal().contains("not recorded"));
    assert!(two_tokens("attention").attrs(json!({"dropout_p": 0.1})).refusal().contains("dropout_p"));
    let odd = two_tokens("attention").input("dropout_mask", &[1], &[1.0]).attrs(aten(false));
    assert!(odd.refusal().contains("dropout_mask"));
    let blind = two_tokens("attention").typed("attn_mask", DType::Bool, &[2, 2], &[0.0, 0.0, 1.0, 1.0]);
    assert!(blind.attrs(aten(false)).refusal().contains("sees no key"));
    let whole = two_tokens("attention").typed("attn_mask", DType::I64, &[2, 2], &[1.0; 4]).attrs(aten(false));
    assert!(whole.refusal().contains("int64"));
    let wide = two_tokens("attention").input("attn_mask", &[3, 2], &[0.0; 6]).attrs(aten(false));
    assert!(wide.refusal().contains("broadcast"));
}

#[test]
fn hostile_shapes_are_refused() {
    let call = |q: &[usize], k: &[usize], v: &[usize], out: &[usize]| {
        let of = |shape: &[usize]| vec![0.0; shape.iter().product()];
        let call = recorded("attention").input("query", q, &of(q)).input("key", k, &of(k)).input("value", v, &of(v));
        call.attrs(aten(false)).output(out).refusal()
    };
    assert!(call(&[], &[], &[], &[]).contains("axes"));
    assert!(call(&[1, 2, 3, 4, 5], &[1], &[1], &[1]).contains("axes"));
    assert!(call(&[1, 3, 2, 2], &[1, 2, 2, 2], &[1, 2, 2, 2], &[1, 3, 2, 2]).contains("do not fit"));
    assert!(call(&[1, 2, 2, 2], &[1, 0, 2, 2], &[1, 0, 2, 2], &[1, 2, 2, 2]).contains("do not fit"));
    assert!(call(&[2, 2], &[2, 3], &[2, 2], &[2, 2]).contains("do not fit"));
    assert!(call(&[2, 2], &[2, 2], &[2, 2], &[2, 3]).contains("recorded"));
    assert!(call(&[2, 2], &[2], &[2, 2], &[2, 2]).contains("layout"));
    assert!(call(&[2, 2], &[0, 2], &[0, 2], &[2, 2]).contains("sees no key"));
}

#[test]
fn nothing_to_attend_gives_nothing() {
    let call = recorded("attention").input("query", &[0, 2], &[]).input("key", &[3, 2], &[0.0; 6]);
    assert!(call.input("value", &[3, 2], &[0.0; 6]).attrs(aten(false)).output(&[0, 2]).values().is_empty());
}

#[test]
fn a_nan_stays_in_its_row() {
    let call = recorded("attention").input("query", &[2, 1], &[f64::NAN, 1.0]).input("key", &[2, 1], &[0.0, 0.0]);
    let values = call.input("value", &[2, 1], &[1.0, 3.0]).attrs(aten(false)).output(&[2, 1]).values();
    assert!(values[0].is_nan() && values[1] == 2.0);
    let tail = recorded("attention").input("query", &[2, 1], &[1.0, 1.0]).input("key", &[2, 1], &[0.0, 0.0]);
    let tail = tail.input("value", &[2, 1], &[1.0, f64::NAN]).attrs(aten(true)).output(&[2, 1]);
    assert!(tail.refusal().contains("behind the mask"));
}

#[test]
fn narrow_results_get_no_budget_for_wide_sums() {
    let call = recorded("attention").input("query", &[1, 1], &[30.0]).input("key", &[1, 1], &[1.0]);
    let call = call.input("value", &[1, 1], &[1.0]).attrs(aten(false)).output_of(DType::BF16, &[1, 1]);
    assert_eq!(call.first().exactness, Exactness::Function { ulp: super::NARROW_ULP, roundings: super::ROUNDINGS });
}

fn npu(layout: &str, heads: usize, more: Value) -> Value {
    let mut attrs = json!({"head_num": heads, "input_layout": layout, "scale": 0.5, "keep_prob": 1.0});
    let extra = more.as_object().unwrap().clone();
    attrs.as_object_mut().unwrap().extend(extra);
    attrs
}

#[test]
fn sparse_modes_place_the_diagonal() {
    // One query, two keys: the upper left corner hides the second key, the lower right none.
    let call = |more| {
        let call =
            recorded("npu_fusion_attention").input("query", &[1, 1, 1], &[0.0]).input("key", &[1, 2, 1], &[0.0; 2]);
        let call = call.input("value", &[1, 2, 1], &[2.0, 4.0]).typed("atten_mask", DType::Bool, &[1, 2], &[1.0, 0.0]);
        call.attrs(npu("BSH", 1, more)).output(&[1, 1, 1])
    };
    near(&call(json!({"sparse_mode": 2})).values(), &[2.0]);
    near(&call(json!({"sparse_mode": 3})).values(), &[3.0]);
    // True hides.
    near(&call(json!({"sparse_mode": 0})).values(), &[4.0]);
    near(&call(json!({"sparse_mode": 1})).values(), &[4.0]);
    assert!(call(json!({"sparse_mode": 0, "next_tockens": 0})).refusal().contains("out of reach"));
    assert!(call(json!({"sparse_mode": 4})).refusal().contains("sparse_mode 4"));
    assert!(call(json!({"keep_prob": 0.9})).refusal().contains("keep_prob"));
    assert!(call(json!({"head_num": 0})).refusal().contains("head_num"));
    assert!(call(json!({"input_layout": "XYZ"})).refusal().contains("XYZ"));
}

#[test]
fn inference_shares_heads_of_keys() {
    // Two query heads over one head of keys, [B, S, H]: both average its values.
    let call = |function: &str, attrs| {
        let call = recorded(function).input("query", &[1, 1, 2], &[0.0; 2]).input("key", &[1, 2, 1], &[0.0; 2]);
        call.input("value", &[1, 2, 1], &[2.0, 4.0]).attrs(attrs).output(&[1, 1, 2])
    };
    let shared = json!({"num_heads": 2, "num_key_value_heads": 1, "scale": 1.0});
    near(&call("npu_fused_infer_attention_score", shared).values(), &[3.0, 3.0]);
    near(&call("npu_prompt_flash_attention", json!({"num_heads": 2, "scale_value": 1.0})).values(), &[3.0, 3.0]);
    let wrong = call("npu_fused_infer_attention_score", json!({"num_heads": 2, "num_key_value_heads": 2}));
    assert!(wrong.refusal().contains("2 heads"));
    let lengths = call("npu_fused_infer_attention_score", json!({"num_heads": 2, "actual_seq_lengths": [1]}));
    assert!(lengths.refusal().contains("lengths"));
    let blocks = call("npu_fused_infer_attention_score", json!({"num_heads": 2})).input("block_table", &[1], &[0.0]);
    assert!(blocks.refusal().contains("block_table"));
}

#[test]
fn packed_sequences_do_not_see_each_other() {
    let call = |ends: &[u64]| {
        let call =
            recorded("npu_fusion_attention").input("query", &[3, 1, 1], &[0.0; 3]).input("key", &[3, 1, 1], &[0.0; 3]);
        let call = call.input("value", &[3, 1, 1], &[2.0, 4.0, 9.0]).output(&[3, 1, 1]);
        call.attrs(npu("TND", 1, json!({"actual_seq_qlen": ends, "actual_seq_kvlen": ends})))
    };
    near(&call(&[2, 3]).values(), &[3.0, 3.0, 9.0]);
    assert!(call(&[3, 2]).refusal().contains("cover"));
    assert!(call(&[2]).refusal().contains("cover"));
    let unknown = call(&[2, 3]).attrs(npu("TND", 1, json!({})));
    assert!(unknown.refusal().contains("lengths"));
    let flash = recorded("flash_attn_varlen_func").input("q", &[3, 1, 1], &[0.0; 3]).input("k", &[3, 1, 1], &[0.0; 3]);
    let flash = flash.input("v", &[3, 1, 1], &[2.0, 4.0, 9.0]).output(&[3, 1, 1]).attrs(json!({"causal": true}));
    let flash = flash.typed("cu_seqlens_q", DType::I32, &[3], &[0.0, 2.0, 3.0]);
    near(&flash.typed("cu_seqlens_k", DType::I32, &[3], &[0.0, 2.0, 3.0]).values(), &[2.0, 3.0, 9.0]);
}

/// The definition, element by element; `seen` says which keys a query sees.
fn naive(
    q: &ArrayD<f64>,
    k: &ArrayD<f64>,
    v: &ArrayD<f64>,
    scale: f64,
    bias: &dyn Fn(usize, usize) -> f64,
) -> ArrayD<f64> {
    let (b, n, l, e) = (q.shape()[0], q.shape()[1], q.shape()[2], q.shape()[3]);
    let (s, ev, sharing) = (k.shape()[2], v.shape()[3], n / k.shape()[1]);
    let mut out = ArrayD::zeros(IxDyn(&[b, n, l, ev]));
    for index in ndarray::indices((b, n, l)) {
        let (batch, head, query) = index;
        let score = |key: usize| {
            let dot: f64 = (0..e).map(|at| q[[batch, head, query, at]] * k[[batch, head / sharing, key, at]]).sum();
            (scale * dot + bias(query, key)).exp()
        };
        let sum: f64 = (0..s).map(score).sum();
        for at in 0..ev {
            let weighted: f64 = (0..s).map(|key| score(key) * v[[batch, head / sharing, key, at]]).sum();
            out[[batch, head, query, at]] = weighted / sum;
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_layout_agrees_with_the_definition(
        b in 1usize..3, shared in 1usize..3, sharing in 1usize..3, l in 1usize..5, s in 1usize..5, e in 1usize..4,
        which in 0usize..6, causal: bool, seed: u64,
    ) {
        let n = shared * sharing;
        let (q, k, v) = (noise(&[b, n, l, e], seed), noise(&[b, shared, s, e], seed ^ 1), noise(&[b, shared, s, e], seed ^ 2));
        let lower = (s as i64 - l as i64).min(0) >= 0;
        prop_assume!(!causal || lower);
        let offset = if which <= 4 { s - l.min(s) } else { 0 };
        let hides = |query: usize, key: usize| if causal && key > query + offset { f64::NEG_INFINITY } else { 0.0 };
        let expected = naive(&q, &k, &v, 0.5, &hides);
        let layouts = ["BSH", "SBH", "BSND", "BNSD"];
        let lay = |tensor: &ArrayD<f64>| -> ArrayD<f64> {
            let shape = tensor.shape().to_vec();
            let (order, merged): (&[usize], bool) = match layouts.get(which) {
                Some(&"BSH") => (&[0, 2, 1, 3], true),
                Some(&"SBH") => (&[2, 0, 1, 3], true),
                Some(&"BSND") => (&[0, 2, 1, 3], false),
                _ if which == 4 => (&[0, 2, 1, 3], false),
                _ => (&[0, 1, 2, 3], false),
            };
            let turned = tensor.view().permuted_axes(IxDyn(order)).as_standard_layout().into_owned();
            if !merged { return turned; }
            let joined = [turned.shape()[0], turned.shape()[1], shape[1] * shape[3]];
            turned.into_shape_with_order(IxDyn(&joined)).unwrap()
        };
        let laid = lay(&expected);
        let found = match layouts.get(which) {
            Some(layout) => recorded("npu_fusion_attention").array("query", &lay(&q)).array("key", &lay(&k)).array("value", &lay(&v))
                .attrs(npu(layout, n, json!({"sparse_mode": if causal { 3 } else { 0 }}))),
            None if which == 4 => recorded("flash_attn_func").array("q", &lay(&q)).array("k", &lay(&k)).array("v", &lay(&v))
                .attrs(json!({"softmax_scale": 0.5, "causal": causal})),
            None => recorded("_scaled_dot_product_flash_attention").array("query", &q).array("key", &k).array("value", &v)
                .attrs(json!({"scale": 0.5, "is_causal": causal})),
        };
        let found = found.output(laid.shape()).first();
        assert_close(&found.value, &laid);
        prop_assert!(found.scale.iter().zip(&found.value).all(|(scale, value)| *scale >= value.abs()));
    }

    #[test]
    fn masks_of_any_rank_broadcast(l in 1usize..4, s in 1usize..4, rank in 1usize..5, seed: u64) {
        let (q, k, v) = (noise(&[2, 1, l, 2], seed), noise(&[2, 1, s, 2], seed ^ 1), noise(&[2, 1, s, 2], seed ^ 2));
        let mask = noise(&[l, s], seed ^ 3);
        let mask = if rank == 1 { mask.index_axis(Axis(0), 0).to_owned().into_dyn() } else { mask };
        let expected = naive(&q, &k, &v, 1.0, &|query, key| if rank == 1 { mask[[key]] } else { mask[[query, key]] });
        let shape = [&vec![1; rank.saturating_sub(2)][..], mask.shape()].concat();
        let wide = mask.clone().into_shape_with_order(IxDyn(&shape)).unwrap();
        let call = recorded("attention").array("query", &q).array("key", &k).array("value", &v).array("attn_mask", &wide);
        assert_close(&call.attrs(aten(false)).output(&[2, 1, l, 2]).first().value, &expected);
        // The same without the axis of heads.
        let flat = |tensor: &ArrayD<f64>| tensor.index_axis(Axis(1), 0).to_owned();
        prop_assume!(rank == 2);
        let mask = mask.broadcast(IxDyn(&[2, l, s])).unwrap().to_owned();
        let call = recorded("attention").array("query", &flat(&q)).array("key", &flat(&k)).array("value", &flat(&v));
        let call = call.array("attn_mask", &mask).attrs(aten(false)).output(&[2, l, 2]);
        assert_close(&call.first().value, &flat(&expected));
    }
}
