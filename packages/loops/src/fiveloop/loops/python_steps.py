"""What loops share where bodies run as Python: their counters, and how a carry passes from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import Value, keystr, tree_flatten_with_path
from fiveloop.core.engine import at_source, current_source, flatten_values
from fiveloop.core.extend import as_value, convert, to_array
from fiveloop.loops.common import check_values, joined, keeps_type
from fiveloop.loops.scan.carry import changed_structure


def next_carry(
    what: str, name: str, fun: object, given: Sequence[Value], tree: Any, out: Any
) -> list[Value]:
    """The carry that a step of `fun` gave, which must have the structure and types of the one before."""
    leaves, out_tree = flatten_values(out, f"{what}: the {name} returned")
    if out_tree != tree:
        raise changed_structure(what, fun, tree, given, out, name)
    check_values(f"{what}: the {name} returned", out, leaves)
    paths = [keystr(path) for path, _ in tree_flatten_with_path(out)[0]]
    carry = []
    for path, a, b in zip(paths, given, leaves, strict=True):
        found = joined(a.aval, b.aval)
        if found is None or not keeps_type(a.aval, b.aval):
            called = "carry" if name == "carry" else "value"
            raise TypeError(
                f"{what}: the {called} must keep its types, but {name}{path} goes in as {a.aval} and comes out as "
                f"{b.aval}; convert with astype{at_source(current_source())}"
            )
        same = b.aval.strong() is found.strong()
        carry.append(b if same else convert(b, found.dtype, found.weak_type))
    return carry


def counters(steps: int, reverse: bool) -> list[Any]:
    """The values that a loop's counter takes."""
    order = range(steps)
    return [to_array(as_value(np.int32(i))) for i in (reversed(order) if reverse else order)]
