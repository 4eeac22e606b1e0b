"""Records a run in the native format goldline.run/1. Copy this file and change what you need.

RunWriter knows no framework; record() drives it with hooks on the modules of a PyTorch model (2.0 or
later). Recorded are the parameters, the inputs, every module that holds no other module, and what
runs between modules (a residual add, a function call) as one layer with the operator `unrecorded`.
"""

import json
import os

SHARD_BYTES = 1 << 30  # of tensors held on the host before they are written


def tensors(value):
    """The tensors in nested lists, tuples and dictionaries, in order."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


class RunWriter:
    def __init__(self, path, save_file, copy, **manifest):
        """`copy` makes the contiguous copy that `save_file` takes; `manifest` goes into run.json."""
        os.makedirs(path)  # fails where something is already
        self.path, self.save_file, self.copy = path, save_file, copy
        self.manifest = {"format": "goldline.run/1", **manifest}
        self.ids, self.alive = {}, []  # a tensor that stays alive keeps its id()
        self.stored, self.bytes, self.lines, self.shards, self.calls = {}, 0, [], 0, {}
        self.unread, self.last = [], []  # outputs that no layer has read yet; those of the last layer
        self._write_manifest(complete=False)

    def key(self, tensor):
        return id(tensor), getattr(tensor, "_version", 0)  # a change in place makes another tensor

    def is_known(self, tensor):
        return self.key(tensor) in self.ids

    def read(self, values, module):
        """Ids of what `module` is about to read: an id that a layer wrote is the data-flow edge."""
        for tensor in tensors(values):
            if not self.is_known(tensor):
                block, _, leaf = module.rpartition(".")
                name = "%s.before_%s" % (block, leaf) if block else "before_" + leaf
                self.layer(name, "unrecorded", self.unread or self.last, tensor, module=block)
        ids = [self.ids[self.key(tensor)] for tensor in tensors(values)]
        self.unread = [name for name in self.unread if name not in ids]
        return ids

    def layer(self, name, op, inputs, outputs, **keys):
        """One layer that ran: `inputs` are ids that read() gave before it ran, `outputs` are tensors."""
        call = self.calls[name] = self.calls.get(name, -1) + 1
        outputs = [self._store(tensor) for tensor in tensors(outputs)]
        self.lines.append({"name": name, "op": op, "call": call, "inputs": inputs, "outputs": outputs, **keys})
        if op != "param":
            self.unread = [n for n in self.unread if n not in inputs] + outputs
            self.last = outputs
        if self.bytes >= SHARD_BYTES:
            self._flush()

    def close(self, complete=True):
        self._flush()
        self._write_manifest(complete)

    def _store(self, tensor):
        name = "t%d" % len(self.alive)
        self.ids[self.key(tensor)] = name
        self.alive.append(tensor)
        self.stored[name] = self.copy(tensor)
        self.bytes += self.stored[name].nbytes
        return name

    def _flush(self):
        """Tensors first, then the layers that name them: a run that crashes keeps a valid beginning."""
        if self.stored:
            self.shards += 1
            file = os.path.join(self.path, "tensors-%05d.safetensors" % self.shards)
            self.save_file(self.stored, file + ".part")
            os.replace(file + ".part", file)
        with open(os.path.join(self.path, "layers.jsonl"), "a") as out:
            out.writelines(json.dumps(line) + "\n" for line in self.lines)
        self.stored, self.bytes, self.lines = {}, 0, []

    def _write_manifest(self, complete):
        with open(os.path.join(self.path, "run.json"), "w") as out:
            json.dump({**self.manifest, "complete": complete}, out, indent=2)


def record(path, model, call, **manifest):
    """Runs `call()`, which runs `model` once, and returns its result; the run goes to the new directory `path`."""
    from safetensors.torch import save_file

    run = RunWriter(path, save_file, lambda tensor: tensor.detach().cpu().clone().contiguous(), **manifest)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        run.layer(name, "param", [], tensor)
    reading = []  # taken before a module runs, for it may change its inputs in place

    def given(module, args, kwargs):
        named = {**{"input%d" % at: value for at, value in enumerate(args)}, **kwargs}
        for name, value in named.items():
            if any(True for _ in tensors(value)):
                run.layer(name, "input", [], value)

    def before(name):
        def hook(module, args, kwargs):
            reading.append(run.read([args, kwargs, dict(module.named_parameters(recurse=False))], name))

        return hook

    def after(name):
        def hook(module, args, kwargs, output):
            inputs = reading.pop()
            # A module that hands on what it was given (dropout in eval mode) computes nothing.
            if not all(run.is_known(tensor) for tensor in tensors(output)):
                run.layer(name, type(module).__name__, inputs, output, kind="module", module=name)

        return hook

    hooks = [model.register_forward_pre_hook(given, with_kwargs=True)]
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            name = name or type(module).__name__
            hooks.append(module.register_forward_pre_hook(before(name), with_kwargs=True))
            hooks.append(module.register_forward_hook(after(name), with_kwargs=True))
    complete = False
    try:
        result = call()
        complete = True
        return result
    finally:
        for hook in hooks:
            hook.remove()
        run.close(complete)
