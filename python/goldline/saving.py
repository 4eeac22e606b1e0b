"""What of a tensor is kept: its bytes, some rows, or statistics; and each content once.

In goes each tensor that the recorder names, out go bytes and lines to the `RunWriter`. Views of what is stored
already, and tensors equal to one that is, take one line instead of their bytes.
"""

import fnmatch
import hashlib
import re
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

import torch

from . import statistics
from .checkpoint import Checkpoint
from .flow import Place, Window, geometry
from .operators import dtype_name
from .writer import SAFETENSORS, RunWriter

LEVELS = ("full", "rows", "stats")

# Rows kept by `rows`.
ROWS = 64

# Smaller tensors are stored whole at every level but stats, and never looked up by content: a line that
# says where they stand would be as long.
SMALL = 512

# Of the budget, full storing may use the first share; from the second on nothing but statistics is kept.
BUDGET_FULL, BUDGET_ROWS = 0.6, 0.9

UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Saver:
    """Keeps tensors at a level, within a budget.

    `save` is "full", "rows" or "stats"; `include` and `exclude` are globs on layer names (`*` stands for any
    characters): the outputs of a layer that they leave out are named with dtype and shape alone. `budget` (bytes)
    makes the level fall as it is used up.
    """

    def __init__(
        self,
        writer: RunWriter,
        save: str = "full",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        budget: Optional[int] = None,
        rows: int = ROWS,
        samples: int = statistics.SAMPLES,
        checkpoint: Optional[Checkpoint] = None,
    ) -> None:
        self.writer = writer
        self.notes: List[str] = []
        self._level = LEVELS.index(save)
        self._include, self._exclude = globs(include), globs(exclude)
        self._budget = budget
        self._rows, self._samples = rows, samples
        self._checkpoint = checkpoint
        # (dtype, bytes, sampled bytes) -> the id that such a tensor is stored under.
        self._contents: Dict[Tuple[str, int, bytes], str] = {}
        self._cut: Set[str] = set()
        # Id -> the id that its bytes are stored under, and where in them a view lies.
        self._shared: Dict[str, Tuple[str, Optional[Dict[str, Any]]]] = {}

    @property
    def level(self) -> str:
        """What is kept at present."""
        return LEVELS[self._level]

    def wants(self, layer: str) -> bool:
        """Whether `include` and `exclude` let the outputs of a layer be kept."""
        if self._include is not None and not self._include.match(layer):
            return False
        return self._exclude is None or not self._exclude.match(layer)

    def save(
        self, tensor_id: str, tensor: torch.Tensor, place: Place, layer: str, parameter: Optional[str] = None
    ) -> None:
        """Keeps what `layer` made; `parameter` is the name in the model where it is one."""
        dtype = dtype_name(tensor.dtype)
        if not self.wants(layer) or dtype not in SAFETENSORS:
            self.writer.statistics(head(tensor_id, dtype, tensor))
            return
        if parameter is not None and self._checkpoint is not None:
            found = self._checkpoint.find(parameter, tensor)
            if found is not None:
                self.writer.statistics(dict(head(tensor_id, dtype, tensor), **found))
                return
        self._degrade(layer)
        if self.level == "stats":
            line = dict(head(tensor_id, dtype, tensor), **self._measured(tensor_id, tensor, place))
            if parameter is not None:
                line["digest"] = statistics.digest(tensor)
            if "alias_of" not in line:
                line["samples"] = statistics.sampled(tensor, tensor_id, self._samples)
            self.writer.statistics(line)
        elif self.level == "rows" and parameter is None:
            self._store_rows(tensor_id, dtype, tensor, place)
        else:
            self._store(tensor_id, dtype, tensor, place)

    def keep_whole(self, tensor_id: str, tensor: torch.Tensor, place: Place) -> None:
        """Stores a tensor whole where the level would store rows of it."""
        self._store(tensor_id, dtype_name(tensor.dtype), tensor, place)

    def is_cut(self, tensor_id: str) -> bool:
        """Whether only some rows of the tensor were stored."""
        return tensor_id in self._cut

    def holds(self, tensor_id: str, tensor: torch.Tensor) -> bool:
        """Whether the tensor is, byte by byte, what was stored under the id."""
        shared = self._shared.get(tensor_id)
        stored = self.writer.stored(shared[0] if shared is not None else tensor_id)
        if not stored:
            return False
        data, owner = statistics.host_bytes(tensor)
        if shared is None or shared[1] is None:
            return data == stored
        whole = torch.frombuffer(bytearray(stored), dtype=tensor.dtype)
        part, part_owner = statistics.host_bytes(
            whole.as_strided(tensor.shape, shared[1]["strides"], shared[1]["offset"])
        )
        same = data == part
        del owner, part_owner
        return same

    def _measured(self, tensor_id: str, tensor: torch.Tensor, place: Place) -> Dict[str, Any]:
        """Statistics and digest; those of a view follow from what it is a view of, which `alias_of` names."""
        window = dense_window(tensor) or permuted_window(tensor)
        known = place.measured.get(window) if window is not None else None
        if known is None:
            found = dict(statistics.measured(tensor), digest=statistics.checksum(tensor))
            if tensor.is_contiguous() and window is not None:
                place.measured[window] = dict(found, alias_of=tensor_id)
            return found
        if tensor.is_contiguous():
            return known
        # The same elements in another order: all is equal but the digest.
        return {key: value for key, value in known.items() if key not in ("digest", "alias_of")}

    def _store(self, tensor_id: str, dtype: str, tensor: torch.Tensor, place: Place) -> None:
        if self._store_view(tensor_id, dtype, tensor, place):
            return
        data, owner = statistics.host_bytes(tensor)
        window = dense_window(tensor)
        if data.nbytes >= SMALL:
            content = (dtype, data.nbytes, probe(data))
            known = self._contents.setdefault(content, tensor_id)
            if known != tensor_id and self.writer.stored(known) == data:
                self._share(head(tensor_id, dtype, tensor), known)
                if window is not None:
                    place.kept[window] = known
                return
        self.writer.tensor(tensor_id, dtype, tuple(tensor.shape), data)
        if window is not None:
            place.kept[window] = tensor_id
        del owner

    def _store_view(self, tensor_id: str, dtype: str, tensor: torch.Tensor, place: Place) -> bool:
        """Says which part of a stored tensor this one is, where it is one."""
        if not place.kept or tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        offset, shape, strides, kind = geometry(tensor)
        count = tensor.numel()
        if count == 0:
            return False
        dense = tensor.is_contiguous()
        last = offset + (count - 1 if dense else sum((extent - 1) * stride for extent, stride in zip(shape, strides)))
        for (begin, extent, stored_kind), known in place.kept.items():
            if stored_kind != kind or offset < begin or last >= begin + extent:
                continue
            if dense and offset == begin and count == extent:
                self._share(head(tensor_id, dtype, tensor), known)
                return True
            if count * tensor.element_size() >= SMALL:
                view = {"offset": offset - begin, "strides": list(strides)}
                self._share(head(tensor_id, dtype, tensor), known, view)
                return True
        return False

    def _share(self, line: Dict[str, Any], known: str, view: Optional[Dict[str, Any]] = None) -> None:
        self._shared[line["tensor"]] = (known, view)
        if view is None:
            line["alias_of"] = known
        else:
            line["view_of"] = dict(view, tensor=known)
        self.writer.statistics(line)

    def _store_rows(self, tensor_id: str, dtype: str, tensor: torch.Tensor, place: Place) -> None:
        rows = chosen_rows(tensor, self._rows)
        if rows is None:
            self._store(tensor_id, dtype, tensor, place)
            return
        part = tensor.detach().reshape(-1, tensor.shape[-1])
        index = torch.tensor(rows, device=tensor.device)
        narrow = part.is_floating_point() and part.element_size() == 1
        part = part.view(torch.uint8)[index] if narrow else part[index]
        data, owner = statistics.host_bytes(part)
        line = dict(head(tensor_id, dtype, tensor), **self._measured(tensor_id, tensor, place))
        self._cut.add(tensor_id)
        line.pop("alias_of", None)
        line["slice"] = {"rows": rows}
        self.writer.statistics(line)
        self.writer.tensor(tensor_id, dtype, (len(rows), tensor.shape[-1]), data)
        del owner

    def _degrade(self, layer: str) -> None:
        if self._budget is None:
            return
        used = self.writer.stored_bytes / self._budget
        level = 2 if used >= BUDGET_ROWS else 1 if used >= BUDGET_FULL else 0
        if level > self._level:
            self._level = level
            what = "only %d rows of a tensor" % self._rows if level == 1 else "only statistics"
            self.notes.append(
                "from %s on %s were kept: %d of the budget of %d bytes were used"
                % (layer, what, self.writer.stored_bytes, self._budget)
            )


def head(tensor_id: str, dtype: str, tensor: torch.Tensor) -> Dict[str, Any]:
    """What every line of stats.jsonl begins with."""
    return {"tensor": tensor_id, "dtype": dtype, "shape": list(tensor.shape)}


def dense_window(tensor: torch.Tensor) -> Optional[Window]:
    """The elements of its storage that a dense tensor covers in order."""
    if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    return tensor.storage_offset(), tensor.numel(), tensor.dtype


def permuted_window(tensor: torch.Tensor) -> Optional[Window]:
    """The elements that a tensor covers each once, in whatever order of its axes."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent != 1 and stride != expected:
            return None
        expected *= extent
    return tensor.storage_offset(), tensor.numel(), tensor.dtype


def probe(data: memoryview) -> bytes:
    """A few bytes of the content: tensors that differ here differ, the rest is compared whole."""
    size = data.nbytes
    parts = (data[at : at + 16] for at in (0, size // 7, size // 3, size // 2, size - size // 5 - 16, size - 16))
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def chosen_rows(tensor: torch.Tensor, count: int) -> Optional[List[int]]:
    """Which rows (all axes but the last, flattened) are kept; `None` for the tensor as a whole.

    They follow from the number of rows alone, so that the layers of one block keep the same tokens: the first
    and the last, and the others spread evenly.
    """
    if tensor.dim() < 2 or tensor.layout != torch.strided or tensor.shape[-1] == 0:
        return None
    rows = tensor.numel() // tensor.shape[-1]
    if rows <= count or count < 2:
        return None
    return [at * (rows - 1) // (count - 1) for at in range(count)]


def globs(patterns: Union[str, Sequence[str]]) -> Optional["re.Pattern[str]"]:
    """One expression for all globs; `None` where there are none."""
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in listed)) if listed else None


def parse_bytes(budget: Union[None, int, str]) -> Optional[int]:
    """`2GB`, `500 MB`, `1000000` -> bytes."""
    if budget is None or isinstance(budget, int):
        return budget
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)i?b?\s*", budget.lower())
    if found is None:
        raise ValueError("budget: expected a size such as 2GB, found %r" % budget)
    return max(1, int(float(found.group(1)) * UNITS[found.group(2)]))
