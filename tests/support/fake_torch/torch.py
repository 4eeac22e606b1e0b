"""As much of torch as a snippet of goldline touches: tensors that know their dtype, modules with a
forward, and an autocast that records whether it is on."""

float16, bfloat16, float32, float64, int64 = "float16", "bfloat16", "float32", "float64", "int64"
_SIZES = {float16: 2, bfloat16: 2, float32: 4, float64: 8, int64: 8}
_autocast = {}


class _Device:
    def __init__(self, type):
        self.type = type


class Tensor:
    def __init__(self, dtype=float32, device="npu"):
        self.dtype, self.device = dtype, _Device(device)

    def is_floating_point(self):
        return self.dtype != int64

    def element_size(self):
        return _SIZES[self.dtype]

    def to(self, dtype):
        return Tensor(dtype, self.device.type)

    def float(self):
        return self.to(float32)


def is_tensor(value):
    return isinstance(value, Tensor)


class autocast:
    def __init__(self, device_type, enabled=True):
        self.device_type, self.enabled = device_type, enabled

    def __enter__(self):
        self.before = _autocast.get(self.device_type, False)
        _autocast[self.device_type] = self.enabled

    def __exit__(self, *_):
        _autocast[self.device_type] = self.before


def is_autocast_enabled(device_type):
    return _autocast.get(device_type, False)


class Module:
    def __init__(self, parameters=(), **children):
        self._own, self._children = dict(parameters), children

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self._children.items():
            yield from child.named_modules(prefix + "." + name if prefix else name)

    def named_parameters(self):
        yield from self._own.items()
        for name, child in self._children.items():
            yield from ((name + "." + key, value) for key, value in child.named_parameters())

    def parameters(self):
        return (value for _, value in self.named_parameters())

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


class Probe(Module):
    """Keeps what it was called with and returns its first argument."""

    def forward(self, *args, **kwargs):
        self.seen = (args, kwargs, is_autocast_enabled("npu"))
        return args[0] if args else None
