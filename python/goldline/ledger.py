"""Names tensors and layers, and hands them to the writer in execution order.

In go the tensors that operators and modules read and make; out come ids that follow the data (`Flow`), what is
kept of each tensor (`Saver`), and one line per layer. A tensor that nothing recorded made is a source, written
when it is first read: a parameter or an input under the name that the model has for it, else a constant under the
name of its first reader.

Ids are made of names (`encoder.0.softmax#1:0`: second call, first output), so that samples lie at the same places
in every run.
"""

from typing import Any, Dict, List, Sequence, Tuple

import torch

from .flow import Flow
from .operators import dtype_name
from .saving import Saver, head
from .writer import RunWriter

# Stands for the id of a tensor that a collapsed module made and kept to itself.
INSIDE = ""

Layer = Dict[str, Any]


class Ledger:
    """One run in the making."""

    def __init__(self, writer: RunWriter, saver: Saver) -> None:
        self.writer, self.saver = writer, saver
        self.flow = Flow()
        self.layers = 0
        # What could not be recorded, and why.
        self.failures: List[str] = []
        # Value of every recorded scalar by id: the loss is among them.
        self.scalars: Dict[str, float] = {}
        self._calls: Dict[Tuple[str, str], int] = {}
        # Made by `empty` and the like: what they hold is nobody's content.
        self._undefined: set = set()

    def call(self, name: str, step: str) -> int:
        """The number of this call of a layer: how many of its name and pass there were."""
        number = self._calls.get((name, step), -1) + 1
        self._calls[name, step] = number
        return number

    def next_call(self, name: str, step: str) -> int:
        """The number that `call` will give."""
        return self._calls.get((name, step), -1) + 1

    def read(self, tensor: torch.Tensor, module: str, reader: str, argument: str, step: str = "forward") -> str:
        """The id of what a reader is given; writes the tensor down as a source where nothing made it."""
        known = self.flow.lookup(tensor)
        if known is not None:
            return known
        stale = self.flow.stale_id(tensor)
        if stale and self.saver.holds(stale, tensor):
            # Another alias counts writes by itself (`.data`): the content is the one that was recorded.
            self.flow.adopt(tensor)
            return stale
        given = self.flow.given(tensor)
        updated = self.flow.updated_from(tensor)
        if updated and INSIDE not in updated:
            name = given.name if given is not None else join_name(module, "updated")
            return self._buffer(tensor, name, module, step, updated)
        if given is not None:
            return self.source(tensor, given.name, given.op, given.is_parameter)
        return self.source(
            tensor, reader if reader.endswith("constant") else "%s.%s" % (reader, argument), "constant", False
        )

    def source(self, tensor: torch.Tensor, name: str, op: str, is_parameter: bool) -> str:
        """A tensor that the program was given."""
        call = self.call(name, "forward")
        tensor_id = name if call == 0 else "%s#%d" % (name, call)
        place = self.flow.rebind(tensor, tensor_id)
        self.saver.save(tensor_id, tensor, place, name, name if is_parameter else None)
        self.line({"name": name, "op": op, "kind": "operator", "pass": "forward", "call": call, "inputs": [],
                   "outputs": [tensor_id], "module": name.rpartition(".")[0]})  # fmt: skip
        return tensor_id

    def whole(self, tensor: torch.Tensor, tensor_id: str, name: str, step: str) -> str:
        """The id of a tensor that all rows of a reader depend on, stored whole where rows are kept of others."""
        if not tensor_id or not self.saver.is_cut(tensor_id):
            return tensor_id
        call = self.call(name + ".whole", step)
        made = make_id(name + ".whole", step, call, 0)
        self.saver.keep_whole(made, tensor, self.flow.bind(tensor, made))
        self.line({"name": name + ".whole", "op": "output", "kind": "operator", "pass": step, "call": call,
                   "inputs": [tensor_id], "input_names": ["self"], "outputs": [made], "attrs": {},
                   "module": name.rpartition(".")[0]})  # fmt: skip
        return made

    def output(self, tensor: torch.Tensor, name: str, tensor_id: str, step: str) -> None:
        """Names a result of the program: a layer that hands its tensor on."""
        call = self.call(name, step)
        made = make_id(name, step, call, 0)
        self.keep(tensor, made, name)
        self.line({"name": name, "op": "output", "kind": "operator", "pass": step, "call": call, "inputs": [tensor_id],
                   "input_names": ["self"], "outputs": [made], "attrs": {}, "module": ""})  # fmt: skip

    def buffer(self, tensor: torch.Tensor, name: str, module: str, step: str, inputs: Sequence[str]) -> str:
        """A running statistic after an operator updated it beside its outputs."""
        self.flow.written(tensor)
        return self._buffer(tensor, name, module, step, inputs)

    def _buffer(self, tensor: torch.Tensor, name: str, module: str, step: str, inputs: Sequence[str]) -> str:
        call = self.call(name + ".buffer", step)
        tensor_id = make_id(name + ".buffer", step, call, 0)
        self.keep(tensor, tensor_id, name)
        self.line({"name": name + ".buffer", "op": "buffer", "kind": "operator", "pass": step, "call": call,
                   "inputs": list(inputs), "outputs": [tensor_id], "module": module})  # fmt: skip
        return tensor_id

    def keep(self, tensor: torch.Tensor, tensor_id: str, layer: str) -> None:
        """From now on the tensor has this id; its content is kept."""
        self.saver.save(tensor_id, tensor, self.flow.bind(tensor, tensor_id), layer)

    def keep_written(self, tensor: torch.Tensor, tensor_id: str, layer: str) -> None:
        """The same for what an operator wrote in place."""
        place = self.flow.bind_written(tensor, tensor_id)
        self.saver.save(tensor_id, tensor, place, layer)

    def name_undefined(self, tensor: torch.Tensor, tensor_id: str) -> None:
        """The same for a tensor without defined content, of which nothing is kept."""
        self.flow.bind(tensor, tensor_id)
        self._undefined.add(tensor_id)
        self.writer.statistics(head(tensor_id, dtype_name(tensor.dtype), tensor))

    def is_undefined(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor holds what `empty` left there."""
        return self.flow.lookup(tensor) in self._undefined

    def line(self, layer: Layer) -> None:
        """Appends a layer."""
        self.layers += 1
        self.writer.layer(layer)


def make_id(name: str, step: str, call: int, slot: int) -> str:
    """`name[#call][@pass]:slot`"""
    counted = "%s#%d" % (name, call) if call else name
    return "%s:%d" % (counted, slot) if step == "forward" else "%s@%s:%d" % (counted, step, slot)


def join_name(module: str, op: str) -> str:
    """The name of an operator within its module."""
    return "%s.%s" % (module, op) if module else op
