"""The recorder's own work beside the program's: unseen by it, and harmless where it fails."""

import functools
from typing import Any, Callable, List

import torch
from torch.utils._python_dispatch import _disable_current_modes


class quiet:  # noqa: N801 - used like a function
    """For the recorder's own operators: unseen by modes, autograd and autocast."""

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        self._guards: List[Any] = [torch._C._AutoDispatchBelowAutograd()]
        # Twice for each operator: what is off already costs nothing.
        if torch._C._len_torch_dispatch_stack() > 0:
            self._guards.append(_disable_current_modes())
        if torch._C._is_any_autocast_enabled():
            self._guards.append(torch._C._ExcludeDispatchKeyGuard(_autocast_keys()))
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(kind, error, trace)


@functools.lru_cache(maxsize=None)
def _autocast_keys() -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    for name in ("AutocastCUDA", "AutocastPrivateUse1", "AutocastXPU"):
        if hasattr(torch._C.DispatchKey, name):
            keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    return keys


def attempt(failures: List[str], what: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """`work(*arguments)` in quiet; `None` where it fails: the program goes on, and the run says what it lacks."""
    try:
        with quiet():
            return work(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not the program's
        failures.append("%s: %s: %s" % (what, type(error).__name__, error))
        return None
