"""What goldline says about recorded runs: healthy ones pass, a broken operator is named."""

import pytest
import torch
from conftest import convolutions, run_step, transformer
from torch.utils._python_dispatch import TorchDispatchMode

import goldline

# Share of operators with an answer that goldline recomputes.
REPLAYED = 0.95


class Fault(TorchDispatchMode):
    """The n-th call of an operator gives `change(result)`. Entered before the recorder, it is below it."""

    def __init__(self, name, change, number=0):
        super().__init__()
        self.name, self.change, self.number, self.calls = name, change, number, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name == self.name:
            if self.calls == self.number:
                result = self.change(result)
            self.calls += 1
        return result


def training_run(path, make, optimizer=torch.optim.AdamW, dtype=None, fault=None, scale=None, **settings):
    model, inputs, target = make()
    step = optimizer(model.parameters(), lr=1e-3)
    with fault or torch.enable_grad(), goldline.record(
        path, model=model, seed=0, inputs=dict(inputs, target=target), **settings
    ):
        run_step(model, inputs, target, step, dtype, scale)


def fused(parameters, lr):
    return torch.optim.AdamW(parameters, lr=lr, fused=True)


def foreach(parameters, lr):
    return torch.optim.AdamW(parameters, lr=lr, foreach=True)


def momentum(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.01)


def test_a_transformers_step_in_bf16_passes_and_is_replayed(diff, tmp_path):
    training_run(tmp_path / "fp32", transformer)
    training_run(tmp_path / "bf16", transformer, dtype=torch.bfloat16)
    report = diff(tmp_path / "fp32", tmp_path / "bf16")
    assert report["verdict"] == "pass", report["origins"]
    summary = report["summary"]
    assert summary["missing"] == summary["skipped"] == 0
    assert summary["replayed"] >= REPLAYED * (summary["replayed"] + summary["unmodelled"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_convolutional_networks_step_passes(dtype, diff, tmp_path):
    scale = 256.0 if dtype == torch.float16 else None
    training_run(tmp_path / "fp32", convolutions, momentum, scale=scale)
    training_run(tmp_path / "narrow", convolutions, momentum, dtype=dtype, scale=scale)
    report = diff(tmp_path / "fp32", tmp_path / "narrow")
    assert report["verdict"] == "pass", report["origins"]


@pytest.mark.parametrize("optimizer", [fused, foreach])
def test_ways_of_stepping_answer_each_other(optimizer, diff, tmp_path):
    training_run(tmp_path / "loop", transformer)
    training_run(tmp_path / "lists", transformer, optimizer)
    for pair in (("loop", "lists"), ("lists", "loop")):
        report = diff(tmp_path / pair[0], tmp_path / pair[1])
        assert report["verdict"] == "pass", report["origins"]


@pytest.mark.parametrize(
    ("operator", "number", "change", "layer"),
    [
        ("aten::gelu", 1, lambda y: y * 1.01, "blocks.1.feed.1.gelu"),
        ("aten::native_layer_norm", 0, lambda y: (y[0] + 1e-3, y[1], y[2]), "blocks.0.norm.layer_norm"),
        ("aten::addmm", 2, lambda y: y.roll(1, 0), "blocks.0.feed.2.linear"),
        ("aten::gelu_backward", 0, lambda y: y * 0.9, "blocks.1.feed.1.gelu_backward"),
    ],
)
def test_a_broken_operator_is_named(operator, number, change, layer, diff, tmp_path):
    training_run(tmp_path / "golden", transformer)
    training_run(tmp_path / "broken", transformer, fault=Fault(operator, change, number))
    report = diff(tmp_path / "golden", tmp_path / "broken")
    assert report["verdict"] == "drift"
    assert report["origins"][0]["layer"] == layer
    assert report["first_drift"]["layer"] == layer


def test_a_broken_optimizer_step_is_named(diff, tmp_path):
    training_run(tmp_path / "golden", convolutions, momentum)
    wrong = Fault("aten::add_", lambda y: y.mul_(1.5), number=5)
    training_run(tmp_path / "broken", convolutions, momentum, fault=wrong)
    report = diff(tmp_path / "golden", tmp_path / "broken")
    assert report["verdict"] == "drift"
    assert report["origins"][0]["pass"] == "optimizer"


def test_an_overflow_is_traced_to_its_birth(diff, tmp_path):
    training_run(tmp_path / "golden", transformer)
    training_run(tmp_path / "broken", transformer, fault=Fault("aten::gelu", lambda y: y / 0.0))
    report = diff(tmp_path / "golden", tmp_path / "broken")
    assert report["verdict"] == "nonfinite"
    assert report["nonfinite_origins"][0]["layer"] == "blocks.0.feed.1.gelu"


@pytest.mark.parametrize("level", ["module", "both"])
def test_levels_compare(level, diff, tmp_path):
    for name in ("a", "b"):
        training_run(tmp_path / name, transformer, level=level)
    assert diff(tmp_path / "a", tmp_path / "b")["verdict"] == "pass"
    training_run(tmp_path / "c", transformer, level=level, fault=Fault("aten::gelu", lambda y: y * 1.5))
    report = diff(tmp_path / "a", tmp_path / "c")
    assert report["verdict"] == "drift"
    assert report["origins"][0]["layer"].startswith("blocks.0.feed.1")


def test_other_weights_are_not_blamed_on_an_operator(diff, tmp_path):
    training_run(tmp_path / "a", transformer)
    training_run(tmp_path / "b", lambda: transformer(seed=1))
    assert diff(tmp_path / "a", tmp_path / "b")["verdict"] == "incomparable"


def test_inference_mode_leaves_the_same_operators(diff, tmp_path):
    for name, context in (("no_grad", torch.no_grad()), ("inference", torch.inference_mode())):
        model, inputs, _ = convolutions()
        with goldline.record(tmp_path / name, model=model.eval(), inputs=inputs), context:
            model(**inputs)
    report = diff(tmp_path / "no_grad", tmp_path / "inference")
    assert report["verdict"] == "pass"
    assert report["summary"]["missing"] == report["summary"]["extra"] == 0


@pytest.mark.parametrize("sharded", [False, True])
def test_distributed_wrappers_compare_with_the_plain_model(sharded, diff, tmp_path):
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch without torch.distributed")
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        for name in ("plain", "wrapped"):
            model, inputs, target = convolutions()
            inner = model
            if name == "wrapped" and sharded:
                from torch.distributed.device_mesh import init_device_mesh
                from torch.distributed.fsdp import fully_shard

                fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
            elif name == "wrapped":
                model = torch.nn.parallel.DistributedDataParallel(model)
            step = torch.optim.SGD(inner.parameters(), lr=0.1)
            with goldline.record(tmp_path / name, model=model, inputs=dict(inputs, target=target)):
                run_step(model, inputs, target, step)
        report = diff(tmp_path / "plain", tmp_path / "wrapped")
        assert report["verdict"] == "pass", report["why"]
        assert report["summary"]["missing"] == 0
    finally:
        distributed.destroy_process_group()
