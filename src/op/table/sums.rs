//! Operators that sum: contractions, norms, softmax, losses, reductions.

use super::{reduction, row};
use crate::op::Autocast::Fp32;
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    row(
        "linear",
        &[
            "addmm",
            "fully_connected",
            "dense",
            "npu_linear",
            "addmv",
            "linear_layer",
            "_linear",
            "gemm",
            "innerproduct",
        ],
        Class::Contraction,
    )
    .cann("MatMulV2"),
    row(
        "matmul",
        &[
            "mm",
            "mv",
            "dot",
            "inner",
            "bmm",
            "baddbmm",
            "batch_matmul",
            "batch_mat_mul",
            "chain_matmul",
            "npu_bmmv2",
            "npu_bmm",
            "mat_mul",
            "vdot",
            "linalg_matmul",
            "addbmm",
            "addr",
        ],
        Class::Contraction,
    )
    .cann("BatchMatMulV2"),
    row("einsum", &["tensordot", "bilinear", "outer", "ger", "kron"], Class::Contraction)
        .cann("Einsum")
        .reach(Reach::Anywhere),
    row(
        "grouped_matmul",
        &[
            "npu_grouped_matmul",
            "grouped_mm",
            "gmm",
            "npu_quant_matmul",
            "quant_matmul",
            "npu_weight_quant_batchmatmul",
        ],
        Class::Contraction,
    )
    .cann("GroupedMatmul")
    .reach(Reach::Anywhere),
    row(
        "conv",
        &[
            "convolution",
            "conv1d",
            "conv2d",
            "conv3d",
            "_convolution",
            "cudnn_convolution",
            "mkldnn_convolution",
            "npu_conv2d",
            "npu_convolution",
            "depthwise_conv2d",
            "conv_depthwise",
        ],
        Class::Contraction,
    )
    .cann("Conv2D")
    .reach(Reach::Anywhere),
    row(
        "conv_transpose",
        &["conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "deconv", "npu_conv_transpose2d"],
        Class::Contraction,
    )
    .cann("Conv2DTranspose")
    .reach(Reach::Anywhere),
    row(
        "attention",
        &[
            "scaled_dot_product_attention",
            "sdpa",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "flash_attention",
            "flash_attn",
            "flash_attn_func",
            "npu_fusion_attention",
            "npu_prompt_flash_attention",
            "npu_incre_flash_attention",
            "npu_fused_infer_attention_score",
            "flash_attention_score",
            "multi_head_attention",
            "multi_head_attention_forward",
            "memory_efficient_attention",
        ],
        Class::Contraction,
    )
    .cann("FlashAttentionScore")
    .reach(Reach::Anywhere)
    .private_from(1),
    row("moe", &["experts", "npu_moe", "moe_experts", "fused_moe", "sparse_moe"], Class::Contraction)
        .reach(Reach::Anywhere),
    row("lstm", &["gru", "rnn", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell"], Class::Contraction)
        .reach(Reach::Anywhere)
        .cann("DynamicRNN"),
    row(
        "layer_norm",
        &[
            "native_layer_norm",
            "npu_layer_norm",
            "layernorm",
            "fused_layer_norm",
            "npu_layer_norm_eval",
            "fused_layer_norm_affine",
        ],
        Class::Norm,
    )
    .cann("LayerNormV3")
    .saved_from(1),
    row(
        "rms_norm",
        &["npu_rms_norm", "rmsnorm", "t5_layer_norm", "llama_rms_norm", "fused_rms_norm", "_fused_rms_norm"],
        Class::Norm,
    )
    .cann("RmsNorm")
    .saved_from(1),
    row("add_rms_norm", &["npu_add_rms_norm", "add_layer_norm", "npu_add_layer_norm"], Class::Norm).cann("AddRmsNorm"),
    row(
        "batch_norm",
        &[
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "cudnn_batch_norm",
            "batch_norm1d",
            "batch_norm2d",
            "batch_norm3d",
            "_batch_norm_with_update",
            "_batch_norm_no_update",
            "sync_batch_norm",
            "npu_batch_norm",
        ],
        Class::Norm,
    )
    .cann("BatchNorm")
    .saved_from(1)
    .reach(Reach::Anywhere),
    row("group_norm", &["native_group_norm", "npu_group_norm"], Class::Norm)
        .cann("GroupNorm")
        .saved_from(1)
        .reach(Reach::Anywhere),
    row("instance_norm", &["npu_instance_norm", "local_response_norm"], Class::Norm)
        .cann("InstanceNorm")
        .reach(Reach::Anywhere),
    row("normalize", &["l2_normalize", "weight_norm", "renorm"], Class::Norm).cann("L2Normalize"),
    row(
        "softmax",
        &["_softmax", "_safe_softmax", "softmax_v2", "npu_scaled_masked_softmax", "scaled_masked_softmax", "softmin"],
        Class::Softmax,
    )
    .cann("SoftmaxV2"),
    row("log_softmax", &["_log_softmax", "log_softmax_v2"], Class::Softmax).cann("LogSoftmaxV2"),
    reduction("logsumexp", &["logaddexp"]).autocast(Fp32).absolute(),
    reduction(
        "cross_entropy",
        &[
            "cross_entropy_loss",
            "nll_loss",
            "nll_loss_forward",
            "nll_loss2d_forward",
            "nll_loss2d",
            "npu_cross_entropy_loss",
            "softmax_cross_entropy_with_logits",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "kl_div",
        ],
    )
    .autocast(Fp32)
    .cann("SoftmaxCrossEntropyWithLogits")
    .saved_from(1),
    reduction(
        "mse_loss",
        &["l1_loss", "smooth_l1_loss", "huber_loss", "cosine_embedding_loss", "margin_ranking_loss", "ctc_loss"],
    )
    .autocast(Fp32)
    .cann("MseLoss"),
    reduction("sum", &["reduce_sum", "nansum", "trace", "sum_to_size", "add_n"]).autocast(Fp32).cann("ReduceSum"),
    reduction(
        "mean",
        &[
            "reduce_mean",
            "nanmean",
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "_adaptive_avg_pool2d",
            "avg_pool1d",
            "avg_pool2d",
            "avg_pool3d",
        ],
    )
    .cann("ReduceMean"),
    reduction("var", &["std", "var_mean", "std_mean"]).cann("ReduceStdV2"),
    reduction(
        "norm",
        &[
            "linalg_vector_norm",
            "linalg_norm",
            "vector_norm",
            "frobenius_norm",
            "cdist",
            "dist",
            "_foreach_norm",
            "clip_grad_norm",
        ],
    )
    .autocast(Fp32)
    .cann("LpNormV2"),
    reduction("prod", &["cumprod"]).autocast(Fp32).cann("ReduceProd"),
    reduction("cumsum", &["logcumsumexp"]).autocast(Fp32).cann("Cumsum").reach(Reach::Row),
    reduction(
        "all_reduce",
        &["allreduce", "reduce_scatter", "reduce_scatter_tensor", "npu_all_reduce", "mm_all_reduce_base"],
    ),
    reduction(
        "scatter_add",
        &[
            "index_add",
            "scatter_reduce",
            "index_reduce",
            "embedding_bag",
            "segment_reduce",
            "bincount",
            "histc",
            "col2im",
            "fold",
        ],
    )
    .cann("ScatterElements"),
];
