"""What the recorder has to know about an operator: its canonical name, its arguments, what it writes.

In goes an `OpOverload` of torch, out comes its `Signature`, made once per operator. The canonical names are
those of the run format (`linear`, `matmul`, `softmax`, `layer_norm` ...), so that the names of layers do not
depend on which kernel a device chose.
"""

from typing import Any, Dict, List, Tuple

import torch

# ATen's spelling -> the run format's. What is not listed keeps its name, without leading and trailing
# underscores (`_softmax`, `add_`).
CANONICAL = {
    "addmm": "linear",
    "addmv": "linear",
    "mm": "matmul",
    "mv": "matmul",
    "bmm": "matmul",
    "baddbmm": "matmul",
    "dot": "matmul",
    "convolution": "conv",
    "convolution_overrideable": "conv",
    "cudnn_convolution": "conv",
    "mkldnn_convolution": "conv",
    "npu_convolution": "conv",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_batch_norm_no_update": "batch_norm",
    "_fused_rms_norm": "rms_norm",
    "npu_rms_norm": "rms_norm",
    "native_dropout": "dropout",
    "npu_dropout": "dropout",
    "_to_copy": "cast",
    "npu_dtype_cast": "cast",
    "t": "transpose",
    "permute": "transpose",
    "_unsafe_view": "view",
    "reshape": "view",
    "_reshape_alias": "view",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_cudnn_attention": "attention",
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_fused_attention_overrideable": "attention",
    "npu_fusion_attention": "attention",
    "_scaled_dot_product_flash_attention_backward": "attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "attention_backward",
    "_scaled_dot_product_cudnn_attention_backward": "attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "npu_fusion_attention_grad": "attention_backward",
    "native_layer_norm_backward": "layer_norm_backward",
    "native_group_norm_backward": "group_norm_backward",
    "native_batch_norm_backward": "batch_norm_backward",
    "cudnn_batch_norm_backward": "batch_norm_backward",
    "batch_norm_backward": "batch_norm_backward",
    "convolution_backward": "conv_backward",
    "_softmax_backward_data": "softmax_backward",
    "_log_softmax_backward_data": "log_softmax_backward",
    "native_dropout_backward": "dropout_backward",
    "_fused_adam": "adam",
    "_fused_adamw": "adamw",
    "_fused_sgd": "sgd",
    "_amp_foreach_non_finite_check_and_unscale": "unscale",
    "_amp_update_scale": "update_scale",
}

# They compute nothing that a reader could miss: bookkeeping, and questions about shapes.
SKIPPED = {
    "_local_scalar_dense",
    "is_same_size",
    "sym_size",
    "sym_stride",
    "sym_numel",
    "sym_storage_offset",
    "is_contiguous",
    "record_stream",
    "_record_function_enter_new",
    "_record_function_enter",
    "_record_function_exit",
    "_assert_async",
    "_assert_tensor_metadata",
    "_has_compatible_shallow_copy_type",
    "_version",
}

# The same bytes under the same geometry. Autograd puts them where it likes, and elsewhere on another
# device, so they are no layers: their result is the tensor they were given.
IDENTITY = {"detach", "alias", "lift", "lift_fresh"}

RANDOM = {
    "dropout", "native_dropout", "npu_dropout", "alpha_dropout", "feature_dropout", "bernoulli", "rand", "rand_like",
    "uniform", "random", "randint", "randint_like", "randn", "randn_like", "normal", "normal_functional", "randperm",
    "multinomial", "poisson", "exponential", "cauchy", "geometric", "log_normal", "binomial", "rrelu_with_noise",
    "_standard_gamma", "_sample_dirichlet",
}  # fmt: skip

# In training they update running statistics that their schema does not mark as written.
HIDDEN_WRITES = {
    "native_batch_norm": ("running_mean", "running_var"),
    "cudnn_batch_norm": ("running_mean", "running_var"),
    "miopen_batch_norm": ("running_mean", "running_var"),
    "npu_batch_norm": ("running_mean", "running_var"),
}

# They return none of what they write, and each element of their lists stands alone.
PER_ELEMENT = {"_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"}


class Argument:
    """One argument of a schema."""

    __slots__ = ("default", "is_out", "is_write", "name")

    def __init__(self, argument: Any) -> None:
        self.name: str = argument.name
        self.default: Any = argument.default_value if argument.has_default_value() else None
        self.is_write: bool = argument.alias_info is not None and argument.alias_info.is_write
        # Overwritten without being read.
        self.is_out: bool = self.is_write and argument.kwarg_only


class Signature:
    """An operator as the recorder sees it.

    `function` is its name in the schema without namespace, overload and in-place underscore; `op` the
    canonical name; `schema` what the run format calls so (`aten::addmm`).
    """

    __slots__ = (
        "arguments", "function", "hidden_writes", "is_composite", "is_identity", "is_per_element", "is_random",
        "is_skipped", "is_view", "op", "schema", "writes",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.schema: str = schema.name
        namespace, _, name = schema.name.partition("::")
        self.function = without_underscore(name)
        self.op: str = CANONICAL.get(self.function) or self.function.strip("_") or name
        self.arguments: List[Argument] = [Argument(argument) for argument in schema.arguments]
        self.writes = any(argument.is_write for argument in self.arguments)
        self.is_skipped = self.function in SKIPPED or namespace in ("profiler", "prim")
        self.is_identity = self.function in IDENTITY
        self.is_random = self.function in RANDOM
        self.hidden_writes: Tuple[str, ...] = HIDDEN_WRITES.get(self.function, ())
        self.is_per_element = self.function.startswith("_foreach_") or self.function in PER_ELEMENT
        self.is_view = not self.writes and any(
            result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
        )
        self.is_composite = is_composite(func)

    def bound(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Any]:
        """The value of each argument, defaults filled in."""
        given = len(args)
        return [
            args[at] if at < given else kwargs.get(argument.name, argument.default)
            for at, argument in enumerate(self.arguments)
        ]


_SIGNATURES: Dict[Any, Signature] = {}


def signature(func: Any) -> Signature:
    """The signature of an `OpOverload`."""
    found = _SIGNATURES.get(func)
    if found is None:
        found = _SIGNATURES[func] = Signature(func)
    return found


def without_underscore(name: str) -> str:
    """`add_` -> `add`; `__and__` stays."""
    return name[:-1] if len(name) > 1 and name.endswith("_") and not name.endswith("__") else name


def is_composite(func: Any) -> bool:
    """Whether the operator is written in terms of others: seen under inference mode alone."""
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    except (AttributeError, RuntimeError):
        return False


def plain(value: Any) -> Any:
    """An argument that is no tensor, in the words of the run format: what JSON can hold."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return dtype_name(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.Generator):
        return "generator"
    return str(value)


def dtype_name(dtype: Any) -> str:
    """`torch.float32` -> `float32`; also for layouts and memory formats."""
    return str(dtype).rpartition(".")[2]


def tensors_of(value: Any) -> List[torch.Tensor]:
    """The tensors in nested lists, tuples, dicts and objects with attributes (dataclasses), in order."""
    found: List[torch.Tensor] = []
    _collect(value, found, 0)
    return found


def _collect(value: Any, found: List[torch.Tensor], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif depth > 32 or value is None or isinstance(value, (str, bytes, int, float)):
        return
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found, depth + 1)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _collect(getattr(value, name, None), found, depth + 1)


def named_tensors(value: Any, name: str, depth: int = 0) -> List[Tuple[str, torch.Tensor]]:
    """The same with names: `batch.mask`, `hidden.0`."""
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    items: List[Tuple[str, Any]] = []
    if depth <= 32 and isinstance(value, (list, tuple)):
        items = [(str(at), item) for at, item in enumerate(value)]
    elif depth <= 32 and isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif depth <= 32 and hasattr(value, "__dataclass_fields__"):
        items = [(key, getattr(value, key, None)) for key in value.__dataclass_fields__]
    return [
        pair for key, item in items for pair in named_tensors(item, "%s.%s" % (name, key) if name else key, depth + 1)
    ]
