use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use serde_json::json;

use crate::replay::Exactness;
use crate::replay::contraction::recorded::{Recorded, assert_close, noise, recorded};

fn plain(padding: serde_json::Value) -> serde_json::Value {
    json!({"bias": null, "stride": [1], "padding": padding, "dilation": [1], "transposed": false,
           "output_padding": [0], "groups": 1})
}

fn ramp(function: &str) -> Recorded {
    recorded(function).input("input", &[1, 1, 4], &[1.0, 2.0, 3.0, 4.0])
}

#[test]
fn a_kernel_slides_without_being_flipped() {
    let call = ramp("conv").input("weight", &[1, 1, 2], &[10.0, 1.0]).attrs(plain(json!([0])));
    let reference = call.output(&[1, 1, 3]).first();
    assert_eq!(reference.value.iter().copied().collect::<Vec<_>>(), [12.0, 23.0, 34.0]);
    let Exactness::Summed { terms, squares } = reference.exactness else { panic!("not a sum") };
    assert_eq!((terms, squares[[0, 0, 0]]), (2, 104.0));
}

#[test]
fn padding_comes_as_a_list_or_by_name() {
    let with = |padding, length| {
        let call = ramp("convolution").input("weight", &[1, 1, 2], &[10.0, 1.0]).attrs(plain(padding));
        call.output(&[1, 1, length]).values()
    };
    assert_eq!(with(json!([1]), 5), [1.0, 12.0, 23.0, 34.0, 40.0]);
    assert_eq!(with(json!("valid"), 3), [12.0, 23.0, 34.0]);
    // An even kernel: what is odd is padded behind.
    assert_eq!(with(json!("same"), 4), [12.0, 23.0, 34.0, 40.0]);
}

#[test]
fn a_bias_is_one_value_a_channel() {
    let call = ramp("conv1d").input("weight", &[2, 1, 4], &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let call = call.input("bias", &[2], &[100.0, 200.0]).attrs(json!({})).output(&[1, 2, 1]);
    assert_eq!(call.values(), [101.0, 204.0]);
    let unbatched = recorded("conv1d").input("input", &[1, 2], &[1.0, 2.0]).input("weight", &[1, 1, 1], &[3.0]);
    assert_eq!(unbatched.input("bias", &[1], &[1.0]).attrs(json!({})).output(&[1, 2]).values(), [4.0, 7.0]);
}

#[test]
fn a_transposed_kernel_spreads_each_input() {
    let call = recorded("conv_transpose1d").input("input", &[1, 1, 2], &[1.0, 2.0]);
    let call = call.input("weight", &[1, 1, 3], &[1.0, 10.0, 100.0]);
    let call = call.attrs(json!({"stride": [2], "padding": [0], "output_padding": [1], "groups": 1, "dilation": [1]}));
    // 1 at 0, 1, 2 and 2 at 2, 3, 4, and one more position that nothing reaches.
    assert_eq!(call.output(&[1, 1, 6]).values(), [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let call = |attrs, weight: &[usize], output: &[usize]| {
        let count = weight.iter().product::<usize>();
        ramp("conv").input("weight", weight, &vec![1.0; count]).attrs(attrs).output(output).refusal()
    };
    assert!(call(plain(json!([0])), &[1, 1, 5], &[1, 1, 0]).contains("does not fit"));
    assert!(call(plain(json!([0])), &[1, 2, 1], &[1, 1, 4]).contains("does not fit"));
    assert!(call(plain(json!([0, 0])), &[1, 1, 1], &[1, 1, 4]).contains("dimensions"));
    assert!(call(plain(json!([-1])), &[1, 1, 1], &[1, 1, 2]).contains("dimensions"));
    assert!(call(plain(json!("full")), &[1, 1, 1], &[1, 1, 4]).contains("padding full"));
    assert!(call(plain(json!([1u64 << 40])), &[1, 1, 1], &[1, 1, 4]).contains("dimensions"));
    assert!(call(plain(json!([1u64 << 30])), &[1, 1, 1], &[1, 1, 4]).contains("recorded"));
    assert!(call(json!({"stride": 0}), &[1, 1, 1], &[1, 1, 4]).contains("stride"));
    assert!(call(json!({"groups": 0}), &[1, 1, 1], &[1, 1, 4]).contains("groups"));
    assert!(call(json!({"groups": 3}), &[1, 1, 1], &[1, 1, 4]).contains("does not fit"));
    assert!(call(json!({"padding_mode": "circular"}), &[1, 1, 1], &[1, 1, 4]).contains("circular"));
    assert!(call(json!({}), &[1, 1], &[1, 1, 4]).contains("weight"));
    assert!(call(json!({}), &[1, 1, 0], &[1, 1, 5]).contains("does not fit"));
    let unknown = ramp("conv").input("weight", &[1, 1, 1], &[1.0]).output(&[1, 1, 4]);
    assert!(unknown.refusal().contains("not recorded"));
    let special = ramp("conv").input("weight", &[1, 1, 3], &[f64::INFINITY, 1.0, 1.0]).attrs(plain(json!([1])));
    assert!(special.output(&[1, 1, 4]).refusal().contains("not finite"));
}

#[test]
fn extents_beside_a_zero_cost_nothing() {
    let none = recorded("conv1d").input("input", &[0, 1, 4], &[]).input("weight", &[1, 1, 2], &[1.0, 1.0]);
    assert!(none.attrs(json!({})).output(&[0, 1, 3]).values().is_empty());
    let groups = 1u64 << 62;
    let call = |function: &str| {
        let call = recorded(function).input("grad_output", &[7, 0, 4], &[]).input("input", &[7, 0, 4], &[]);
        call.input("weight", &[0, 0, 1], &[]).attrs(json!({"groups": groups}))
    };
    let back = call("convolution_backward").output(&[7, 0, 4]).output(&[0, 0, 1]).output(&[0]).replay().unwrap();
    assert!(back.iter().flatten().all(|reference| reference.value.is_empty()));
    let deep = recorded("conv1d").input("input", &[2, 0, 4], &[]).input("weight", &[3, 0, 1], &[]);
    assert_eq!(deep.attrs(json!({})).output(&[2, 3, 4]).values(), [0.0; 24]);
}

/// By definition: every pair of an input position and a tap adds to the output it belongs to.
struct Definition {
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    transposed: bool,
}

impl Definition {
    /// Calls `term` with the indices of output, input and weight of each term.
    fn terms(
        &self,
        out: &[usize],
        input: &[usize],
        weight: &[usize],
        mut term: impl FnMut(&[usize], &[usize], &[usize]),
    ) {
        let dimensions = weight.len() - 2;
        for o in ndarray::indices(IxDyn(out)) {
            for w in ndarray::indices(IxDyn(weight)) {
                let (group_in, group_out) = (input[1] / self.groups, out[1] / self.groups);
                let (c_out, c_in) = if self.transposed { (w[1], w[0] % group_in) } else { (w[0] % group_out, w[1]) };
                let group = o[1] / group_out;
                let of_weight = if self.transposed { w[0] / group_in } else { w[0] / group_out };
                if group != of_weight || o[1] % group_out != c_out {
                    continue;
                }
                let mut at = vec![o[0], group * group_in + c_in];
                for d in 0..dimensions {
                    let tap = w[2 + d] * self.dilation[d];
                    for i in 0..input[2 + d] {
                        let meets = if self.transposed {
                            o[2 + d] + self.padding[d] == i * self.stride[d] + tap
                        } else {
                            i + self.padding[d] == o[2 + d] * self.stride[d] + tap
                        };
                        if meets {
                            at.push(i);
                        }
                    }
                }
                if at.len() == 2 + dimensions {
                    let flat = |index: &ndarray::Dim<ndarray::IxDynImpl>| {
                        (0..2 + dimensions).map(|d| index[d]).collect::<Vec<_>>()
                    };
                    term(&flat(&o), &at, &flat(&w));
                }
            }
        }
    }
}

/// Kernel, stride, padding, dilation and spare input of one dimension.
type Part = (usize, usize, usize, usize, usize);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_form_agrees_with_the_definition(
        dimensions in 1usize..4, batch in 1usize..3, group_in in 1usize..3, group_out in 1usize..3,
        groups in 1usize..3, transposed: bool, parts in prop::collection::vec((1usize..4, 1usize..3, 0usize..2, 1usize..3, 0usize..3), 3),
        seed: u64,
    ) {
        let parts = &parts[..dimensions];
        let pick = |of: fn(&Part) -> usize| parts.iter().map(of).collect::<Vec<_>>();
        let (kernel, stride, padding, dilation) = (pick(|p| p.0), pick(|p| p.1), pick(|p| p.2), pick(|p| p.3));
        let input: Vec<_> = parts.iter().map(|p| p.4 + (p.0 - 1) * p.3 + 1).collect();
        let definition = Definition { stride, padding, dilation, groups, transposed };
        let outputs: Vec<_> = (0..dimensions).map(|d| {
            let reach = definition.dilation[d] * (kernel[d] - 1) + 1;
            if transposed {
                ((input[d] - 1) * definition.stride[d] + reach).saturating_sub(2 * definition.padding[d])
            } else {
                (input[d] + 2 * definition.padding[d] - reach) / definition.stride[d] + 1
            }
        }).collect();
        prop_assume!(outputs.iter().all(|&extent| extent > 0));
        let (c_in, c_out) = (group_in * groups, group_out * groups);
        let x = noise(&[&[batch, c_in][..], &input].concat(), seed);
        let lead = if transposed { [c_in, group_out] } else { [c_out, group_in] };
        let w = noise(&[&lead[..], &kernel].concat(), seed ^ 1);
        let shape = [&[batch, c_out][..], &outputs].concat();
        let (mut value, mut squares) = (ArrayD::zeros(IxDyn(&shape)), ArrayD::zeros(IxDyn(&shape)));
        definition.terms(&shape, x.shape(), w.shape(), |o, i, k| {
            let term = x[IxDyn(i)] * w[IxDyn(k)];
            value[IxDyn(o)] += term;
            squares[IxDyn(o)] += term * term;
        });
        let attrs = json!({"stride": definition.stride, "padding": definition.padding, "dilation": definition.dilation,
            "groups": groups, "transposed": transposed, "output_padding": vec![0; dimensions]});
        let found = recorded("convolution").array("input", &x).array("weight", &w).attrs(attrs.clone()).output(&shape).first();
        assert_close(&found.value, &value);
        let Exactness::Summed { squares: sums, .. } = &found.exactness else { panic!("not a sum") };
        assert_close(sums, &squares);

        if !transposed {
            let g = noise(&shape, seed ^ 2);
            let (mut to_x, mut to_w) = (ArrayD::zeros(x.raw_dim()), ArrayD::zeros(w.raw_dim()));
            let mut squares_w = ArrayD::zeros(w.raw_dim());
            definition.terms(&shape, x.shape(), w.shape(), |o, i, k| {
                to_x[IxDyn(i)] += g[IxDyn(o)] * w[IxDyn(k)];
                to_w[IxDyn(k)] += g[IxDyn(o)] * x[IxDyn(i)];
                squares_w[IxDyn(k)] += (g[IxDyn(o)] * x[IxDyn(i)]).powi(2);
            });
            let to_b: Vec<f64> = (0..c_out).map(|c| g.index_axis(ndarray::Axis(1), c).sum()).collect();
            let back = recorded("convolution_backward").array("grad_output", &g).array("input", &x).array("weight", &w);
            let back = back.attrs(attrs).output(x.shape()).output(w.shape()).output(&[c_out]).replay().unwrap();
            let gradient = |at: usize| back[at].as_ref().unwrap();
            assert_close(&gradient(0).value, &to_x);
            assert_close(&gradient(1).value, &to_w);
            assert_close(&gradient(2).value, &ArrayD::from_shape_vec(IxDyn(&[c_out]), to_b).unwrap());
            let Exactness::Summed { squares, .. } = &gradient(1).exactness else { panic!("not a sum") };
            assert_close(squares, &squares_w);
        }
    }
}
