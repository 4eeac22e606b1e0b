"""Scripts that know nothing of Goldline."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, RunReader

from goldline.recipe import read_patterns, read_recipe

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(3, 4)).sum()
    loss.backward()
    optimizer.step()
print("%.9f" % loss.item())
"""

WORKERS = """
import os, subprocess, sys
for rank in range(2):
    subprocess.run([sys.executable, sys.argv[1]], env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2"), check=True)
"""


def run_script(tmp_path, script, *arguments, **variables):
    """A fresh interpreter that reads goldline.pth as site-packages would have it read."""
    path = tmp_path / "script.py"
    path.write_text(script)
    hook = os.path.join(ROOT, "python", "goldline.data", "purelib")
    # sitecustomize is imported in every process, as .pth files of site-packages are read.
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import site; site.addsitedir(%r)" % hook)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(site), os.path.join(ROOT, "python")]), **variables)
    return subprocess.run(
        [sys.executable, str(path)] + list(arguments),
        env=environment,
        capture_output=True,
        text=True,
        cwd=str(tmp_path),
    )


def test_a_recipe_selects_steps(tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        "out: runs/npu   # where\nsteps: [1, 3]\nsave: full\nexclude:\n  - '*.relu'\n"
    )
    plain = run_script(tmp_path, SCRIPT)
    done = run_script(tmp_path, SCRIPT, GOLDLINE_RECORD=str(tmp_path / "recipe.yaml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert sorted(os.listdir(str(tmp_path / "runs" / "npu"))) == ["step1", "step3"]
    run = tmp_path / "runs" / "npu" / "step3" / "rank0"
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["complete"] and manifest["step"] == 3 and manifest["precision"]["autocast"]
    layers = RunReader(str(run)).layers
    assert {"forward", "backward", "optimizer"} == {one["pass"] for one in layers}
    assert "0.linear" in {one["name"] for one in layers}


def test_worker_processes_record_their_ranks(tmp_path):
    (tmp_path / "recipe.yaml").write_text("out: runs\nranks: [1]\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_script(tmp_path, WORKERS, str(tmp_path / "train.py"), GOLDLINE_RECORD=str(tmp_path / "recipe.yaml"))
    assert done.returncode == 0, done.stderr
    assert os.listdir(str(tmp_path / "runs" / "step0")) == ["rank1"]
    manifest = json.loads((tmp_path / "runs" / "step0" / "rank1" / "run.json").read_text())
    assert (manifest["rank"], manifest["world_size"]) == (1, 2)


def test_a_list_keeps_operators_in_fp32(tmp_path):
    (tmp_path / "list.txt").write_text("# why\n2\n")
    (tmp_path / "recipe.yaml").write_text("out: runs\n")
    done = run_script(
        tmp_path, SCRIPT, GOLDLINE_KEEP_FP32=str(tmp_path / "list.txt"), GOLDLINE_RECORD=str(tmp_path / "recipe.yaml")
    )
    assert done.returncode == 0 and "goldline: fp32 in 2" in done.stderr
    run = RunReader(str(tmp_path / "runs" / "step0" / "rank0"))
    dtypes = {one["name"]: str(run.tensor(one["outputs"][0]).dtype) for one in run.layers if one["op"] == "linear"}
    assert dtypes == {"0.linear": "torch.bfloat16", "2.linear": "torch.float32"}


def test_without_the_variables_nothing_is_imported(tmp_path):
    done = run_script(
        tmp_path, "import sys\nprint(sorted(name for name in sys.modules if name.startswith('goldline')))\n"
    )
    assert done.stdout == "[]\n"


def test_a_wrong_recipe_ends_the_script_with_one_line(tmp_path):
    (tmp_path / "recipe.yaml").write_text("out: runs\nstep: 1\n")
    done = run_script(tmp_path, SCRIPT, GOLDLINE_RECORD=str(tmp_path / "recipe.yaml"))
    assert done.returncode == 1
    assert "found key 'step'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("out: a\nsteps: 3", {"out": "a", "steps": [3]}),
        ("# note\nout: 'a b#c'\ninclude: [\"x.*\", y]\n", {"out": "a b#c", "include": ["x.*", "y"]}),
        ("---\nout: a\ninclude:\n- x\n- 'y'\nseed: 7\n", {"out": "a", "include": ["x", "y"], "seed": 7}),
        ('{"out": "a", "ranks": [0]}', {"out": "a", "ranks": [0]}),
    ],
)
def test_recipes_are_read(text, found, tmp_path):
    (tmp_path / "recipe").write_text(text)
    assert read_recipe(str(tmp_path / "recipe")) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out: a\n  nested: b: c\n", "recipe:2: expected `key: value`"),
        ("out: a\nout: b\n", "recipe:2: expected each key once"),
        ("steps: [0]\n", "out: expected a directory, found None"),
        ("out: a\nsteps: [0, x]\n", "steps: expected numbers, found 'x'"),
        ("out: a\ninclude: [x\n", "recipe:2: expected `]`"),
        ("schema: goldline.recipe/2\nout: a\n", "expected goldline.recipe/1"),
    ],
)
def test_recipes_that_are_wrong_say_where(text, message, tmp_path):
    (tmp_path / "recipe").write_text(text)
    with pytest.raises(ValueError) as error:
        read_recipe(str(tmp_path / "recipe"))
    assert message in str(error.value)


def test_lists_are_read_in_three_forms(tmp_path):
    path = tmp_path / "list"
    for text in (
        "a.b\n\n# note\nop:softmax\n",
        '["a.b", "op:softmax"]',
        '{"schema": "goldline.report/1", "blacklist": [{"op": "linear", "layers": ["a.b"]}, '
        '{"op": "softmax", "layers": []}]}',
    ):
        path.write_text(text)
        assert read_patterns(str(path)) == ["a.b", "op:softmax"]
