"""Follows a training step: the optimizer's steps, the loss, the scale of a GradScaler and the steps it skips."""

from typing import Any, Dict, List, Optional

import torch
from torch.optim import optimizer as optimizers

from .backward import Nodes
from .flow import local
from .ledger import Ledger
from .operators import Signature
from .quiet import attempt
from .scope import Scope


class TrainingHooks:
    """Hooks on every optimizer's step, and what the loss scaler's operators say."""

    def __init__(self, ledger: Ledger, scope: Scope, nodes: Nodes) -> None:
        self._ledger, self._scope, self._nodes = ledger, scope, nodes
        self._hooks: List[Any] = []
        self._is_silent = False
        self.optimizers: List[Dict[str, Any]] = []
        self.scaler: List[Dict[str, Any]] = []
        self.loss: Optional[Dict[str, Any]] = None
        for name, hook in (
            ("register_optimizer_step_pre_hook", self._before),
            ("register_optimizer_step_post_hook", self._after),
        ):
            register = getattr(optimizers, name, None)
            if register is not None:
                self._hooks.append(register(hook))

    def silence(self) -> None:
        """From now on the hooks do nothing."""
        self._is_silent = True
        self._scope.in_optimizer = False

    def remove(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def saw(self, known: Signature, args: Any) -> None:
        """An operator is about to run: those of a loss scaler tell its state."""
        if known.function == "_amp_update_scale" and len(args) >= 3:
            found_inf = float(args[2]) != 0.0
            self.scaler.append({"scale": float(args[0]), "found_inf": found_inf, "skipped": found_inf})

    def backward_begins(self, node: Any) -> None:
        """The first node of a backward pass: its forward operator made the loss."""
        origin = self._scope.origin(node)
        if self.loss is None and origin is not None and origin.outputs and origin.outputs[0]:
            tensor_id = origin.outputs[0]
            self.loss = {"tensor": tensor_id}
            value = self._ledger.scalars.get(tensor_id)
            if value is not None:
                self.loss["value"] = value if value - value == 0 else str(value)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_silent:
            return
        self._scope.in_optimizer = True
        attempt(self._ledger.failures, type(optimizer).__name__, self._name, optimizer)
        # Numbers alone: the settings that decide what the step computes.
        groups = [
            {key: value for key, value in group.items() if isinstance(value, (bool, int, float, str))}
            for group in optimizer.param_groups
        ]
        self.optimizers.append({"kind": type(optimizer).__name__, "groups": groups})

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_silent:
            return
        attempt(self._ledger.failures, type(optimizer).__name__, self._outcomes, optimizer)
        self._scope.in_optimizer = False

    def _outcomes(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._scope.parameters.get(id(parameter))
                if name is not None and parameter.grad is not None:
                    self._outcome(parameter, name)
                    for key, value in optimizer.state.get(parameter, {}).items():
                        if isinstance(value, torch.Tensor):
                            self._outcome(value, "%s.%s" % (name, key))

    def _outcome(self, tensor: torch.Tensor, name: str) -> None:
        """What the step left in a parameter or a state: the same layer whatever kernels made it."""
        tensor = local(tensor)
        tensor_id = self._ledger.flow.lookup(tensor)
        if tensor_id:
            self._ledger.output(tensor, name + ".stepped", tensor_id, "optimizer")

    def _name(self, optimizer: Any) -> None:
        """Parameters, gradients and state that are there before the step, by the parameter's name."""
        number = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                number += 1
                if parameter.grad is None:
                    continue
                name = self._scope.parameters.get(id(parameter)) or "optimizer.%d" % (number - 1)
                self._ledger.flow.give(local(parameter), name, "param", True)
                self._own(parameter, name, "param")
                self._own(parameter.grad, name, "grad")
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        self._ledger.flow.give(local(value), "%s.%s" % (name, key), "param", False)
                        self._own(value, name, key)

    def _own(self, tensor: torch.Tensor, parameter: str, role: str) -> None:
        tensor = local(tensor)
        tensor_id = self._ledger.read(tensor, "", parameter, role)
        if tensor_id:
            self._nodes.owners[tensor_id] = parameter
