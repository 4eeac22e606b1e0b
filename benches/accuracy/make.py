"""Makes the set: goldens, clean candidates and candidates with known faults, each with expect.json.

usage: make.py DIR [--seeds N]

DIR/<model>-<seed>/golden and DIR/<model>-<seed>/<scenario>/{candidate,expect.json}. The same seeds give
the same set on the same torch.
"""

import argparse
import contextlib
import json
import os
import random

import torch

import clean
import faults
import models
from recorder import Recorder

AMP = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def run(model, seed, how, precision="float32", alter=None, weights=None, channels_last=False):
    module, inputs = models.build(model, seed, **how)
    if weights is not None:
        module = module.to(weights)
        inputs = [x.to(weights) if x.is_floating_point() else x for x in inputs]
    if channels_last:
        module = module.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
    recorder = Recorder(module.named_modules(), alter)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        recorder.source(name, "param", tensor)
    for at, tensor in enumerate(inputs):
        recorder.source("input%d" % at, "input", tensor)
    amp = AMP[precision]
    cast = torch.autocast("cpu", dtype=amp) if amp is not None else contextlib.nullcontext()
    with cast, recorder:
        models.execute(model, module, inputs, recorder)
    recorder.close()
    return recorder


def clean_plan(model, seed, how):
    """(name, precision, keywords of run, changes of how)"""
    noise = clean.ulp_noise(seed)
    yield "rerun", "float32", {}, {}
    yield "split_k2", "float32", {"alter": clean.split_sums(2)}, {}
    yield "split_k8", "float32", {"alter": clean.split_sums(8, shuffle=True)}, {}
    yield "order", "float32", {"alter": clean.order}, {}
    yield "better", "float32", {"alter": clean.better}, {}
    yield "two_roundings", "float32", {"alter": clean.rounded_twice}, {}
    yield "ulp_noise", "float32", {"alter": noise}, {}
    yield "ulp_noise_order", "float32", {"alter": clean.chained(clean.order, clean.ulp_noise(seed + 50, 0.8))}, {}
    if model in ("llama", "vit", "training"):
        yield "fusion", "float32", {}, {"fused": not how["fused"]}
        yield "fusion_bf16", "bfloat16", {}, {"fused": not how["fused"]}
        yield "fusion_fp16", "float16", {}, {"fused": not how["fused"]}
    if model == "llama":
        yield "upcast", "float32", {}, {"upcast": not how["upcast"]}
        yield "upcast_bf16", "bfloat16", {}, {"upcast": not how["upcast"]}
    if model == "vit":
        yield "dropout_eval", "float32", {}, {"dropout_op": True}
    if model in ("unet", "vit"):
        yield "channels_last", "float32", {"channels_last": True}, {}
    for short, precision in (("bf16", "bfloat16"), ("fp16", "float16")):
        yield short, precision, {}, {}
        yield short + "_order", precision, {"alter": clean.order}, {}
        yield short + "_split", precision, {"alter": clean.split_sums(4)}, {}
        yield short + "_faithful", precision, {"alter": clean.faithful(seed + 9)}, {}
        yield short + "_two_roundings", precision, {"alter": clean.rounded_twice}, {}
    if model != "training":
        yield "bf16_weights", "float32", {"weights": torch.bfloat16}, {}
        yield "fp16_weights", "float32", {"weights": torch.float16}, {}


def targets(golden, wanted):
    found = []
    for layer in golden.layers:
        if layer["op"] in ("param", "input") or layer["op"].endswith("_"):
            continue
        out = golden.tensors[layer["outputs"][0]]
        if wanted(layer["op"]) and out.is_floating_point() and out.numel() >= 8 and layer["inputs"]:
            found.append(layer)
    return found


def fault_plan(draw, count):
    """(name of the fault, fault, precision, which operators it may stand in)"""
    computed = [(name, fault, "computed") for name, fault in faults.COMPUTED.items()]
    full = [(name, fault, "product") for name, fault in faults.FULL_PRECISION.items()]
    moved = [(name, fault, "mover") for name, fault in faults.MOVED.items()]
    wheel = computed + moved + full + [("truncating_cast", faults.truncating_cast, "cast"), ("overflow", faults.IN_FP16["overflow"], "computed")]
    draw.shuffle(wheel)
    for name, fault, where in wheel[:count]:
        precision = draw.choice(["float32", "bfloat16", "float16"])
        if where == "product":
            precision = "float32"
        precision = {"truncating_cast": "bfloat16", "overflow": "float16"}.get(name, precision)
        yield name, fault, precision, where


NEEDS = {"gelu_tanh": {"gelu"}, "batch_statistics": {"native_batch_norm"}, "mask_polarity": {"masked_fill", "where"},
         "eps_1e-3": {"native_layer_norm", "native_group_norm", "add", "native_batch_norm"}}
NEEDS["eps_1e-2"] = NEEDS["eps_1e-3"]


def layers_for(name, where, golden, plain_run):
    if where == "cast":
        return targets(plain_run, lambda op: op == "_to_copy")
    if where == "mover":
        return targets(golden, lambda op: op in faults.MOVERS)
    if where == "product":
        return targets(golden, lambda op: op in faults.CONTRACTIONS)
    if name in NEEDS:
        return targets(golden, lambda op: op in NEEDS[name])
    return targets(golden, lambda op: op not in clean.EXACT)


def write(path, recorder, precision, weights, expect):
    compute = str(weights).removeprefix("torch.") if weights is not None else precision
    recorder.save(os.path.join(path, "candidate"), compute, precision != "float32")
    with open(os.path.join(path, "expect.json"), "w") as out:
        json.dump(expect, out, indent=1)


def inject(model, seed, how, draw, name, fault, precision, where, golden, plain_run, base=None, avoid=()):
    """A run with the fault in a layer drawn at random, or None where the fault changes nothing."""
    choices = [layer for layer in layers_for(name, where, golden, plain_run) if layer["name"] not in avoid]
    draw.shuffle(choices)
    for layer in choices[:6]:
        injection = faults.Injection(layer["name"], fault, seed, base)
        recorder = run(model, seed, how, precision, injection)
        if injection.relative is not None:
            return layer, injection, recorder
    return None


def make_model(base, model, seed, fault_count):
    draw = random.Random(f"{model}-{seed}")
    how = {"fused": seed % 2 == 0, "upcast": seed % 3 == 2}
    golden = run(model, seed, how)
    golden.save(os.path.join(base, "golden"))
    for name, precision, keywords, changes in clean_plan(model, seed, how):
        candidate = run(model, seed, {**how, **changes}, precision, **keywords)
        write(os.path.join(base, "clean_" + name), candidate, precision, keywords.get("weights"),
              {"kind": "benign", "verdict": "pass", "origin": None})
    torch.set_num_threads(2)
    write(os.path.join(base, "clean_threads"), run(model, seed, how), "float32", None, {"kind": "benign", "verdict": "pass", "origin": None})
    torch.set_num_threads(1)
    plain = {precision: run(model, seed, how, precision) for precision in AMP}
    for name, fault, precision, where in fault_plan(draw, fault_count):
        found = inject(model, seed, how, draw, name, fault, precision, where, golden, plain[precision])
        if found is None:
            continue
        layer, injection, candidate = found
        special = name in ("nan_row", "overflow") or injection.relative == float("inf")
        expect = {"kind": "fault", "fault": name, "precision": precision, "verdict": "nonfinite" if special else "drift",
                  "origin": {"layer": layer["name"], "op": layer["op"]},
                  "rel_l2_at_origin": None if special else injection.relative, "times_own": None if special else injection.times_own}
        write(os.path.join(base, f"fault_{name}"), candidate, precision, None, expect)
    for at in range(3):
        precision = ("float32", "bfloat16", "float16")[at]
        names = draw.sample(["scale_0.1", "channel", "roll", "offset", "tail_zero", "dropout_on", "row"], 2)
        first = inject(model, seed, how, draw, names[0], faults.COMPUTED[names[0]], precision, "computed", golden, plain[precision])
        if first is None:
            continue
        again = faults.Injection(first[0]["name"], faults.COMPUTED[names[0]], seed)
        second = inject(model, seed, how, draw, names[1], faults.COMPUTED[names[1]], precision, "computed", golden, plain[precision], again, {first[0]["name"]})
        if second is None:
            continue
        both = [first[0]["name"], second[0]["name"]]
        expect = {"kind": "fault", "fault": "two", "faults": names, "precision": precision, "verdict": "drift",
                  "origin": {"layer": both[0], "op": first[0]["op"]}, "origins": both, "all_origins": both,
                  "times_own": min(first[1].times_own, second[1].times_own)}
        write(os.path.join(base, f"fault_two_{at}"), second[2], precision, None, expect)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(models.MODELS))
    parser.add_argument("--faults", type=int, default=24, help="single faults per model and seed")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for seed in range(options.seeds):
        for model in options.models:
            base = os.path.join(options.directory, f"{model}-{seed}")
            if not os.path.isdir(base):
                make_model(base + ".part", model, seed, options.faults)
                os.rename(base + ".part", base)
                print(base, flush=True)


if __name__ == "__main__":
    main()
