

def keep_fp32(model, whole_blocks=False, cast_back=False):
    """Make the modules named above compute in fp32 under autocast; returns the names it wrapped.

    `whole_blocks` also wraps the blocks in BLOCKS, with everything inside them. Outputs stay fp32,
    for values that do not fit the low-precision dtype are why a module is here; `cast_back` casts
    them to the dtype that the module's first floating-point input had.
    """
    wanted = list(MODULES) + (list(BLOCKS) if whole_blocks else [])
    known = {}
    for name, module in model.named_modules():
        known.setdefault(_without_wrappers(name), module)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise LookupError("; ".join(_no_such_module(name, known) for name in unknown))
    for name in wanted:
        for key, tensor in known[name].named_parameters():
            if _is_narrow(tensor):
                raise TypeError(
                    "parameter %r of module %r is %s: autocast expects fp32 parameters, call .float() on the module"
                    % (key, name, tensor.dtype)
                )
    for name in wanted:
        _wrap(known[name], cast_back)
    return wanted


def run_fp32(function, *args, **kwargs):
    """Call `function` in fp32 under autocast: for operators in a forward that are no module."""
    inputs = _tensors(args, kwargs)
    if not inputs:
        return function(*args, **kwargs)
    with torch.autocast(device_type=inputs[0].device.type, enabled=False):
        return function(*_map(args, _widen), **_map(kwargs, _widen))


def _wrap(module, cast_back):
    if getattr(module.__dict__.get("forward"), "_goldline_fp32", False):
        return
    patched = module.__dict__.get("forward")

    def forward(self, *args, **kwargs):
        call = patched if patched is not None else functools.partial(type(self).forward, self)
        inputs = _tensors(args, kwargs)
        first = inputs[0] if inputs else next(self.parameters(), None)
        if first is None:
            return call(*args, **kwargs)
        with torch.autocast(device_type=first.device.type, enabled=False):
            result = call(*_map(args, _widen), **_map(kwargs, _widen))
        floating = [tensor for tensor in inputs if tensor.is_floating_point()]
        if not cast_back or not floating:
            return result
        dtype = floating[0].dtype
        return _map(result, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    forward._goldline_fp32 = True
    # Bound to the module, so that a deep copy of the model calls its own parameters.
    module.forward = types.MethodType(forward, module)


def _is_narrow(tensor):
    return tensor.is_floating_point() and tensor.element_size() < 4


def _widen(tensor):
    return tensor.float() if _is_narrow(tensor) else tensor


def _tensors(args, kwargs):
    found = []
    _map((args, kwargs), lambda tensor: found.append(tensor) or tensor)
    return found


def _map(value, change):
    if torch.is_tensor(value):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(item, change) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_map(item, change) for item in value)
    if isinstance(value, dict):
        changed = copy.copy(value)
        for key in value:
            changed[key] = _map(value[key], change)
        return changed
    return value


def _without_wrappers(name):
    kept = [part for part in name.split(".") if part not in WRAPPERS]
    return ".".join(kept) if kept else name


def _no_such_module(name, known):
    names = [other for other in known if other]
    nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.0)
    return "the model has no module %r, the nearest are: %s" % (name, ", ".join(map(repr, nearest)) or "none")
