"""How much of a run is kept."""

import base64
import hashlib
import os
import struct

import pytest
import torch
from conftest import layers_of, manifest_of, run_step, statistics_of, transformer

import goldline
from goldline import statistics
from goldline.reading import RunReader


def size(path):
    return sum(os.path.getsize(os.path.join(str(path), name)) for name in os.listdir(str(path)))


def record_big(path, **settings):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    x = torch.randn(500, 64)
    with goldline.record(path, model=model, inputs={"x": x}, **settings):
        model(x)
    return model, x


def test_statistics_and_samples_are_those_of_the_tensor(tmp_path):
    model, x = record_big(tmp_path / "run", save="stats")
    lines = statistics_of(tmp_path / "run")
    assert not [name for name in os.listdir(str(tmp_path / "run")) if name.endswith(".safetensors")]
    hidden = model[0](x).detach()
    line = lines["0.linear:0"]
    assert line["shape"] == [500, 256] and line["dtype"] == "float32"
    assert line["min"] == hidden.min().item() and line["max"] == hidden.max().item()
    assert line["mean"] == pytest.approx(hidden.double().mean().item(), rel=1e-4)
    assert line["l2"] == pytest.approx(hidden.double().norm().item(), rel=1e-6)
    assert (line["nan"], line["inf"]) == (0, 0)
    # The rule as the documentation states it, written out here once more.
    hashed = hashlib.sha256(b"0.linear:0").digest()
    total = hidden.numel()
    first, step = struct.unpack("<QQ", hashed[:16])
    step = 1 + step % (total - 1)
    while __import__("math").gcd(step, total) != 1:
        step += 1
    places = [(first + at * step) % total for at in range(4096)]
    values = struct.unpack("<4096f", base64.b64decode(line["samples"]))
    assert list(values) == hidden.reshape(-1)[places].tolist()
    assert len(set(places)) == 4096
    assert lines["0.weight"]["digest"] == statistics.digest(model[0].weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_dtype_is_measured(dtype):
    tensor = torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=torch.float32).to(dtype)
    found = statistics.measured(tensor)
    assert (found["min"], found["max"], found["nan"], found["inf"]) == (0.0, 1.0, 0, 0)
    assert found["mean"] == pytest.approx(4 / 6)
    statistics.sampled(tensor.expand(5000, 2, 3), "name")


def test_specials_are_counted_and_left_out():
    inf, nan = float("inf"), float("nan")
    found = statistics.measured(torch.tensor([1.0, nan, inf, -inf, 3.0]))
    assert found == {"min": 1.0, "max": 3.0, "mean": 2.0, "l2": pytest.approx(10**0.5), "nan": 1, "inf": 2}
    assert statistics.measured(torch.tensor([nan]))["min"] is None
    assert statistics.measured(torch.zeros(0))["max"] is None
    large = statistics.measured(torch.full((4,), 1e38))
    assert large["l2"] == pytest.approx(2e38) and large["mean"] == pytest.approx(1e38)


def test_statistics_of_views_are_their_own(tmp_path):
    x = torch.arange(20000.0).reshape(100, 200)
    with goldline.record(tmp_path / "run", inputs={"x": x}, save="stats"):
        y = x * 2
        y.t()
        y[50:]
        y.view(200, 100)
    lines = statistics_of(tmp_path / "run")
    assert lines["transpose:0"]["max"] == lines["mul:0"]["max"] and "digest" not in lines["transpose:0"]
    assert lines["slice:0"]["min"] == 20000.0
    assert lines["view:0"]["digest"] == lines["mul:0"]["digest"]
    assert lines["view:0"]["alias_of"] == "mul:0" and "samples" not in lines["view:0"]
    assert "samples" in lines["transpose:0"]


def test_rows_keep_the_same_tokens_everywhere(tmp_path, diff):
    _, x = record_big(tmp_path / "run", save="rows", rows=5)
    run, lines = RunReader(str(tmp_path / "run")), statistics_of(tmp_path / "run")
    rows = lines["x"]["slice"]["rows"]
    assert rows == lines["1.gelu:0"]["slice"]["rows"] and rows[0] == 0 and rows[-1] == 499 and len(rows) == 5
    assert torch.equal(run.tensor("x"), x[rows])
    # A parameter is whole, so that the rows can be computed again.
    assert run.tensor("0.weight").shape == (256, 64)
    assert size(tmp_path / "run") < 300_000
    record_big(tmp_path / "again", save="rows", rows=5)
    assert diff(tmp_path / "run", tmp_path / "again")["verdict"] == "pass"


def test_keys_and_values_are_whole_where_rows_are_kept(tmp_path):
    model, inputs, _ = transformer()
    with goldline.record(tmp_path / "run", model=model, inputs=inputs, save="rows", rows=4):
        model(**inputs)
    run = RunReader(str(tmp_path / "run"))
    attention = next(one for one in run.layers if one["op"] == "attention")
    lines = statistics_of(tmp_path / "run")
    query, key, value = attention["inputs"][:3]
    assert "slice" in lines[query] and run.tensor(query).shape[0] == 4
    assert run.tensor(key).shape == run.tensor(value).shape == (2, 2, 6, 8)


def test_include_and_exclude_choose_what_is_stored(tmp_path):
    record_big(tmp_path / "run", include=["0.*", "x"], exclude=["*.weight"])
    run = RunReader(str(tmp_path / "run"))
    assert run.tensor("0.linear:0") is not None and run.tensor("x") is not None
    assert run.tensor("0.weight") is None and run.tensor("1.gelu:0") is None
    assert statistics_of(tmp_path / "run")["1.gelu:0"] == {
        "tensor": "1.gelu:0", "dtype": "float32", "shape": [500, 256],
    }  # fmt: skip
    assert "1.gelu" in {one["name"] for one in layers_of(tmp_path / "run")}


def test_a_budget_degrades_and_says_so(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(30)))
    with goldline.record(tmp_path / "run", model=model, budget="1MB"):
        model(torch.randn(500, 64))
    notes = manifest_of(tmp_path / "run")["notes"]
    assert len(notes) == 2 and "only 64 rows" in notes[0] and "only statistics" in notes[1]
    stored = sum(
        entry.stat().st_size for entry in os.scandir(str(tmp_path / "run")) if entry.name.endswith(".safetensors")
    )
    assert (1 << 19) < stored < 1.2 * (1 << 20)


def test_equal_tensors_are_stored_once(tmp_path):
    x = torch.randn(100, 100)
    with goldline.record(tmp_path / "run", inputs={"x": x}):
        for _ in range(10):
            x.clone()
    run = RunReader(str(tmp_path / "run"))
    assert all(torch.equal(run.tensor(one["outputs"][0]), x) for one in run.layers)
    assert size(tmp_path / "run") < 60_000


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
def test_parameters_by_reference(kind, tmp_path):
    model, inputs, _ = transformer()
    if kind == "torch":
        path = str(tmp_path / "model.pt")
        torch.save(model.state_dict(), path)
    else:
        from safetensors.torch import save_file

        path = str(tmp_path / "model.safetensors")
        save_file({name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}, path)
    with torch.no_grad():
        model.head.bias.add_(1)
    with goldline.record(tmp_path / "run", model=model, inputs=inputs, checkpoint=path):
        model(**inputs)
    line = statistics_of(tmp_path / "run")["blocks.0.norm.weight"]
    assert line["reference"] == {"file": path, "key": "blocks.0.norm.weight"}
    assert line["digest"] == statistics.digest(model.blocks[0].norm.weight)
    run = RunReader(str(tmp_path / "run"))
    # One that was changed since is stored.
    assert run.tensor("blocks.0.norm.weight") is None and run.tensor("head.bias") is not None


def test_a_run_grows_by_valid_shards(tmp_path):
    model, inputs, target = transformer()
    optimizer = torch.optim.Adam(model.parameters())
    recorder = goldline.record(tmp_path / "run", model=model, inputs=inputs, shard_bytes=20_000)
    with recorder:
        run_step(model, inputs, target, optimizer)
        # Half-way, as after a kill: what is on disk is a run.
        half = RunReader(str(tmp_path / "run"))
        assert manifest_of(tmp_path / "run")["complete"] is False
        assert len(half.layers) > 50
        for layer in half.layers:
            for tensor_id in layer["inputs"] + layer["outputs"]:
                assert half.tensor(tensor_id) is not None
        assert not [name for name in os.listdir(str(tmp_path / "run")) if name.endswith(".part")]
        run_step(model, inputs, target, optimizer)
    assert len(RunReader(str(tmp_path / "run")).layers) > 2 * len(half.layers) * 0.9
    files = [name for name in os.listdir(str(tmp_path / "run")) if name.endswith(".safetensors")]
    assert len(files) > 3


def test_the_files_are_what_safetensors_reads(tmp_path):
    from safetensors.torch import load_file

    record_big(tmp_path / "run")
    run = RunReader(str(tmp_path / "run"))
    found = load_file(str(tmp_path / "run" / "tensors-00001.safetensors"))
    assert found and all(torch.equal(tensor, run.tensor(name)) for name, tensor in found.items())


def test_settings_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="save: expected one of full, rows, stats, found 'all'"):
        goldline.record(tmp_path / "a", save="all")
    with pytest.raises(ValueError, match="level: expected one of"):
        goldline.record(tmp_path / "b", level="ops")
    with pytest.raises(ValueError, match="budget: expected a size"):
        goldline.record(tmp_path / "c", budget="much")
    assert not os.listdir(str(tmp_path))
