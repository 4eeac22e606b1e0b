"""Where the program is: which module computes, in which pass, and for which node of autograd.

Modules push their names while they run. In the backward pass the module is that of the forward operator whose
gradient is computed: autograd numbers its nodes, and a node is numbered just before its forward operator runs.
"""

from typing import Any, Dict, List, NamedTuple, Optional

import torch

# What wrappers put into the names of modules: the class that owns the attribute, where the attribute's name
# could be a user's own, decides.
WRAPPERS = {
    "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_fpw_module", "_forward_module",
    "_wrapped_module",
}  # fmt: skip
WRAPPER_CLASSES = {
    "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "PipelineModule",
    "Float16Module", "Float16_Module", "OptimizedModule", "CheckpointWrapper",
}  # fmt: skip

# Nodes whose forward operator is remembered; enough for many steps of a large model.
MAX_NODES = 1 << 20


class Frame:
    """A module that runs."""

    __slots__ = ("call", "in_backward", "is_collapsed", "module", "name", "record")

    def __init__(self, module: Any, name: str, call: int, in_backward: bool) -> None:
        self.module, self.name, self.call = module, name, call
        # Entered while autograd runs: a checkpoint computes its part of the forward pass again.
        self.in_backward = in_backward
        # At level "module": the operators inside are part of the module's layer.
        self.is_collapsed = False
        # What the recorder keeps about it until it ends.
        self.record: Any = None


class Origin(NamedTuple):
    """The forward operator that a node of autograd belongs to."""

    module: str
    # Ids of the operator's outputs, by output number of the node; `None` for one that has no id.
    outputs: List[Optional[str]]


class Where(NamedTuple):
    """The place of one operator."""

    module: str
    step: str  # "forward", "backward" or "optimizer"
    node: Any
    is_recomputed: bool


class Scope:
    """The stack of modules, and what each node of autograd belongs to."""

    def __init__(self) -> None:
        self.frames: List[Frame] = []
        self.in_optimizer = False
        self._origins: Dict[int, Origin] = {}
        # Name of a parameter by the id of the tensor object, which the model holds.
        self.parameters: Dict[int, str] = {}

    def enter(self, module: Any, name: str, call: int = 0) -> Frame:
        """A module begins."""
        frame = Frame(module, name, call, current_node() is not None)
        self.frames.append(frame)
        return frame

    def leave(self, module: Any) -> Optional[Frame]:
        """A module ends, well or by an exception; so do those inside it that said nothing."""
        for at in range(len(self.frames) - 1, -1, -1):
            if self.frames[at].module is module:
                frame = self.frames[at]
                del self.frames[at:]
                return frame
        return None

    def collapsed(self) -> Optional[Frame]:
        """The innermost running module whose operators are not recorded one by one."""
        for frame in reversed(self.frames):
            if frame.is_collapsed:
                return frame
        return None

    def where(self) -> Where:
        """The place of the operator that is about to run."""
        node = current_node()
        frame = self.frames[-1] if self.frames else None
        if node is not None and not (frame is not None and frame.in_backward):
            return Where(self._module_of(node), "backward", node, False)
        module = frame.name if frame is not None else ""
        # A closure calls the model within the step.
        if self.in_optimizer and frame is None:
            return Where(module, "optimizer", None, False)
        return Where(module, "forward", None, node is not None)

    def remember(self, module: str, outputs: List[Optional[str]]) -> None:
        """The operator that has just run belongs to the node of autograd that was numbered last."""
        number = torch._C._autograd._get_sequence_nr() - 1
        # An operator without a node of its own follows one that has: the first one counts.
        if number >= 0 and number not in self._origins:
            if len(self._origins) >= MAX_NODES:
                self._origins.clear()
            self._origins[number] = Origin(module, outputs)

    def origin(self, node: Any) -> Optional[Origin]:
        """The forward operator of a node."""
        number = getattr(node, "_sequence_nr", None)
        return self._origins.get(number()) if number is not None else None

    def parameter_of(self, node: Any) -> Optional[str]:
        """The parameter whose gradient the node accumulates."""
        variable = getattr(node, "variable", None)
        return self.parameters.get(id(variable)) if variable is not None else None

    def _module_of(self, node: Any) -> str:
        origin = self.origin(node)
        if origin is not None:
            return origin.module
        parameter = self.parameter_of(node)
        return parameter.rpartition(".")[0] if parameter is not None else ""


def current_node() -> Any:
    """The node that autograd computes at present; `None` outside the backward pass."""
    return torch._C._current_autograd_node()


def module_names(model: Any, prefix: str = "") -> Dict[str, Any]:
    """The modules of a model by their path without wrappers; a shared module once, by its first path."""
    found: Dict[str, Any] = {}
    _walk(model, prefix, found, set())
    return found


def _walk(module: Any, path: str, found: Dict[str, Any], seen: set) -> None:
    if id(module) in seen:
        return
    seen.add(id(module))
    # A wrapper and what it wraps have one path: the wrapped module, which comes later, holds it.
    found[path] = module
    is_wrapper = type(module).__name__ in WRAPPER_CLASSES
    for name, child in module.named_children():
        inner = path if name in WRAPPERS or (is_wrapper and name == "module") else join(path, name)
        _walk(child, inner, found, seen)


def compiled_parts(model: Any) -> List[Any]:
    """Modules that `torch.compile` made or was asked to compile."""
    return [
        module
        for module in model.modules()
        if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
    ]


def parameter_names(model: Any, prefix: str = "") -> Dict[str, torch.Tensor]:
    """Parameters and buffers by their path without wrappers; a tied one once, by its first path."""
    found: Dict[str, torch.Tensor] = {}
    seen = set()
    for path, module in module_names(model, prefix).items():
        own = list(module._parameters.items()) + list(module._buffers.items())
        for name, tensor in own:
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[join(path, name)] = tensor
    return found


def join(path: str, name: str) -> str:
    """`a.b` from `a` and `b`."""
    return "%s.%s" % (path, name) if path and name else path or name
