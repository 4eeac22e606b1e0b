"""Golden tests for the numerics of neural networks: the recorder for PyTorch, and what keeps operators in fp32.

    import goldline

    with goldline.record("runs/npu", model=model, seed=1234, inputs=batch):
        model(**batch)

The runs are compared by the `goldline` program of the same package. torch is needed by what records and replays,
and imported when that is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .overrides import keep_fp32
    from .randomness import no_dropout, seed_all
    from .recorder import record
    from .replaying import replay_random

_HOMES = {
    "record": "recorder",
    "seed_all": "randomness",
    "no_dropout": "randomness",
    "replay_random": "replaying",
    "keep_fp32": "overrides",
}

__all__ = ["keep_fp32", "no_dropout", "record", "replay_random", "seed_all"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    try:
        return getattr(importlib.import_module("." + home, __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("goldline.%s needs torch: install the build for your device" % name) from None


def __dir__() -> Any:
    return sorted(list(globals()) + list(_HOMES))
