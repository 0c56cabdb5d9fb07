"""`for_loop` where bodies run as Python: the loop is Python's own, over Refs that exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import Tracer, tree_unflatten
from fiveloop.core.engine import flatten_values
from fiveloop.loops.for_loop.counted import counted_loop, run_body
from fiveloop.loops.for_loop.options import How
from fiveloop.loops.for_loop.trace import check_steps
from fiveloop.loops.for_loop.unroll import check_unroll
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.python_steps import counters
from fiveloop.state import freeze, new_ref


def for_loop_as_python(
    nsteps: Any, body: Callable[[Any, Any], None], init_state: Any, how: How
) -> Any:
    """As `for_loop`, of states without Refs."""
    if isinstance(nsteps, Tracer):
        return counted_loop(nsteps, body, init_state, how.reverse, how.progress)
    steps = check_steps("for_loop: nsteps", nsteps)
    check_unroll("for_loop", how.unroll, steps)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    refs = [new_ref(x) for x in values]
    with shown(how.progress, steps) as step_done:
        for i in counters(steps, how.reverse):
            run_body(body, i, tree_unflatten(tree, refs))
            step_done()
    return tree_unflatten(tree, [freeze(ref) for ref in refs])
