"""Attaches to a script that knows nothing of Goldline, and to its worker processes.

`goldline.pth` in site-packages imports this module at the start of every Python process, but only where
`GOLDLINE_RECORD` or `GOLDLINE_KEEP_FP32` is set; torch is not imported here, its import is waited for. Then every
call of an outermost module is watched: the first is where overrides are put on, and steps are counted there.
"""

import atexit
import importlib.abc
import importlib.util
import os
import sys
from typing import Any, Dict, Optional

RECORD, KEEP_FP32 = "GOLDLINE_RECORD", "GOLDLINE_KEEP_FP32"


class TorchWatch(importlib.abc.MetaPathFinder):
    """Waits for the import of torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Lets the others find torch, and adds a call at the end of its import."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            install()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Attachment:
    """The recorder and the overrides of this process."""

    def __init__(self, recipe: Optional[Dict[str, Any]], patterns: Any) -> None:
        self.recipe, self.patterns = recipe, patterns
        self.step = 0
        self.depth = 0
        self._root: Any = None
        self._record: Any = None
        # Has ended inside an optimizer's hook, whose table must not change just then.
        self._ended: Any = None
        self._kept: Any = None
        atexit.register(self.close)

    def watch(self) -> None:
        """Calls of modules and steps of optimizers go through here from now on."""
        import torch
        from torch.optim import optimizer as optimizers

        call = torch.nn.Module.__call__
        attachment = self

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if attachment.depth:
                return call(module, *args, **kwargs)
            attachment.depth += 1
            try:
                attachment.before(module)
                return call(module, *args, **kwargs)
            finally:
                attachment.depth -= 1
                attachment.after(module)

        torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]
        if hasattr(optimizers, "register_optimizer_step_post_hook"):
            optimizers.register_optimizer_step_post_hook(lambda *_: self.stepped())

    def before(self, module: Any) -> None:
        """An outermost module is about to be called."""
        self.release()
        if self._root is None:
            if not self._is_wanted(module):
                return
            self._root = module
            if self.patterns is not None:
                from .overrides import keep_fp32

                self._kept = keep_fp32(module, self.patterns)
                print(
                    "goldline: fp32 in %s" % ", ".join(self._kept.modules + sorted(self._kept.operators)),
                    file=sys.stderr,
                )
        if module is self._root and self.recipe is not None and self._record is None and self._is_selected():
            self._begin(module)

    def after(self, module: Any) -> None:
        """It has ended; in a training step the optimizer ends the step."""
        import torch

        if module is self._root and not (torch.is_grad_enabled() and module.training):
            self.stepped()

    def stepped(self) -> None:
        """A step has ended."""
        if self._root is None or self.depth:
            return
        self.step += 1
        if self._record is not None:
            self._record.stop()
            self._ended, self._record = self._record, None

    def release(self) -> None:
        """Takes away what the last recording left."""
        if self._ended is not None:
            self._ended.release()
            self._ended = None

    def close(self) -> None:
        """The process ends, in the middle of a step perhaps."""
        if self._record is not None:
            self._record.stop()
            self._ended, self._record = self._record, None
        self.release()

    def _is_wanted(self, module: Any) -> bool:
        import fnmatch

        wanted = (self.recipe or {}).get("module")
        if wanted is not None:
            return fnmatch.fnmatchcase(type(module).__name__, wanted)
        return next(module.parameters(), None) is not None

    def _is_selected(self) -> bool:
        assert self.recipe is not None
        return self.step in self.recipe.get("steps", [0]) and (
            "ranks" not in self.recipe or self._rank() in self.recipe["ranks"]
        )

    @staticmethod
    def _rank() -> int:
        from .environment import ranks

        return ranks().get("rank", 0)

    def _begin(self, module: Any) -> None:
        from .recorder import record

        assert self.recipe is not None
        settings = {
            key: value for key, value in self.recipe.items() if key not in ("schema", "out", "steps", "ranks", "module")
        }
        path = os.path.join(self.recipe["out"], "step%d" % self.step, "rank%d" % self._rank())
        try:
            self._record = record(path, model=module, step=self.step, **settings)
        except FileExistsError as error:
            # A worker process that is no rank of its own (a data loader) finds the run taken.
            print("goldline: %s: not recorded again" % error, file=sys.stderr)
            self.recipe = None
            return
        self._record.__enter__()


def install() -> None:
    """torch is there: reads what the variables name and starts to watch."""
    from .recipe import read_patterns, read_recipe

    recipe, patterns = os.environ.get(RECORD), os.environ.get(KEEP_FP32)
    try:
        attachment = Attachment(read_recipe(recipe) if recipe else None, read_patterns(patterns) if patterns else None)
    except (OSError, ValueError) as error:
        raise SystemExit("goldline: %s" % error) from error
    attachment.watch()


def start() -> None:
    """Called from `goldline.pth`."""
    if not (os.environ.get(RECORD) or os.environ.get(KEEP_FP32)):
        return
    if "torch" in sys.modules:
        install()
    elif not any(isinstance(finder, TorchWatch) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchWatch())
