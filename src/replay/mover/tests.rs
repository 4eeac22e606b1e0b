//! Fixed cases from the definitions, and index arithmetic against naive loops.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::Exactness;
use super::super::sample_call::{SampleCall, sample};
use crate::tensor::DType::{Bool, F16, F32, I64};

/// 0, 1, 2 … in `shape`.
fn counted(function: &'static str, shape: &[usize]) -> SampleCall {
    sample(function).f32("self", shape, &count(shape))
}

fn count(shape: &[usize]) -> Vec<f64> {
    (0..shape.iter().product::<usize>()).map(|i| i as f64).collect()
}

/// What a mover of 0, 1, 2 … gives in `to`; it must be exact.
fn moved(function: &'static str, from: &[usize], attrs: Value, to: &[usize]) -> Vec<f64> {
    let reference = counted(function, from).attrs(attrs).out(F32, to).only();
    assert_eq!(reference.exactness, Exactness::Exact, "{function}");
    reference.value.iter().copied().collect()
}

#[test]
fn other_extents_for_the_same_elements() {
    let six = count(&[6]);
    assert_eq!(moved("view", &[2, 3], json!({"size": [3, -1]}), &[3, 2]), six);
    assert_eq!(moved("flatten", &[2, 3], json!({"start_dim": 0, "end_dim": -1}), &[6]), six);
    assert_eq!(moved("squeeze", &[2, 1, 3], json!({"dim": 1}), &[2, 3]), six);
    assert_eq!(moved("squeeze", &[2, 1, 3], json!({"dim": 0}), &[2, 1, 3]), six);
    assert_eq!(moved("squeeze", &[1, 2, 1, 3], json!({}), &[2, 3]), six);
    assert_eq!(moved("unsqueeze", &[2, 3], json!({"dim": -1}), &[2, 3, 1]), six);
    assert_eq!(moved("clone", &[2, 3], json!({"memory_format": null}), &[2, 3]), six);
    assert_eq!(sample("detach").f32("", &[], &[4.0]).out(F32, &[]).values(), [4.0]);
    assert_eq!(counted("reshape", &[2, 3]).out(F32, &[6]).values(), six, "without attributes one reading is left");
}

#[test]
fn extents_that_do_not_fit_are_refused() {
    let call = |attrs, to: &[usize]| counted("view", &[2, 3]).attrs(attrs).out(F32, to).refusal();
    assert_eq!(call(json!({"size": [2, 2]}), &[2, 3]), "view: size [2, 2] does not fit the recorded [2, 3]");
    assert_eq!(call(json!({}), &[7]), "view: [2, 3] does not become the recorded [7]");
    assert_eq!(
        counted("view", &[2]).attrs(json!({"dtype": "int32"})).out(F16, &[4]).refusal(),
        "view: bits are reinterpreted as another dtype"
    );
    assert!(call(json!({}), &[usize::MAX, 4]).contains("does not become"));
    assert!(counted("squeeze", &[2, 1]).attrs(json!({"dim": 7})).out(F32, &[2]).refusal().contains("out of range"));
    assert!(counted("unsqueeze", &[2]).attrs(json!({"dim": 3})).out(F32, &[2, 1]).refusal().contains("out of range"));
    assert!(counted("as_strided", &[2]).out(F32, &[2]).refusal().contains("memory"));
    assert!(sample("clone").out(F32, &[2]).refusal().contains("not recorded"));
}

#[test]
fn expanding_repeats_elements() {
    assert_eq!(
        moved("expand", &[2, 1], json!({"size": [3, -1, 2]}), &[3, 2, 2]),
        [0., 0., 1., 1., 0., 0., 1., 1., 0., 0., 1., 1.]
    );
    assert_eq!(moved("repeat", &[2], json!({"repeats": [2, 2]}), &[2, 4]), [0., 1., 0., 1., 0., 1., 0., 1.]);
    assert_eq!(moved("tile", &[2, 2], json!({"dims": [2]}), &[2, 4]), [0., 1., 0., 1., 2., 3., 2., 3.]);
    assert_eq!(
        moved("repeat_interleave", &[2, 2], json!({"repeats": 2, "dim": 0}), &[4, 2]),
        [0., 1., 0., 1., 2., 3., 2., 3.]
    );
    assert_eq!(moved("repeat_interleave", &[2], json!({"repeats": 2, "dim": null}), &[4]), [0., 0., 1., 1.]);
    let call = counted("expand", &[2]).attrs(json!({"size": [3]})).out(F32, &[3]);
    assert!(call.refusal().contains("does not broadcast"));
}

#[test]
fn copying_converts_to_the_target() {
    let call = sample("copy").input("self", F16, &[2], &[0.0, 0.0]).f32("src", &[1], &[0.1]).out(F16, &[2]);
    let reference = call.only();
    assert_eq!((reference.exactness, reference.value.as_slice().unwrap()), (Exactness::Rounded, &[0.1, 0.1][..]));
}

#[test]
fn axes_in_another_order() {
    let swapped = [0., 3., 1., 4., 2., 5.];
    assert_eq!(moved("transpose", &[2, 3], json!({"dim0": 0, "dim1": -1}), &[3, 2]), swapped);
    assert_eq!(moved("transpose", &[2, 3], json!({}), &[3, 2]), swapped);
    assert_eq!(moved("permute", &[2, 3, 1], json!({"dims": [2, 1, 0]}), &[1, 3, 2]), swapped);
    assert_eq!(moved("movedim", &[2, 3], json!({"source": 0, "destination": 1}), &[3, 2]), swapped);
    assert_eq!(moved("mT", &[1, 2, 3], json!({}), &[1, 3, 2]), swapped);
    assert_eq!(counted("t", &[2, 3]).out(F32, &[3, 2]).values(), swapped);
    assert_eq!(counted("transpose", &[2, 2]).out(F32, &[2, 2]).refusal(), "transpose: attributes were not recorded");
    let hostile = |attrs| counted("permute", &[2, 3]).attrs(attrs).out(F32, &[3, 2]).refusal();
    assert_eq!(hostile(json!({"dims": [0, 0]})), "permute: dims are no permutation");
    assert_eq!(hostile(json!({"dims": [5, 0]})), "permute: an axis is out of range");
}

#[test]
fn reversing_rolling_and_shuffling() {
    assert_eq!(moved("flip", &[2, 2], json!({"dims": [1]}), &[2, 2]), [1., 0., 3., 2.]);
    assert_eq!(moved("roll", &[4], json!({"shifts": [1], "dims": [0]}), &[4]), [3., 0., 1., 2.]);
    assert_eq!(moved("roll", &[2, 2], json!({"shifts": [-1], "dims": []}), &[2, 2]), [1., 2., 3., 0.]);
    assert_eq!(moved("roll", &[2, 2], json!({"shifts": [1, 1], "dims": [0, 1]}), &[2, 2]), [3., 2., 1., 0.]);
    assert_eq!(moved("roll", &[3], json!({"shifts": i64::MIN, "dims": 0}), &[3]).len(), 3);
    assert_eq!(moved("pixel_shuffle", &[4, 1, 1], json!({"upscale_factor": 2}), &[1, 2, 2]), [0., 1., 2., 3.]);
}

#[test]
fn parts_of_an_axis() {
    assert_eq!(moved("slice", &[5], json!({"dim": 0, "start": -4, "end": i64::MAX, "step": 2}), &[2]), [1., 3.]);
    assert_eq!(moved("slice", &[2, 2], json!({"dim": 1, "start": null, "end": 1}), &[2, 1]), [0., 2.]);
    assert_eq!(moved("slice", &[3], json!({"start": 2, "end": 1}), &[0]), Vec::<f64>::new());
    assert_eq!(moved("select", &[2, 2], json!({"dim": 1, "index": -1}), &[2]), [1., 3.]);
    assert_eq!(moved("narrow", &[4], json!({"dim": 0, "start": 1, "length": 2}), &[2]), [1., 2.]);
    assert_eq!(moved("diagonal", &[2, 3], json!({"offset": 1}), &[2]), [1., 5.]);
    assert_eq!(moved("diagonal", &[2, 3], json!({"offset": -1}), &[1]), [3.]);
    assert_eq!(moved("tril", &[2, 3], json!({"diagonal": 0}), &[2, 3]), [0., 0., 0., 3., 4., 0.]);
    assert_eq!(moved("triu", &[2, 3], json!({"diagonal": 1}), &[2, 3]), [0., 1., 2., 0., 0., 5.]);
    assert_eq!(moved("unfold", &[4], json!({"dimension": 0, "size": 2, "step": 2}), &[2, 2]), [0., 1., 2., 3.]);
    let hostile = |function, attrs| counted(function, &[3]).attrs(attrs).out(F32, &[1]).refusal();
    assert!(hostile("slice", json!({"dim": 0, "step": 0})).contains("step below 1"));
    assert!(hostile("slice", json!({"dim": 9})).contains("out of range"));
    assert!(hostile("select", json!({"dim": 0, "index": 3})).contains("out of range"));
    assert!(hostile("narrow", json!({"dim": 0, "start": 1, "length": i64::MAX})).contains("leaves the axis"));
    assert!(hostile("unfold", json!({"dimension": 0, "size": 4, "step": 1})).contains("does not fit"));
    assert!(sample("slice").f32("self", &[], &[1.0]).attrs(json!({})).out(F32, &[]).refusal().contains("no axis"));
}

/// Values of all outputs.
fn pieces(call: SampleCall) -> Vec<Vec<f64>> {
    let references = call.run().expect("modelled");
    references.into_iter().map(|r| r.expect("compared").value.iter().copied().collect()).collect()
}

#[test]
fn splitting_gives_one_output_each() {
    let call = |function, attrs| counted(function, &[5]).attrs(attrs);
    let three = pieces(call("split", json!({"split_size": 2})).out(F32, &[2]).out(F32, &[2]).out(F32, &[1]));
    assert_eq!(three, [vec![0., 1.], vec![2., 3.], vec![4.]]);
    let two = [vec![0., 1., 2.], vec![3., 4.]];
    assert_eq!(pieces(call("chunk", json!({"chunks": 2, "dim": -1})).out(F32, &[3]).out(F32, &[2])), two);
    assert_eq!(pieces(call("split_with_sizes", json!({"split_sizes": [3, 2]})).out(F32, &[3]).out(F32, &[2])), two);
    let rows = pieces(counted("unbind", &[2, 2]).attrs(json!({"dim": 1})).out(F32, &[2]).out(F32, &[2]));
    assert_eq!(rows, [vec![0., 2.], vec![1., 3.]]);
    assert_eq!(
        call("split", json!({"split_size": 2})).out(F32, &[2]).refusal(),
        "split: expected 3 recorded outputs, found 1"
    );
    assert!(call("split", json!({"split_size": 0})).out(F32, &[2]).refusal().contains("no elements"));
    let hostile = call("split_with_sizes", json!({"split_sizes": [i64::MAX, i64::MAX]}));
    assert!(hostile.out(F32, &[1]).out(F32, &[1]).refusal().contains("do not make up the axis"));
}

#[test]
fn joining_and_bordering() {
    let pair = |function| sample(function).f32("tensors", &[2], &[1., 2.]).f32("tensors", &[2], &[3., 4.]);
    assert_eq!(pair("cat").attrs(json!({"dim": -1})).out(F32, &[4]).values(), [1., 2., 3., 4.]);
    assert_eq!(pair("stack").attrs(json!({"dim": 1})).out(F32, &[2, 2]).values(), [1., 3., 2., 4.]);
    let old = sample("cat").f32("tensors", &[0], &[]).f32("tensors", &[1, 2], &[3., 4.]).attrs(json!({"dim": 1}));
    assert_eq!(old.out(F32, &[1, 2]).values(), [3., 4.]);
    assert_eq!(pair("cat").out(F32, &[4]).refusal(), "attributes of cat were not recorded");
    let bad = pair("cat").f32("tensors", &[1, 1], &[5.]).attrs(json!({"dim": 0})).out(F32, &[5]);
    assert_eq!(bad.refusal(), "cat: the parts differ in rank");

    let pad = |attrs, to: &[usize]| moved("pad", &[3], attrs, to);
    assert_eq!(pad(json!({"pad": [1, 2], "mode": "constant", "value": 9}), &[6]), [9., 0., 1., 2., 9., 9.]);
    assert_eq!(pad(json!({"pad": [-1, 0]}), &[2]), [1., 2.]);
    assert_eq!(pad(json!({"pad": [2, 1], "mode": "reflect"}), &[6]), [2., 1., 0., 1., 2., 1.]);
    assert_eq!(pad(json!({"pad": [2, 1], "mode": "replicate"}), &[6]), [0., 0., 0., 1., 2., 2.]);
    assert_eq!(pad(json!({"pad": [2, 1], "mode": "circular"}), &[6]), [1., 2., 0., 1., 2., 0.]);
    let plane = moved("constant_pad_nd", &[1, 1, 1], json!({"pad": [1, 0, 0, 1]}), &[1, 2, 2]);
    assert_eq!(plane, [0., 0., 0., 0.]);
    let hostile = |attrs| counted("pad", &[3]).attrs(attrs).out(F32, &[9]).refusal();
    assert!(hostile(json!({"pad": [1]})).contains("no pair"));
    assert!(hostile(json!({"pad": [-9, 0]})).contains("crops more"));
    assert!(hostile(json!({"pad": [i64::MAX, i64::MAX]})).contains("pad"));
    assert!(hostile(json!({"pad": [6, 0], "mode": "reflect"})).contains("out of range"));
}

#[test]
fn masks_choose() {
    let where_ = sample("where").bool("condition", &[2], &[1., 0.]).f32("self", &[2], &[1., 2.]);
    assert_eq!(where_.f32("other", &[], &[9.0]).out(F32, &[2]).values(), [1., 9.]);
    let call = sample("where").bool("condition", &[1], &[0.]).f32("self", &[1], &[1.]).attrs(json!({"other": "-inf"}));
    assert_eq!(call.out(F32, &[1]).values(), [f64::NEG_INFINITY]);
    let fill = counted("masked_fill", &[2]).bool("mask", &[2], &[0., 1.]).attrs(json!({"value": 0.1})).out(F32, &[2]);
    let reference = fill.only();
    assert_eq!(reference.value.as_slice().unwrap(), [0.0, f64::from(0.1f32)]);
    assert_eq!(reference.exactness, Exactness::Exact);
    let mixed =
        sample("where").bool("condition", &[1], &[1.]).input("self", F16, &[1], &[1.]).f32("other", &[1], &[2.]);
    assert_eq!(mixed.out(F32, &[1]).only().exactness, Exactness::Rounded);
    let select = |to: &[usize]| counted("masked_select", &[3]).bool("mask", &[3], &[1., 0., 1.]).out(F32, to);
    assert_eq!(select(&[2]).values(), [0., 2.]);
    assert!(select(&[3]).refusal().contains("does not fit"));
    let scatter = counted("masked_scatter", &[3]).bool("mask", &[3], &[1., 0., 1.]).f32("source", &[2], &[7., 8.]);
    assert_eq!(scatter.out(F32, &[3]).values(), [7., 1., 8.]);
    let float_mask = counted("masked_fill", &[1]).f32("mask", &[1], &[1.]).attrs(json!({"value": 0})).out(F32, &[1]);
    assert_eq!(float_mask.refusal(), "masked_fill: a mask of float32");
}

#[test]
fn looking_up_by_index() {
    let rows = counted("index_select", &[3, 2]).i64("index", &[2], &[2., 0.]).attrs(json!({"dim": 0}));
    assert_eq!(rows.out(F32, &[2, 2]).values(), [4., 5., 0., 1.]);
    let gather = counted("gather", &[2, 2]).i64("index", &[2, 1], &[1., 0.]).attrs(json!({"dim": 1}));
    assert_eq!(gather.out(F32, &[2, 1]).values(), [1., 2.]);
    let take = counted("take_along_dim", &[2, 2]).i64("indices", &[1, 2], &[1., 0.]).attrs(json!({"dim": 0}));
    assert_eq!(take.out(F32, &[1, 2]).values(), [2., 1.]);
    let flat = counted("take", &[2, 2]).i64("index", &[1], &[-1.]);
    assert_eq!(flat.out(F32, &[1]).values(), [3.]);
    let embedding = sample("embedding").f32("weight", &[3, 2], &count(&[3, 2])).i64("indices", &[1, 2], &[2., 1.]);
    assert_eq!(embedding.out(F32, &[1, 2, 2]).values(), [4., 5., 2., 3.]);
    let unnamed = sample("embedding").i64("", &[1], &[1.]).f32("", &[3, 2], &count(&[3, 2]));
    assert_eq!(unnamed.out(F32, &[1, 2]).values(), [2., 3.]);
    let hot = sample("one_hot").i64("self", &[2], &[1., 0.]).attrs(json!({"num_classes": 2}));
    assert_eq!(hot.out(I64, &[2, 2]).values(), [0., 1., 1., 0.]);
    let beyond = counted("index_select", &[3]).i64("index", &[1], &[3.]).attrs(json!({"dim": 0})).out(F32, &[1]);
    assert_eq!(beyond.refusal(), "index_select: index 3 is out of range for 3 elements");
    let nan = counted("gather", &[3]).f32("index", &[1], &[f64::NAN]).attrs(json!({"dim": 0})).out(F32, &[1]);
    assert_eq!(nan.refusal(), "gather: indices of float32");
}

#[test]
fn indexing_by_tensors_where_one_reading_is_left() {
    let both = counted("index", &[2, 3]).i64("indices", &[2, 1], &[1., 0.]).i64("indices", &[2], &[2., 0.]);
    assert_eq!(both.attrs(json!({})).out(F32, &[2, 2]).values(), [5., 3., 2., 0.]);
    let first = |to: &[usize]| counted("index", &[2, 3]).i64("indices", &[1], &[1.]).out(F32, to);
    assert_eq!(first(&[1, 3]).values(), [3., 4., 5.]);
    assert_eq!(first(&[2, 1]).values(), [1., 4.]);
    assert!(first(&[4, 4]).refusal().contains("do not fit"));
    let square = counted("index", &[2, 2]).i64("indices", &[2], &[1., 0.]).out(F32, &[2, 2]);
    assert_eq!(square.refusal(), "index: which axes are indexed was not recorded");
    let mask = counted("index", &[2]).bool("indices", &[2], &[1., 0.]).out(F32, &[1]);
    assert_eq!(mask.refusal(), "index: a mask as index");
}

#[test]
fn writing_at_an_index() {
    let zeros = |function, n: usize| sample(function).f32("self", &[n], &vec![1.0; n]);
    let scatter = |function| zeros(function, 3).i64("index", &[2], &[2., 0.]).f32("src", &[2], &[7., 8.]);
    assert_eq!(scatter("scatter").attrs(json!({"dim": 0})).out(F32, &[3]).values(), [8., 1., 7.]);
    assert_eq!(scatter("scatter_add").attrs(json!({"dim": 0})).out(F32, &[3]).values(), [9., 1., 8.]);
    let value = zeros("scatter", 2).i64("index", &[1], &[1.]).attrs(json!({"dim": 0, "value": 5})).out(F32, &[2]);
    assert_eq!(value.values(), [1., 5.]);
    let twice = zeros("scatter", 2).i64("index", &[2], &[1., 1.]).f32("src", &[2], &[7., 8.]).attrs(json!({"dim": 0}));
    assert!(twice.out(F32, &[2]).refusal().contains("written twice"));
    let rows = |function| zeros(function, 2).i64("index", &[2], &[1., 1.]).f32("source", &[2], &[7., 7.]);
    assert_eq!(rows("index_copy").attrs(json!({"dim": 0})).out(F32, &[2]).values(), [1., 7.]);
    let sum = rows("index_add").attrs(json!({"dim": 0, "alpha": 2})).out(F32, &[2]).only();
    assert_eq!(sum.value.as_slice().unwrap(), [1., 29.]);
    let Exactness::Summed { terms, squares } = sum.exactness else { panic!("summed") };
    assert_eq!((terms, squares.as_slice().unwrap()), (3, &[1.0, 1.0 + 2.0 * 196.0][..]));
    let fill = zeros("index_fill", 2).i64("index", &[1], &[0.]).attrs(json!({"dim": 0, "value": 3})).out(F32, &[2]);
    assert_eq!(fill.values(), [3., 1.]);
    let put = |accumulate| {
        zeros("index_put", 3)
            .i64("indices", &[2], &[2., 2.])
            .f32("values", &[1], &[4.])
            .attrs(json!({"accumulate": accumulate}))
    };
    assert_eq!(put(false).out(F32, &[3]).values(), [1., 1., 4.]);
    assert_eq!(put(true).out(F32, &[3]).values(), [1., 1., 9.]);
    let row = counted("select_scatter", &[2, 2]).f32("src", &[2], &[8., 9.]).attrs(json!({"dim": 0, "index": 1}));
    assert_eq!(row.out(F32, &[2, 2]).values(), [0., 1., 8., 9.]);
    let part = counted("slice_scatter", &[4]).f32("src", &[2], &[8., 9.]).attrs(json!({"start": 0, "step": 2}));
    assert_eq!(part.out(F32, &[4]).values(), [8., 1., 9., 3.]);
    let hostile = zeros("scatter", 2).i64("index", &[1], &[5.]).f32("src", &[1], &[7.]).attrs(json!({"dim": 0}));
    assert!(hostile.out(F32, &[2]).refusal().contains("out of range"));
    let short = zeros("scatter", 2).i64("index", &[2], &[0., 1.]).f32("src", &[1], &[7.]).attrs(json!({"dim": 0}));
    assert!(short.out(F32, &[2]).refusal().contains("out of range"));
}

#[test]
fn factories_fill_the_recorded_shape() {
    assert_eq!(sample("zeros").attrs(json!({"size": [], "dtype": "float32"})).out(F32, &[]).values(), [0.]);
    assert_eq!(counted("ones_like", &[2]).out(F32, &[2]).values(), [1., 1.]);
    assert_eq!(counted("new_ones", &[2]).attrs(json!({"size": [], "dtype": "bool"})).out(Bool, &[]).values(), [1.]);
    assert_eq!(
        sample("full").attrs(json!({"size": [2], "fill_value": 0.1})).out(F32, &[2]).values(),
        [f64::from(0.1f32); 2]
    );
    let min = f64::from(f32::MIN);
    assert_eq!(sample("scalar_tensor").attrs(json!({"s": min})).out(F32, &[]).values(), [min]);
    assert_eq!(counted("fill", &[2]).attrs(json!({"value": 3})).out(F32, &[2]).values(), [3., 3.]);
    assert_eq!(sample("arange").attrs(json!({"end": 3})).out(I64, &[3]).values(), [0., 1., 2.]);
    assert_eq!(sample("arange").attrs(json!({"start": 1, "end": 4, "step": 2})).out(I64, &[2]).values(), [1., 3.]);
    assert_eq!(
        sample("linspace").attrs(json!({"start": 0, "end": 1, "steps": 3})).out(F32, &[3]).values(),
        [0., 0.5, 1.]
    );
    assert_eq!(sample("eye").attrs(json!({"n": 2})).out(F32, &[2, 2]).values(), [1., 0., 0., 1.]);
    assert_eq!(sample("empty").out(F32, &[2]).refusal(), "factory: empty leaves its content undefined");
    assert!(sample("zeros").attrs(json!({"size": [3]})).out(F32, &[2]).refusal().contains("does not fit"));
    assert!(sample("arange").attrs(json!({"end": 1e18})).out(I64, &[2]).refusal().contains("do not fit"));
    assert!(sample("arange").attrs(json!({"end": 2, "step": 0})).out(I64, &[2]).refusal().contains("do not fit"));
    assert!(sample("ones").out(F32, &[usize::MAX, 2]).refusal().contains("overflows"));
}

proptest! {
    #[test]
    fn permuting_agrees_with_index_arithmetic(
        shape in prop::collection::vec(0usize..4, 3),
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
        negative in any::<[bool; 3]>(),
    ) {
        let to: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        let dims: Vec<i64> = order.iter().zip(negative).map(|(&a, n)| a as i64 - if n { 3 } else { 0 }).collect();
        let found = moved("permute", &shape, json!({"dims": dims}), &to);
        let steps = [shape[1] * shape[2], shape[2], 1];
        let mut expected = Vec::new();
        for i in 0..to[0] {
            for j in 0..to[1] {
                for k in 0..to[2] {
                    expected.push((i * steps[order[0]] + j * steps[order[1]] + k * steps[order[2]]) as f64);
                }
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn slicing_agrees_with_a_loop(extent in 0usize..8, start in -10i64..10, end in -10i64..10, step in 1i64..4) {
        let n = extent as i64;
        let wrap = |v: i64| if v < 0 { (v + n).max(0) } else { v.min(n) };
        let mut expected = Vec::new();
        let mut at = wrap(start);
        while at < wrap(end) {
            expected.extend([2.0 * at as f64, 2.0 * at as f64 + 1.0]);
            at += step;
        }
        let attrs = json!({"dim": -2, "start": start, "end": end, "step": step});
        prop_assert_eq!(moved("slice", &[extent, 2], attrs, &[expected.len() / 2, 2]), expected);
    }

    #[test]
    fn gathering_agrees_with_a_loop(index in prop::collection::vec(-3i64..3, 8)) {
        let values: Vec<f64> = index.iter().map(|&i| i as f64).collect();
        let call = counted("gather", &[4, 3]).i64("index", &[4, 2], &values).attrs(json!({"dim": -1}));
        let found = call.out(F32, &[4, 2]).values();
        for (flat, (&found, &index)) in found.iter().zip(&index).enumerate() {
            prop_assert_eq!(found, ((flat / 2) * 3) as f64 + index.rem_euclid(3) as f64);
        }
    }

    #[test]
    fn hostile_attributes_never_panic(
        which in 0usize..MOVERS.len(),
        shape in prop::collection::vec(0usize..4, 0..4),
        to in prop::collection::vec(0usize..4, 0..4),
        a in prop_oneof![-5i64..5, any::<i64>()],
        b in prop_oneof![-5i64..5, any::<i64>()],
        list in prop::collection::vec(prop_oneof![-3i64..5, any::<i64>()], 0..5),
        index in prop::collection::vec(-4.0f64..4.0, 3),
    ) {
        let attrs = json!({
            "dim": a, "dim0": a, "dim1": b, "dim2": a, "dims": list, "size": list, "repeats": list, "shifts": list,
            "start": a, "end": b, "step": b, "length": a, "index": a, "split_size": b, "chunks": b, "pad": list,
            "dimension": a, "offset": b, "diagonal": a, "upscale_factor": b, "source": list, "destination": list,
            "n": a, "m": b, "steps": a, "value": b, "fill_value": a, "num_classes": a, "alpha": b, "mode": "reflect",
        });
        let rounded: Vec<f64> = index.iter().map(|v| v.round()).collect();
        let call = counted(MOVERS[which], &shape).i64("index", &[3], &rounded).f32("src", &[3], &index);
        let _ = call.attrs(attrs).out(F32, &to).out(F32, &shape).run();
        let call = counted(MOVERS[which], &shape).i64("indices", &[3], &rounded).f32("values", &[3], &index);
        let _ = call.attrs(json!({"dim": a, "size": list, "start": a, "end": b})).out(F32, &to).run();
    }
}

/// Functions that the hostile attributes are thrown at.
const MOVERS: &[&str] = &[
    "view",
    "squeeze",
    "unsqueeze",
    "expand",
    "clone",
    "copy",
    "transpose",
    "permute",
    "movedim",
    "flip",
    "roll",
    "pixel_shuffle",
    "slice",
    "select",
    "narrow",
    "split",
    "chunk",
    "unbind",
    "diagonal",
    "tril",
    "unfold",
    "cat",
    "stack",
    "repeat",
    "tile",
    "repeat_interleave",
    "pad",
    "index_select",
    "gather",
    "take_along_dim",
    "take",
    "index",
    "embedding",
    "one_hot",
    "scatter",
    "scatter_add",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "select_scatter",
    "slice_scatter",
    "zeros",
    "full",
    "arange",
    "linspace",
    "eye",
];
