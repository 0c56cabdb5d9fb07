"""A loop over Refs whose number of steps is computed: a `while` that counts. What the body of either may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fiveloop.core import Value, ir, prims, pytree
from fiveloop.core.api.flatten import call_user, flatten_values
from fiveloop.core.trace.tracer import Tracer
from fiveloop.loops.carry import counters
from fiveloop.loops.how import How, Unroll, check_unroll
from fiveloop.loops.progress.api import mark
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.tracing import check_steps
from fiveloop.loops.while_loop.api import Limits, Written, while_of
from fiveloop.state import Ref, api

ADVICE = "give a number of steps that is a Python number"


def counted_loop(nsteps: Value, body: Callable[[Any, Any], None], init_state: Any, how: How) -> Any:
    """`for_loop` for a number of steps that is not known while tracing."""
    if isinstance(nsteps, Ref) or nsteps.ndim or nsteps.dtype.kind not in "iu":
        raise TypeError(f"for_loop: nsteps must be an integer scalar, got {nsteps.aval}")
    reverse, bar = how.reverse, how.progress
    values, tree = flatten_values(init_state, "for_loop: init_state")
    refs = [api.new_ref(x) for x in values]
    # A wide number is not cut: the counter is as wide.
    wide = nsteps.dtype.itemsize > 4 or nsteps.dtype == np.uint32
    steps = prims.convert(nsteps, np.int64 if wide else np.int32)

    @wraps(body)
    def step(k: Any) -> Any:
        mark(bar, prims.convert(steps, np.int32))  # which counts in int32
        run_body(body, steps - 1 - k if reverse else k, pytree.tree_unflatten(tree, refs))
        return k + 1

    state = pytree.tree_unflatten(tree, refs)
    written = Written("for_loop", lambda tree: ["counter"], ADVICE, lambda: (state, nsteps, steps))
    start, limits = np.zeros((), steps.dtype), Limits(slots=how.checkpoints, counted=True)
    while_of(lambda k: k < steps, step, start, None, written, limits)
    return pytree.tree_unflatten(tree, [api.freeze(ref) for ref in refs])


def run_body(body: Callable[[Any, Any], None], i: Value, refs: Any) -> None:
    """Run a step of the user's body, which must return nothing."""
    out: object = call_user("for_loop: the body", "(i, refs)", body, i, refs)
    if out is not None:
        raise TypeError(
            f"for_loop: the body works on its Refs and must return None, got {out!r} from "
            f"{ir.function_source(body)}; write results to a Ref, or use `scan`"
        )


def for_loop_as_python(
    nsteps: Any, body: Callable[[Any, Any], None], init_state: Any, how: How, unroll: Unroll
) -> Any:
    """As `for_loop`, of states without Refs."""
    if isinstance(nsteps, Tracer):
        return counted_loop(nsteps, body, init_state, how)
    steps = check_steps("for_loop: nsteps", nsteps)
    check_unroll("for_loop", unroll, steps)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    refs = [api.new_ref(x) for x in values]
    with shown(how.progress, steps) as step_done:
        for i in counters(steps, how.reverse):
            run_body(body, i, pytree.tree_unflatten(tree, refs))
            step_done()
    return pytree.tree_unflatten(tree, [api.freeze(ref) for ref in refs])
