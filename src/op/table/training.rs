//! Backward forms and optimizer steps.

use super::{elementwise, reduction, row};
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    row("linear_backward", &["matmul_backward", "mm_backward", "addmm_backward", "bmm_backward"], Class::Contraction)
        .cann("MatMulV2")
        .reach(Reach::Anywhere),
    row("conv_backward", &["convolution_backward"], Class::Contraction)
        .cann("Conv2DBackpropInput")
        .reach(Reach::Anywhere),
    row(
        "attention_backward",
        &[
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "npu_fusion_attention_grad",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ],
        Class::Contraction,
    )
    .cann("FlashAttentionScoreGrad")
    .reach(Reach::Anywhere),
    row(
        "layer_norm_backward",
        &[
            "native_layer_norm_backward",
            "rms_norm_backward",
            "npu_rms_norm_backward",
            "native_batch_norm_backward",
            "batch_norm_backward",
            "native_group_norm_backward",
        ],
        Class::Norm,
    )
    .cann("LayerNormGradV3")
    .reach(Reach::Anywhere),
    row("softmax_backward", &["_softmax_backward_data", "_log_softmax_backward_data"], Class::Softmax)
        .cann("SoftmaxGrad"),
    elementwise(
        "gelu_backward",
        &[
            "silu_backward",
            "threshold_backward",
            "relu_backward",
            "tanh_backward",
            "sigmoid_backward",
            "elu_backward",
            "hardswish_backward",
            "npu_swiglu_backward",
        ],
    )
    .cann("GeluGrad"),
    // Each gradient is the result's, times a factor, summed over what was broadcast.
    reduction("add_backward", &["sub_backward"]),
    row("mul_backward", &["div_backward"], Class::Multiplicative).reach(Reach::Anywhere),
    reduction(
        "embedding_backward",
        &[
            "embedding_dense_backward",
            "nll_loss_backward",
            "nll_loss2d_backward",
            "index_put_backward",
            "cross_entropy_backward",
        ],
    )
    .cann("EmbeddingDenseGrad"),
    row(
        "pool_backward",
        &[
            "max_pool2d_with_indices_backward",
            "avg_pool2d_backward",
            "_adaptive_avg_pool2d_backward",
            "upsample_bilinear2d_backward",
        ],
        Class::Reduction,
    )
    .cann("MaxPoolGrad"),
    elementwise(
        "adam",
        &[
            "adamw",
            "_fused_adam",
            "_fused_adamw",
            "apply_adam",
            "npu_apply_adam",
            "npu_apply_adam_w",
            "sgd",
            "_fused_sgd",
            "adamax",
            "lamb",
        ],
    )
    .cann("ApplyAdamD"),
    elementwise("unscale", &["_amp_foreach_non_finite_check_and_unscale", "amp_update_scale", "_amp_update_scale"]),
];
