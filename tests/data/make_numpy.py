"""Writes the files under numpy/, safetensors/, transformers/, polygraphy/ and rknn/ beside this script.

Run by hand, with numpy, ml_dtypes, safetensors, torch, transformers and polygraphy installed:

    python tests/data/make_numpy.py

Each directory gets an expected.json: for each run below it the tensors in the order of its layers, with
dtype, shape and the sha256 of their dense little-endian bytes, computed here from the arrays that were
handed to the writers. The RKNN snapshot is written by numpy as the toolkit lays it out: the toolkit itself
needs a model and is closed.
"""

import hashlib
import json
import os
import shutil
import sys

import ml_dtypes
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
RANDOM = np.random.default_rng(7)

# What Goldline calls the dtypes whose numpy name differs.
NAMES = {"complex64": "complex64", "bool": "bool"}


def fresh(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def entry(name, array):
    dense = np.ascontiguousarray(array).reshape(array.shape)
    little = dense.astype(dense.dtype.newbyteorder("<")) if dense.dtype.kind in "fiuc" else dense
    dtype = str(array.dtype.newbyteorder("=") if array.dtype.kind in "fiuc" else array.dtype)
    return {
        "name": name,
        "dtype": NAMES.get(dtype, dtype),
        "shape": list(array.shape),
        "sha256": hashlib.sha256(little.tobytes()).hexdigest(),
    }


def expect(directory, runs):
    with open(os.path.join(directory, "expected.json"), "w") as out:
        json.dump(runs, out, indent=1)
        out.write("\n")


def some(dtype, shape=(2, 3)):
    values = RANDOM.standard_normal(shape) * 4
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return values > 0
    if dtype.kind == "c":
        return (values + 1j * RANDOM.standard_normal(shape)).astype(dtype)
    if dtype.kind == "u":
        return np.abs(values * 20).astype(dtype)
    return values.astype(dtype)


def arrays():
    """By file name: an array and how it is written."""
    plain = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8"]
    made = {np.dtype(code).name: some(code) for code in plain}
    made.update({"big_" + np.dtype(code).name: some(">" + code) for code in ["f8", "f4", "f2", "i8", "u2", "c8"]})
    made["bfloat16"] = some("f4").astype(ml_dtypes.bfloat16)
    made["float8_e5m2"] = some("f4").astype(ml_dtypes.float8_e5m2)
    made["fortran"] = np.asfortranarray(some("f4", (2, 3, 4)))
    made["big_fortran"] = np.asfortranarray(some(">i4", (3, 2)))
    made["fortran_bfloat16"] = np.asfortranarray(some("f4").astype(ml_dtypes.bfloat16))
    made["scalar"] = np.array(3.25, "f4")
    made["empty"] = np.zeros((0, 3), "f4")
    made["many_axes"] = some("f2", (1,) * 30 + (2,))
    return made


def write_numpy():
    directory = fresh("numpy")
    runs = {}
    for name, array in arrays().items():
        np.save(os.path.join(directory, name + ".npy"), array)
        runs[name + ".npy"] = [entry("tensor", array)]
    for version in [(1, 0), (2, 0), (3, 0)]:
        name = "version%d.npy" % version[0]
        array = some("f4")
        with open(os.path.join(directory, name), "wb") as out:
            np.lib.format.write_array(out, array, version=version)
        runs[name] = [entry("tensor", array)]
    members = {"b/out:0": some("f4", (4, 5)), "a.weight": np.asfortranarray(some(">f2", (3, 4))),
               "zeros": np.zeros((300, 7), "f4"), "bf": some("f4").astype(ml_dtypes.bfloat16), "n": np.array(5)}
    np.savez(os.path.join(directory, "stored.npz"), **members)
    np.savez_compressed(os.path.join(directory, "deflated.npz"), **members)
    for name in ["stored.npz", "deflated.npz"]:
        runs[name] = [entry(key, array) for key, array in members.items()]
    # What tpu-mlir's model_runner leaves: names are places in the graph, `TENSOR_OPTYPE`.
    layers = {"input.1": some("f4", (1, 3, 8, 8)), "122_Conv": some("f4", (1, 4, 8, 8)),
              "123_Relu": some("f4", (1, 4, 8, 8)), "output_Softmax": some("f4", (1, 10))}
    np.savez(os.path.join(directory, "tpu_mlir.npz"), **layers)
    runs["tpu_mlir.npz"] = [entry(key, array) for key, array in layers.items()]
    # Refused: by name, never unpickled.
    refused = os.path.join(directory, "refused")
    os.makedirs(refused)
    np.save(os.path.join(refused, "objects.npy"), np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    np.save(os.path.join(refused, "structured.npy"), np.zeros(2, [("a", "f4"), ("b", "i4")]))
    np.save(os.path.join(refused, "text.npy"), np.array(["ab", "c"]))
    np.save(os.path.join(refused, "bytes.npy"), np.array([b"ab", b"c"]))
    np.save(os.path.join(refused, "dates.npy"), np.array(["2026-01-01"], "M8[D]"))
    np.save(os.path.join(refused, "complex128.npy"), some("c16"))
    np.save(os.path.join(refused, "float8_e4m3fn.npy"), some("f4").astype(ml_dtypes.float8_e4m3fn))
    with open(os.path.join(refused, "two_arrays.npy"), "wb") as out:
        np.save(out, some("f4"))
        np.save(out, some("f4"))
    expect(directory, runs)


def write_safetensors():
    from safetensors.numpy import save_file

    directory = fresh("safetensors")
    state = {"layer10.weight": some("f4", (2, 2)), "layer2.weight": some("f4", (2, 2)), "layer2.bias": some("f2", (2,))}
    save_file(state, os.path.join(directory, "checkpoint.safetensors"))
    order = ["layer2.bias", "layer2.weight", "layer10.weight"]
    runs = {"checkpoint.safetensors": [entry(name, state[name]) for name in order]}
    # A directory of files, mixed.
    mixed = os.path.join(directory, "mixed")
    os.makedirs(os.path.join(mixed, "sub"))
    files = {"step10": some("f4"), "step9": some("f4"), "sub/last": some("i4")}
    for name, array in files.items():
        np.save(os.path.join(mixed, name + ".npy"), array)
    save_file({"w": state["layer2.bias"]}, os.path.join(mixed, "weights.safetensors"))
    np.savez(os.path.join(mixed, "more.npz"), m=files["step9"])
    with open(os.path.join(mixed, "README.txt"), "w") as out:
        out.write("no tensor\n")
    all_of = {**files, "w": state["layer2.bias"], "m": files["step9"]}
    runs["mixed"] = [entry(name, all_of[name]) for name in ["m", "step9", "step10", "sub/last", "w"]]
    expect(directory, runs)


def write_transformers():
    import torch
    from safetensors import safe_open
    from transformers import BertConfig, BertModel
    from transformers.model_debugging_utils import model_addition_debugger_context

    directory = fresh("transformers")
    config = BertConfig(vocab_size=17, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6,
                        max_position_embeddings=8)
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    for name, dtype, use_repr in [("float32", torch.float32, False), ("float16", torch.float16, False),
                                  ("printed", torch.float16, True)]:
        torch.manual_seed(0)
        model = BertModel(config).eval().to(dtype)
        outputs = {}

        def keep(path):
            def hook(module, arguments, result):
                outputs[path] = result.detach().clone()
            return hook

        for path, module in model.named_modules():
            if path and not list(module.children()):
                module.register_forward_hook(keep("BertModel." + path))
        at = os.path.join(directory, name)
        with torch.no_grad(), model_addition_debugger_context(model, debug_path=at, use_repr=use_repr):
            model(**inputs)
        if name == "float32":
            wanted = {path: entry(path, tensor.numpy()) for path, tensor in outputs.items()}
    expect(directory, {"float32": list(wanted.values())})


def write_polygraphy():
    from polygraphy.comparator import IterationResult, RunResults

    directory = fresh("polygraphy")
    runs = {}
    outputs = {"logits": some("f4", (2, 5)), "ids": some("i8", (3,)), "half": some("f2", (2, 2))}
    other = {name: array + 1 for name, array in outputs.items()}
    results = RunResults()
    results.append(("trt-runner", [IterationResult(outputs=outputs, runtime=0.25, runner_name="trt-runner")]))
    results.save(os.path.join(directory, "one.json"))
    runs["one.json"] = [entry(name, array) for name, array in outputs.items()]
    results.append(("onnxrt-runner", [IterationResult(outputs=other, runtime=None, runner_name="onnxrt-runner")] * 2))
    results.save(os.path.join(directory, "several.json"))
    runs["several.json"] = runs["one.json"]
    torch_results(os.path.join(directory, "torch_tensors.json"))
    expect(directory, runs)


def torch_results(path):
    import torch
    from polygraphy.comparator import IterationResult, RunResults

    results = RunResults()
    results.append(("torch", [IterationResult(outputs={"x": torch.ones(2)}, runtime=0.1, runner_name="torch")]))
    results.save(path)


def write_rknn():
    directory = fresh("rknn")
    snapshot = os.path.join(directory, "snapshot")
    layers = [("Input", "input", "1"), ("Conv", "/FC/Gemm_output_0_conv", "505"), ("Relu", "act", "506"),
              ("Reshape", "output", "20")]
    golden = {file: some("f4", (1, 4)) for _, _, file in layers}
    simulated = {file: (np.round(array * 16) / 16).astype("f4") for file, array in golden.items()}
    for kind, arrays in [("golden", golden), ("simulator", simulated)]:
        os.makedirs(os.path.join(snapshot, kind, "npy"))
        for file, array in arrays.items():
            np.save(os.path.join(snapshot, kind, "npy", file + ".npy"), array)
    with open(os.path.join(snapshot, "error_analysis.txt"), "w") as out:
        out.write("# simulator_error: calculate the output error of each layer of the simulator.\n\n")
        out.write("layer_name                          simulator_error\n")
        out.write("                                entire              single\n")
        out.write("                             cos      euc        cos      euc\n" + "-" * 80 + "\n")
        for op, name, _ in layers:
            out.write("[%s] %-40s 1.00000 | 0.0034    1.00000 | 0.0034    \n" % (op, name))
    with open(os.path.join(snapshot, "map_name_to_file.txt"), "w") as out:
        out.write("%-40s %s\n" % ("layer_name", "file_name") + "-" * 60 + "\n")
        for _, name, file in layers:
            out.write("%-40s %s.npy\n" % (name, file))
    runs = {"snapshot/" + kind: [entry(name, arrays[file]) for _, name, file in layers]
            for kind, arrays in [("golden", golden), ("simulator", simulated)]}
    expect(directory, runs)


if __name__ == "__main__":
    writers = [write_numpy, write_safetensors, write_transformers, write_polygraphy, write_rknn]
    for writer in writers:
        if len(sys.argv) < 2 or writer.__name__.removeprefix("write_") in sys.argv[1:]:
            writer()
