"""`while_loop` where bodies run as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import tree_unflatten
from fiveloop.core.engine import as_result, flatten_values
from fiveloop.core.extend import call_user
from fiveloop.loops.carry import next_carry
from fiveloop.loops.common import condition
from fiveloop.loops.progress.api import Progress
from fiveloop.loops.progress.bars import shown


def while_as_python(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    bar: Progress | None,
) -> Any:
    """As `while_loop`, on a condition that is known."""
    leaves, tree = flatten_values(init_val, "while_loop: init_val")
    with shown(bar) as step_done:
        while True:
            val = tree_unflatten(tree, [as_result(x) for x in leaves])
            if not bool(condition("while_loop: cond_fun", "(val)", cond_fun, val)):
                return val
            out = call_user("while_loop: body_fun", "(val)", body_fun, val)
            leaves = next_carry("while_loop", "val", body_fun, leaves, tree, out)
            step_done()
