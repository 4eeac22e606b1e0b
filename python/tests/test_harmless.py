"""Recording changes nothing."""

import pytest
import torch
from conftest import by_name, convolutions, manifest_of, run_step, transformer

import goldline


def results(make, path=None, optimizer=torch.optim.SGD, dtype=None, **settings):
    """Everything that a training step leaves behind."""
    model, inputs, target = make()
    step = optimizer(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    if path is None:
        loss = run_step(model, inputs, target, step, dtype)
    else:
        with goldline.record(path, model=model, inputs=inputs, **settings):
            loss = run_step(model, inputs, target, step, dtype)
    tensors = [loss] + list(model.state_dict().values()) + [p.grad for p in model.parameters()]
    tensors += [value for state in step.state.values() for value in state.values() if torch.is_tensor(value)]
    return tensors, torch.get_rng_state(), model


def dropping():
    return transformer(dropout=0.3)


@pytest.mark.parametrize("make", [dropping, convolutions])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("level", ["operator", "module", "both"])
def test_results_are_bit_identical(make, dtype, level, tmp_path):
    plain, plain_state, _ = results(make, dtype=dtype, optimizer=torch.optim.AdamW)
    recorded, state, _ = results(make, tmp_path / "run", torch.optim.AdamW, dtype, level=level, observer_check=True)
    assert len(plain) == len(recorded)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded))
    assert torch.equal(plain_state, state)
    check = manifest_of(tmp_path / "run")["observer_check"]
    assert check["equal"] and check["plain"] == check["recorded"]


@pytest.mark.parametrize("save", ["rows", "stats"])
def test_no_way_of_saving_shows(save, tmp_path):
    plain, _, _ = results(convolutions)
    recorded, _, _ = results(convolutions, tmp_path / "run", save=save, rows=2)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded))


def test_inference_mode_is_left_alone(tmp_path):
    model, inputs, _ = transformer()
    with torch.inference_mode():
        plain = model(**inputs)
        with goldline.record(tmp_path / "run", model=model):
            recorded = model(**inputs)
    assert torch.equal(plain, recorded) and recorded.is_inference()


def test_the_check_can_fail(tmp_path):
    class Restless(torch.nn.Module):
        calls = 0

        def forward(self, x):
            type(self).calls += 1
            return x + type(self).calls

    with goldline.record(tmp_path / "run", model=Restless(), observer_check=True) as _:
        Restless()(torch.zeros(2))
    assert "observer_check" not in manifest_of(tmp_path / "run")
    model = Restless()
    with goldline.record(tmp_path / "run2", model=model, observer_check=True):
        model(torch.zeros(2))
    assert manifest_of(tmp_path / "run2")["observer_check"]["equal"] is False


def hooks_of(model):
    tables = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, table)) for module in model.modules() for table in tables)


def test_no_hook_stays(tmp_path):
    from torch.optim import optimizer as optimizers
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    model, inputs, target = transformer()
    before = len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)
    loss = None
    with goldline.record(tmp_path / "run", model=model, level="both", observer_check=True):
        loss = model(**inputs).sum()
        loss.backward(retain_graph=True)
    assert hooks_of(model) == 0
    assert _get_current_dispatch_mode() is None
    assert (len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)) == before
    # The graph that was recorded once still gives its gradients.
    loss.backward()


def test_after_an_exception_the_run_is_valid_and_nothing_stays(tmp_path):
    model, inputs, _ = transformer()

    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ZeroDivisionError("on purpose")

    model.blocks[1].feed[1] = Broken()
    with pytest.raises(ZeroDivisionError), goldline.record(tmp_path / "run", model=model):
        model(**inputs)
    assert hooks_of(model) == 0
    manifest = manifest_of(tmp_path / "run")
    assert manifest["complete"] is False and "on purpose" in manifest["ended_by"]
    assert by_name(tmp_path / "run", "blocks.1.feed.0.linear")["outputs"]


def test_a_run_is_never_written_over(tmp_path):
    model, inputs, _ = transformer()
    with goldline.record(tmp_path / "run", model=model):
        model(**inputs)
    with pytest.raises(FileExistsError, match="expected no run there"):
        goldline.record(tmp_path / "run", model=model)


def test_a_failure_of_the_recorder_is_not_the_programs(tmp_path, monkeypatch, capsys):
    import json

    from goldline.saving import Saver

    model, inputs, _ = transformer()
    plain = model(**inputs)
    keep = Saver.save

    def failing(self, tensor_id, *arguments):
        if "gelu" in tensor_id:
            raise OSError("disk full")
        keep(self, tensor_id, *arguments)

    monkeypatch.setattr(Saver, "save", failing)
    with goldline.record(tmp_path / "run", model=model):
        assert torch.equal(model(**inputs), plain)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["failures"] == ["2 times not recorded: aten::gelu: OSError: disk full"]
    assert "disk full" in capsys.readouterr().err
