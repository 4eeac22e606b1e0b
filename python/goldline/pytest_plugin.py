"""A pytest fixture: a model's run against its golden.

    def test_resnet(golden, model, batch):
        golden.check(model, batch, name="resnet50")

records the model on `batch`, and verifies the run against `goldens/resnet50` with the program `goldline`. A test
that fails prints its table and the operator that broke the run; `pytest --goldline-update` approves what was
recorded as the new golden. The golden's directory is `goldline_goldens` of the ini file (default `goldens`, beside
the ini file), the case file stands beside it and may be edited: tolerances, layers.
"""

import os
import shutil
import subprocess
import sys
from typing import Any, Iterator, List, Optional

import pytest


def pytest_addoption(parser: Any) -> None:
    """`--goldline-update`, and where goldens are kept."""
    group = parser.getgroup("goldline")
    group.addoption("--goldline-update", action="store_true", help="approve what is recorded as the new goldens")
    parser.addini("goldline_goldens", "directory of the goldens, relative to the root directory", default="goldens")


class GoldenMismatch(AssertionError):
    """A run is not what its golden says; the text is goldline's report."""


class Golden:
    """Checks models against goldens below one directory."""

    def __init__(self, goldens: str, scratch: str, update: bool) -> None:
        self._goldens, self._scratch, self._update = goldens, scratch, update

    def check(self, model: Any, inputs: Any = None, name: str = "model", **settings: Any) -> Any:
        """Runs `model` on `inputs` (a dict becomes keyword arguments, a tuple or list positional ones), records
        it and compares. Returns the model's output. `settings` go to `goldline.record`.
        """
        from .recorder import record

        run = os.path.join(self._scratch, "run-%s" % name.replace(os.sep, "_"))
        shutil.rmtree(run, ignore_errors=True)
        with record(run, model=model, inputs=inputs, name=name, **settings):
            output = called(model, inputs)
        self.check_run(run, name)
        return output

    def check_run(self, run: str, name: str) -> None:
        """Compares a run that was recorded already."""
        case = os.path.join(self._goldens, name + ".yaml")
        exists = os.path.isdir(os.path.join(self._goldens, name))
        if not exists and not self._update:
            raise GoldenMismatch(
                "no golden of %s below %s: approve this run with pytest --goldline-update" % (name, self._goldens)
            )
        if not os.path.exists(case):
            os.makedirs(os.path.dirname(case), exist_ok=True)
            with open(case, "w", encoding="utf-8") as file:
                file.write("schema: goldline.case/1\nname: %s\ngolden: %s\n" % (name, os.path.basename(name)))
        if self._update:
            done = goldline(["record", case, "--run", run] + (["--update"] if exists else []))
            expected = "approve the run"
        else:
            done = goldline(["verify", case, "--run", run])
            expected = "verify"
        if done.returncode != 0:
            raise GoldenMismatch("goldline could not %s %s:\n%s%s" % (expected, name, done.stdout, done.stderr))


def called(model: Any, inputs: Any) -> Any:
    """The model on its inputs."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model() if inputs is None else model(inputs)


def goldline(arguments: List[str]) -> "subprocess.CompletedProcess[str]":
    """Runs the program."""
    program = find_program()
    if program is None:
        raise FileNotFoundError("goldline: the program is neither beside %s nor on the PATH" % sys.executable)
    environment = dict(os.environ, NO_COLOR="1")
    return subprocess.run([program] + arguments, capture_output=True, text=True, check=False, env=environment)


def find_program() -> Optional[str]:
    """`GOLDLINE_BIN`, else the one that was installed with this package, else the one on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "goldline")
    return os.environ.get("GOLDLINE_BIN") or (beside if os.path.exists(beside) else shutil.which("goldline"))


@pytest.fixture
def golden(request: Any, tmp_path: Any) -> Iterator[Golden]:
    """`golden.check(model, inputs, name="resnet50")`"""
    goldens = os.path.join(str(request.config.rootpath), request.config.getini("goldline_goldens"))
    yield Golden(goldens, str(tmp_path), request.config.getoption("--goldline-update"))
