//! Arithmetic and functions, element by element.

use super::{elementwise, row};
use crate::op::Autocast::Fp32;
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    row(
        "add",
        &["__add__", "__iadd__", "__radd__", "residual", "add_v2", "tensor_add", "_foreach_add", "bias_add"],
        Class::Additive,
    )
    .cann("Add"),
    row("sub", &["rsub", "subtract", "__sub__", "__rsub__", "__isub__", "_foreach_sub", "diff"], Class::Additive)
        .cann("Sub"),
    row("addcmul", &["addcdiv", "lerp", "_foreach_addcdiv", "_foreach_addcmul", "_foreach_lerp"], Class::Additive)
        .cann("Addcmul"),
    row("mul", &["multiply", "__mul__", "__imul__", "__rmul__", "_foreach_mul", "scale"], Class::Multiplicative)
        .cann("Mul"),
    row(
        "div",
        &[
            "divide",
            "true_divide",
            "__truediv__",
            "__div__",
            "__itruediv__",
            "__rtruediv__",
            "realdiv",
            "real_div",
            "_foreach_div",
        ],
        Class::Multiplicative,
    )
    .cann("RealDiv"),
    elementwise("gelu", &["npu_gelu", "fast_gelu", "npu_fast_gelu", "quick_gelu", "new_gelu", "gelu_new", "gelu_tanh"])
        .cann("Gelu"),
    elementwise("silu", &["swish", "npu_silu", "mish", "hardswish"]).cann("Swish"),
    elementwise(
        "relu",
        &["relu6", "leaky_relu", "prelu", "threshold", "hardtanh", "elu", "selu", "celu", "_prelu_kernel"],
    )
    .cann("Relu"),
    elementwise(
        "sigmoid",
        &["hardsigmoid", "logsigmoid", "log_sigmoid", "log_sigmoid_forward", "softplus", "npu_softplus"],
    )
    .cann("Sigmoid"),
    elementwise("tanh", &["tanhshrink", "softsign", "erf", "atan", "asinh"]).cann("Tanh"),
    elementwise("exp", &["exp2", "expm1", "sinh", "cosh", "_foreach_exp"]).autocast(Fp32).absolute().cann("Exp"),
    elementwise("log", &["log2", "log10", "log1p", "logit", "xlogy", "_foreach_log"]).autocast(Fp32).cann("Log"),
    elementwise("sin", &["sine"]).absolute().cann("Sin"),
    elementwise("cos", &["cosine"]).absolute().cann("Cos"),
    elementwise("tan", &["sinc"]).autocast(Fp32).absolute().cann("Tan"),
    elementwise("asin", &["acos", "atanh", "acosh", "erfinv"]).autocast(Fp32).cann("Asin"),
    elementwise("pow", &["__pow__", "__ipow__", "__rpow__", "square", "float_power", "tensor_pow", "_foreach_pow"])
        .autocast(Fp32)
        .cann("Pow"),
    elementwise("sqrt", &["_foreach_sqrt"]).cann("Sqrt"),
    elementwise("rsqrt", &["reciprocal_sqrt"]).autocast(Fp32).cann("Rsqrt"),
    elementwise("reciprocal", &["inverse"]).autocast(Fp32).cann("Reciprocal"),
    elementwise("neg", &["negative", "__neg__", "_foreach_neg"]).cann("Neg"),
    elementwise("abs", &["absolute", "sign", "sgn", "heaviside"]).cann("Abs"),
    elementwise("clamp", &["clip", "clamp_min", "clamp_max", "clip_by_value", "nan_to_num"]).cann("ClipByValueV2"),
    elementwise("maximum", &["fmax", "max_other"]).cann("Maximum"),
    elementwise("minimum", &["fmin", "min_other"]).cann("Minimum"),
    elementwise(
        "floor",
        &["ceil", "round", "trunc", "frac", "fmod", "remainder", "floor_divide", "__floordiv__", "__mod__"],
    )
    .cann("Floor"),
    elementwise("swiglu", &["npu_swiglu", "glu", "geglu", "npu_geglu", "silu_and_mul"])
        .cann("SwiGlu")
        .reach(Reach::Row),
    elementwise(
        "rope",
        &[
            "rotary",
            "npu_rotary_mul",
            "rotary_mul",
            "apply_rotary_pos_emb",
            "rotary_embedding",
            "rotary_position_embedding",
            "npu_apply_rotary_pos_emb",
            "fused_rope",
        ],
    )
    .cann("RotaryPositionEmbedding")
    .reach(Reach::Row),
    elementwise(
        "interpolate",
        &[
            "upsample",
            "upsample_bilinear2d",
            "upsample_nearest2d",
            "upsample_bicubic2d",
            "upsample_linear1d",
            "upsample_nearest1d",
            "upsample_trilinear3d",
            "_upsample_bilinear2d_aa",
            "grid_sample",
            "grid_sampler",
            "grid_sampler_2d",
            "resize",
            "affine_grid",
        ],
    )
    .cann("ResizeBilinearV2")
    .reach(Reach::Anywhere),
    row(
        "quantize",
        &[
            "quantize_per_tensor",
            "quantize_per_channel",
            "npu_quantize",
            "npu_dynamic_quant",
            "dynamic_quant",
            "fake_quantize",
            "fake_quantize_per_tensor_affine",
            "quantize_per_token",
        ],
        Class::Quantizer,
    )
    .cann("AscendQuant")
    .reach(Reach::Row),
    row(
        "dequantize",
        &["npu_anti_quant", "npu_dequant", "dequantize_per_tensor", "dequantize_per_channel"],
        Class::Multiplicative,
    )
    .cann("AscendDequant"),
];
