"""Records operators: a dispatch mode below autograd and autocast.

It sees every ATen operator that runs, with the casts that autocast inserts and the operators of the backward
pass and of the optimizer, runs it as it is, and writes down what it read and made. Nothing of it is visible to the
program: no tensor is replaced, no random number drawn, no graph built.
"""

import contextlib
import hashlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .backward import Nodes
from .ledger import INSIDE, Layer, Ledger, join_name, make_id
from .lists import elements
from .operators import Signature, plain, signature
from .overflow import overflow_flag
from .quiet import attempt
from .scope import Frame, Scope, Where

# Operators whose result is nobody's content.
UNDEFINED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}

# They overwrite their first argument without reading it.
OVERWRITING = {
    "copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "cauchy", "geometric",
    "log_normal",
}  # fmt: skip

# Tensors without content.
PRETENDING = {"FakeTensor", "FunctionalTensor"}

# Frames of files under these directories are not the user's.
_LIBRARIES = tuple(path.rpartition("/")[0] for path in (torch.__file__, __file__) if path)


class OperatorMode(TorchDispatchMode):
    """Records each operator into a ledger; those inside a collapsed module belong to its layer."""

    def __init__(
        self, ledger: Ledger, scope: Scope, nodes: Nodes, training: Any = None, with_source: bool = True
    ) -> None:
        super().__init__()
        self.ledger, self.scope, self.nodes, self.training = ledger, scope, nodes, training
        self.with_source = with_source
        self.overflow = overflow_flag()
        # Name, pass and call of the random operator that runs.
        self.current: Optional[Tuple[str, str, int]] = None
        self._memo: Dict[bytes, Tuple[str, List[str]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = signature(func)
        if any(kind.__name__ in PRETENDING for kind in types):
            # Shapes without content, by which torch plans: nothing is computed.
            return func(*args, **kwargs)
        if any(is_foreign(kind) for kind in types):
            # A tensor that unwraps itself (DTensor): the mode sees what it does to its parts.
            return NotImplemented
        if known.is_skipped:
            return func(*args, **kwargs)
        if known.is_composite:
            with nested(self):
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        where = self.scope.where()
        reading = attempt(self.ledger.failures, known.schema, self._before, known, where, args, kwargs)
        if reading is not None and known.is_random:
            # For replay_random, which answers by name.
            self.current = (reading.name, where.step, self.ledger.next_call(reading.name, where.step))
        if self.overflow is not None:
            self.overflow.clear()
        result = func(*args, **kwargs)
        self.current = None
        if reading is not None:
            reading.overflowed = self.overflow is not None and self.overflow.is_set()
            attempt(self.ledger.failures, known.schema, self._after, known, where, reading, result)
        return result

    def __enter__(self) -> "OperatorMode":
        _ACTIVE.append(self)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self in _ACTIVE:
            _ACTIVE.remove(self)
        super().__exit__(kind, error, trace)

    def _before(self, known: Signature, where: Where, args: Any, kwargs: Any) -> "Reading":
        """Ids of what the operator reads, and what it writes, as they are before it runs."""
        if self.training is not None:
            self.training.saw(known, args)
            if where.node is not None and not self.nodes.is_running:
                self.training.backward_begins(where.node)
        if self.nodes.begins(where.node) or where.node is None:
            # Layers of a node may still learn whose gradient they make.
            self.ledger.writer.flush_if_due()
        frame = self.scope.collapsed() if where.step == "forward" else None
        # What passes through unchanged names nothing: a constant that does is the module's.
        reader = "constant" if known.is_identity else known.op
        reading = Reading(join_name(where.module, reader), frame)
        for argument, value in zip(known.arguments, known.bound(args, kwargs)):
            tensors = [value] if isinstance(value, torch.Tensor) else None
            if tensors is None and isinstance(value, (list, tuple)):
                tensors = [item for item in value if isinstance(item, torch.Tensor)]
                if len(tensors) != len(value) and tensors:
                    reading.attrs[argument.name] = [None if item is None else "tensor" for item in value]
            if not tensors:
                if not (argument.is_out and value is None):
                    reading.attrs[argument.name] = plain(value)
                continue
            if argument.is_write and not (argument.name == "grads" and kwargs.get("grad_scale") is None):
                # Fused steps write gradients only where they unscale them.
                reading.written.extend((argument.name, tensor) for tensor in tensors)
                first = argument is known.arguments[0]
                if argument.is_out or (
                    first and known.function in OVERWRITING and self.ledger.is_undefined(tensors[0])
                ):
                    continue
            for tensor in tensors:
                tensor_id = self.ledger.read(tensor, where.module, reading.name, argument.name, where.step)
                if known.op == "attention" and argument.name in ("key", "value"):
                    tensor_id = self.ledger.whole(tensor, tensor_id, join_name(where.module, argument.name), where.step)
                reading.inputs.append(tensor_id)
                reading.names.append(argument.name)
            if argument.name in known.hidden_writes and reading.attrs.get("training", _training(known, args, kwargs)):
                reading.hidden.append((argument.name, tensors[0], reading.inputs[-1]))
        return reading

    def _after(self, known: Signature, where: Where, reading: "Reading", result: Any) -> None:
        results = [result] if isinstance(result, torch.Tensor) else result if isinstance(result, (list, tuple)) else []
        outputs = [item for item in results if isinstance(item, torch.Tensor)]
        if any(item.device.type == "meta" or type(item).__name__ in PRETENDING for item in outputs):
            return
        if known.is_identity:
            self._pass_on(reading, outputs)
            return
        returned = {id(tensor) for tensor in outputs}
        # Lists that are written in place are not returned.
        outputs += [tensor for _, tensor in reading.written if id(tensor) not in returned]
        if not outputs:
            return
        if reading.frame is not None:
            self._collapse(known, reading, outputs)
            return
        if known.is_per_element and INSIDE not in reading.inputs:
            if self._decompose(known, where, reading, outputs):
                return
        self._record(known, where, reading, outputs)

    def _pass_on(self, reading: "Reading", outputs: List[torch.Tensor]) -> None:
        """The result is the tensor that was given, under another object."""
        if reading.inputs and outputs and self.ledger.flow.lookup(outputs[0]) is None:
            self.ledger.flow.bind(outputs[0], reading.inputs[0])

    def _collapse(self, known: Signature, reading: "Reading", outputs: List[torch.Tensor]) -> None:
        """An operator inside a module that is one layer: what it reads from outside is the module's input."""
        record = reading.frame.record if reading.frame is not None else None
        if record is not None:
            record.read(reading.inputs)
        for _, tensor in reading.written:
            self.ledger.flow.written(tensor)
        for _, tensor, _ in reading.hidden:
            self.ledger.flow.written(tensor)
            self.ledger.flow.bind(tensor, INSIDE)
        for tensor in outputs:
            self.ledger.flow.bind(tensor, INSIDE)
        if torch.is_grad_enabled():
            self.scope.remember(reading.frame.name if reading.frame is not None else "", [None] * len(outputs))

    def _record(self, known: Signature, where: Where, reading: "Reading", outputs: List[torch.Tensor]) -> None:
        inputs, names = reading.visible()
        if where.is_recomputed and self._recall(known, reading, outputs):
            return
        step = where.step
        owner = self._owner(where, reading.inputs) if step == "optimizer" else None
        name = reading.name if step != "optimizer" else join_name(owner or where.module or "optimizer", known.op)
        call = self.ledger.call(name, step)
        for _, tensor in reading.written:
            self.ledger.flow.written(tensor)
        ids = [make_id(name, step, call, slot) for slot in range(len(outputs))]
        written = {id(tensor) for _, tensor in reading.written}
        for tensor_id, tensor in zip(ids, outputs):
            if known.function in UNDEFINED:
                self.ledger.name_undefined(tensor, tensor_id)
            elif id(tensor) in written:
                self.ledger.keep_written(tensor, tensor_id, name)
            else:
                self.ledger.keep(tensor, tensor_id, name)
            if step == "optimizer" and owner is not None:
                self.nodes.owners[tensor_id] = owner
            if step == "forward" and tensor.dim() == 0 and tensor.is_floating_point():
                self.ledger.scalars[tensor_id] = float(tensor)
        layer: Layer = {
            "name": name, "op": known.op, "kind": "operator", "pass": step, "call": call, "inputs": inputs,
            "input_names": names, "outputs": ids, "attrs": reading.attrs, "schema": known.schema,
            "module": where.module, "device": str(outputs[0].device),
        }  # fmt: skip
        if reading.overflowed:
            layer["overflow"] = True
        if self.with_source and step == "forward":
            source = source_line()
            if source is not None:
                layer["source"] = source
        self.ledger.line(layer)
        if step == "backward":
            self.nodes.made(layer, where.node)
        elif step == "forward":
            self._remember(known, where, reading, ids)
        # Its second and third results are the statistics that the running ones move towards.
        for slot, (argument, tensor, before) in enumerate(reading.hidden, 1):
            given = self.ledger.flow.given(tensor)
            label = given.name if given is not None else join_name(where.module, argument)
            self.ledger.buffer(tensor, label, where.module, step, [before] + ids[slot : slot + 1])

    def _decompose(self, known: Signature, where: Where, reading: "Reading", outputs: List[torch.Tensor]) -> bool:
        """An operator on lists, as one layer per element: a loop over tensors then gives the same layers."""
        parts = elements(known.function, known.op, reading.inputs, reading.names, reading.attrs)
        if not parts or len(outputs) % len(parts):
            return False
        written = {id(tensor) for _, tensor in reading.written}
        for _, tensor in reading.written:
            self.ledger.flow.written(tensor)
        for at, part in enumerate(parts):
            owner = self._owner(where, part.inputs)
            name = join_name(owner or where.module or where.step, part.op)
            call = self.ledger.call(name, where.step)
            mine = outputs[at :: len(parts)]
            ids = [make_id(name, where.step, call, slot) for slot in range(len(mine))]
            for tensor_id, tensor in zip(ids, mine):
                keep = self.ledger.keep_written if id(tensor) in written else self.ledger.keep
                keep(tensor, tensor_id, name)
                if owner is not None:
                    self.nodes.owners[tensor_id] = owner
            self.ledger.line({
                "name": name, "op": part.op, "kind": "operator", "pass": where.step, "call": call,
                "inputs": part.inputs, "input_names": part.names, "outputs": ids, "attrs": part.attrs,
                "schema": "aten::" + part.function, "module": where.module, "device": str(mine[0].device),
            })  # fmt: skip
        return True

    def _owner(self, where: Where, inputs: List[str]) -> Optional[str]:
        """The parameter that an operator of the optimizer works for."""
        if where.step != "optimizer":
            return None
        return next((self.nodes.owners[tensor_id] for tensor_id in inputs if tensor_id in self.nodes.owners), None)

    def _remember(self, known: Signature, where: Where, reading: "Reading", ids: List[str]) -> None:
        if torch.is_grad_enabled() or where.is_recomputed:
            self.scope.remember(where.module, list(ids))
            if not known.writes and not known.is_random:
                self._memo[reading.fingerprint(known)] = (reading.name, ids)

    def _recall(self, known: Signature, reading: "Reading", outputs: List[torch.Tensor]) -> bool:
        """A checkpoint computes again what was recorded: the tensors keep their ids."""
        found = self._memo.get(reading.fingerprint(known))
        if found is None or len(found[1]) != len(outputs):
            return False
        for tensor_id, tensor in zip(found[1], outputs):
            self.ledger.flow.bind(tensor, tensor_id)
        self.scope.remember(reading.name.rpartition(".")[0], list(found[1]))
        return True


_ACTIVE: List[OperatorMode] = []


def active_recorder() -> Optional[OperatorMode]:
    """The recorder that runs, if one does."""
    return _ACTIVE[-1] if _ACTIVE else None


class Reading:
    """What an operator was given."""

    __slots__ = ("attrs", "frame", "hidden", "inputs", "name", "names", "overflowed", "written")

    def __init__(self, name: str, frame: Optional[Frame]) -> None:
        self.name, self.frame = name, frame
        self.overflowed = False
        self.inputs: List[str] = []
        self.names: List[str] = []
        self.attrs: Dict[str, Any] = {}
        self.written: List[Tuple[str, torch.Tensor]] = []
        # Argument, tensor and id before, of what is written without the schema saying so.
        self.hidden: List[Tuple[str, torch.Tensor, str]] = []

    def visible(self) -> Tuple[List[str], List[str]]:
        """Inputs that have an id (a collapsed module keeps its own to itself), and their names."""
        pairs = [(one, name) for one, name in zip(self.inputs, self.names) if one != INSIDE]
        return [one for one, _ in pairs], [name for _, name in pairs]

    def fingerprint(self, known: Signature) -> bytes:
        """The same for the same operator on the same tensors."""
        text = repr((known.schema, self.name, self.inputs, self.attrs))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


@contextlib.contextmanager
def nested(mode: OperatorMode) -> Iterator[None]:
    """The mode on again, inside its own dispatch."""
    TorchDispatchMode.__enter__(mode)
    try:
        yield
    finally:
        TorchDispatchMode.__exit__(mode, None, None, None)


def is_foreign(kind: Any) -> bool:
    """A tensor subclass with a dispatch of its own."""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return dispatch is not None and dispatch is not torch._C._disabled_torch_dispatch_impl and kind not in (
        torch.Tensor, torch.nn.Parameter,
    )  # fmt: skip


def source_line() -> Optional[str]:
    """`file.py:line` of the innermost frame that belongs to no library."""
    frame: Any = sys._getframe(2)
    for _ in range(64):
        if frame is None:
            return None
        name = frame.f_code.co_filename
        if not name.startswith(_LIBRARIES) and not name.startswith("<") and "contextlib" not in name:
            return "%s:%d" % (name.rpartition("/")[2], frame.f_lineno)
        frame = frame.f_back
    return None


def _training(known: Signature, args: Any, kwargs: Any) -> bool:
    for argument, value in zip(known.arguments, known.bound(args, kwargs)):
        if argument.name == "training":
            return bool(value)
    return False
