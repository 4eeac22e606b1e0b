"""Which recorded tensor a tensor is: ids that follow the data.

A tensor of torch is a window on a storage that may be written through any other window. What was recorded is a
value: what stood in a window between two writes. So an id belongs to a storage, the geometry of the window
(offset, shape, strides, dtype) and the writes so far. A write that the recorder saw makes all ids of the storage
stale; one that it did not see shows in torch's version counter.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Storages that are gone are looked for after this many new ones.
SWEEP_EVERY = 2048

# (element offset, shape, strides, dtype)
Geometry = Tuple[int, Tuple[int, ...], Tuple[int, ...], torch.dtype]

# (element offset, elements, dtype) of a tensor that covers them in order.
Window = Tuple[int, int, torch.dtype]


class Given(NamedTuple):
    """A tensor that the program was given."""

    name: str
    op: str
    is_parameter: bool


class Place:
    """What is known of one storage."""

    __slots__ = ("former", "given", "ids", "is_settling", "kept", "measured", "owner", "version", "writes")

    def __init__(self, owner: Any, version: Optional[int]) -> None:
        self.owner = owner
        self.version = version
        # torch gives a result its counter, and counts a write, only after the recorder has returned: the next
        # value that is seen is right.
        self.is_settling = True
        self.ids: Dict[Geometry, str] = {}
        # Ids that were written there, in order; and what a window held before, with the number of writes then.
        self.writes: List[str] = []
        self.former: Dict[Geometry, Tuple[str, int]] = {}
        # What the program calls a window: name, op (`param`, `input`) and whether it is in the model.
        self.given: Dict[Geometry, "Given"] = {}
        # Dense windows whose bytes were stored: the id they are under.
        self.kept: Dict[Window, str] = {}
        # The same for windows that were measured: their statistics, digest included.
        self.measured: Dict[Window, Dict[str, Any]] = {}

    def retire(self) -> None:
        """What the windows held is no longer there."""
        for window, tensor_id in self.ids.items():
            self.former[window] = (tensor_id, len(self.writes))
        self.ids, self.kept, self.measured = {}, {}, {}


class Flow:
    """The ids of all tensors that are alive."""

    def __init__(self) -> None:
        self._places: Dict[int, Place] = {}
        self._until_sweep = SWEEP_EVERY

    def lookup(self, tensor: torch.Tensor) -> Optional[str]:
        """The id of what the tensor holds now; `None` where that was never recorded."""
        place = self._places.get(self._key(tensor)[0])
        if place is None or not self._is_current(place, tensor):
            return None
        return place.ids.get(geometry(tensor))

    def give(self, tensor: torch.Tensor, name: str, op: str, is_parameter: bool) -> None:
        """Says what to call the tensor when it is first read; the first name given stays."""
        self._place(tensor).given.setdefault(geometry(tensor), Given(name, op, is_parameter))

    def given(self, tensor: torch.Tensor) -> Optional[Given]:
        """What `give` said."""
        place = self._places.get(self._key(tensor)[0])
        return None if place is None else place.given.get(geometry(tensor))

    def updated_from(self, tensor: torch.Tensor) -> List[str]:
        """For a window that other windows wrote into: what it held before, and what was written since."""
        place = self._places.get(self._key(tensor)[0])
        if place is None or not place.writes:
            return []
        before = place.former.get(geometry(tensor))
        if before is None:
            return list(dict.fromkeys(place.writes))
        return list(dict.fromkeys([before[0]] + place.writes[before[1] :]))

    def bind(self, tensor: torch.Tensor, tensor_id: str) -> Place:
        """From now on the tensor is known by `tensor_id`.

        An operator's result has not got its version counter yet: it is not looked at.
        """
        place = self._place(tensor)
        place.ids[geometry(tensor)] = tensor_id
        return place

    def rebind(self, tensor: torch.Tensor, tensor_id: str) -> Place:
        """The same for a tensor that something unseen may have written."""
        place = self._place(tensor)
        if not self._is_current(place, tensor):
            place.retire()
            place.writes, place.former, place.version = [], {}, version(tensor)
        place.ids[geometry(tensor)] = tensor_id
        return place

    def written(self, tensor: torch.Tensor) -> None:
        """An operator wrote into the tensor's storage: what stood there has gone."""
        place = self._place(tensor)
        place.retire()
        place.is_settling = True

    def bind_written(self, tensor: torch.Tensor, tensor_id: str) -> Place:
        """The content that the operator left there is known by `tensor_id`."""
        place = self.bind(tensor, tensor_id)
        place.writes.append(tensor_id)
        return place

    def adopt(self, tensor: torch.Tensor) -> None:
        """The version counter moved though the content did not (it belongs to another alias)."""
        self._place(tensor).version = version(tensor)

    def stale_id(self, tensor: torch.Tensor) -> Optional[str]:
        """The id of a tensor whose version counter moved without a write that was seen."""
        place = self._places.get(self._key(tensor)[0])
        if place is None or place.version == version(tensor):
            return None
        return place.ids.get(geometry(tensor))

    def _is_current(self, place: Place, tensor: torch.Tensor) -> bool:
        now = version(tensor)
        if place.version == now:
            place.is_settling = False
            return True
        if place.is_settling or place.version is None or now is None:
            place.version, place.is_settling = now, False
            return True
        return False

    def _place(self, tensor: torch.Tensor) -> Place:
        key, make_owner = self._key(tensor)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(make_owner(), version(tensor))
            self._until_sweep -= 1
            if self._until_sweep <= 0:
                self._sweep()
        return place

    def _sweep(self) -> None:
        self._places = {key: place for key, place in self._places.items() if not is_gone(place.owner)}
        self._until_sweep = max(SWEEP_EVERY, len(self._places) // 2)

    @staticmethod
    def _key(tensor: torch.Tensor) -> Tuple[int, Any]:
        """A number that stands for the storage as long as its owner is held, and what makes the owner."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            # Sparse and opaque tensors have none: the object itself is held.
            return -id(tensor), lambda: tensor
        # The weak reference keeps the address from being given to another storage, not the memory.
        return storage._cdata, lambda: StorageWeakRef(storage)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a distributed tensor (FSDP 2): what operators see; others as they are."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


def is_gone(owner: Any) -> bool:
    """Whether no tensor uses the storage any more."""
    return isinstance(owner, StorageWeakRef) and owner.expired()


def geometry(tensor: torch.Tensor) -> Geometry:
    """Where in its storage the tensor lies."""
    try:
        return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
    except (RuntimeError, NotImplementedError):
        return 0, tuple(tensor.shape), (), tensor.dtype


def version(tensor: torch.Tensor) -> Optional[int]:
    """torch's count of writes; `None` in inference mode, where it is not kept."""
    if torch.is_inference_mode_enabled():
        return None
    try:
        return tensor._version
    except RuntimeError:
        return None
