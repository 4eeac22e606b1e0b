"""The fixture in a project of its own."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

TEST = """
import os
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act, self.out = torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.act(self.inner(x))
        if "BROKEN" in os.environ:
            hidden = hidden * 1.2
        return self.out(hidden)

def test_model(golden):
    torch.manual_seed(0)
    model, x = Model(), torch.randn(3, 4)
    y = golden.check(model, {"x": x}, name="small")
    assert y.shape == (3, 2)
"""


@pytest.fixture
def project(tmp_path, program):
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*options, **variables):
        environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), GOLDLINE_BIN=program, **variables)
        command = [sys.executable, "-m", "pytest", "-p", "goldline.pytest_plugin", "-q", "test_it.py"]
        return subprocess.run(
            command + list(options), cwd=str(tmp_path), env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_a_golden_is_made_held_and_changed(project, tmp_path):
    missing = project()
    assert missing.returncode == 1 and "--goldline-update" in missing.stdout
    made = project("--goldline-update")
    assert made.returncode == 0, made.stdout
    assert (tmp_path / "goldens" / "small" / "golden.json").exists()
    assert project().returncode == 0
    broken = project(BROKEN="1")
    assert broken.returncode == 1
    # The operator that is new, and the table of layers.
    assert "small" in broken.stdout and "mul" in broken.stdout and "verdict" in broken.stdout
    assert project("--goldline-update", BROKEN="1").returncode == 0
    assert project(BROKEN="1").returncode == 0 and project().returncode == 1
