"""What the rules of today's tools would name, over the same pairs of runs.

Each rule walks the golden's layers in execution order and names the first one whose first output is
beyond it; layers pair by name. None where no layer is. NaN or Inf on one side only is beyond any rule.
"""

import json
import os

import torch
from safetensors.torch import load_file

# torch.testing.assert_close's defaults (rtol, atol).
CLOSE = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}
# One figure for each dtype, as ports usually fix it.
FIXED = {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-7}
NAMES = ["cosine < 0.99", "msprobe 1e-3 in/out", "allclose, any element", "fixed rel_l2"]


def load(path):
    with open(os.path.join(path, "layers.jsonl")) as lines:
        return [json.loads(line) for line in lines], load_file(os.path.join(path, "tensors.safetensors"))


def coarser(a, b):
    order = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    return max(a, b, key=order.index)


def measure(golden, candidate):
    """(cosine, largest relative error, any element beyond allclose, rel_l2 over its limit)"""
    if golden.shape != candidate.shape or not golden.is_floating_point() or not candidate.is_floating_point() or golden.numel() == 0:
        return None
    dtype = coarser(golden.dtype, candidate.dtype)
    g, c = golden.double().flatten(), candidate.double().flatten()
    if not torch.equal(torch.isfinite(g), torch.isfinite(c)):
        return -1.0, float("inf"), True, float("inf")
    g, c = g[torch.isfinite(g)], c[torch.isfinite(c)]
    error, norm = (c - g), float(g.norm())
    size = norm * float(c.norm())
    cosine = float(g @ c) / size if size > 0 else 1.0
    relative = float((error.abs() / (g.abs() + 1e-7)).max()) if len(g) else 0.0
    rtol, atol = CLOSE[dtype]
    return cosine, relative, bool((error.abs() > atol + rtol * g.abs()).any()), float(error.norm()) / norm / FIXED[dtype] if norm > 0 else 0.0


def first_named(golden, candidate):
    """What each rule of NAMES names."""
    (layers, tensors), (others, theirs) = golden, candidate
    outputs = {layer["name"]: layer["outputs"] for layer in others}
    measured, named = {}, [None] * len(NAMES)
    for layer in layers:
        partner = outputs.get(layer["name"])
        if not partner or not layer["outputs"]:
            continue
        for ours, other in list(zip(layer["outputs"], partner))[:1]:
            measured[ours] = measure(tensors[ours], theirs[other])
        result = measured[layer["outputs"][0]]
        if result is None or layer["op"] in ("param", "input"):
            continue
        cosine, relative, apart, fixed = result
        inputs = [measured[name][1] for name in layer["inputs"] if measured.get(name)]
        beyond = [cosine < 0.99, relative > 1e-3 and all(value <= 1e-3 for value in inputs), apart, fixed > 1]
        named = [known or (layer["name"] if out else None) for known, out in zip(named, beyond)]
    return named
