"""Modules and operators kept in fp32."""

import copy

import pytest
import torch
from conftest import transformer

import goldline
from goldline.overrides import canonical


class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    """The dtype that each operator computes in, by name."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        if first is not None:
            self.seen.append((func._schema.name.rpartition("::")[2], first.dtype))
        return result

    def dtypes(self, name):
        return [dtype for seen, dtype in self.seen if seen == name]


class Attention(torch.nn.Module):
    """Softmax as an operator in the forward of a module."""

    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.inner = torch.nn.Softmax(-1)

    def forward(self, x):
        scores = torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2), -1)
        return self.inner(scores) @ x


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleList([Attention(), Attention()])
        self.norm = torch.nn.LayerNorm(8)
        self.out = torch.nn.Linear(8, 4)

    def forward(self, x):
        for layer in self.encoder:
            x = layer(x)
        return self.out(self.norm(x))


def watched(model, x, dtype=None):
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None), Watch() as watch:
        y = model(x)
    return y, watch


def test_a_module_computes_in_fp32_under_autocast():
    torch.manual_seed(0)
    model, x = Model(), torch.randn(3, 8)
    assert watched(model, x, torch.bfloat16)[1].dtypes("addmm")[-1] == torch.bfloat16
    with goldline.keep_fp32(model, ["out"]) as kept:
        y, watch = watched(model, x, torch.bfloat16)
        assert kept.modules == ["out"]
        assert watch.dtypes("addmm")[-1] == torch.float32 and watch.dtypes("addmm")[0] == torch.bfloat16
        assert y.dtype == torch.float32
    assert watched(model, x, torch.bfloat16)[1].dtypes("addmm")[-1] == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_model_keeps_its_dtype_outside(dtype):
    torch.manual_seed(0)
    model, x = Model().to(dtype), torch.randn(3, 8).to(dtype)
    kept = goldline.keep_fp32(model, ["encoder.1", "norm"])
    y, watch = watched(model, x)
    assert y.dtype == dtype
    assert watch.dtypes("native_layer_norm") == [torch.float32]
    assert watch.dtypes("addmm") == [dtype] * 2 + [torch.float32] * 2 + [dtype]
    y.sum().backward()
    assert model.norm.weight.grad.dtype == dtype
    kept.remove()
    assert watched(model, x)[1].dtypes("native_layer_norm") == [dtype]


def test_an_operator_of_one_module():
    torch.manual_seed(0)
    model, x = Model().bfloat16(), torch.randn(3, 8).bfloat16()
    with goldline.keep_fp32(model, ["encoder.1.softmax#0"]) as kept:
        _, watch = watched(model, x)
    assert kept.operators == {"encoder.1": ["softmax"]}
    # In each layer: the module's own, and that of the module inside, which is another place.
    assert watch.dtypes("_softmax") == [torch.bfloat16] * 2 + [torch.float32, torch.bfloat16]


def test_globs_and_operators_everywhere():
    torch.manual_seed(0)
    model, x = Model().half(), torch.randn(3, 8).half()
    with goldline.keep_fp32(model, ["encoder.*.softmax", "op:layer_norm"]) as kept:
        _, watch = watched(model, x)
    assert {"", "encoder.0", "encoder.1"} <= set(kept.operators)
    assert watch.dtypes("native_layer_norm") == [torch.float32]
    assert watch.dtypes("_softmax") == [torch.float32] * 4 and watch.dtypes("addmm") == [torch.float16] * 5
    with goldline.keep_fp32(model, "op:softmax"):
        assert watched(model, x)[1].dtypes("_softmax") == [torch.float32] * 4


def test_an_overflow_is_cured():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    with torch.no_grad():
        model[0].weight.mul_(3000)
        model[1].weight.mul_(100)
    x = torch.randn(4, 8)
    exact = model(x)
    assert not watched(model, x, torch.float16)[0].isfinite().all()
    with goldline.keep_fp32(model, ["1", "2"]):
        y = watched(model, x, torch.float16)[0]
    assert y.isfinite().all() and torch.allclose(y.float(), exact, atol=1e-2)


def test_results_are_those_of_fp32():
    model, inputs, _ = transformer()
    exact = model(**inputs)
    with goldline.keep_fp32(model, ["*"]):
        assert torch.equal(watched(lambda _: model(**inputs), None, torch.bfloat16)[0], exact)


def test_removal_leaves_no_trace_and_copies_are_their_own():
    model = Model()
    with goldline.keep_fp32(model, ["out", "encoder.0.softmax"]):
        other = copy.deepcopy(model)
        assert other.out.forward.__self__ is other.out
    assert all("forward" not in vars(module) for module in model.modules())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_a_pattern_that_fits_nothing_is_an_error():
    with pytest.raises(LookupError, match="found 'decoder.softmax'"):
        goldline.keep_fp32(Model(), ["decoder.softmax"])


def test_names_of_functions():
    for spelling, name in (
        ("__add__", "add"), ("__radd__", "add"), ("__matmul__", "matmul"), ("softmax", "softmax"), ("conv2d", "conv"),
        ("scaled_dot_product_attention", "attention"), ("layer_norm", "layer_norm"), ("aten::addmm", "linear"),
        ("__rsub__", "sub"), ("relu_", "relu"), ("index", "index"), ("_softmax", "softmax"),
    ):  # fmt: skip
        assert canonical(spelling) == name, spelling
