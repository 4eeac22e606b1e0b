"""Faults of one operator, put into its output while the program runs, so that they propagate.

A fault is a function of (op, func, args, kwargs, out, draw) that returns the wrong output, or None
where it does not apply to this operator.
"""

import torch

from clean import EXACT, PRODUCTS

UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float64: 2.0**-53}
MOVERS = {"view", "transpose", "permute", "expand", "slice", "cat", "stack", "clone", "_unsafe_view", "embedding", "constant_pad_nd", "repeat_interleave", "select"}
CONTRACTIONS = PRODUCTS | {"convolution", "_scaled_dot_product_flash_attention_for_cpu"}


def own_error(op, args, out):
    """Relative error that a correct operator leaves: a rounding, and the sum in fp32 (NUMERICS section 1)."""
    terms = args[-1].shape[-2] if op in PRODUCTS else args[1][0].numel() if op == "convolution" else args[0].shape[-1] if op in {"sum", "mean", "native_layer_norm", "_softmax", "cumsum"} and args[0].dim() else 1
    return 0.42 * (UNIT[out.dtype] ** 2 + UNIT[torch.float32] ** 2 * 0.5 * terms) ** 0.5


def elementwise(change):
    return lambda op, func, args, kwargs, out, draw: change(out, draw)


def at(out, draw):
    return int(torch.randint(0, max(out.numel(), 1), (1,), generator=draw))


def channel(out, draw):
    if out.dim() < 2 or out.shape[-1] < 4:
        return None
    wrong = out.clone()
    wrong[..., int(torch.randint(0, out.shape[-1], (1,), generator=draw))] *= 1.25
    return wrong


def row(out, draw):
    if out.dim() < 2 or out.numel() // out.shape[-1] < 4:
        return None
    wrong = out.clone(memory_format=torch.contiguous_format)
    rows = wrong.view(-1, out.shape[-1])
    first = int(torch.randint(0, len(rows) - 1, (1,), generator=draw))
    rows[first] = rows[first + 1].clone()
    return wrong


def bitflip(factor):
    def change(out, draw):
        wrong = out.clone(memory_format=torch.contiguous_format)
        flat = wrong.view(-1)
        pick = flat.abs().argmax() if factor < 2 else at(out, draw)
        flat[pick] = flat[pick] * factor
        return wrong

    return change


def tail_zero(out, draw):
    wrong = out.clone(memory_format=torch.contiguous_format)
    wrong.view(-1)[-max(1, out.numel() // 10):] = 0
    return wrong


def tile_zero(out, draw):
    if out.dim() < 2 or out.shape[-1] < 8 or out.shape[-2] < 8:
        return None
    wrong = out.clone(memory_format=torch.contiguous_format)
    wrong[..., 4:8, 4:8] = 0
    return wrong


def heads(out, draw):
    if out.dim() != 4 or out.shape[1] < 2:
        return None
    return out.flip(1).contiguous()


def truncated(out, source):
    bits = source.contiguous().view(torch.int32) & -65536
    return bits.view(torch.float32).to(out.dtype)


def truncating_cast(op, func, args, kwargs, out, draw):
    if op != "_to_copy" or out.dtype != torch.bfloat16 or args[0].dtype != torch.float32:
        return None
    return truncated(out, args[0])


def reduced(round_to):
    def fault(op, func, args, kwargs, out, draw):
        if op not in CONTRACTIONS or out.dtype != torch.float32:
            return None
        return func(*[round_to(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args], **kwargs)

    return fault


def to_tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def own_rounding(times):
    """Random relative noise of `times` the error that a correct operator leaves."""

    def fault(op, func, args, kwargs, out, draw):
        if op in EXACT or out.dtype == torch.float64:
            return None
        noise = torch.randn(out.shape, generator=draw, dtype=torch.float64)
        return (out.double() * (1 + times * own_error(op, args, out) * noise)).to(out.dtype)

    return fault


def eps(value):
    def fault(op, func, args, kwargs, out, draw):
        if op == "native_layer_norm":
            return func(*args[:4], value)[0]
        if op == "native_group_norm":
            return func(*args[:7], value)[0]
        if op == "_native_batch_norm_legit_no_training":
            return func(*args[:6], value)[0]
        if op == "add" and isinstance(args[1], float) and args[1] in (1e-6, 1e-5):
            return func(args[0], value)
        return None

    return fault


def gelu_tanh(op, func, args, kwargs, out, draw):
    return func(args[0], approximate="tanh") if op == "gelu" else None


def batch_statistics(op, func, args, kwargs, out, draw):
    if op != "native_batch_norm" or args[5]:
        return None
    x = args[0].float()
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
    scale, shift = (p.view(1, -1, 1, 1) for p in args[1:3])
    return ((x - mean) * torch.rsqrt(var + args[7]) * scale + shift).to(out.dtype)


def mask_polarity(op, func, args, kwargs, out, draw):
    if op == "masked_fill":
        return func(args[0], ~args[1], args[2])
    return func(~args[0], *args[1:]) if op == "where" else None


def dropout_on(out, draw):
    keep = torch.rand(out.shape, generator=draw) >= 0.1
    return (out * keep / 0.9).to(out.dtype)


def nan_row(out, draw):
    wrong = out.clone(memory_format=torch.contiguous_format)
    wrong.view(-1, out.shape[-1] if out.dim() else 1)[0] = float("nan")
    return wrong


def overflow(out, draw):
    wrong = out.clone(memory_format=torch.contiguous_format)
    rows = wrong.view(-1, out.shape[-1] if out.dim() else 1)
    rows[0] = (rows[0].float() * 1e7).to(out.dtype)
    return wrong if torch.isinf(wrong).any() and not torch.isinf(out).any() else None


def moved_rows(op, func, args, kwargs, out, draw):
    if op not in MOVERS or out.dim() < 2 or out.shape[-2] < 2:
        return None
    return out.roll(1, -2).contiguous()


def moved_two(op, func, args, kwargs, out, draw):
    if op not in MOVERS or out.numel() < 4:
        return None
    wrong = out.clone(memory_format=torch.contiguous_format)
    flat = wrong.view(-1)
    where = at(out, draw) % (out.numel() - 1)
    flat[where], flat[where + 1] = flat[where + 1].clone(), flat[where].clone()
    return wrong


SCALES = {f"scale_{size}": elementwise(lambda out, draw, f=1 + size: out * f) for size in (0.003, 0.01, 0.1)}
COMPUTED = {
    **SCALES,
    "offset": elementwise(lambda out, draw: out + 0.1 * out.float().std(unbiased=False).to(out.dtype)),
    "channel": elementwise(channel),
    "row": elementwise(row),
    "bit_exponent": elementwise(bitflip(16.0)),
    "bit_mantissa": elementwise(bitflip(1.25)),
    "tail_zero": elementwise(tail_zero),
    "tile_zero": elementwise(tile_zero),
    "roll": elementwise(lambda out, draw: out.roll(1, -1).contiguous() if out.dim() else None),
    "heads": elementwise(heads),
    "saturate": elementwise(lambda out, draw: out.clamp(-0.7 * float(out.abs().max()), 0.7 * float(out.abs().max()))),
    "dropout_on": elementwise(dropout_on),
    "nan_row": elementwise(nan_row),
    "own_x1.5": own_rounding(1.5), "own_x3": own_rounding(3), "own_x5": own_rounding(5), "own_x8": own_rounding(8),
    "eps_1e-3": eps(1e-3), "eps_1e-2": eps(1e-2), "gelu_tanh": gelu_tanh, "batch_statistics": batch_statistics,
    "mask_polarity": mask_polarity,
}
FULL_PRECISION = {"tf32_compute": reduced(to_tf32), "bf16_compute": reduced(lambda x: x.bfloat16().float()), "fp16_compute": reduced(lambda x: x.half().float())}
MOVED = {"moved_rows": moved_rows, "moved_two": moved_two}
IN_BF16, IN_FP16 = {"truncating_cast": truncating_cast}, {"overflow": elementwise(overflow)}


class Injection:
    """An `alter` function that puts `fault` into the first output of the layer named `target`."""

    def __init__(self, target, fault, seed, then=None):
        self.target, self.fault, self.draw, self.then = target, fault, torch.Generator().manual_seed(seed), then
        self.relative = self.times_own = None

    def __call__(self, name, op, func, args, kwargs, out):
        if self.then is not None:
            out = self.then(name, op, func, args, kwargs, out)
        first = out[0] if isinstance(out, (list, tuple)) else out
        if name != self.target or not isinstance(first, torch.Tensor) or not first.is_floating_point():
            return out
        wrong = self.fault(op, func, args, kwargs, first, self.draw)
        if isinstance(wrong, (list, tuple)):
            wrong = wrong[0]
        if wrong is None or torch.equal(wrong, first):
            return out
        finite = torch.isfinite(wrong) & torch.isfinite(first)
        exact, error = first[finite].double(), (wrong[finite].double() - first[finite].double())
        self.relative = float(error.norm() / exact.norm()) if exact.norm() > 0 and bool(torch.isfinite(wrong).all() == torch.isfinite(first).all()) else float("inf")
        self.times_own = self.relative / own_error(op, args, first)
        if isinstance(out, (list, tuple)):
            return type(out)([wrong, *out[1:]])
        return wrong
