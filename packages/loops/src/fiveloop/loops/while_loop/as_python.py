"""`while_loop` where bodies run as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core.api.flatten import as_result, call_user, flatten_values
from fiveloop.core.pytree import tree_unflatten
from fiveloop.loops import carry, common
from fiveloop.loops.progress import api, bars


def while_as_python(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    bar: api.Progress | None,
) -> Any:
    """As `while_loop`, on a condition that is known."""
    leaves, tree = flatten_values(init_val, "while_loop: init_val")
    with bars.shown(bar) as step_done:
        while True:
            val = tree_unflatten(tree, [as_result(x) for x in leaves])
            if not bool(common.condition("while_loop: cond_fun", "(val)", cond_fun, val)):
                return val
            out = call_user("while_loop: body_fun", "(val)", body_fun, val)
            leaves = carry.next_carry("while_loop", "val", body_fun, leaves, tree, out)
            step_done()
