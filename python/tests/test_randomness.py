"""Random numbers: seeds, the golden's draws, dropout off."""

import random

import pytest
import torch
from conftest import RunReader, layers_of, run_step, transformer

import goldline


def test_seed_all_makes_draws_repeat():
    found = []
    for _ in range(2):
        goldline.seed_all(1234)
        found.append((random.random(), torch.rand(3).tolist()))
    assert found[0] == found[1]


def test_no_dropout_is_undone():
    model, inputs, _ = transformer(dropout=0.5)
    model.blocks[0].attention.dropout = 0.2
    with goldline.no_dropout(model):
        assert torch.equal(model(**inputs), model(**inputs))
    assert model.blocks[0].feed[3].p == 0.5 and model.blocks[0].attention.dropout == 0.2
    assert not torch.equal(model(**inputs), model(**inputs))


class Noisy(torch.nn.Module):
    """Dropout, noise, and random integers."""

    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.4)

    def forward(self, x):
        x = self.drop(x) + torch.randn_like(x) * 0.1
        return x + torch.randint(0, 5, (4,)) + torch.empty_like(x).uniform_() + torch.nn.functional.dropout(x, 0.1)


@pytest.mark.parametrize("recording", [True, False])
def test_the_goldens_draws_take_the_place_of_ones_own(recording, tmp_path):
    model, x = Noisy(), torch.ones(3, 4)
    torch.manual_seed(0)
    with goldline.record(tmp_path / "golden", model=model, inputs={"x": x}):
        golden = model(x)
    torch.manual_seed(99)
    feed = goldline.replay_random(str(tmp_path / "golden"), model=model)
    if recording:
        with feed, goldline.record(tmp_path / "candidate", model=model, inputs={"x": x}):
            candidate = model(x)
        run = RunReader(str(tmp_path / "candidate"))
        drawn = [one for one in run.layers if one["op"] in ("bernoulli", "randn_like", "randint", "uniform")]
        theirs = RunReader(str(tmp_path / "golden"))
        assert len(drawn) == 5
        assert all(torch.equal(run.tensor(one["outputs"][0]), theirs.tensor(one["outputs"][0])) for one in drawn)
    else:
        with feed:
            candidate = model(x)
    assert torch.equal(golden, candidate)
    assert len(feed.answered) == 5 and not feed.unanswered
    assert not torch.equal(model(x), golden)


def test_fused_dropout_takes_the_goldens_mask(tmp_path):
    x = torch.ones(100)
    with goldline.record(tmp_path / "golden", inputs={"x": x}):
        _, mask = torch.native_dropout(x, 0.5, True)
    with goldline.replay_random(str(tmp_path / "golden")) as feed:
        out, again = torch.native_dropout(x * 3, 0.5, True)
    assert torch.equal(mask, again) and torch.equal(out, x * 3 * mask * 2) and feed.answered == ["dropout"]


def test_a_training_step_with_dropout_compares(tmp_path, diff):
    for name, seed in (("golden", 1), ("candidate", 2)):
        model, inputs, target = transformer(dropout=0.3)
        torch.manual_seed(seed)
        feed = goldline.replay_random(str(tmp_path / "golden")) if name == "candidate" else torch.enable_grad()
        with feed, goldline.record(tmp_path / name, model=model, inputs=dict(inputs, target=target)):
            run_step(model, inputs, target, torch.optim.SGD(model.parameters(), lr=0.1))
    assert diff(tmp_path / "golden", tmp_path / "candidate")["verdict"] == "pass"
    assert "bernoulli" in {one["op"] for one in layers_of(tmp_path / "golden")}


def test_what_the_golden_cannot_answer_is_said(tmp_path, capsys):
    with goldline.record(tmp_path / "golden"):
        torch.rand(3)
    with goldline.replay_random(str(tmp_path / "golden")) as feed:
        torch.rand(4)
        torch.rand(3)
    assert feed.unanswered == ["rand", "rand"]
    assert "2 random operators have no draw" in capsys.readouterr().err


def test_the_order_of_the_blocks_is_checked(tmp_path):
    with goldline.record(tmp_path / "golden"):
        torch.rand(3)
    with goldline.record(tmp_path / "run"), pytest.raises(RuntimeError, match="before goldline.record"):
        goldline.replay_random(str(tmp_path / "golden")).__enter__()
