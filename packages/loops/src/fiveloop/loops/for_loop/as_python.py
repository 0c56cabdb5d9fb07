"""`for_loop` where bodies run as Python: the loop is Python's own, over Refs that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import (
    Tracer,
    flatten_values,
    tree_unflatten,
)
from fiveloop.loops.for_loop.counted import counted_loop, run_body
from fiveloop.loops.for_loop.trace import check_steps
from fiveloop.loops.for_loop.unroll import Unroll, check_unroll
from fiveloop.loops.progress.api import Shown, as_progress
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.python_steps import counters
from fiveloop.state import freeze, new_ref


def for_loop_as_python(
    nsteps: Any,
    body: Callable[[Any, Any], None],
    init_state: Any,
    *,
    reverse: bool = False,
    unroll: Unroll = 1,
    progress: Shown = False,
) -> Any:
    """As `for_loop`."""
    bar = as_progress("for_loop", progress)
    if isinstance(nsteps, Tracer):
        return counted_loop(nsteps, body, init_state, reverse, bar)
    steps = check_steps("for_loop", nsteps)
    check_unroll("for_loop", unroll, steps)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    refs = [new_ref(x) for x in values]
    with shown(bar, steps) as step_done:
        for i in counters(steps, reverse):
            run_body(body, i, tree_unflatten(tree, refs))
            step_done()
    return tree_unflatten(tree, [freeze(ref) for ref in refs])
