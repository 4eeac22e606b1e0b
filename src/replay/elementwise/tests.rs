//! Fixed cases from the definitions, and broadcasting against naive loops.

use approx::assert_relative_eq;
use proptest::prelude::*;
use serde_json::json;

use super::super::Exactness;
use super::super::sample_call::{SampleCall, sample};
use crate::tensor::DType::{self, BF16, Bool, F16, F32, I8, I64, U8};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// A function of one F32 value.
fn unary(function: &'static str, x: f64) -> f64 {
    sample(function).f32("self", &[1], &[x]).out(F32, &[1]).values()[0]
}

fn with(function: &'static str, attrs: serde_json::Value, x: &[f64]) -> Vec<f64> {
    sample(function).f32("self", &[x.len()], x).attrs(attrs).out(F32, &[x.len()]).values()
}

fn two(function: &'static str, a: &[f64], b: &[f64]) -> SampleCall {
    sample(function).f32("self", &[a.len()], a).f32("other", &[b.len()], b).attrs(json!({}))
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        if expected.is_finite() {
            assert_relative_eq!(*found, *expected, max_relative = 1e-14, epsilon = 1e-300);
        } else {
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{found} for {expected}");
        }
    }
}

/// Values to 17 digits from tables of the functions.
const CURVES: &[(&str, f64, f64)] = &[
    ("relu", -2.0, 0.0),
    ("relu", 2.0, 2.0),
    ("relu", NAN, NAN),
    ("relu6", 7.0, 6.0),
    ("abs", -2.5, 2.5),
    ("neg", 2.5, -2.5),
    ("sign", -3.0, -1.0),
    ("sign", 0.0, 0.0),
    ("sgn", 4.0, 1.0),
    ("floor", -1.5, -2.0),
    ("ceil", -1.5, -1.0),
    ("trunc", -1.5, -1.0),
    ("frac", -1.25, -0.25),
    ("square", -3.0, 9.0),
    ("reciprocal", 4.0, 0.25),
    ("reciprocal", 0.0, INF),
    ("sqrt", 9.0, 3.0),
    ("sqrt", -1.0, NAN),
    ("rsqrt", 4.0, 0.5),
    ("rsqrt", INF, 0.0),
    ("sigmoid", 0.0, 0.5),
    ("sigmoid", 2.0, 0.880_797_077_977_882_4),
    ("sigmoid", -1000.0, 0.0),
    ("silu", 2.0, 1.761_594_155_955_764_8),
    ("mish", 1.0, 0.865_098_388_267_310_4),
    ("hardswish", 1.0, 4.0 / 6.0),
    ("hardswish", -4.0, 0.0),
    ("hardsigmoid", 1.5, 0.75),
    ("hardsigmoid", 9.0, 1.0),
    ("log_sigmoid", 0.0, -std::f64::consts::LN_2),
    ("log_sigmoid", -800.0, -800.0),
    ("selu", 1.0, 1.050_700_987_355_480_5),
    ("selu", -1.0, -1.111_330_737_812_562_8),
    ("tanh", 1.0, 0.761_594_155_955_764_9),
    ("exp", 1.0, std::f64::consts::E),
    ("exp", -INF, 0.0),
    ("exp", 1000.0, INF),
    ("exp2", 3.0, 8.0),
    ("expm1", 1e-10, 1.000_000_000_05e-10),
    ("log", std::f64::consts::E, 1.0),
    ("log", 0.0, -INF),
    ("log", -1.0, NAN),
    ("log2", 8.0, 3.0),
    ("log10", 1000.0, 3.0),
    ("log1p", 1e-10, 9.999_999_999_5e-11),
    ("sin", 1.0, 0.841_470_984_807_896_5),
    ("cos", 1.0, 0.540_302_305_868_139_8),
    ("tan", 1.0, 1.557_407_724_654_902_3),
    ("asin", 0.5, std::f64::consts::FRAC_PI_6),
    ("acos", 0.5, std::f64::consts::FRAC_PI_3),
    ("atan", 1.0, std::f64::consts::FRAC_PI_4),
    ("sinh", 1.0, 1.175_201_193_643_801_4),
    ("cosh", 1.0, 1.543_080_634_815_243_7),
    ("erf", 0.5, 0.520_499_877_813_046_5),
    ("erf", 2.0, 0.995_322_265_018_952_7),
    ("erfc", 3.0, 2.209_049_699_858_544e-5),
];

#[test]
fn curves_have_their_tabulated_values() {
    for &(function, x, expected) in CURVES {
        close(&[unary(function, x)], &[expected]);
    }
}

#[test]
fn truth_of_special_values() {
    let of = |function| sample(function).f32("self", &[4], &[NAN, -INF, 0.0, 1.0]).out(Bool, &[4]).only();
    assert_eq!(of("isnan").value.as_slice().unwrap(), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(of("isinf").value.as_slice().unwrap(), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(of("isfinite").value.as_slice().unwrap(), [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(of("logical_not").value.as_slice().unwrap(), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(of("isnan").exactness, Exactness::Discrete);
}

#[test]
fn gelu_in_its_forms() {
    let none = with("gelu", json!({"approximate": "none"}), &[1.0, -1.0, -10.0]);
    close(&none[..2], &[0.841_344_746_068_542_9, -0.158_655_253_931_457_05]);
    assert_relative_eq!(none[2], -10.0 * 7.619_853_024_160_527e-24, max_relative = 1e-10);
    close(&with("gelu", json!({"approximate": "tanh"}), &[1.0]), &[0.841_191_990_608_276_8]);
    assert_eq!(
        sample("gelu").f32("self", &[1], &[1.0]).out(F32, &[1]).refusal(),
        "attributes of gelu were not recorded"
    );
}

#[test]
fn activations_with_parameters() {
    close(&with("leaky_relu", json!({"negative_slope": 0.5}), &[-2.0, 2.0]), &[-1.0, 2.0]);
    close(&with("elu", json!({"alpha": 2.0}), &[-1.0, 3.0]), &[2.0 * (-1f64).exp_m1(), 3.0]);
    close(&with("celu", json!({"alpha": 2.0}), &[-1.0, 3.0]), &[2.0 * (-0.5f64).exp_m1(), 3.0]);
    close(&with("softplus", json!({}), &[0.0, 21.0]), &[std::f64::consts::LN_2, 21.0]);
    close(&with("softplus", json!({"beta": 2.0}), &[1.0]), &[0.5 * 2f64.exp().ln_1p()]);
    close(&with("hardtanh", json!({}), &[-3.0, 0.25, 3.0]), &[-1.0, 0.25, 1.0]);
    close(&with("threshold", json!({"threshold": 1.0, "value": 9.0}), &[1.0, 2.0]), &[9.0, 2.0]);
    close(&with("clamp", json!({"min": -1.0, "max": null}), &[-3.0, 3.0, NAN]), &[-1.0, 3.0, NAN]);
    close(&with("clamp_max", json!({"max": 1}), &[-3.0, 3.0]), &[-3.0, 1.0]);
    close(&with("clamp_min", json!({"min": 1}), &[-3.0, 3.0]), &[1.0, 3.0]);
    close(&with("round", json!({}), &[0.5, 1.5, -2.5]), &[0.0, 2.0, -2.0]);
    let max = f64::from(f32::MAX);
    close(&with("nan_to_num", json!({"nan": 7.0}), &[NAN, INF, -INF, 1.0]), &[7.0, max, -max, 1.0]);
    close(&with("logit", json!({"eps": null}), &[0.75]), &[3f64.ln()]);
    let prelu = sample("prelu").f32("self", &[1, 2, 1], &[-1.0, -1.0]).f32("weight", &[2], &[0.5, 0.25]);
    assert_eq!(prelu.out(F32, &[1, 2, 1]).values(), [-0.5, -0.25]);
}

#[test]
fn clamp_takes_tensors_as_bounds() {
    let call = sample("clamp").f32("self", &[2], &[-5.0, 5.0]).f32("min", &[1], &[-1.0]).f32("max", &[2], &[9.0, 2.0]);
    assert_eq!(call.attrs(json!({})).out(F32, &[2]).values(), [-1.0, 2.0]);
}

#[test]
fn arithmetic_by_hand() {
    let of = |function, a: &[f64], b: &[f64]| two(function, a, b).out(F32, &[a.len()]).values();
    assert_eq!(of("add", &[1.0, 2.0], &[10.0, 20.0]), [11.0, 22.0]);
    assert_eq!(of("sub", &[1.0], &[10.0]), [-9.0]);
    assert_eq!(of("rsub", &[1.0], &[10.0]), [9.0]);
    assert_eq!(of("mul", &[3.0], &[-2.0]), [-6.0]);
    assert_eq!(of("div", &[3.0, 1.0, 0.0], &[-2.0, 0.0, 0.0])[..2], [-1.5, INF]);
    assert_eq!(of("pow", &[2.0, -2.0], &[3.0, 2.0]), [8.0, 4.0]);
    assert_eq!(of("fmod", &[-7.0, 7.0], &[3.0, -3.0]), [-1.0, 1.0]);
    assert_eq!(of("remainder", &[-7.0, 7.0], &[3.0, -3.0]), [2.0, -2.0]);
    assert_eq!(of("floor_divide", &[-7.0, 7.0], &[2.0, 2.0]), [-4.0, 3.0]);
    assert!(of("maximum", &[NAN], &[1.0])[0].is_nan());
    assert_eq!(of("fmax", &[NAN], &[1.0]), [1.0]);
    assert_eq!(of("minimum", &[2.0], &[1.0]), [1.0]);
    close(&of("atan2", &[1.0], &[-1.0]), &[0.75 * std::f64::consts::PI]);
}

#[test]
fn attributes_scale_and_round() {
    let call = two("add", &[1.0], &[10.0]).attrs(json!({"alpha": 2})).out(F32, &[1]);
    assert_eq!(call.values(), [21.0]);
    let call = two("div", &[-7.0], &[2.0]).attrs(json!({"rounding_mode": "trunc"})).out(F32, &[1]);
    assert_eq!(call.values(), [-3.0]);
    let call = two("div", &[-7.0], &[2.0]).attrs(json!({"rounding_mode": "ceil"})).out(F32, &[1]);
    assert_eq!(call.refusal(), "div: rounding mode ceil is not known");
    // A scalar is taken in fp32, as kernels do.
    assert_eq!(with("mul", json!({"other": 0.1}), &[1.0]), [f64::from(0.1f32)]);
    assert_eq!(with("rsub", json!({"other": 1, "alpha": 1}), &[3.0]), [-2.0]);
    let call = sample("pow").f32("exponent", &[2], &[2.0, 3.0]).attrs(json!({"self": 2.0})).out(F32, &[2]);
    assert_eq!(call.values(), [4.0, 8.0]);
}

#[test]
fn unknown_attributes_are_never_guessed() {
    let add = sample("add").f32("", &[1], &[1.0]).f32("", &[1], &[1.0]).out(F32, &[1]);
    assert_eq!(add.refusal(), "attributes of add were not recorded");
    let mul = sample("mul").f32("", &[1], &[3.0]).out(F32, &[1]);
    assert_eq!(mul.refusal(), "attributes of mul were not recorded");
    let mul = sample("mul").f32("", &[1], &[3.0]).f32("", &[1], &[2.0]).out(F32, &[1]);
    assert_eq!(mul.values(), [6.0]);
}

#[test]
fn exactness_follows_from_operands() {
    let exactness = |call: SampleCall| call.only().exactness;
    assert_eq!(exactness(two("add", &[1.0], &[2.0]).out(F32, &[1])), Exactness::Rounded);
    let integers = sample("add").i64("self", &[1], &[1.0]).i64("other", &[1], &[2.0]).attrs(json!({}));
    assert_eq!(exactness(integers.out(I64, &[1])), Exactness::Discrete);
    // 0.1 as a 0-d fp32 tensor does not promote fp16: where it is rounded is the kernel's choice.
    let finer = sample("mul").input("self", F16, &[1], &[1.0]).f32("other", &[], &[f64::from(0.1f32)]);
    assert!(matches!(exactness(finer.out(F16, &[1])), Exactness::Function { roundings: 1, .. }));
    let held = sample("mul").input("self", F16, &[1], &[1.0]).f32("other", &[], &[0.5]);
    assert_eq!(exactness(held.out(F16, &[1])), Exactness::Rounded);
}

#[test]
fn sums_are_held_against_what_was_summed() {
    let reference = two("sub", &[1000.0], &[999.0]).out(F32, &[1]).only();
    assert_eq!((reference.value[[0]], reference.scale[[0]]), (1.0, 1000.0));
    let reference = sample("exp").f32("self", &[2], &[-9.0, -INF]).out(F32, &[2]).only();
    assert_relative_eq!(reference.scale[[0]], 10.0 * (-9f64).exp(), max_relative = 1e-14);
    assert_eq!(reference.scale[[1]], 0.0, "not the NaN of 0·inf");
}

#[test]
fn integer_results_must_be_held_by_the_dtype() {
    let call = |dtype, x: f64| {
        sample("mul").input("self", dtype, &[1], &[x]).input("other", dtype, &[1], &[x]).out(dtype, &[1])
    };
    assert_eq!(call(I8, 11.0).values(), [121.0]);
    assert_eq!(call(I8, 12.0).refusal(), "mul: an integer result is beyond int8 or 2^53");
    assert_eq!(call(I64, 1e9).refusal(), "mul: an integer result is beyond int64 or 2^53");
    assert_eq!(call(U8, 15.0).values(), [225.0]);
}

#[test]
fn fused_arithmetic_by_hand() {
    let three = |function, second: &'static str, third: &'static str| {
        sample(function).f32("self", &[1], &[1.0]).f32(second, &[1], &[6.0]).f32(third, &[1], &[3.0]).out(F32, &[1])
    };
    assert_eq!(three("addcmul", "tensor1", "tensor2").attrs(json!({"value": 0.5})).values(), [10.0]);
    assert_eq!(three("addcdiv", "tensor1", "tensor2").attrs(json!({"value": -1})).values(), [-1.0]);
    assert_eq!(three("lerp", "end", "weight").values(), [16.0]);
    let lerp = sample("lerp").f32("self", &[1], &[1.0]).f32("end", &[1], &[5.0]).attrs(json!({"weight": 0.25}));
    assert_eq!(lerp.out(F32, &[1]).values(), [2.0]);
}

#[test]
fn comparisons_and_bits() {
    let of = |function, a: &[f64], b: &[f64]| two(function, a, b).out(Bool, &[a.len()]).values();
    assert_eq!(of("eq", &[1.0, NAN], &[1.0, NAN]), [1.0, 0.0]);
    assert_eq!(of("ne", &[1.0, NAN], &[1.0, NAN]), [0.0, 1.0]);
    assert_eq!(of("lt", &[1.0, 2.0], &[2.0, 2.0]), [1.0, 0.0]);
    assert_eq!(of("le", &[1.0, 2.0], &[2.0, 2.0]), [1.0, 1.0]);
    assert_eq!(of("gt", &[3.0, 2.0], &[2.0, 2.0]), [1.0, 0.0]);
    assert_eq!(of("ge", &[1.0, 2.0], &[2.0, 2.0]), [0.0, 1.0]);
    assert_eq!(of("logical_and", &[1.0, 2.0], &[0.0, 3.0]), [0.0, 1.0]);
    assert_eq!(of("logical_or", &[1.0, 0.0], &[0.0, 0.0]), [1.0, 0.0]);
    assert_eq!(of("logical_xor", &[1.0, 1.0], &[0.0, 3.0]), [1.0, 0.0]);
    let bits =
        |function, a: f64, b: f64| sample(function).i64("self", &[1], &[a]).i64("other", &[1], &[b]).out(I64, &[1]);
    assert_eq!(bits("bitwise_and", 12.0, 10.0).values(), [8.0]);
    assert_eq!(bits("bitwise_or", 12.0, 10.0).values(), [14.0]);
    assert_eq!(bits("bitwise_xor", -1.0, 10.0).values(), [-11.0]);
    assert_eq!(bits("bitwise_left_shift", 3.0, 2.0).values(), [12.0]);
    assert_eq!(bits("bitwise_right_shift", -8.0, 1.0).values(), [-4.0]);
    assert!(bits("bitwise_left_shift", 3.0, -2.0).refusal().contains("integer result"));
    assert!(bits("bitwise_and", 1e17, 1.0).refusal().contains("beyond 2^53"));
    let not = |dtype, x: f64| sample("bitwise_not").input("self", dtype, &[1], &[x]).out(dtype, &[1]).values();
    assert_eq!((not(Bool, 1.0), not(U8, 1.0), not(I8, 1.0)), (vec![0.0], vec![254.0], vec![-2.0]));
}

#[test]
fn a_comparison_between_two_readings_of_the_scalar_is_refused() {
    let tenth = half::f16::from_f64(0.1).to_f64();
    let call = |x: f64| sample("ge").input("self", F16, &[1], &[x]).attrs(json!({"other": 0.1})).out(Bool, &[1]);
    assert_eq!(call(0.25).values(), [1.0]);
    assert_eq!(call(tenth).refusal(), "ge: an element lies between the scalar and its rounding");
}

/// The derivative by central differences of the forward function.
fn slope(forward: impl Fn(f64) -> f64, x: f64) -> f64 {
    let h = 1e-5;
    (forward(x + h) - forward(x - h)) / (2.0 * h)
}

#[test]
fn gradients_are_the_forward_functions_slopes() {
    for x in [-2.5, -0.75, 0.1, 1.0, 3.0] {
        let backward = |function, name: &'static str, value: f64, attrs| {
            let call = sample(function).f32("grad_output", &[1], &[2.0]).f32(name, &[1], &[value]);
            call.attrs(attrs).out(F32, &[1]).values()[0]
        };
        let check = |found: f64, forward: &dyn Fn(f64) -> f64| {
            assert_relative_eq!(found, 2.0 * slope(forward, x), max_relative = 1e-7, epsilon = 1e-9);
        };
        for form in ["none", "tanh"] {
            let attrs = json!({"approximate": form});
            check(backward("gelu_backward", "self", x, attrs.clone()), &|x| with("gelu", attrs.clone(), &[x])[0]);
        }
        check(backward("silu_backward", "self", x, json!({})), &|x| unary("silu", x));
        check(backward("tanh_backward", "output", x.tanh(), json!({})), &f64::tanh);
        check(backward("sigmoid_backward", "output", unary("sigmoid", x), json!({})), &|x| unary("sigmoid", x));
        check(backward("threshold_backward", "self", x, json!({"threshold": 0})), &|x| unary("relu", x));
        check(backward("log_sigmoid_backward", "self", x, json!({})), &|x| unary("log_sigmoid", x));
        let attrs = json!({"negative_slope": 0.25, "self_is_result": false});
        check(backward("leaky_relu_backward", "self", x, attrs.clone()), &|x| {
            with("leaky_relu", attrs.clone(), &[x])[0]
        });
        let attrs = json!({"alpha": 0.5, "scale": 1, "input_scale": 1, "is_result": false});
        check(backward("elu_backward", "self_or_result", x, attrs.clone()), &|x| with("elu", attrs.clone(), &[x])[0]);
        let attrs = json!({"min_val": -1, "max_val": 2});
        check(backward("hardtanh_backward", "self", x, attrs.clone()), &|x| with("hardtanh", attrs.clone(), &[x])[0]);
        let attrs = json!({"beta": 2, "threshold": 20});
        check(backward("softplus_backward", "self", x, attrs.clone()), &|x| with("softplus", attrs.clone(), &[x])[0]);
    }
}

#[test]
fn dropout_is_the_identity_only_where_it_drops_nothing() {
    let call = |attrs| sample("dropout").f32("input", &[2], &[1.0, 2.0]).attrs(attrs).out(F32, &[2]);
    assert_eq!(call(json!({"p": 0.1, "train": false})).values(), [1.0, 2.0]);
    assert_eq!(call(json!({"p": 0, "train": true})).only().exactness, Exactness::Exact);
    assert_eq!(call(json!({"p": 0.1, "training": true})).refusal(), "dropout: random");
}

#[test]
fn what_does_not_fit_is_refused() {
    let call = two("mul", &[1.0, 2.0], &[1.0, 2.0, 3.0]).out(F32, &[3]);
    assert_eq!(call.refusal(), "mul: the operands' shapes do not broadcast");
    let call = two("mul", &[1.0], &[1.0, 2.0, 3.0]).out(F32, &[2]);
    assert_eq!(call.refusal(), "mul: result shape [3] does not fit the recorded [2]");
    assert_eq!(sample("relu").f32("self", &[1], &[1.0]).refusal(), "relu has no recorded output 0");
    let empty = sample("relu").f32("self", &[0, 3], &[]).out(BF16, &[0, 3]);
    assert!(empty.values().is_empty());
    let huge = sample("mul").f32("self", &[1 << 40, 1, 0], &[]).f32("other", &[1, 1 << 40, 0], &[]);
    assert_eq!(huge.out(F32, &[1 << 40, 1 << 40, 0]).refusal(), "mul: the result's shape overflows");
}

/// A shape, and two shapes that broadcast to it.
fn shapes() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<usize>)> {
    let axes = prop::collection::vec((0usize..5, any::<bool>(), any::<bool>()), 0..4);
    (axes, 0usize..3).prop_map(|(axes, dropped)| {
        let joint: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let one = |keep: bool, extent: usize| if keep { extent } else { 1 };
        let a: Vec<usize> = axes.iter().map(|axis| one(axis.1 || !axis.2, axis.0)).collect();
        let b: Vec<usize> = axes.iter().map(|axis| one(axis.2, axis.0)).collect();
        // Leading axes of one operand may be absent where the other has them.
        let absent = (0..dropped.min(b.len())).take_while(|&at| a[at] == joint[at]).count();
        let b = b[absent..].to_vec();
        (joint, a, b)
    })
}

/// Element of a broadcast operand, by the definition: missing axes and extents of 1 repeat.
fn broadcast_at(values: &[f64], shape: &[usize], at: &[usize]) -> f64 {
    let own = &at[at.len() - shape.len()..];
    let flat = own.iter().zip(shape).fold(0, |flat, (&c, &extent)| flat * extent + if extent == 1 { 0 } else { c });
    values[flat]
}

proptest! {
    #[test]
    fn broadcasting_agrees_with_the_definition((joint, a, b) in shapes()) {
        let fill = |shape: &[usize], step: f64| -> Vec<f64> {
            (0..shape.iter().product()).map(|i| i as f64 * step + 1.0).collect()
        };
        let (x, y) = (fill(&a, 1.0), fill(&b, 0.5));
        let found = sample("mul").f32("self", &a, &x).f32("other", &b, &y).out(F32, &joint).values();
        let total: usize = joint.iter().product();
        prop_assert_eq!(found.len(), total);
        for (flat, found) in found.iter().enumerate() {
            let mut rest = flat;
            let mut at: Vec<usize> = joint.iter().rev().map(|&extent| { let c = rest % extent; rest /= extent; c }).collect();
            at.reverse();
            prop_assert_eq!(*found, broadcast_at(&x, &a, &at) * broadcast_at(&y, &b, &at));
        }
    }

    #[test]
    fn floored_division_and_remainder_make_up_the_dividend(a in -1e6f64..1e6, b in -1e3f64..1e3) {
        let b = if b == 0.0 { 1.0 } else { b };
        let q = two("floor_divide", &[a], &[b]).out(F32, &[1]).values()[0];
        let r = two("remainder", &[a], &[b]).out(F32, &[1]).values()[0];
        prop_assert!((q * b + r - a).abs() <= 1e-9 * a.abs().max(1.0));
        prop_assert!(r == 0.0 || (r < 0.0) == (b < 0.0));
        prop_assert!(r.abs() <= b.abs());
    }
}

#[test]
fn large_tensors_give_the_same_in_every_block() {
    let count = 3 * 8192 + 5;
    let x: Vec<f64> = (0..count).map(|i| i as f64).collect();
    let found =
        sample("add").f32("self", &[count], &x).attrs(json!({"other": 1, "alpha": 1})).out(DType::F64, &[count]);
    assert!(found.values().iter().enumerate().all(|(i, y)| *y == i as f64 + 1.0));
}
