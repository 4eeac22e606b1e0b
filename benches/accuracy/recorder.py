"""Records what a PyTorch program computes, operator by operator, as a goldline.run/1.

A dispatch mode stands below autograd and autocast, so the casts that autocast inserts and the
operators of the backward pass and of the optimizer are layers too. `alter` may replace the output of
an operator while the program runs: what it returns is recorded and propagates.
"""

import json
import os

import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

PLAIN = {"profiler", "_local_scalar_dense", "is_same_size", "sym_size", "record_stream"}


def plain(value):
    """An argument that is no tensor, in the words of the run format."""
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, float) and not (value - value == 0):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


class Recorder(TorchDispatchMode):
    """`layers` in execution order (as in layers.jsonl) and `tensors` by id."""

    def __init__(self, modules=(), alter=None):
        super().__init__()
        self.layers, self.tensors, self.alter = [], {}, alter
        self.ids, self.alive, self.counts, self.stack, self.phase = {}, [], {}, [""], "forward"
        self.hooks = []
        for name, module in modules:
            if name:
                self.hooks.append(module.register_forward_pre_hook(lambda *_, n=name: self.stack.append(n)))
                self.hooks.append(module.register_forward_hook(lambda *_: self.stack.pop() and None))

    def close(self):
        for hook in self.hooks:
            hook.remove()

    def source(self, name, op, tensor):
        """A tensor that the program is given."""
        self.layers.append({"name": name, "op": op, "pass": "forward", "inputs": [], "outputs": [self._make(name, tensor)]})

    def _key(self, tensor):
        storage = tensor.untyped_storage()
        return (storage.data_ptr() or id(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def _make(self, key, tensor):
        self.ids[self._key(tensor)] = key
        self.alive.append(tensor)  # its storage must not be given to another tensor
        self.tensors[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        return key

    def _read(self, tensor):
        if self._key(tensor) not in self.ids:
            self.source("unrecorded_%d" % len(self.ids), "input", tensor)
        return self.ids[self._key(tensor)]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = func._schema.name.split("::")[1]
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return self._record(func, op, args, kwargs)

    def _record(self, func, op, args, kwargs):
        inputs, names, attrs, written = [], [], {}, []
        for at, argument in enumerate(func._schema.arguments):
            value = args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
            listed = value if isinstance(value, (list, tuple)) else [value]
            tensors = [item for item in listed if isinstance(item, torch.Tensor)]
            if argument.alias_info is not None and argument.alias_info.is_write:
                written += tensors
            if tensors:
                inputs += [self._read(item) for item in tensors]
                names += [argument.name] * len(tensors)
            elif not (argument.name == "out" and value is None):
                attrs[argument.name] = plain(value)
        module = self.stack[-1]
        name = ".".join(part for part in (module if self.phase == "forward" else self.phase, op) if part)
        count = self.counts[name] = self.counts.get(name, -1) + 1
        name = name if count == 0 else "%s_%d" % (name, count)
        out = func(*args, **kwargs)
        if self.alter is not None:
            out = self.alter(name, op, func, args, kwargs, out)
        outputs = [item for item in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(item, torch.Tensor)]
        if not outputs or op in PLAIN:
            return out
        for tensor in written:
            place = tensor.untyped_storage().data_ptr()
            self.ids = {key: value for key, value in self.ids.items() if key[0] != place}
        ids = [self._make("%s:%d" % (name, slot), tensor) for slot, tensor in enumerate(outputs)]
        self.layers.append({"name": name, "op": op, "kind": "operator", "pass": self.phase, "call": 0, "module": module,
                            "schema": func._schema.name, "inputs": inputs, "input_names": names, "outputs": ids, "attrs": attrs})
        return out

    def save(self, path, compute="float32", autocast=False):
        os.makedirs(path)
        save_file(self.tensors, os.path.join(path, "tensors.safetensors"))
        with open(os.path.join(path, "layers.jsonl"), "w") as out:
            out.writelines(json.dumps(layer) + "\n" for layer in self.layers)
        manifest = {"format": "goldline.run/1", "seed": 0, "precision": {"compute": compute, "autocast": autocast},
                    "environment": {"device": "cpu", "framework": "torch " + torch.__version__}, "complete": True}
        with open(os.path.join(path, "run.json"), "w") as out:
            json.dump(manifest, out)
