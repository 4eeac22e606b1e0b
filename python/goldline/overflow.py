"""The overflow flag of devices that saturate: NPUs outside INF_NAN mode turn Inf into the largest number.

Nothing in a result shows then that it overflowed; the device's own flag does, where torch_npu offers it. It is
cleared before each operator and read behind it.
"""

from typing import Any, Callable, Optional

import torch


class OverflowFlag:
    """`clear()` before an operator, `is_set()` behind it."""

    def __init__(self, clear: Callable[[], Any], get: Callable[[], Any]) -> None:
        self._get = get
        self.clear = clear

    def is_set(self) -> bool:
        """Whether something overflowed since `clear`."""
        return bool(self._get())


def overflow_flag() -> Optional[OverflowFlag]:
    """The flag of the device in use; `None` where there is none, or where Inf and NaN show by themselves."""
    npu: Any = getattr(torch, "npu", None)
    utils: Any = getattr(npu, "utils", None)
    try:
        if not npu.is_available() or utils.is_support_inf_nan():
            return None
        get = getattr(utils, "get_npu_overflow_flag", None) or utils.npu_check_overflow
        return OverflowFlag(utils.clear_npu_overflow_flag, get)
    except (AttributeError, TypeError, RuntimeError):
        return None
