"""`for_loop` where bodies run as Python: the loop is Python's own, over Refs that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import (
    as_value,
    at_source,
    call_user,
    current_source,
    flatten_values,
    function_source,
    to_array,
    tree_unflatten,
)
from fiveloop.loops.for_loop.trace import check_steps
from fiveloop.state import freeze, new_ref


def for_loop_as_python(
    nsteps: int,
    body: Callable[[Any, Any], None],
    init_state: Any,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> Any:
    """As `for_loop`."""
    steps = check_steps("for_loop", nsteps, unroll)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    refs = [new_ref(x) for x in values]
    for i in counters(steps, reverse):
        out: object = call_user(
            "for_loop: the body", "(i, refs)", body, i, tree_unflatten(tree, refs)
        )
        if out is not None:
            raise TypeError(
                f"for_loop: the body works on its Refs and must return None, got {out!r} from "
                f"{function_source(body)}; write results to a Ref, or use `scan`{at_source(current_source())}"
            )
    return tree_unflatten(tree, [freeze(ref) for ref in refs])


def counters(steps: int, reverse: bool) -> list[Any]:
    """The values that a loop's counter takes."""
    order = range(steps)
    return [to_array(as_value(np.int32(i))) for i in (reversed(order) if reverse else order)]
