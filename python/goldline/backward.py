"""Whose gradient a backward operator makes.

While autograd computes a node, the operators of that node are seen one by one; when it ends, torch says which of
their results are gradients, and of which forward tensor each is: the node that receives it belongs to the forward
operator that made the tensor. A hook is put on a node while it runs and taken away when it ends.
"""

from typing import Any, Dict, List, Optional

import torch

from .ledger import Layer, Ledger
from .quiet import attempt
from .scope import Scope


class Nodes:
    """The layers of the node that runs, and the parameters that gradients belong to."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        self._ledger, self._scope = ledger, scope
        self._node: Any = None
        self._layers: List[Layer] = []
        self._hooks: Dict[int, Any] = {}
        # Id of a gradient, a parameter or optimizer state -> name of the parameter.
        self.owners: Dict[str, str] = {}

    @property
    def is_running(self) -> bool:
        """Whether the last operator belonged to a node."""
        return self._node is not None

    def begins(self, node: Any) -> bool:
        """Whether another node runs than before; `None` stands for none."""
        if node is self._node:
            return False
        self._node, self._layers = node, []
        if node is not None:
            self._watch(node)
        return True

    def made(self, layer: Layer, node: Any) -> None:
        """A layer of the node that runs."""
        self._layers.append(layer)
        parameter = self._scope.parameter_of(node)
        if parameter is not None:
            for tensor_id in layer["outputs"]:
                self.owners[tensor_id] = parameter

    def close(self) -> None:
        """Takes away the hooks of nodes that did not end (an exception in the backward pass)."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}
        self._node, self._layers = None, []

    def _watch(self, node: Any) -> None:
        if not hasattr(node, "next_functions") or id(node) in self._hooks:
            return

        def ended(gradients: Any, _: Any) -> None:
            hook = self._hooks.pop(id(node), None)
            if hook is not None:
                hook.remove()
            if node is self._node:
                attempt(self._ledger.failures, type(node).__name__, self._name_gradients, node, gradients)

        try:
            self._hooks[id(node)] = node.register_hook(ended)
        except (RuntimeError, AttributeError):
            # Some nodes take no hooks: their gradients stay unnamed.
            return

    def _name_gradients(self, node: Any, gradients: Any) -> None:
        if not isinstance(gradients, (list, tuple)):
            return
        for gradient, (receiver, number) in zip(gradients, node.next_functions):
            if not isinstance(gradient, torch.Tensor) or receiver is None:
                continue
            gradient_id = self._ledger.flow.lookup(gradient)
            if not gradient_id:
                continue
            parameter = self._scope.parameter_of(receiver)
            of: Optional[str] = parameter
            if parameter is not None:
                self.owners[gradient_id] = parameter
            else:
                origin = self._scope.origin(receiver)
                if origin is not None and number < len(origin.outputs):
                    of = origin.outputs[number]
            if of is None:
                continue
            for layer in self._layers:
                if gradient_id in layer["outputs"]:
                    layer.setdefault("grad_of", of)
                    # Of several gradients each has its place.
                    if len(layer["outputs"]) > 1:
                        each = layer.setdefault("grads_of", [None] * len(layer["outputs"]))
                        each[layer["outputs"].index(gradient_id)] = of
