"""`record`: one run of a PyTorch program as a `goldline.run/1`.

In goes whatever runs inside the `with` block; out comes a run directory that is valid at every moment, whatever
happens to the program. The program computes what it computes without the recorder, bit by bit.
"""

import datetime
import hashlib
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch

from . import environment, statistics
from .backward import Nodes
from .checkpoint import Checkpoint
from .dispatch import OperatorMode
from .ledger import Ledger
from .modules import ModuleHooks
from .observer import ObserverCheck
from .operators import dtype_name, named_tensors
from .quiet import quiet
from .saving import LEVELS as SAVES
from .saving import ROWS, Saver, parse_bytes
from .scope import Scope
from .training import TrainingHooks
from .writer import SHARD_BYTES, RunWriter

LEVELS = ("operator", "module", "both")


class record:  # noqa: N801 - used like a function: `with goldline.record(...)`
    """Records what runs inside the block into the new directory `path`.

    model     the module, or modules by name; gives layers and parameters their names
    seed      stored; `goldline.seed_all` sets it
    inputs    tensors (or nested lists and dicts of them) that the program is given; named in the run
    level     "operator": every operator; "module": one layer for each module without children, and the operators
              between; "both": operators, and every module around them
    save      "full": all bytes; "rows": some rows of each tensor; "stats": statistics, digest and samples
    include, exclude   globs on layer names: of other layers, dtype and shape of the outputs alone
    budget    bytes (or "2GB") after which less is kept: rows, then statistics; the run says from where on
    checkpoint         a file that holds the parameters: those that stand there are stored by reference
    observer_check     also runs the model once without the recorder and stores whether the outputs are equal
    step, name         stored as they are
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        model: Any = None,
        seed: Optional[int] = None,
        inputs: Any = None,
        level: str = "operator",
        save: str = "full",
        include: Union[str, Sequence[str]] = (),
        exclude: Union[str, Sequence[str]] = (),
        budget: Union[None, int, str] = None,
        checkpoint: Optional[str] = None,
        observer_check: bool = False,
        step: Optional[int] = None,
        name: Optional[str] = None,
        rows: int = ROWS,
        samples: int = statistics.SAMPLES,
        source: bool = True,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        if level not in LEVELS:
            raise ValueError("level: expected one of %s, found %r" % (", ".join(LEVELS), level))
        if save not in SAVES:
            raise ValueError("save: expected one of %s, found %r" % (", ".join(SAVES), save))
        # Before anything is written, so that a wrong setting leaves nothing behind.
        limit = parse_bytes(budget)
        store = Checkpoint(checkpoint) if checkpoint is not None else None
        self.path = os.fspath(path)
        self._model, self._inputs, self._level, self._with_source = model, inputs, level, source
        self._observer = ObserverCheck() if observer_check else None
        self._first_device: Optional[str] = None
        manifest: Dict[str, Any] = {"name": name or os.path.basename(os.path.normpath(self.path))}
        manifest["created"] = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat()
        if seed is not None:
            manifest["seed"] = seed
        if step is not None:
            manifest["step"] = step
        manifest.update(environment.ranks())
        manifest["precision"] = environment.precision_of(model)
        manifest["environment"] = environment.environment(device_of(model))
        manifest["recorder"] = {"level": level, "save": save}
        self._writer = RunWriter(self.path, manifest, shard_bytes)
        self._saver = Saver(self._writer, save, include, exclude, limit, rows, samples, store)
        self._ledger = Ledger(self._writer, self._saver)
        self._scope = Scope()
        self._nodes = Nodes(self._ledger, self._scope)
        self._mode: Optional[OperatorMode] = None
        self._modules: Optional[ModuleHooks] = None
        self._training: Optional[TrainingHooks] = None

    def __enter__(self) -> "record":
        with quiet():
            self._name_inputs()
            self._modules = ModuleHooks(self._model, self._level, self._ledger, self._scope, self._on_root)
        self._training = TrainingHooks(self._ledger, self._scope, self._nodes)
        self._mode = OperatorMode(self._ledger, self._scope, self._nodes, self._training, self._with_source)
        self._mode.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.stop(error)
        self.release()

    def stop(self, error: Optional[BaseException] = None) -> None:
        """Ends the run; hooks on optimizers stay, silent, until `release`."""
        assert self._mode is not None and self._modules is not None and self._training is not None
        self._mode.__exit__(type(error) if error is not None else None, error, None)
        self._modules.remove()
        self._training.silence()
        with quiet():
            self._nodes.close()
            self._describe(error)
            self._writer.close(complete=error is None)
        for line in (line for key in ("notes", "unseen", "failures") for line in self._writer.manifest.get(key, [])):
            print("goldline: %s: %s" % (self.path, line), file=sys.stderr)

    def release(self) -> None:
        """Takes the last hooks away: not from within an optimizer's hook, which torch goes through just then."""
        if self._training is not None:
            self._training.remove()

    def mark(self, name: str, tensor: torch.Tensor) -> None:
        """Names a tensor that the program makes outside the model: it is an input under this name."""
        with quiet():
            self._ledger.flow.give(tensor, name, "input", False)

    def _name_inputs(self) -> None:
        named = named_tensors(self._inputs, "")
        for number, (name, tensor) in enumerate(named):
            self._ledger.flow.give(tensor, name or "input%d" % number, "input", False)
        if named:
            self._writer.manifest["inputs_digest"] = inputs_digest(
                [(name or "input%d" % number, tensor) for number, (name, tensor) in enumerate(named)]
            )

    def _on_root(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if output is None:
            self._scope.in_optimizer = False
            self._writer.manifest["precision"] = environment.precision_of(self._model)
            if self._observer is not None:
                self._observer.before(module, args, kwargs)
        elif self._observer is not None:
            self._observer.after(output)

    def _describe(self, error: Optional[BaseException]) -> None:
        assert self._modules is not None and self._training is not None
        manifest = self._writer.manifest
        for key, value in (
            ("notes", self._saver.notes),
            ("unseen", self._modules.unseen),
            ("failures", summary_of(self._ledger.failures)),
            ("optimizers", self._training.optimizers),
            ("scaler", self._training.scaler),
            ("loss", self._training.loss),
            ("observer_check", self._observer.result if self._observer is not None else None),
        ):
            if value:
                manifest[key] = value
        if error is not None:
            manifest["ended_by"] = "%s: %s" % (type(error).__name__, str(error)[:500])


def summary_of(failures: Sequence[str]) -> List[str]:
    """Each failure once, with its number; the first ten kinds."""
    counts: Dict[str, int] = {}
    for failure in failures:
        counts[failure] = counts.get(failure, 0) + 1
    return ["%d times not recorded: %s" % (count, failure) for failure, count in list(counts.items())[:10]]


def device_of(model: Any) -> Optional[str]:
    """The device type of a model's first parameter."""
    roots: List[Any] = list(model.values()) if isinstance(model, dict) else [model] if model is not None else []
    for root in roots:
        for parameter in root.parameters():
            return parameter.device.type
    return None


def inputs_digest(named: Sequence[Tuple[str, torch.Tensor]]) -> str:
    """`sha256:hex` over the inputs sorted by name: name, dtype, shape, little-endian bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(("%s\0%s\0%s\0" % (name, dtype_name(tensor.dtype), list(tensor.shape))).encode())
        data, owner = statistics.host_bytes(tensor)
        digest.update(data)
        del owner
    return "sha256:" + digest.hexdigest()
