//! Operators that move elements or convert their dtype: exact, or correctly rounded.

use super::{mover, row};
use crate::op::{Class, Reach, Row};

pub(super) const ROWS: &[Row] = &[
    mover(
        "view",
        &[
            "reshape",
            "_unsafe_view",
            "view_as",
            "reshape_as",
            "flatten",
            "unflatten",
            "ravel",
            "_reshape_alias",
            "view_as_real",
            "view_as_complex",
        ],
    )
    .cann("Reshape"),
    mover(
        "transpose",
        &[
            "t",
            "permute",
            "swapaxes",
            "swapdims",
            "movedim",
            "moveaxis",
            "numpy_t",
            "mT",
            "adjoint",
            "npu_transpose",
            "npu_confusion_transpose",
        ],
    )
    .cann("Transpose"),
    mover("expand", &["expand_as", "broadcast_to", "repeat", "tile", "repeat_interleave"]).cann("BroadcastTo"),
    mover("squeeze", &["unsqueeze", "expand_dims", "atleast_1d", "atleast_2d"]).cann("Squeeze"),
    mover(
        "slice",
        &["select", "narrow", "getitem", "slice_copy", "strided_slice", "as_strided", "diagonal", "tril", "triu"],
    )
    .cann("StridedSlice"),
    mover("split", &["chunk", "split_with_sizes", "tensor_split", "unbind", "unsafe_split", "unsafe_chunk", "unstack"])
        .cann("SplitV"),
    mover("cat", &["concat", "concatenate", "stack", "hstack", "vstack", "dstack", "pack"]).cann("ConcatV2"),
    mover(
        "clone",
        &[
            "contiguous",
            "copy",
            "detach",
            "identity",
            "alias",
            "lift",
            "lift_fresh",
            "positive",
            "requires_grad",
            "npu_format_cast",
            "graph_output",
            "output",
        ],
    )
    .cann("Identity"),
    mover("gather", &["take", "take_along_dim", "gathernd", "gather_v2"]).cann("GatherElements"),
    mover("index", &["index_select", "_unsafe_index", "masked_select"]).cann("Index"),
    mover("embedding", &["npu_embedding", "embedding_renorm"]).cann("GatherV2"),
    mover(
        "scatter",
        &[
            "index_put",
            "index_copy",
            "select_scatter",
            "slice_scatter",
            "setitem",
            "masked_scatter",
            "npu_scatter",
            "scatter_nd_update",
            "slice_assign",
        ],
    )
    .cann("ScatterElements"),
    mover("where", &["masked_fill", "select_v2", "npu_masked_fill_range", "index_fill"])
        .cann("SelectV2")
        .reach(Reach::Elementwise),
    mover(
        "pad",
        &[
            "constant_pad_nd",
            "zero_pad2d",
            "reflection_pad1d",
            "reflection_pad2d",
            "replication_pad1d",
            "replication_pad2d",
            "circular_pad",
        ],
    )
    .cann("PadV3"),
    mover(
        "flip",
        &[
            "roll",
            "rot90",
            "fliplr",
            "flipud",
            "pixel_shuffle",
            "pixel_unshuffle",
            "channel_shuffle",
            "unfold",
            "im2col",
        ],
    )
    .cann("ReverseV2"),
    mover(
        "all_gather",
        &[
            "allgather",
            "all_to_all",
            "broadcast",
            "scatter_tensor",
            "send",
            "recv",
            "wait_tensor",
            "all_gather_into_tensor",
            "npu_all_gather",
        ],
    ),
    row(
        "cast",
        &[
            "to",
            "_to_copy",
            "type",
            "type_as",
            "float",
            "half",
            "bfloat16",
            "double",
            "int",
            "long",
            "bool",
            "npu_dtype_cast",
            "convert_element_type",
            "dequantize_cast",
        ],
        Class::Cast,
    )
    .cann("Cast"),
];
