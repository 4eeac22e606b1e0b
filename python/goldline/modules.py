"""Follows a model's modules through hooks: where the program is, what the model was given, layers of modules."""

import inspect
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .flow import local
from .ledger import INSIDE, Ledger, make_id
from .operators import named_tensors, tensors_of
from .quiet import attempt
from .scope import Frame, Scope, compiled_parts, module_names, parameter_names

Named = List[Tuple[str, torch.Tensor]]


class ModuleRecord:
    """The layer of a module in the making."""

    __slots__ = ("given", "inputs", "names")

    def __init__(self, given: Named) -> None:
        self.given = given
        self.inputs: List[str] = []
        self.names: Dict[str, str] = {}

    def read(self, ids: List[str]) -> None:
        """An operator inside read these; what the module made itself is no input of it."""
        for tensor_id in ids:
            if tensor_id != INSIDE and tensor_id not in self.inputs:
                self.inputs.append(tensor_id)


class ModuleHooks:
    """Hooks on every module of `model` (a module, or modules by name).

    `level` "operator" only follows, "module" makes one layer of each module without children, "both" a layer of
    every module beside its operators.
    """

    def __init__(
        self, model: Any, level: str, ledger: Ledger, scope: Scope, on_root: Callable[[Any, Any, Any, Any], None]
    ) -> None:
        self._ledger, self._scope, self._level = ledger, scope, level
        self._hooks: List[Any] = []
        self._calls: Dict[str, int] = {}
        self.unseen: List[str] = []
        # Told of each call of a model as a whole: module, arguments, and the output once there is one.
        self._on_root = on_root
        roots: Dict[str, Any] = model if isinstance(model, dict) else {"": model} if model is not None else {}
        for prefix, root in roots.items():
            for name, tensor in parameter_names(root, prefix).items():
                ledger.flow.give(local(tensor), name, "param", True)
                scope.parameters[id(tensor)] = name
            named = module_names(root, prefix)
            # A compiler would trace hooks inside what it compiles.
            compiled = compiled_parts(root)
            hidden = {id(inner) for module in compiled for inner in module.modules()} - {id(root)}
            if compiled:
                self.unseen.append(
                    "%d modules are compiled (%s first): neither modules nor single operators are seen inside compiled "
                    "code; record the model before torch.compile" % (len(compiled), type(compiled[0]).__name__)
                )
            for name, module in named.items():
                if id(module) not in hidden:
                    self._follow(module, name, is_root=module is named[prefix])
            if id(named[prefix]) in hidden:
                # The wrapper that torch.compile made stands for the model.
                self._follow(root, prefix, is_root=True)

    def remove(self) -> None:
        """Takes all hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _follow(self, module: Any, name: str, is_root: bool) -> None:
        kind = type(module).__name__
        is_leaf = next(module.children(), None) is None

        failures = self._ledger.failures

        def before(module: Any, args: Any, kwargs: Any) -> None:
            if is_root:
                self._on_root(module, args, kwargs, None)
            attempt(failures, name or kind, self._enter, module, name, is_root, is_leaf, args, kwargs)

        def after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            attempt(failures, name or kind, self._leave, module, kind, output)
            if is_root and output is not None:
                attempt(failures, name or kind, self._on_root, module, args, kwargs, output)

        try:
            self._hooks.append(module.register_forward_pre_hook(before, with_kwargs=True, prepend=True))
            self._hooks.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))
        except (RuntimeError, TypeError) as error:
            self.unseen.append("module %s takes no hooks: %s" % (name, error))

    def _enter(self, module: Any, name: str, is_root: bool, is_leaf: bool, args: Any, kwargs: Any) -> None:
        frame = self._scope.enter(module, name)
        if is_root and not frame.in_backward:
            for argument, tensor in given_names(module, args, kwargs):
                self._ledger.flow.give(tensor, argument, "input", False)
        if self._level == "operator" or frame.in_backward:
            return
        frame.record = ModuleRecord(given_names(module, args, kwargs))
        frame.is_collapsed = self._level == "module" and is_leaf
        if self._level == "both":
            for argument, tensor in frame.record.given:
                tensor_id = self._ledger.read(tensor, name, name or "model", argument)
                frame.record.read([tensor_id])
                frame.record.names.setdefault(tensor_id, argument)
        else:
            for argument, tensor in frame.record.given:
                known = self._ledger.flow.lookup(tensor)
                if known:
                    frame.record.names.setdefault(known, argument)

    def _leave(self, module: Any, kind: str, output: Any) -> None:
        frame = self._scope.leave(module)
        if frame is None or frame.record is None or output is None:
            return
        if self._level == "both":
            self._write(frame, kind, output)
        elif frame.is_collapsed:
            outer = self._scope.collapsed()
            if outer is not None:
                # Inside another collapsed module: its reads are the outer one's.
                outer.record.read(frame.record.inputs)
                return
            self._write(frame, kind, output)

    def _write(self, frame: Frame, kind: str, output: Any) -> None:
        outputs = tensors_of(output)
        name = frame.name or kind
        known = [self._ledger.flow.lookup(tensor) for tensor in outputs]
        if not outputs or (self._level == "module" and all(known)):
            # It handed on what it was given (dropout in eval mode): nothing was computed.
            return
        call = self._ledger.call(name, "forward")
        ids = []
        for slot, (tensor, tensor_id) in enumerate(zip(outputs, known)):
            if not tensor_id:
                tensor_id = make_id(name, "forward", call, slot)
                self._ledger.keep(tensor, tensor_id, name)
            ids.append(tensor_id)
        self._ledger.line({
            "name": name, "op": snake(kind), "kind": "module", "pass": "forward", "call": call,
            "inputs": frame.record.inputs,
            "input_names": [frame.record.names.get(one, one) for one in frame.record.inputs],
            "outputs": ids, "schema": kind, "module": frame.name, "device": str(outputs[0].device),
        })  # fmt: skip


def given_names(module: Any, args: Any, kwargs: Any) -> Named:
    """The tensors that a module is given, by the names of its forward's parameters."""
    return [
        pair for name, value in bound_arguments(module.forward, args, kwargs) for pair in named_tensors(value, name)
    ]


def bound_arguments(forward: Callable[..., Any], args: Any, kwargs: Any) -> List[Tuple[str, Any]]:
    """The arguments of a call by name."""
    names: Optional[List[str]] = None
    try:
        parameters = list(inspect.signature(forward).parameters.values())
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    listed = [(names[at] if at < len(names) else "input%d" % at, value) for at, value in enumerate(args)]
    return listed + list(kwargs.items())


def snake(kind: str) -> str:
    """`LayerNorm` -> `layer_norm`, `Conv2d` -> `conv2d`."""
    text = ""
    for at, char in enumerate(kind):
        edge = char.isupper() and at > 0 and (kind[at - 1].islower() or (at + 1 < len(kind) and kind[at + 1].islower()))
        text += ("_" if edge else "") + char.lower()
    return text
