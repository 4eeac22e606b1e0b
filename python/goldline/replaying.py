"""Feeds the golden's random numbers to a run: its dropout masks and its noise, by the name of the operator.

Random numbers differ between devices whatever the seed. With the golden's draws in their place, what follows can
be compared.
"""

import sys
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import dispatch
from .ledger import join_name
from .operators import signature
from .quiet import quiet
from .reading import RunReader
from .scope import Scope, module_names


class replay_random(TorchDispatchMode):  # noqa: N801 - used like a function
    """Inside the block every operator that draws random numbers gives what it gave in the run `golden`.

    Enter it before `goldline.record`, which then names the operators; without a recorder `model` does. Draws that
    the golden has no answer for stay as they are and are listed in `unanswered`.
    """

    def __init__(self, golden: str, model: Any = None) -> None:
        super().__init__()
        self._run = RunReader(golden)
        self._layers: Dict[Tuple[str, str, int], Dict[str, Any]] = {
            (layer["name"], layer.get("pass", "forward"), layer.get("call", 0)): layer for layer in self._run.layers
        }
        self._model, self._scope = model, Scope()
        self._calls: Dict[Tuple[str, str], int] = {}
        self._hooks: List[Any] = []
        self.answered: List[str] = []
        self.unanswered: List[str] = []

    def __enter__(self) -> "replay_random":
        if dispatch.active_recorder() is not None:
            raise RuntimeError("replay_random: expected to be entered before goldline.record, found it recording")
        if self._model is not None:
            for name, module in module_names(self._model).items():
                self._hooks.append(module.register_forward_pre_hook(self._enter(name), prepend=True))
                self._hooks.append(module.register_forward_hook(self._leave, always_call=True))
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self.unanswered:
            print(
                "goldline: %d random operators have no draw in %s that fits, %s first: theirs are this run's own"
                % (len(self.unanswered), self._run.path, self.unanswered[0]),
                file=sys.stderr,
            )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = signature(func)
        if not known.is_random:
            return func(*args, **kwargs)
        name, step, call = self._place(known.op)
        result = func(*args, **kwargs)
        layer = self._layers.get((name, step, call))
        given = [] if layer is None else [self._run.tensor(tensor_id) for tensor_id in layer["outputs"]]
        with quiet():
            if self._feed(known.function, args, result, given):
                self.answered.append(name)
            else:
                self.unanswered.append(name)
        return result

    def _feed(self, function: str, args: Any, result: Any, given: List[Optional[torch.Tensor]]) -> bool:
        outputs = [result] if isinstance(result, torch.Tensor) else list(result)
        if len(given) != len(outputs) or any(one is None or one.shape != out.shape for one, out in zip(given, outputs)):
            return False
        if function == "native_dropout":
            # The mask is the draw; what it does to this run's own values is this run's.
            out, mask = outputs
            mask.copy_(given[1])  # type: ignore[arg-type]
            kept = 1.0 - float(args[1])
            out.copy_(args[0] * mask * (1.0 / kept if kept > 0 else 0.0))
            return True
        for out, one in zip(outputs, given):
            out.copy_(one)  # type: ignore[arg-type]
        return True

    def _place(self, op: str) -> Tuple[str, str, int]:
        recorder = dispatch.active_recorder()
        if recorder is not None and recorder.current is not None:
            return recorder.current
        where = self._scope.where()
        name = join_name(where.module, op)
        number = self._calls.get((name, where.step), -1) + 1
        self._calls[name, where.step] = number
        return name, where.step, number

    def _enter(self, name: str) -> Any:
        def before(module: Any, args: Any) -> None:
            self._scope.enter(module, name)

        return before

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        self._scope.leave(module)
