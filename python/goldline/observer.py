"""Shows that recording changes nothing: the model runs once without the recorder, on the same inputs, first."""

import hashlib
from typing import Any, Dict, List, Optional

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import statistics
from .operators import tensors_of
from .randomness import generators


class ObserverCheck:
    """The digests of the first call's output, without and with the recorder."""

    def __init__(self) -> None:
        self.result: Optional[Dict[str, Any]] = None
        self._is_running = False

    def before(self, module: Any, args: Any, kwargs: Any) -> None:
        """The model is about to be called: calls it plainly, and leaves generators and buffers as they were."""
        if self.result is not None or self._is_running:
            return
        self._is_running = True
        buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        states = [(restore, state) for restore, state in generators()]
        hooks = take_hooks(module)
        try:
            with _disable_current_modes():
                output = module(*args, **kwargs)
                self.result = {"plain": output_digest(output)}
        finally:
            give_hooks(hooks)
            with torch.no_grad(), _disable_current_modes():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for restore, state in states:
                restore(state)
            self._is_running = False

    def after(self, output: Any) -> None:
        """The recorded call has ended."""
        if self.result is not None and "recorded" not in self.result:
            self.result["recorded"] = output_digest(output)
            self.result["equal"] = self.result["plain"] == self.result["recorded"]


def output_digest(output: Any) -> str:
    """`sha256:hex` over all tensors of an output in order."""
    digest = hashlib.sha256()
    for tensor in tensors_of(output):
        digest.update(statistics.digest(tensor).encode())
    return "sha256:" + digest.hexdigest()


def take_hooks(model: Any) -> List[Any]:
    """Takes the forward hooks of all modules away for a while: the plain call has none of the recorder's.

    The program's own hooks stand beside ours in the same tables; they go too only where they are ours.
    """
    taken = []
    for module in model.modules():
        for table in (module._forward_pre_hooks, module._forward_hooks):
            for key, hook in list(table.items()):
                if getattr(hook, "__module__", "").startswith(__package__ or "goldline"):
                    taken.append((table, key, hook, list(table)))
                    del table[key]
    return taken


def give_hooks(taken: List[Any]) -> None:
    """Puts them back in their order."""
    for table, key, hook, _ in taken:
        table[key] = hook
    for table, _, _, order in taken:
        for key in order:
            if key in table:
                table.move_to_end(key)
