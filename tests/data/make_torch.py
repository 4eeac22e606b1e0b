"""Writes the files in `torch/` and `torch/expected.json` beside it. Run by hand with torch installed:

    python tests/data/make_torch.py

`expected.json` says of each file, in the file's order, the name, dtype and shape of each tensor and the
SHA-256 of its bytes (row-major, little-endian), as torch holds them.
"""

import hashlib
import json
import zipfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path

import numpy
import torch

OUT = Path(__file__).parent / "torch"


def numbers(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float32) - 3) * 0.75).reshape(shape).to(dtype)


def dense(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def walk(value, path=()):
    """Every tensor below `value`, with its name."""
    if isinstance(value, torch.Tensor):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from walk(inner, (*path, str(index)))


FLOATS = ["float64", "float32", "float16", "bfloat16"]
EIGHTS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"]


def dtypes():
    tensors = {name: numbers(2, 3, dtype=getattr(torch, name)) for name in FLOATS + EIGHTS[:-1]}
    tensors["float8_e8m0fnu"] = torch.arange(6, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    tensors |= {name: torch.arange(1, 7).to(getattr(torch, name)).reshape(3, 2) for name in INTEGERS}
    tensors["bool"] = torch.tensor([True, False, True])
    tensors["complex64"] = torch.complex(numbers(4), -numbers(4))
    return tensors


def special():
    return torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 1e-45, 3.4e38])


def views():
    base = numbers(4, 6)
    return {
        "base": base,
        "row": base[2],
        "column": base[:, 1],
        "block": base[1:3, 2:5],
        "transposed": base.t(),
        "every_second": base[::2, ::3],
        "expanded": base[0, :1].expand(3, 4),
        "permuted": numbers(2, 3, 4).permute(2, 0, 1),
        "diagonal": base.diagonal(),
        "overlapping": base.flatten().as_strided((4, 3), (1, 1), 2),
        "one": base[3:, 5:],
        "channels_last": numbers(1, 2, 3, 2).to(memory_format=torch.channels_last),
    }


def complex_views():
    def base():
        return torch.complex(numbers(2, 3), numbers(2, 3) + 1)

    shared = base()
    return {
        "conj": shared.conj(),
        "conj_transposed": shared.conj().t(),
        "both": torch._neg_view(shared.conj()),
        # A storage is saved with one type only, hence each of these has its own.
        "neg": base().conj().imag,
        "real": base().real,
    }


def small():
    return {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "empty_row": torch.ones(2, 2)[:0], "one": torch.ones(1)}


def nested():
    shared = numbers(3)
    return {
        "model": OrderedDict(weight=numbers(2, 2), bias=numbers(2)),
        "list": [numbers(1), (numbers(2), [numbers(3)]), None],
        3: numbers(2),
        (0, "a"): numbers(1),
        True: numbers(3),
        2.5: numbers(1),
        "again": shared,
        "and again": shared,
        "unicode é": numbers(1),
        "counter": Counter({"x": 2}),
        "default": defaultdict(list, {"t": numbers(1)}),
        "empty": {},
    }


def scalars():
    return {
        "int": 3, "negative": -7, "long": 2**40, "longer": 2**90, "float": 1.5, "nan": float("nan"), "bool": True, "none": None,
        "text": "words", "bytes": b"\xff\x00", "bytearray": bytearray(b"ab"), "size": torch.Size([2, 3]),
        "device": torch.device("cpu"), "dtype": torch.float16, "complex": 1 + 2j, "set": {1, 2}, "frozenset": frozenset([3]),
        "numpy": numpy.float64(2.5), "numpy_int": numpy.int64(3), "slice": slice(1, 2), "range": range(3),
        "double": torch.complex128, "the_only": numbers(2),
    }  # fmt: skip


def parameters():
    plain = torch.nn.Parameter(numbers(2, 3))
    stateful = torch.nn.Parameter(numbers(3))
    stateful.sharded = {"rank": 0}
    frozen = torch.nn.Parameter(numbers(2), requires_grad=False)
    tagged = numbers(2)
    tagged.tag = "x"
    needs_grad = numbers(2).requires_grad_()
    buffer = torch.nn.Buffer(numbers(2))
    return {"plain": plain, "stateful": stateful, "frozen": frozen, "tagged": tagged, "needs_grad": needs_grad, "buffer": buffer}


def training():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(numbers(*parameter.shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(numbers(4, 3)).sum().backward()
    optimizer.step()
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "args": {"lr": 1e-3}}


def big_endian(path, value):
    """What a big-endian machine writes: the numbers of each storage turned around, and `byteorder`."""
    little = path.with_suffix(".tmp")
    torch.save(value, little)
    # Each storage holds one dtype in this file, so its width is its tensor's.
    widths = {str(t.untyped_storage().data_ptr()): (t.element_size() // (2 if t.is_complex() else 1)) for _, t in walk(value)}
    sizes = list(widths.values())
    with zipfile.ZipFile(little) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member.endswith("/byteorder"):
                content = b"big"
            elif "/data/" in member:
                width = sizes[int(member.rsplit("/", 1)[1])]
                content = b"".join(content[at : at + width][::-1] for at in range(0, len(content), width))
            new.writestr(zipfile.ZipInfo(member), content)
    little.unlink()


def rezipped(path, value):
    """The same archive, deflated by hand."""
    plain = path.with_suffix(".tmp")
    torch.save(value, plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(zipfile.ZipInfo(member), old.read(member), zipfile.ZIP_DEFLATED)
    plain.unlink()


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    torch.manual_seed(0)
    old_form = {"_use_new_zipfile_serialization": False}
    expected = {}

    def write(name, value, how=torch.save, **options):
        if how is torch.save:
            torch.save(value, OUT / name, **options)
        else:
            how(OUT / name, value)
        expected[name] = [
            [path, str(t.dtype).removeprefix("torch."), list(t.shape), hashlib.sha256(dense(t)).hexdigest()]
            for path, t in walk(value)
        ]

    write("bare.pt", numbers(2, 3))
    write("special.pt", special())
    write("dtypes.pt", dtypes())
    write("views.pt", views())
    write("complex_views.pt", complex_views())
    write("small.pt", small())
    write("nested.pt", nested())
    write("scalars.pt", scalars())
    write("parameters.pt", parameters())
    write("training.pt", training())
    write("list.pth", [numbers(2), numbers(3)])
    write("no_tensor.pt", {"epoch": 1})
    for protocol in (1, 4):
        write(f"protocol_{protocol}.pt", {"list": nested()["list"], "scalars": scalars()}, pickle_protocol=protocol)
    write("legacy.pt", numbers(2, 3), **old_form)
    write("legacy_nested.pt", nested(), **old_form)
    write("legacy_views.pt", views(), **old_form)
    write("legacy_dtypes.pt", dtypes(), **old_form)
    write("legacy_protocol_4.pt", training(), pickle_protocol=4, **old_form)
    write("big_endian.pt", dtypes(), big_endian)
    write("big_endian_views.pt", {"t": numbers(3, 4).t()}, big_endian)
    torch.serialization.set_crc32_options(False)
    write("no_checksums.pt", [numbers(2), -numbers(2)])
    torch.serialization.set_crc32_options(True)
    write("rezipped.pt", {"views": views(), "conj": complex_views()}, rezipped)

    def listed(tensors):
        return "[" + ",".join("\n  " + json.dumps(tensor, ensure_ascii=False) for tensor in tensors) + "]"

    text = ",\n".join(f'"{name}": {listed(tensors)}' for name, tensors in expected.items())
    (OUT / "expected.json").write_text("{" + text + "}\n", encoding="utf-8")

    # What is refused, by name.
    refused = {
        "quantised.pt": torch.quantize_per_tensor(numbers(3), 0.1, 0, torch.qint8),
        "sparse.pt": torch.eye(2).to_sparse(),
        "sparse_csr.pt": torch.eye(2).to_sparse_csr(),
        "complex128.pt": torch.ones(2, dtype=torch.complex128),
        "meta.pt": torch.empty(2, device="meta"),
        "numpy.pt": {"array": numpy.ones(2)},
        "module.pt": torch.nn.Linear(1, 1),
    }
    for name, value in refused.items():
        torch.save(value, OUT / name)
    print(sum(path.stat().st_size for path in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
