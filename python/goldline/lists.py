"""Operators on lists of tensors, taken apart: what each does to one element, in the words of the operator on one.

An optimizer that loops over its parameters and one that hands torch the whole list then leave the same layers.
"""

from typing import Any, Dict, List, NamedTuple

# Operator on one tensor -> list operator's argument -> the name it has there.
BINARY = {"scalar": "other", "scalars": "other"}
NAMES: Dict[str, Dict[str, str]] = {
    "add": BINARY,
    "sub": BINARY,
    "mul": BINARY,
    "div": BINARY,
    "pow": {"exponent": "exponent", "scalar": "exponent", "scalars": "exponent"},
    "clamp_min": {"scalar": "min", "scalars": "min", "other": "min"},
    "clamp_max": {"scalar": "max", "scalars": "max", "other": "max"},
    "addcmul": {"scalars": "value"},
    "addcdiv": {"scalars": "value"},
    "lerp": {"tensors1": "end", "weights": "weight", "scalars": "weight", "scalar": "weight"},
}

# Operators whose name on one tensor is another.
FUNCTIONS = {"norm": "linalg_vector_norm"}


class Element(NamedTuple):
    """What a list operator does to one element."""

    function: str
    op: str
    inputs: List[str]
    names: List[str]
    attrs: Dict[str, Any]


def elements(function: str, op: str, inputs: List[str], names: List[str], attrs: Dict[str, Any]) -> List[Element]:
    """The elements in order; empty where the lists do not correspond.

    `inputs` and `names` are the ids and argument names of all tensors; `attrs` may hold one number per element.
    """
    groups: Dict[str, List[str]] = {}
    for name, tensor_id in zip(names, inputs):
        groups.setdefault(name, []).append(tensor_id)
    count = max((len(group) for group in groups.values()), default=0)
    if any(len(group) not in (1, count) for group in groups.values()):
        return []
    prefix = "_foreach_"
    alone = function[len(prefix) :] if function.startswith(prefix) else function
    renamed = NAMES.get(alone, {})
    if function.startswith(prefix):
        op = alone
    found = []
    for at in range(count):
        own = {
            renamed.get(key, key): value[at] if isinstance(value, list) and len(value) == count else value
            for key, value in attrs.items()
            if value != []
        }
        # The operators on one tensor have factors that those on lists leave out.
        if alone in ("add", "sub"):
            own.setdefault("alpha", 1)
        found.append(
            Element(
                FUNCTIONS.get(alone, alone),
                op,
                [group[at if len(group) == count else 0] for group in groups.values()],
                [renamed.get(name, name) for name in groups],
                own,
            )
        )
    return found
