"""Keeps modules and operators in fp32 under autocast and in `.half()` models: a blacklist at run time.

A pattern names

    encoder.3.norm            a module (globs: `encoder.*.norm`; `*` stands for any characters)
    encoder.3.attn.softmax    an operator in the forward of the module before the last dot
    op:layer_norm             an operator wherever the model computes it

Names are those of a run's layers. What is kept computes with autocast off on inputs widened to fp32. Its result
stays fp32 under autocast, for values that do not fit the narrow dtype are why it is kept; in a model whose own
dtype is narrow, where the next module takes no fp32, it is cast back.
"""

import fnmatch
import functools
import re
import types
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Union

import torch
from torch.overrides import TorchFunctionMode

from .operators import CANONICAL, tensors_of
from .scope import module_names

# Functions of torch that are known under another name in the run format.
FUNCTIONS = {
    "scaled_dot_product_attention": "attention", "conv1d": "conv", "conv2d": "conv", "conv3d": "conv",
    "matmul": "matmul", "bmm": "matmul", "mm": "matmul", "div": "div", "truediv": "div", "true_divide": "div",
    "sub": "sub", "rsub": "sub", "subtract": "sub", "multiply": "mul", "divide": "div",
}  # fmt: skip


class keep_fp32:  # noqa: N801 - used like a function
    """Applies `patterns` to `model` until `remove()` or the end of the `with` block.

    `cast_back` None decides by whether autocast is on. Raises `LookupError` naming a pattern that fits nothing.
    Attributes: `modules` and `operators`, what was found.
    """

    def __init__(self, model: Any, patterns: Union[str, Iterable[str]], cast_back: Optional[bool] = None) -> None:
        listed = [patterns] if isinstance(patterns, str) else list(patterns)
        self._cast_back = cast_back
        # Module, what `forward` stood in its own namespace before.
        self._patched: List[Any] = []
        self._hooks: List[Any] = []
        named = module_names(model)
        whole: Dict[str, Any] = {}
        inside: Dict[str, Set[str]] = {}
        for pattern in listed:
            if pattern.startswith("op:"):
                inside.setdefault("", set()).add(canonical(pattern[3:]))
                continue
            found = [name for name in named if name and matches(pattern, name)]
            if found:
                whole.update((name, named[name]) for name in found)
                continue
            place, _, op = without_call(pattern).rpartition(".")
            found = [name for name in named if matches(place, name)]
            if not found or not op:
                raise LookupError("keep_fp32: expected a module or MODULE.OPERATOR of the model, found %r" % pattern)
            for name in found:
                inside.setdefault(name, set()).add(canonical(op))
        self.modules: List[str] = sorted(whole)
        self.operators: Dict[str, List[str]] = {name: sorted(ops) for name, ops in sorted(inside.items())}
        for module in whole.values():
            self._patch(module, WidenEverything)
        for name, ops in inside.items():
            self._patch_operators(named[name] if name else model, frozenset(ops), everywhere=name == "")

    def __enter__(self) -> "keep_fp32":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.remove()

    def remove(self) -> None:
        """Puts everything back as it was."""
        for hook in self._hooks:
            hook.remove()
        for module, before in reversed(self._patched):
            if before is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = before
        self._hooks, self._patched = [], []

    def _patch(self, module: Any, make_mode: Callable[[], Any]) -> None:
        """The module's forward as a whole in fp32."""
        cast_back = self._cast_back

        def around(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            back = dtype_to_cast_to(cast_back, args, kwargs, module)
            # Parameters of a narrow model are widened where a function meets them.
            with autocast_off(args, kwargs, module), make_mode():
                result = call(*widened(args), **widened(kwargs))
            return result if back is None else mapped(result, lambda tensor: narrowed(tensor, back))

        self._replace(module, around)

    def _patch_operators(self, module: Any, ops: "frozenset[str]", everywhere: bool) -> None:
        """Some operators in the module's own forward (`everywhere`: also in those of the modules inside)."""
        mode_of_call: List[WidenOperators] = []
        cast_back = self._cast_back

        def around(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            mode = WidenOperators(ops, cast_back)
            mode_of_call.append(mode)
            try:
                with mode:
                    return call(*args, **kwargs)
            finally:
                mode_of_call.pop()

        def entered(child: Any, args: Any) -> None:
            if mode_of_call:
                mode_of_call[-1].suspended += 1

        def left(child: Any, args: Any, output: Any) -> None:
            if mode_of_call:
                mode_of_call[-1].suspended -= 1

        self._replace(module, around)
        if not everywhere:
            for child in module.children():
                self._hooks.append(child.register_forward_pre_hook(entered, prepend=True))
                self._hooks.append(child.register_forward_hook(left, always_call=True))

    def _replace(self, module: Any, around: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
        before = module.__dict__.get("forward")

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            call = before if before is not None else functools.partial(type(self).forward, self)
            return around(call, args, kwargs)

        functools.update_wrapper(forward, module.forward, updated=())
        self._patched.append((module, before))
        # Bound to the module, so that a deep copy of the model calls its own parameters.
        module.__dict__["forward"] = types.MethodType(forward, module)


class WidenEverything(TorchFunctionMode):
    """Every function of torch on widened arguments: whatever the module's parameters are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_property(func) or is_in_place(func):
            return func(*args, **kwargs)
        return func(*widened(args), **widened(kwargs))


class WidenOperators(TorchFunctionMode):
    """Functions of torch that are one of `ops` in fp32."""

    def __init__(self, ops: "frozenset[str]", cast_back: Optional[bool]) -> None:
        super().__init__()
        self.ops, self.cast_back = ops, cast_back
        self.suspended = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.suspended or is_property(func) or canonical(getattr(func, "__name__", "")) not in self.ops:
            return func(*args, **kwargs)
        back = dtype_to_cast_to(self.cast_back, args, kwargs, None)
        with autocast_off(args, kwargs, None):
            result = func(*widened(args), **widened(kwargs))
        return result if back is None else mapped(result, lambda tensor: narrowed(tensor, back))


def canonical(name: str) -> str:
    """The run format's name for a function of torch or an operator: `__add__` -> `add`, `addmm` -> `linear`."""
    plain = name.rpartition("::")[2].strip("_")
    if name.startswith("__") and plain not in FUNCTIONS and plain[:1] in "ir" and plain[1:] in (
        "add", "sub", "mul", "matmul", "pow", "truediv",
    ):  # fmt: skip
        plain = plain[1:]
    return FUNCTIONS.get(plain) or CANONICAL.get(plain) or CANONICAL.get("_" + plain) or plain


def matches(pattern: str, name: str) -> bool:
    """Whether a glob stands for a module's name."""
    return fnmatch.fnmatchcase(name, pattern)


def without_call(name: str) -> str:
    """`encoder.softmax#1` -> `encoder.softmax`: all calls of an operator are kept."""
    return re.sub(r"[#@][0-9]+$", "", name)


def is_narrow(tensor: torch.Tensor) -> bool:
    """Floating point of fewer bits than fp32."""
    return tensor.is_floating_point() and tensor.element_size() < 4


def widened(value: Any) -> Any:
    """Narrow tensors in fp32, by a cast that gradients pass."""
    return mapped(value, lambda tensor: tensor.float() if is_narrow(tensor) else tensor)


def narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A result in the dtype that the rest of the model has."""
    return tensor.to(dtype) if tensor.dtype == torch.float32 else tensor


def dtype_to_cast_to(cast_back: Optional[bool], args: Any, kwargs: Any, module: Any) -> Optional[torch.dtype]:
    """The narrow dtype that a result has to be cast back to; `None` where it stays fp32."""
    if cast_back is False or (cast_back is None and torch._C._is_any_autocast_enabled()):
        return None
    given = tensors_of([list(args), kwargs])
    if module is not None:
        given += list(module.parameters())
    return next((tensor.dtype for tensor in given if is_narrow(tensor)), None)


def autocast_off(args: Any, kwargs: Any, module: Any) -> Any:
    """Autocast off on the device of the arguments."""
    given = tensors_of([list(args), kwargs]) or (list(module.parameters())[:1] if module is not None else [])
    device = given[0].device.type if given else "cpu"
    return torch.autocast(device_type=device, enabled=False)


def is_property(func: Any) -> bool:
    """Reading an attribute of a tensor (`Tensor.shape`, `Tensor.dtype`): nothing is computed."""
    return getattr(func, "__name__", "") in ("__get__", "__set__")


def is_in_place(func: Any) -> bool:
    """A method that writes into its tensor: a widened copy would be written instead."""
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "__set__")


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Nested lists, tuples and dicts with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if type(value) in (list, tuple):
        return type(value)(mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, dict) and hasattr(value, "__dataclass_fields__"):
        # Outputs of transformers: a dict that is also an object.
        for key, item in list(value.items()):
            value[key] = mapped(item, change)
    return value
