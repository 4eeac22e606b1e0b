"""Parameters by reference: where a run's parameter stands in a checkpoint file, instead of its bytes.

In goes a safetensors file or a state dict that `torch.save` wrote; out comes, for a parameter that stands there
with the same bytes, `{"digest", "reference": {"file", "key"}}` for its line in stats.jsonl. One that was changed
since is stored like any tensor.
"""

import json
import os
import struct
from typing import Any, Dict, Optional

import torch

from . import statistics
from .operators import dtype_name
from .writer import SAFETENSORS


class Checkpoint:
    """The tensors of one checkpoint file, read when asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: Optional[Dict[str, Any]] = None
        self._entries: Dict[str, Any] = {}
        self._begin = 0
        if path.endswith(".safetensors"):
            with open(path, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > os.path.getsize(path):
                    raise ValueError("%s: expected a safetensors header, found a length of %d" % (path, length))
                self._entries = json.loads(file.read(length))
                self._begin = 8 + length
        else:
            self._state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)

    def find(self, name: str, tensor: torch.Tensor) -> Optional[Dict[str, Any]]:
        """Where the parameter stands, if the file holds the same bytes under its name."""
        data, owner = statistics.host_bytes(tensor)
        found = self._bytes(name, tensor)
        same = found is not None and found == data
        digest = statistics.digest(owner) if same else ""
        return {"digest": digest, "reference": {"file": self.path, "key": name}} if same else None

    def _bytes(self, name: str, tensor: torch.Tensor) -> Any:
        if self._state is not None:
            value = self._state.get(name)
            if not isinstance(value, torch.Tensor) or value.dtype != tensor.dtype or value.shape != tensor.shape:
                return None
            data, owner = statistics.host_bytes(value)
            return bytes(data) if owner is not None else None
        entry = self._entries.get(name)
        if entry is None or name == "__metadata__":
            return None
        if entry["dtype"] != SAFETENSORS.get(dtype_name(tensor.dtype)) or entry["shape"] != list(tensor.shape):
            return None
        start, end = entry["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self._begin + start)
            return file.read(end - start)
