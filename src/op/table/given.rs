//! What the model is given, and tensors that come from no tensor.

use super::{elementwise, factory, random, row, source};
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    source("input", &["placeholder", "user_input"]),
    source("param", &["parameter", "get_attr", "weight", "constant", "lift_fresh_copy"]),
    // A buffer after its update: it has inputs, so it is no source.
    elementwise("buffer", &["running_stat"]).reach(Reach::Anywhere),
    // Something ran, but which operator was not recorded.
    row(crate::op::UNRECORDED, &[], Class::Unknown),
    row(
        "empty",
        &["new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted"],
        Class::Uninitialised,
    ),
    factory("zeros", &["zeros_like", "new_zeros", "zero", "efficientzerotensor"]).cann("ZerosLike"),
    factory("ones", &["ones_like", "new_ones"]).cann("OnesLike"),
    factory("full", &["full_like", "new_full", "fill", "scalar_tensor", "tensor", "as_tensor"]).cann("Fill"),
    factory("arange", &["range", "linspace", "logspace"]).cann("Range"),
    factory("eye", &["tril_indices", "triu_indices", "one_hot"]).cann("Eye"),
    random(
        "dropout",
        &["native_dropout", "alpha_dropout", "feature_dropout", "npu_dropout", "dropout1d", "dropout2d", "dropout3d"],
    )
    .cann("DropOutDoMaskV3"),
    random("rand", &["rand_like", "uniform", "random", "randint", "randint_like", "npu_uniform"]),
    random("randn", &["randn_like", "normal", "normal_functional", "standard_normal", "trunc_normal"]),
    random("bernoulli", &["bernoulli_p", "poisson", "exponential", "cauchy", "geometric", "log_normal"]),
    random("multinomial", &["randperm", "rrelu_with_noise"]),
];
