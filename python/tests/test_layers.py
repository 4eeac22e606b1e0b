"""Names, levels, attributes, gradients: what layers.jsonl says."""

import warnings

import pytest
import torch
from conftest import by_name, convolutions, layers_of, manifest_of, run_step, transformer

import goldline
from goldline.reading import RunReader


def test_attributes_are_complete_and_plain(tmp_path):
    x = torch.ones(2, 3)
    with goldline.record(tmp_path / "run", inputs={"x": x}):
        torch.softmax(x, -1)
        x.clamp(min=float("-inf"))
        x.to(torch.float64)
        torch.full((2,), float("nan"))
        torch.cat([x, x])
    softmax = by_name(tmp_path / "run", "softmax")
    assert softmax["attrs"] == {"dim": -1, "half_to_float": False}
    assert softmax["schema"] == "aten::_softmax" and softmax["input_names"] == ["self"]
    assert by_name(tmp_path / "run", "clamp")["attrs"] == {"min": "-inf", "max": None}
    cast = by_name(tmp_path / "run", "cast")["attrs"]
    assert cast["dtype"] == "float64" and cast["memory_format"] is None and "layout" in cast
    assert by_name(tmp_path / "run", "full")["attrs"]["fill_value"] == "nan"
    assert by_name(tmp_path / "run", "cat")["input_names"] == ["tensors", "tensors"]
    assert softmax["source"].startswith("test_layers.py:")


def test_names_follow_modules_and_passes(tmp_path):
    model, inputs, target = transformer()
    with goldline.record(tmp_path / "run", model=model, inputs=dict(inputs, target=target)):
        run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1))
    linear = by_name(tmp_path / "run", "blocks.0.feed.0.linear")
    assert linear["op"] == "linear" and linear["schema"] == "aten::addmm" and linear["module"] == "blocks.0.feed.0"
    backward = by_name(tmp_path / "run", "blocks.0.feed.1.gelu_backward", "backward")
    assert backward["grad_of"] == by_name(tmp_path / "run", "blocks.0.feed.1.gelu")["inputs"][0]
    gradients = [one for one in layers_of(tmp_path / "run") if one["pass"] == "backward"]
    of = {tensor for one in gradients for tensor in one.get("grads_of", [one.get("grad_of")])}
    named = {name for name, _ in model.named_parameters()}
    # A tied weight has one name, that of its first place.
    assert named <= of
    step = by_name(tmp_path / "run", "blocks.0.norm.weight.add", "optimizer")
    assert step["inputs"][0] == "blocks.0.norm.weight"


def test_the_loss_is_known(tmp_path):
    model, inputs, target = transformer()
    with goldline.record(tmp_path / "run", model=model):
        loss = run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1))
    said = manifest_of(tmp_path / "run")["loss"]
    assert said["value"] == pytest.approx(loss.item())
    assert RunReader(str(tmp_path / "run")).tensor(said["tensor"]).item() == loss.item()


def test_a_scaler_tells_its_scale_and_skipped_steps(tmp_path):
    for name, scale in (("kept", 8.0), ("skipped", 1e38)):
        model, inputs, target = convolutions()
        with goldline.record(tmp_path / name, model=model):
            run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1), torch.float16, scale)
    assert manifest_of(tmp_path / "kept")["scaler"] == [{"scale": 8.0, "found_inf": False, "skipped": False}]
    assert manifest_of(tmp_path / "skipped")["scaler"][0]["skipped"] is True
    passes = {name: {one["pass"] for one in layers_of(tmp_path / name)} for name in ("kept", "skipped")}
    assert "optimizer" in passes["kept"] and "optimizer" not in passes["skipped"]


def test_wrappers_do_not_show_in_names(tmp_path):
    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    class CheckpointWrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self._checkpoint_wrapped_module = module

        def forward(self, *args):
            return self._checkpoint_wrapped_module(*args)

    found = []
    for wrap in (False, True):
        model, inputs, _ = transformer()
        if wrap:
            model.blocks[0].feed = CheckpointWrapper(model.blocks[0].feed)
            model = DistributedDataParallel(model)
        with goldline.record(tmp_path / str(wrap), model=model, inputs=inputs):
            model(**inputs)
        found.append([one["name"] for one in layers_of(tmp_path / str(wrap))])
    assert found[0] == found[1]


def test_a_users_attribute_called_module_stays(tmp_path):
    model = torch.nn.Sequential()
    model.module = torch.nn.Linear(2, 2)
    with goldline.record(tmp_path / "run", model=model):
        model(torch.ones(1, 2))
    assert by_name(tmp_path / "run", "module.linear")


def test_shared_modules_are_counted_and_outputs_may_be_nested(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)
            self.again = self.layer

        def forward(self, batch, *, factor):
            x = self.again(self.layer(batch["x"])) * factor
            return {"deep": [x, {"y": x + 1}]}

    model, batch = Model(), {"x": torch.ones(2, 3)}
    factor = torch.tensor(2.0)
    with goldline.record(tmp_path / "run", model=model, level="both"):
        model(batch, factor=factor)
    calls = [one["call"] for one in layers_of(tmp_path / "run") if one["name"] == "layer.linear"]
    assert calls == [0, 1]
    whole = by_name(tmp_path / "run", "Model")
    assert whole["kind"] == "module" and len(whole["outputs"]) == 2
    assert whole["input_names"] == ["batch.x", "factor"] and whole["inputs"] == ["batch.x", "factor"]
    assert whole["outputs"] == [
        by_name(tmp_path / "run", "mul")["outputs"][0],
        by_name(tmp_path / "run", "add")["outputs"][0],
    ]


def test_level_module_has_a_layer_for_each_leaf(tmp_path):
    model, inputs, _ = transformer()
    with goldline.record(tmp_path / "run", model=model, inputs=inputs, level="module"):
        model(**inputs)
    kinds = {one["name"]: one for one in layers_of(tmp_path / "run")}
    norm = kinds["blocks.0.norm"]
    assert norm["kind"] == "module" and norm["op"] == "layer_norm" and norm["schema"] == "LayerNorm"
    assert norm["inputs"][1:] == ["blocks.0.norm.weight", "blocks.0.norm.bias"]
    assert norm["input_names"][0] == "input"
    # What runs between leaf modules is there too.
    assert by_name(tmp_path / "run", "blocks.0.add")["inputs"][0] == kinds["embedding"]["outputs"][0]
    assert "blocks.0.norm.layer_norm" not in kinds
    # A dropout without effect hands on its input.
    assert "blocks.0.feed.3" not in kinds


def test_random_operators_are_recorded_as_such(tmp_path):
    with goldline.record(tmp_path / "run"):
        torch.randn(3)
        torch.nn.functional.dropout(torch.ones(4), 0.5)
        torch.empty(3).uniform_()
    ops = [one["op"] for one in layers_of(tmp_path / "run")]
    assert "randn" in ops and "uniform" in ops and ("bernoulli" in ops or "dropout" in ops)


def test_what_cannot_be_seen_is_said(tmp_path):
    model, inputs, _ = transformer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend="eager")
        with goldline.record(tmp_path / "run", model=compiled, inputs=inputs):
            compiled(**inputs)
    assert "1 modules are compiled" in manifest_of(tmp_path / "run")["unseen"][0]


def test_the_environment_is_stored(tmp_path):
    model, inputs, _ = transformer()
    with goldline.record(tmp_path / "run", model=model, inputs=inputs, seed=7, step=3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(**inputs)
    manifest = manifest_of(tmp_path / "run")
    assert (manifest["seed"], manifest["step"], manifest["complete"]) == (7, 3, True)
    assert manifest["precision"] == {"compute": "bfloat16", "autocast": True}
    assert manifest["environment"]["framework"] == "torch " + torch.__version__
    assert {"allow_tf32", "deterministic_algorithms", "bf16_reduced_precision_reduction"} <= set(
        manifest["environment"]["flags"]
    )
    assert manifest["inputs_digest"].startswith("sha256:")


def test_names_are_unique(tmp_path):
    model, inputs, target = convolutions()
    with goldline.record(tmp_path / "run", model=model, level="both"):
        for _ in range(2):
            run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1))
    layers = layers_of(tmp_path / "run")
    assert len({(one["name"], one["pass"], one["call"]) for one in layers}) == len(layers)
    made = [tensor for one in layers if one["kind"] == "operator" for tensor in one["outputs"]]
    assert len(set(made)) == len(made)


def test_the_overflow_flag_of_a_saturating_device_is_read(tmp_path, monkeypatch):
    from goldline import dispatch, overflow

    class Flag:
        raised = False

        def clear(self):
            self.raised = False

    flag = Flag()

    class Saturating(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            flag.raised |= func._schema.name == "aten::exp"
            return result

    monkeypatch.setattr(dispatch, "overflow_flag", lambda: overflow.OverflowFlag(flag.clear, lambda: flag.raised))
    x = torch.ones(2)
    with Saturating(), goldline.record(tmp_path / "run", inputs={"x": x}):
        x.exp().neg()
    assert by_name(tmp_path / "run", "exp")["overflow"] is True
    assert "overflow" not in by_name(tmp_path / "run", "neg")
    assert overflow.overflow_flag() is None
