"""Reads a run back: its layers, and tensors by id, with what shares bytes resolved."""

import glob
import json
import os
import struct
from typing import Any, Dict, List, Optional, Tuple

import torch

from .writer import SAFETENSORS

TORCH_DTYPES = {spelling: name for name, spelling in SAFETENSORS.items()}


class RunReader:
    """The run in the directory `path`, headers only until a tensor is asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.layers = read_lines(os.path.join(path, "layers.jsonl"))
        self._shared: Dict[str, Dict[str, Any]] = {}
        for line in read_lines(os.path.join(path, "stats.jsonl"), optional=True):
            if "alias_of" in line or "view_of" in line:
                self._shared[line["tensor"]] = line
        # Id -> file, first byte, header entry.
        self._stored: Dict[str, Tuple[str, int, Dict[str, Any]]] = {}
        for file in sorted(glob.glob(os.path.join(glob.escape(path), "tensors*.safetensors"))):
            begin, entries = read_header(file)
            for name, entry in entries.items():
                self._stored[name] = (file, begin + entry["data_offsets"][0], entry)

    def tensor(self, tensor_id: str) -> Optional[torch.Tensor]:
        """The tensor on the CPU; `None` where its bytes are not in the run."""
        place = self._stored.get(tensor_id)
        if place is not None:
            return self._read(place)
        line = self._shared.get(tensor_id)
        if line is None:
            return None
        view = line.get("view_of")
        place = self._stored.get(view["tensor"] if view is not None else line["alias_of"])
        if place is None:
            return None
        owner = self._read(place).reshape(-1)
        if view is None:
            return owner.reshape(line["shape"])
        return owner.as_strided(line["shape"], view["strides"], view["offset"])

    @staticmethod
    def _read(place: Tuple[str, int, Dict[str, Any]]) -> torch.Tensor:
        path, begin, entry = place
        dtype = getattr(torch, TORCH_DTYPES[entry["dtype"]])
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        if size == 0:
            return torch.empty(entry["shape"], dtype=dtype)
        with open(path, "rb") as file:
            file.seek(begin)
            data = bytearray(file.read(size))
        if len(data) != size:
            raise ValueError("%s: expected %d bytes at byte %d, found %d" % (path, size, begin, len(data)))
        return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(entry["shape"])


def read_header(path: str) -> Tuple[int, Dict[str, Any]]:
    """Where the data of a safetensors file begins, and its tensors."""
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 0 <= length <= os.path.getsize(path) - 8:
            raise ValueError("%s: byte 0: expected the length of a header, found %d" % (path, length))
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return 8 + length, entries


def read_lines(path: str, optional: bool = False) -> List[Dict[str, Any]]:
    """The objects of a file of JSON lines; a torn last line is left out."""
    if optional and not os.path.exists(path):
        return []
    found = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                if not line.endswith("\n"):
                    break
                raise ValueError("%s:%d: expected a JSON object: %s" % (path, number, error)) from error
    return found
