//! Operators that choose or compare: their results are discrete.

use super::{logic, row};
use crate::op::IndexInto::{Dim, Flat, Plane};
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    row(
        "max_pool2d",
        &[
            "max_pool1d",
            "max_pool3d",
            "max_pool2d_with_indices",
            "max_pool3d_with_indices",
            "adaptive_max_pool1d",
            "adaptive_max_pool2d",
            "fractional_max_pool2d",
        ],
        Class::Selection,
    )
    .index(1, Plane)
    .cann("MaxPool3D"),
    row(
        "topk",
        &["kthvalue", "sort", "npu_topk", "mode", "msort", "npu_moe_gating_top_k_softmax", "npu_moe_gating_top_k"],
        Class::Selection,
    )
    .index(1, Dim)
    .cann("TopKV2"),
    row("max", &["min", "amax", "amin", "median", "cummax", "cummin", "aminmax", "reduce_max"], Class::Selection)
        .index(1, Dim)
        .cann("ReduceMax"),
    row("argmax", &["argmin", "argsort", "argwhere", "searchsorted", "bucketize"], Class::Selection)
        .index(0, Dim)
        .cann("ArgMaxV2"),
    row("nonzero", &["unique", "unique_consecutive", "_unique2"], Class::Selection).index(0, Flat).cann("NonZero"),
    logic(
        "eq",
        &[
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "equal",
            "not_equal",
            "less",
            "greater",
            "less_equal",
            "greater_equal",
            "isclose",
            "allclose",
            "__eq__",
            "__ne__",
            "__lt__",
            "__le__",
            "__gt__",
            "__ge__",
        ],
    )
    .cann("Equal"),
    logic(
        "and",
        &[
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_not",
            "logical_and",
            "logical_or",
            "logical_not",
            "logical_xor",
            "or",
            "xor",
            "not",
            "__and__",
            "__or__",
            "__invert__",
            "bitwise_left_shift",
            "bitwise_right_shift",
        ],
    )
    .cann("LogicalAnd"),
    logic("isnan", &["isinf", "isfinite", "is_nonzero", "signbit", "isposinf", "isneginf"]).cann("IsFinite"),
    logic("all", &["any"]).cann("ReduceAll").reach(Reach::Anywhere),
];
