"""`while_loop` in `disable_jit`: the body runs as Python."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from fiveloop.core import arrays
from fiveloop.core.api.flatten import as_result, call_user, flatten_values
from fiveloop.core.pytree import tree_unflatten
from fiveloop.loops import carry, common
from fiveloop.loops.progress import api, bars
from fiveloop.loops.while_loop.bounded import tell_of_bound


def while_as_python(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    bar: api.Progress | None,
    max_steps: int | None = None,
) -> Any:
    """As `while_loop`, on a condition that is known."""
    leaves, tree = flatten_values(init_val, "while_loop: init_val")
    with bars.shown(bar) as step_done:
        for k in count():
            val = tree_unflatten(tree, [as_result(x) for x in leaves])
            if not bool(common.condition("while_loop: cond_fun", "(val)", cond_fun, val)):
                break
            if k == max_steps:
                tell_of_bound(arrays.as_value(np.bool_(False)), k)
                break
            out = call_user("while_loop: body_fun", "(val)", body_fun, val)
            leaves = carry.next_carry("while_loop", "val", body_fun, leaves, tree, out)
            step_done()
    return val
