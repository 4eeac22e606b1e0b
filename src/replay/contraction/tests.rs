use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use serde_json::json;

use super::recorded::{assert_close, noise, recorded};
use crate::replay::Exactness;
use crate::tensor::DType;

/// [1 2; 3 4] [5 6; 7 8] = [19 22; 43 50].
const A: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const B: [f64; 4] = [5.0, 6.0, 7.0, 8.0];
const AB: [f64; 4] = [19.0, 22.0, 43.0, 50.0];

#[test]
fn a_product_comes_with_the_squares_of_its_terms() {
    let call = recorded("mm").input("self", &[2, 2], &[3.0, -4.0, 0.0, 0.0]).input("mat2", &[2, 1], &[4.0, 3.0]);
    let reference = call.output(&[2, 1]).first();
    assert_eq!(reference.value.as_slice().unwrap(), [0.0, 0.0]);
    // 12 and -12 cancel: the scale is the root of 144 + 144.
    assert_eq!(reference.scale.as_slice().unwrap(), [288f64.sqrt(), 0.0]);
    let Exactness::Summed { terms, squares } = reference.exactness else { panic!("not a sum") };
    assert_eq!((terms, squares.as_slice().unwrap()), (2, &[288.0, 0.0][..]));
}

#[test]
fn addmm_scales_both_sides() {
    let call =
        recorded("addmm").input("self", &[2], &[1.0, 10.0]).input("mat1", &[2, 2], &A).input("mat2", &[2, 2], &B);
    let call = call.attrs(json!({"beta": 2, "alpha": 3})).output(&[2, 2]);
    assert_eq!(call.values(), [2.0 + 57.0, 20.0 + 66.0, 2.0 + 129.0, 20.0 + 150.0]);
    let Exactness::Summed { terms, squares } = call.first().exactness else { panic!("not a sum") };
    assert_eq!((terms, squares[[0, 0]]), (3, 4.0 + 9.0 * (25.0 + 196.0)));
}

#[test]
fn a_beta_of_zero_keeps_the_addend_unread() {
    let call = recorded("addmm").input("self", &[2], &[f64::NAN, 1.0]).input("mat1", &[2, 2], &A);
    let call = call.input("mat2", &[2, 2], &B).attrs(json!({"beta": 0, "alpha": 1})).output(&[2, 2]);
    assert_eq!(call.values(), AB);
}

#[test]
fn linear_reads_its_weight_as_named() {
    let addmm = recorded("linear").input("self", &[2], &[1.0, 1.0]).input("mat1", &[2, 2], &A);
    let addmm = addmm.input("mat2", &[2, 2], &B).attrs(json!({"beta": 1, "alpha": 1})).output(&[2, 2]);
    assert_eq!(addmm.values(), AB.map(|x| x + 1.0));
    // x W^T: [1 2] [5 6; 7 8]^T = [17 23].
    let named = recorded("linear").input("input", &[2], &[1.0, 2.0]).input("weight", &[2, 2], &B);
    assert_eq!(named.output(&[2]).values(), [17.0, 23.0]);
    let bias = recorded("linear").input("input", &[2], &[1.0, 2.0]).input("weight", &[2, 2], &B);
    assert_eq!(bias.input("bias", &[2], &[1.0, 2.0]).output(&[2]).values(), [18.0, 25.0]);
}

#[test]
fn an_unnamed_weight_is_read_only_where_its_shape_decides() {
    let x = recorded("linear").input("", &[1, 2], &[1.0, 2.0]);
    let tall = x.input("", &[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]).output(&[1, 3]);
    assert_eq!(tall.values(), [1.0, 2.0, 3.0]);
    let x = recorded("linear").input("", &[1, 2], &[1.0, 2.0]);
    let wide = x.input("", &[2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0]).output(&[1, 3]);
    assert_eq!(wide.values(), [1.0, 2.0, 3.0]);
    let square = recorded("linear").input("", &[1, 2], &[1.0, 2.0]).input("", &[2, 2], &B).output(&[1, 2]);
    assert!(square.refusal().contains("square"));
}

#[test]
fn vectors_matrices_and_stacks_follow_their_definitions() {
    let dot = recorded("dot").input("self", &[3], &[1.0, 2.0, 3.0]).input("tensor", &[3], &[4.0, 5.0, 6.0]);
    assert_eq!(dot.output(&[]).values(), [32.0]);
    let mv = recorded("mv").input("self", &[2, 2], &A).input("vec", &[2], &[1.0, 1.0]).output(&[2]);
    assert_eq!(mv.values(), [3.0, 7.0]);
    let outer = recorded("outer").input("self", &[2], &[1.0, 2.0]).input("vec2", &[2], &[3.0, 4.0]).output(&[2, 2]);
    assert_eq!(outer.values(), [3.0, 4.0, 6.0, 8.0]);
    let inner = recorded("inner").input("self", &[2, 2], &A).input("other", &[2], &[1.0, 1.0]).output(&[2]);
    assert_eq!(inner.values(), [3.0, 7.0]);
    let bmm = recorded("bmm").input("self", &[1, 2, 2], &A).input("mat2", &[1, 2, 2], &B).output(&[1, 2, 2]);
    assert_eq!(bmm.values(), AB);
    let plus = json!({"beta": 1, "alpha": 1});
    let addmv = recorded("addmv").input("self", &[2], &[1.0, 2.0]).input("mat", &[2, 2], &A);
    assert_eq!(addmv.input("vec", &[2], &[1.0, 1.0]).attrs(plus.clone()).output(&[2]).values(), [4.0, 9.0]);
    let addr = recorded("addr").input("self", &[1], &[1.0]).input("vec1", &[2], &[1.0, 2.0]);
    let addr = addr.input("vec2", &[2], &[3.0, 4.0]).attrs(plus.clone()).output(&[2, 2]);
    assert_eq!(addr.values(), [4.0, 5.0, 7.0, 9.0]);
    let twice: Vec<_> = A.iter().chain(&A).copied().collect();
    let other: Vec<_> = B.iter().chain(&B).copied().collect();
    let stacked = |function| {
        let call = recorded(function).input("self", &[2], &[1.0, 1.0]).input("batch1", &[2, 2, 2], &twice);
        call.input("batch2", &[2, 2, 2], &other).attrs(plus.clone())
    };
    assert_eq!(stacked("addbmm").output(&[2, 2]).values(), AB.map(|x| 2.0 * x + 1.0));
    assert_eq!(stacked("baddbmm").output(&[2, 2, 2]).values()[..4], AB.map(|x| x + 1.0));
}

#[test]
fn specials_follow_ieee_and_reach_only_their_row() {
    let call = recorded("mm").input("self", &[2, 2], &[f64::INFINITY, 1.0, 1.0, 1.0]);
    let values = call.input("mat2", &[2, 2], &[0.0, 1.0, 1.0, 1.0]).output(&[2, 2]).values();
    assert!(values[0].is_nan() && values[1] == f64::INFINITY);
    assert_eq!(values[2..], [1.0, 2.0]);
}

#[test]
fn nothing_to_sum_gives_zeros() {
    let call = recorded("matmul").input("self", &[2, 0], &[]).input("other", &[0, 3], &[]).output(&[2, 3]);
    assert_eq!(call.values(), [0.0; 6]);
    let call = recorded("matmul").input("self", &[0, 2], &[]).input("other", &[2, 3], &[0.0; 6]).output(&[0, 3]);
    assert!(call.values().is_empty());
}

#[test]
fn whole_numbers_are_exact_or_refused() {
    let call = recorded("mm").typed("self", DType::I64, &[1, 1], &[3.0]).typed("mat2", DType::I64, &[1, 1], &[4.0]);
    assert_eq!(call.output_of(DType::I64, &[1, 1]).first().exactness, Exactness::Discrete);
    let call = recorded("mm").typed("self", DType::I8, &[1, 1], &[100.0]).typed("mat2", DType::I8, &[1, 1], &[4.0]);
    assert!(call.output_of(DType::I8, &[1, 1]).refusal().contains("overflow"));
}

#[test]
fn what_does_not_fit_is_refused_before_memory_is_taken() {
    let vast = recorded("matmul").input("self", &[1 << 40, 0], &[]).input("other", &[0, 1 << 40], &[]);
    assert!(vast.output(&[1]).refusal().contains("does not fit the recorded"));
    let inner = recorded("matmul").input("self", &[1, 2], &[0.0; 2]).input("other", &[3, 1], &[0.0; 3]);
    assert!(inner.output(&[1, 1]).refusal().contains("inner extents"));
    let scalar = recorded("matmul").input("self", &[], &[0.0]).input("other", &[1], &[0.0]).output(&[]);
    assert!(scalar.refusal().contains("0-d"));
    let turned = recorded("matmul").input("self", &[1, 1], &[0.0]).input("other", &[1, 1], &[0.0]).output(&[1, 1]);
    assert!(turned.attrs(json!({"transpose_b": true})).refusal().contains("transpose_b"));
    let unknown = recorded("addmm").input("self", &[2], &[0.0; 2]).input("mat1", &[2, 2], &A);
    assert!(unknown.input("mat2", &[2, 2], &B).output(&[2, 2]).refusal().contains("not recorded"));
    assert!(recorded("matmul").output(&[1]).refusal().contains("0 tensors"));
    assert!(recorded("einsum").attrs(json!({"equation": ""})).output(&[]).refusal().contains("einsum"));
}

#[test]
fn einsum_refuses_what_it_cannot_read() {
    let with = |equation: &str| {
        let call = recorded("einsum").input("operands", &[2, 2], &A).input("operands", &[2, 2], &B);
        call.attrs(json!({"equation": equation})).output(&[2, 2]).refusal()
    };
    assert!(with("ii,jk->jk").contains("repeats"));
    assert!(with("ij->ij").contains("tensors"));
    assert!(with("ij,jk->iz").contains("no operand"));
    assert!(with("i1,jk->ik").contains("does not fit"));
    assert!(with("ijk,jk->ik").contains("does not fit"));
    assert!(with("ij,jk->ikj").contains("does not fit the recorded"));
}

#[test]
fn einsum_bounds_what_it_holds_in_between() {
    let long = vec![1.0; 600];
    let outer = recorded("einsum").input("operands", &[600], &long).input("operands", &[600], &long);
    let outer = outer.input("operands", &[600, 600], &vec![0.0; 360_000]).attrs(json!({"equation": "a,b,ab->"}));
    assert_eq!(outer.output(&[]).values(), [0.0]);
    // a and b outlive the first product, whose 360,000 elements nothing given or recorded justifies.
    let outer = recorded("einsum").input("operands", &[600], &long).input("operands", &[600], &long);
    let outer = outer.input("operands", &[600, 1], &long).input("operands", &[1, 600], &long);
    let outer = outer.attrs(json!({"equation": "a,b,ac,cb->"})).output(&[]);
    assert!(outer.refusal().contains("outgrows"));
    let hidden = recorded("einsum").input("operands", &[1 << 40, 0], &[]).input("operands", &[1 << 40, 0], &[]);
    let hidden = hidden.input("operands", &[1 << 40, 0], &[]).input("operands", &[1 << 40, 0], &[]);
    let hidden = hidden.attrs(json!({"equation": "ab,cd,ad,cb->"})).output(&[]);
    assert!(hidden.refusal().contains("einsum"));
}

#[test]
fn grouped_products_take_the_weight_of_their_group() {
    let x = [1.0, 1.0, 1.0, 2.0, 2.0, 0.0];
    let weights = [1.0, 2.0, 10.0, 20.0];
    let call = |groups: &[f64], kind: u8| {
        let call = recorded("npu_grouped_matmul").input("x", &[3, 2], &x).input("weight", &[2, 2, 1], &weights);
        call.typed("group_list", DType::I64, &[groups.len()], groups)
            .attrs(json!({"group_type": 0, "group_list_type": kind, "split_item": 3}))
            .output(&[3, 1])
    };
    assert_eq!(call(&[1.0, 3.0], 0).values(), [3.0, 50.0, 20.0]);
    assert_eq!(call(&[1.0, 2.0], 1).values(), [3.0, 50.0, 20.0]);
    assert!(call(&[1.0, 2.0], 0).refusal().contains("cover"));
    assert!(call(&[2.0, 1.0, 3.0], 0).refusal().contains("cover"));
    assert!(call(&[0.5, 3.0], 0).refusal().contains("ends at"));
    let call = recorded("npu_grouped_matmul").input("x", &[1, 2], &[1.0, 2.0]).input("x", &[1, 1], &[3.0]);
    let call = call.input("weight", &[2, 1], &[1.0, 1.0]).input("weight", &[1, 1], &[4.0]).attrs(json!({}));
    let references = call.output(&[1, 1]).output(&[1, 1]).replay().unwrap();
    assert_eq!(references.iter().map(|r| r.as_ref().unwrap().value[[0, 0]]).collect::<Vec<_>>(), [3.0, 12.0]);
    let call = recorded("_grouped_mm").input("self", &[3, 2], &x).input("mat2", &[2, 2, 1], &weights);
    assert_eq!(call.typed("offs", DType::I32, &[2], &[1.0, 3.0]).output(&[3, 1]).values(), [3.0, 50.0, 20.0]);
}

#[test]
fn gradients_follow_the_mask() {
    // One row: x = [1 2], g = [3], W = [4 5].
    let call = |mask| {
        let call = recorded("linear_backward").input("self", &[1, 2], &[1.0, 2.0]);
        let call = call.input("grad_output", &[1, 1], &[3.0]).input("weight", &[1, 2], &[4.0, 5.0]);
        call.attrs(json!({"output_mask": mask}))
    };
    let all = call([true; 3]).output(&[1, 2]).output(&[1, 2]).output(&[1]).replay().unwrap();
    let values: Vec<Vec<f64>> = all.iter().map(|r| r.as_ref().unwrap().value.iter().copied().collect()).collect();
    assert_eq!(values, [vec![12.0, 15.0], vec![3.0, 6.0], vec![3.0]]);
    assert_eq!(call([false, true, false]).output(&[1, 2]).values(), [3.0, 6.0]);
    let kept = call([false, false, true]).output(&[1, 2]).output(&[1, 2]).output(&[1]).replay().unwrap();
    assert!(kept[0].is_none() && kept[1].is_none() && kept[2].is_some());
    assert!(call([true, true, false]).output(&[1, 2]).refusal().contains("mask"));
    let matmul = recorded("matmul_backward").input("grad", &[1, 1], &[3.0]).input("self", &[1, 2], &[1.0, 2.0]);
    let matmul = matmul.input("other", &[2, 1], &[4.0, 5.0]).output(&[1, 2]).output(&[2, 1]).replay().unwrap();
    let values: Vec<Vec<f64>> = matmul.iter().map(|r| r.as_ref().unwrap().value.iter().copied().collect()).collect();
    assert_eq!(values, [vec![12.0, 15.0], vec![3.0, 6.0]]);
}

/// The einsum by its definition: every assignment of extents to letters is one term.
fn naive_einsum(terms: &[&str], output: &str, operands: &[ArrayD<f64>], square: bool) -> ArrayD<f64> {
    let mut letters: Vec<char> = terms.concat().chars().collect();
    letters.sort_unstable();
    letters.dedup();
    let extent = |c: char| {
        let of = |(term, tensor): (&&str, &ArrayD<f64>)| term.chars().position(|l| l == c).map(|at| tensor.shape()[at]);
        terms.iter().zip(operands).filter_map(of).max().unwrap()
    };
    let extents: Vec<_> = letters.iter().map(|&c| extent(c)).collect();
    let mut out = ArrayD::zeros(IxDyn(&output.chars().map(extent).collect::<Vec<_>>()));
    for index in ndarray::indices(IxDyn(&extents)) {
        let at = |term: &str, shape: Option<&[usize]>| -> Vec<usize> {
            let place = |(axis, c): (usize, char)| {
                let value = index[letters.iter().position(|&l| l == c).unwrap()];
                if shape.is_some_and(|shape| shape[axis] == 1) { 0 } else { value }
            };
            term.chars().enumerate().map(place).collect()
        };
        let product = |(term, tensor): (&&str, &ArrayD<f64>)| tensor[IxDyn(&at(term, Some(tensor.shape())))];
        let term: f64 = terms.iter().zip(operands).map(product).product();
        out[IxDyn(&at(output, None))] += if square { term * term } else { term };
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn matmul_agrees_with_loops(
        m in 0usize..6, k in 0usize..6, n in 0usize..6, batch in prop::collection::vec(1usize..4, 0..3),
        left in any::<[bool; 2]>(), right in any::<[bool; 2]>(), cut in 0usize..3, seed: u64,
    ) {
        // Axes of extent one and axes left away broadcast.
        let narrow = |keep: &[bool; 2]| -> Vec<usize> {
            batch.iter().zip(keep).map(|(&e, &keep)| if keep { e } else { 1 }).collect()
        };
        let (a_batch, b_batch) = (narrow(&left), narrow(&right));
        let b_batch = b_batch[cut.min(b_batch.len())..].to_vec();
        let a = noise(&[a_batch.as_slice(), &[m, k]].concat(), seed);
        let b = noise(&[b_batch.as_slice(), &[k, n]].concat(), seed ^ 1);
        let out: Vec<_> = (0..batch.len()).map(|axis| {
            let b_axis = (axis + b_batch.len()).checked_sub(batch.len());
            a_batch[axis].max(b_axis.map_or(1, |at| b_batch[at]))
        }).collect();
        let shape = [out.as_slice(), &[m, n]].concat();
        let found = recorded("matmul").array("self", &a).array("other", &b).output(&shape).first();
        let mut value = ArrayD::zeros(IxDyn(&shape));
        let mut squares = ArrayD::zeros(IxDyn(&shape));
        for index in ndarray::indices(IxDyn(&shape)) {
            let index: Vec<usize> = (0..shape.len()).map(|axis| index[axis]).collect();
            let pick = |tensor: &ArrayD<f64>, last: [usize; 2]| {
                let batch = tensor.ndim() - 2;
                let from = &index[shape.len() - 2 - batch..shape.len() - 2];
                let at: Vec<_> = from.iter().zip(tensor.shape()).map(|(&i, &e)| if e == 1 { 0 } else { i }).collect();
                tensor[IxDyn(&[at.as_slice(), &last].concat())]
            };
            let (row, column) = (index[shape.len() - 2], index[shape.len() - 1]);
            for at in 0..k {
                let term = pick(&a, [row, at]) * pick(&b, [at, column]);
                value[IxDyn(&index)] += term;
                squares[IxDyn(&index)] += term * term;
            }
        }
        assert_close(&found.value, &value);
        let Exactness::Summed { terms, squares: sums } = &found.exactness else { panic!("not a sum") };
        prop_assert_eq!(*terms, k);
        assert_close(sums, &squares);
        prop_assert!(found.scale.iter().zip(&found.value).all(|(scale, value)| *scale >= value.abs()));
    }

    #[test]
    fn einsum_agrees_with_its_definition(
        which in 0usize..12, extents in prop::collection::vec(1usize..4, 6), narrow in 0usize..12, seed: u64,
    ) {
        let equations: [(&[&str], &str); 12] = [
            (&["ab", "bc"], "ac"), (&["ab", "cb"], "ac"), (&["abc", "acd"], "abd"), (&["abcd", "abed"], "acbe"),
            (&["a", "b"], "ab"), (&["ab", "ab"], ""), (&["ab"], "ba"), (&["abc"], "b"), (&["ab", "b", "bc"], "ca"),
            (&["abc", "bd"], "d"), (&["ab", "bc", "cd"], "ad"), (&["a", "a"], "a"),
        ];
        let (terms, output) = equations[which];
        let extent = |c: char| extents[c as usize - 'a' as usize];
        let operands: Vec<_> = terms.iter().enumerate().map(|(at, term)| {
            // Now and then one axis of the last operand has extent one and broadcasts.
            let last = terms.len() > 1 && at == terms.len() - 1;
            let shape: Vec<_> = term.chars().enumerate()
                .map(|(axis, c)| if last && axis == narrow && terms[0].contains(c) { 1 } else { extent(c) }).collect();
            noise(&shape, seed.wrapping_add(at as u64))
        }).collect();
        let value = naive_einsum(terms, output, &operands, false);
        let call = operands.iter().fold(recorded("einsum"), |call, tensor| call.array("operands", tensor));
        let equation = format!("{} -> {output}", terms.join(", "));
        let found = call.attrs(json!({"equation": equation})).output(value.shape()).first();
        assert_close(&found.value, &value);
        let Exactness::Summed { squares, .. } = &found.exactness else { panic!("not a sum") };
        assert_close(squares, &naive_einsum(terms, output, &operands, true));
    }

    #[test]
    fn an_ellipsis_stands_for_leading_axes(m in 1usize..4, k in 1usize..4, n in 1usize..4, b in 1usize..4, seed: u64) {
        let (x, w) = (noise(&[b, m, k], seed), noise(&[n, k], seed ^ 1));
        let value = naive_einsum(&["bmk", "nk"], "bmn", &[x.clone(), w.clone()], false);
        let call = recorded("einsum").array("operands", &x).array("operands", &w).output(&[b, m, n]);
        assert_close(&call.attrs(json!({"equation": "...k,nk->...n"})).first().value, &value);
    }
}

#[test]
fn tiles_and_slabs_leave_no_seam() {
    let (a, b) = (noise(&[300, 2500], 1), noise(&[2500, 270], 2));
    let found = recorded("mm").array("self", &a).array("mat2", &b).output(&[300, 270]).first().value;
    for (row, column) in [(0, 0), (255, 255), (256, 256), (299, 269), (256, 0), (0, 256)] {
        let exact: f64 = (0..2500).map(|k| a[[row, k]] * b[[k, column]]).sum();
        assert!((found[[row, column]] - exact).abs() < 1e-10, "at {row}, {column}");
    }
}
