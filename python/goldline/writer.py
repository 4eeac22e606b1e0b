"""Writes a run directory (`goldline.run/1`) as the run goes on; knows bytes and JSON, no framework.

In go layers, tensors and statistics in execution order; out comes a directory that is a valid run after every
flush: a shard of tensors is written aside and renamed, and only then are the layers appended that name its
tensors. `complete` in run.json is false until the run is closed well.
"""

import json
import os
import struct
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

FORMAT = "goldline.run/1"

# A shard is closed at this many bytes of data. Larger ones lose more where a process is killed.
SHARD_BYTES = 128 << 20

# So much is gathered in memory before the shard gets a file: small runs get headers without padding.
GATHER_BYTES = 4 << 20

# Space for the header of a shard that is written while its tensors are not all known.
HEADER_BYTES = 256 << 10

# dtype as torch spells it -> as safetensors does.
SAFETENSORS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "complex64": "C64", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


class Shard:
    """One safetensors file that grows: `[8 bytes: length][header, padded with spaces][data]`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: Dict[str, Any] = {}
        self.size = 0
        self._header_size = 2
        # Data by where it begins, until there is a file.
        self._gathered: Dict[int, bytes] = {}
        self._file: Optional[BinaryIO] = None

    def has_room(self, name: str) -> bool:
        """Whether the header can take another tensor."""
        return self._header_size + entry_size(name) < HEADER_BYTES

    def add(self, name: str, dtype: str, shape: Tuple[int, ...], data: memoryview) -> Tuple[int, int]:
        """Appends a tensor; returns where its data lies."""
        start, end = self.size, self.size + data.nbytes
        self.entries[name] = {"dtype": SAFETENSORS[dtype], "shape": list(shape), "data_offsets": [start, end]}
        self._header_size += len(json.dumps({name: self.entries[name]}, separators=(",", ":")))
        if self._file is None and end > GATHER_BYTES:
            self._file = open(self.path + ".part", "wb+")
            self._file.write(b"\0" * (8 + HEADER_BYTES))
            for part in self._gathered.values():
                self._file.write(part)
            self._gathered = {}
        if self._file is None:
            self._gathered[start] = bytes(data)
        else:
            self._file.write(data)
        self.size = end
        return start, end

    def read(self, start: int, end: int) -> bytes:
        """Data that was added before."""
        if self._file is None:
            return self._gathered[start] if end > start else b""
        self._file.flush()
        self._file.seek(8 + HEADER_BYTES + start)
        data = self._file.read(end - start)
        self._file.seek(0, os.SEEK_END)
        return data

    def close(self) -> int:
        """Writes the header and puts the file in place; returns where its data begins."""
        header = json.dumps(self.entries, separators=(",", ":")).encode()
        if self._file is None:
            header += b" " * (-len(header) % 8)
            self._file = open(self.path + ".part", "wb")
            self._file.write(struct.pack("<Q", len(header)) + header)
            for part in self._gathered.values():
                self._file.write(part)
        else:
            header += b" " * (HEADER_BYTES - len(header))
            self._file.seek(0)
            self._file.write(struct.pack("<Q", len(header)) + header)
        self._gathered = {}
        self._file.close()
        os.replace(self.path + ".part", self.path)
        return 8 + len(header)


def entry_size(name: str) -> int:
    """At most so many bytes does a tensor take in a header."""
    return len(json.dumps(name)) + 260


class RunWriter:
    """The run directory `path`, which must not hold a run yet."""

    def __init__(self, path: str, manifest: Dict[str, Any], shard_bytes: int = SHARD_BYTES) -> None:
        os.makedirs(path, exist_ok=True)
        for name in ("run.json", "layers.jsonl"):
            if os.path.exists(os.path.join(path, name)):
                raise FileExistsError("%s: expected no run there, found %s" % (path, name))
        self.path = path
        self.manifest = dict(manifest, format=FORMAT)
        self.stored_bytes = 0
        self._shard_bytes = shard_bytes
        self._shards = 0
        self._shard: Optional[Shard] = None
        # Where each tensor lies: shard file, first and last byte of the file.
        self._stored: Dict[str, Tuple[str, int, int]] = {}
        self._layers: List[Dict[str, Any]] = []
        self._statistics: List[Dict[str, Any]] = []
        open(os.path.join(path, "layers.jsonl"), "w", encoding="utf-8").close()
        self._write_manifest(complete=False)

    def layer(self, layer: Dict[str, Any]) -> None:
        """Appends a layer; the dict may still change until the next flush."""
        self._layers.append(layer)

    def tensor(self, name: str, dtype: str, shape: Tuple[int, ...], data: memoryview) -> None:
        """Stores a tensor: row-major, little-endian bytes. `dtype` as torch spells it."""
        if self._shard is not None and not self._shard.has_room(name):
            self.flush()
        if self._shard is None:
            self._shards += 1
            self._shard = Shard(os.path.join(self.path, "tensors-%05d.safetensors" % self._shards))
        start, end = self._shard.add(name, dtype, shape, data)
        self._stored[name] = ("", start, end)
        self.stored_bytes += data.nbytes

    def statistics(self, line: Dict[str, Any]) -> None:
        """Appends a line of stats.jsonl."""
        self._statistics.append(line)

    def stored(self, name: str) -> Optional[bytes]:
        """The bytes of a stored tensor, read back."""
        place = self._stored.get(name)
        if place is None:
            return None
        path, start, end = place
        if not path:
            return self._shard.read(start, end) if self._shard is not None else None
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)

    def flush_if_due(self) -> None:
        """Flushes where enough has gathered."""
        if self._shard is not None and self._shard.size >= self._shard_bytes or len(self._layers) >= 20000:
            self.flush()

    def flush(self) -> None:
        """Puts all that was given so far on disk: tensors first, then the lines that name them."""
        if self._shard is not None:
            shard, self._shard = self._shard, None
            begin = shard.close()
            for name, entry in shard.entries.items():
                start, end = entry["data_offsets"]
                self._stored[name] = (shard.path, begin + start, begin + end)
        self._append("stats.jsonl", self._statistics)
        self._append("layers.jsonl", self._layers)
        self._statistics, self._layers = [], []

    def close(self, complete: bool) -> None:
        """Ends the run."""
        self.flush()
        self._write_manifest(complete)

    def _append(self, name: str, lines: List[Dict[str, Any]]) -> None:
        if lines:
            with open(os.path.join(self.path, name), "a", encoding="utf-8") as out:
                out.writelines(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)

    def _write_manifest(self, complete: bool) -> None:
        path = os.path.join(self.path, "run.json")
        with open(path + ".part", "w", encoding="utf-8") as out:
            json.dump(dict(self.manifest, complete=complete), out, indent=1, allow_nan=False)
            out.write("\n")
        os.replace(path + ".part", path)
