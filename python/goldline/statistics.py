"""What stands in stats.jsonl about a tensor: extremes, mean, norm, counts of NaN and Inf, digest, samples.

All but the digest is computed where the tensor lies, so that of a tensor on an accelerator a few numbers and
4,096 samples cross the bus.

Samples are values at flat indices (row-major) that follow from the tensor's id alone, the same on every device:
with `a` and `b` the first two 64-bit little-endian words of sha256(id), and `n` the number of elements, index k is
`(a + k * s) mod n`, where `s` is the smallest number from `1 + b mod (n - 1)` upwards that is coprime to `n`. The
indices are distinct; a tensor with no more elements than samples is sampled in order. They are written as base64
of the little-endian elements in the tensor's own dtype.
"""

import base64
import ctypes
import hashlib
import math
import zlib
from typing import Any, Dict, Optional, Tuple

import torch

SAMPLES = 4096


def host_bytes(tensor: torch.Tensor) -> Tuple[memoryview, torch.Tensor]:
    """The row-major bytes of a tensor, and the tensor that owns them, which the caller must hold meanwhile."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b""), tensor
    if tensor.data_ptr() == 0:
        raise RuntimeError("expected a tensor with memory, found a %s without" % type(tensor).__name__)
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B"), tensor


def digest(tensor: torch.Tensor) -> str:
    """`sha256:hex` over the row-major little-endian bytes."""
    data, owner = host_bytes(tensor)
    text = "sha256:" + hashlib.sha256(data).hexdigest()
    del owner
    return text


def checksum(tensor: torch.Tensor) -> str:
    """`crc32:hex` over the same bytes: quicker, for the many tensors that a program makes."""
    data, owner = host_bytes(tensor)
    text = "crc32:%08x" % zlib.crc32(data)
    del owner
    return text


def measured(tensor: torch.Tensor) -> Dict[str, Any]:
    """`min`, `max`, `mean`, `l2` over the finite values (null where there is none), `nan`, `inf`."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    if tensor.numel() == 0:
        return {"min": None, "max": None, "mean": None, "l2": None, "nan": 0, "inf": 0}
    if not tensor.is_floating_point():
        tensor = tensor.double()
    elif tensor.element_size() < 4:
        tensor = tensor.float()
    low, high, total, norm = _figures(tensor)
    nan = inf = 0
    if not (math.isfinite(low) and math.isfinite(high)):
        is_nan, is_inf = torch.isnan(tensor), torch.isinf(tensor)
        nan, inf = int(is_nan.sum()), int(is_inf.sum())
        tensor = tensor[~(is_nan | is_inf)]
        if tensor.numel() == 0:
            return {"min": None, "max": None, "mean": None, "l2": None, "nan": nan, "inf": inf}
        low, high, total, norm = _figures(tensor)
    if not (math.isfinite(total) and math.isfinite(norm)):
        # Sums of large finite values left fp32.
        low, high, total, norm = _figures(tensor.double())
    mean = total / tensor.numel()
    return {"min": low, "max": high, "mean": finite(mean), "l2": finite(norm), "nan": nan, "inf": inf}


def _figures(tensor: torch.Tensor) -> Tuple[float, float, float, float]:
    low, high = torch.aminmax(tensor)
    # One transfer for all four.
    together = torch.stack([low, high, tensor.sum(), torch.linalg.vector_norm(tensor)])
    return tuple(together.tolist())  # type: ignore[return-value]


def finite(value: float) -> Optional[float]:
    """JSON has no NaN and no Inf."""
    return value if math.isfinite(value) else None


def sampled(tensor: torch.Tensor, tensor_id: str, count: int = SAMPLES) -> str:
    """Up to `count` values at the places of the module's text, as base64."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    total = tensor.numel()
    values = tensor
    if total > count:
        offset, step = lattice(tensor_id, total)
        places = (torch.arange(count, device=tensor.device) * step + offset) % total
        # Not every device can index 8-bit floats: their bytes are as good.
        source = tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor
        if tensor.is_contiguous():
            values = source.reshape(-1)[places]
        else:
            # By coordinates, so that a view is not copied whole.
            index = []
            for extent in reversed(tensor.shape):
                index.append(places % extent)
                places = places // extent
            values = source[tuple(reversed(index))]
    data, owner = host_bytes(values)
    text = base64.b64encode(data).decode()
    del owner
    return text


def lattice(tensor_id: str, total: int) -> Tuple[int, int]:
    """Offset and step of the sampled flat indices among `total` > 1."""
    hashed = hashlib.sha256(tensor_id.encode()).digest()
    offset = int.from_bytes(hashed[:8], "little") % total
    step = 1 + int.from_bytes(hashed[8:16], "little") % (total - 1)
    while math.gcd(step, total) != 1:
        step += 1
    return offset, step
