"""What a correct implementation may do otherwise, as `alter` functions for the recorder.

Each takes (name, op, func, args, kwargs, out) and returns the output to be recorded. In-place
operators are left as they are.
"""

import torch

PRODUCTS = {"mm", "bmm", "addmm"}
EXACT = {"relu", "neg", "where", "masked_fill", "amax", "max", "abs", "clamp", "constant_pad_nd", "view", "t", "transpose",
         "permute", "expand", "slice", "select", "cat", "stack", "clone", "_unsafe_view", "unsqueeze", "squeeze", "embedding",
         "detach", "split", "unbind", "alias", "_to_copy", "copy_", "arange", "ones", "zeros", "zeros_like", "ones_like", "full",
         "empty_like", "triu", "index", "lift_fresh", "full_like", "scalar_tensor", "native_dropout", "repeat_interleave",
         "reshape", "_reshape_alias", "as_strided", "argmax", "topk", "bitwise_not", "logical_not", "gather", "new_zeros",
         "slice_backward", "select_backward", "fill", "threshold_backward", "empty", "unsafe_split", "new_empty_strided"}


def is_computed(op, out):
    return isinstance(out, torch.Tensor) and out.is_floating_point() and op not in EXACT and not op.endswith("_")


def wide(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(wide(item, dtype) for item in value)
    return value


def split_sums(pieces, shuffle=False):
    """Products summed in `pieces` parts of K, in fp32, then added."""

    def alter(name, op, func, args, kwargs, out):
        if op not in PRODUCTS:
            return out
        a, b = args[-2].float(), args[-1].float()
        parts = list(zip(a.chunk(pieces, -1), b.chunk(pieces, -2)))
        total = None
        for x, y in reversed(parts) if shuffle else parts:
            total = x @ y if total is None else total + x @ y
        if op == "addmm":
            total = total * kwargs.get("alpha", 1) + kwargs.get("beta", 1) * args[0].float()
        return total.to(out.dtype)

    return alter


def order(name, op, func, args, kwargs, out):
    """Every product and sum over reversed K: the same terms in another order."""
    if op in PRODUCTS:
        a, b = args[-2].float().flip(-1), args[-1].float().flip(-2)
        total = a.contiguous() @ b.contiguous()
        return (total + args[0].float() if op == "addmm" else total).to(out.dtype)
    if op in {"sum", "mean"} and len(args) > 1 and args[1] is not None:
        return func(args[0].flip(args[1]), *args[1:], **kwargs)
    return out


def better(name, op, func, args, kwargs, out):
    """Computed in fp64 and rounded once: the candidate is the more exact side."""
    if not is_computed(op, out) or op.startswith("_scaled") or "backward" in op:
        return out
    try:
        return func(*wide(args, torch.float64), **kwargs).to(out.dtype)
    except (RuntimeError, AttributeError):
        return out


def rounded_twice(name, op, func, args, kwargs, out):
    """Products without a fused bias, activations in two rounded steps."""
    if op == "addmm":
        return torch.mm(args[1], args[2]) + args[0]
    if op == "silu":
        return args[0] * torch.sigmoid(args[0])
    if op == "div" and isinstance(args[1], torch.Tensor):
        return args[0] * torch.reciprocal(args[1]) if out.dtype == torch.float32 else out
    return out


def ulp_noise(seed, share=0.5):
    """A share of all computed values off by one unit in the last place."""
    draw = torch.Generator().manual_seed(seed)

    def alter(name, op, func, args, kwargs, out):
        if not is_computed(op, out) or out.numel() == 0 or out.dtype == torch.float64:
            return out
        pick = torch.rand(out.shape, generator=draw)
        up, down = torch.full_like(out, float("inf")), torch.full_like(out, float("-inf"))
        moved = torch.where(pick < share / 2, torch.nextafter(out, up), torch.where(pick < share, torch.nextafter(out, down), out))
        return torch.where(torch.isfinite(moved) & (out != 0), moved, out)

    return alter


def faithful(seed, share=0.3):
    """A share of 16-bit values rounded to the other neighbour of the exact value, as stochastic or directed
    rounding leaves them: never more than one unit in the last place off."""
    draw = torch.Generator().manual_seed(seed)

    def alter(name, op, func, args, kwargs, out):
        if not is_computed(op, out) or out.dtype not in (torch.float16, torch.bfloat16) or op.startswith("_scaled") or "backward" in op:
            return out
        try:
            exact = func(*wide(args, torch.float32), **kwargs).double()
        except (RuntimeError, AttributeError):
            return out
        near = exact.to(out.dtype)
        towards = torch.where(exact > near.double(), float("inf"), float("-inf")).to(out.dtype)
        other = torch.where((exact == near.double()) | (near == 0), near, torch.nextafter(near, towards))
        return torch.where((torch.rand(out.shape, generator=draw) < share) & torch.isfinite(other), other, near)

    return alter


def chained(*alters):
    def alter(name, op, func, args, kwargs, out):
        for one in alters:
            out = one(name, op, func, args, kwargs, out)
        return out

    return alter
