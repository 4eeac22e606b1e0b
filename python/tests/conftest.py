"""Small models, and the program that judges their runs."""

import json
import os
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

torch = pytest.importorskip("torch")

from goldline.reading import RunReader  # noqa: E402


class Block(torch.nn.Module):
    """Attention and a feed-forward part, each with a residual."""

    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 2, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 32), torch.nn.GELU(), torch.nn.Linear(32, width), torch.nn.Dropout(dropout)
        )

    def forward(self, x):
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.feed(x)


class Transformer(torch.nn.Module):
    """Token ids in, logits out; the head's weight is the embedding's."""

    def __init__(self, dropout=0.0, checkpoint=False):
        super().__init__()
        self.embedding = torch.nn.Embedding(40, 16)
        self.blocks = torch.nn.ModuleList([Block(dropout=dropout), Block(dropout=dropout)])
        self.head = torch.nn.Linear(16, 40)
        self.head.weight = self.embedding.weight
        self.checkpoint = checkpoint

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            if self.checkpoint:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


class Convolutions(torch.nn.Module):
    """Convolutions with batch norm, an activation in place, a pool."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.act = torch.nn.ReLU(inplace=True)
        self.second = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.pool = torch.nn.AvgPool2d(2)
        self.classes = torch.nn.Linear(64, 5)

    def forward(self, x):
        x = self.act(self.norm(self.first(x)))
        x = x + self.second(x)
        return self.classes(self.pool(x).flatten(1))


def transformer(seed=0, **settings):
    """A transformer and its batch, the same each time."""
    torch.manual_seed(seed)
    model = Transformer(**settings)
    ids = torch.randint(0, 40, (2, 6))
    return model, {"ids": ids}, torch.randint(0, 40, (12,))


def convolutions(seed=0):
    """Convolutions and their batch, the same each time."""
    torch.manual_seed(seed)
    model = Convolutions()
    return model, {"x": torch.randn(2, 3, 8, 8)}, torch.randint(0, 5, (2,))


def training_step(make, optimizer=torch.optim.AdamW, dtype=None, scale=None, **settings):
    """One step: returns the model, its loss, and what it was given."""
    model, inputs, target = make(**settings)
    step = optimizer(model.parameters(), lr=1e-3) if isinstance(optimizer, type) else optimizer(model)
    run_step(model, inputs, target, step, dtype, scale)
    return model


def run_step(model, inputs, target, step, dtype=None, scale=None):
    """Forward, backward and the optimizer's step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        logits = model(**inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), target)
    scaler.scale(loss).backward()
    scaler.step(step)
    scaler.update()
    return loss


def layers_of(path):
    """The layers of a run."""
    manifest_of(path)
    return RunReader(str(path)).layers


def by_name(path, name, step="forward", call=0):
    """One layer of a run."""
    found = [one for one in layers_of(path) if (one["name"], one["pass"], one.get("call", 0)) == (name, step, call)]
    assert len(found) == 1, "%d layers are called %s" % (len(found), name)
    return found[0]


def manifest_of(path):
    """run.json"""
    with open(os.path.join(str(path), "run.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    # The recorder carries on where it fails: a test must not.
    assert "failures" not in manifest, manifest["failures"]
    return manifest


def statistics_of(path):
    """Lines of stats.jsonl by tensor."""
    with open(os.path.join(str(path), "stats.jsonl"), encoding="utf-8") as file:
        return {line["tensor"]: line for line in map(json.loads, file)}


@pytest.fixture(scope="session")
def program():
    """The goldline program of this checkout, or the one that GOLDLINE_BIN names."""
    places = [os.environ.get("GOLDLINE_BIN")]
    places += [os.path.join(ROOT, "target", kind, "goldline") for kind in ("release", "debug")]
    found = next((place for place in places if place and os.path.exists(place)), shutil.which("goldline"))
    if found is None:
        pytest.skip("no goldline program: run cargo build first")
    return os.path.abspath(found)


@pytest.fixture
def diff(program):
    """diff(golden, candidate) -> the report"""

    def run(golden, candidate):
        done = subprocess.run([program, "diff", str(golden), str(candidate), "--json"], capture_output=True, text=True)
        assert done.returncode != 2, done.stderr
        return json.loads(done.stdout)

    return run
