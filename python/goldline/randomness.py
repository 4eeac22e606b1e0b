"""Random numbers: one seed for all generators, the golden's draws instead of one's own, dropout off."""

import contextlib
import os
import random
import sys
from typing import Any, Callable, Iterator, List, Tuple

import torch


def seed_all(seed: int) -> None:
    """Seeds Python, numpy (where it is loaded), torch and every device; makes torch choose deterministic kernels."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        npu.manual_seed_all(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)


def generators() -> List[Tuple[Callable[[Any], None], Any]]:
    """How to restore the state of each generator, and the state it has."""
    states: List[Tuple[Callable[[Any], None], Any]] = [
        (random.setstate, random.getstate()),
        (torch.set_rng_state, torch.get_rng_state()),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    for name in ("cuda", "npu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available() and device.is_initialized():
            states.append((device.set_rng_state_all, device.get_rng_state_all()))
    return states


@contextlib.contextmanager
def no_dropout(model: Any) -> Iterator[Any]:
    """Sets every dropout probability of the model to 0 inside the block.

    Finds dropout modules, and numbers under the names that attention modules and recurrent layers keep theirs in.
    """
    changed: List[Tuple[Any, str, float]] = []
    try:
        for module in model.modules():
            is_dropout = "dropout" in type(module).__name__.lower() or "droppath" in type(module).__name__.lower()
            for name, value in list(vars(module).items()):
                by_name = "dropout" in name.lower() or "drop_prob" in name.lower() or (is_dropout and name == "p")
                if by_name and isinstance(value, float) and value != 0.0:
                    changed.append((module, name, value))
                    setattr(module, name, 0.0)
        yield model
    finally:
        for module, name, value in changed:
            setattr(module, name, value)
