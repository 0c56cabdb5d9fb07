"""The public function `for_loop`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, SupportsIndex

import numpy as np

from fiveloop.core import Tracer, Value, ad, ir, prims, pytree, trace
from fiveloop.core.api.flatten import call_user, check_callable, flatten_values
from fiveloop.core.dataclass import replace
from fiveloop.core.util import T
from fiveloop.loops import common
from fiveloop.loops.carry import counters
from fiveloop.loops.options import How, Limits, Unroll, as_progress, check_checkpoints, check_unroll
from fiveloop.loops.progress.api import Shown, mark
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.loops.tracing import Loop, check_steps, loop_of, trace_body
from fiveloop.loops.while_loop.api import While, Written, while_of
from fiveloop.state import AbstractRef, Ref, api

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
        if bar is not None:
            mark(bar, prims.convert(steps, np.int32))  # which counts in int32
        run_body(body, steps - 1 - k if reverse else k, pytree.tree_unflatten(tree, refs))
        return k + 1

    state = pytree.tree_unflatten(tree, refs)
    written = Written("for_loop", lambda tree: ["counter"], ADVICE, lambda: (state, nsteps, steps))
    start, limits = np.zeros((), steps.dtype), Limits(slots=how.checkpoints, counted=True)
    while_of(While(lambda k: k < steps, step, start, written=written, limits=limits))
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


@trace.boundary
def for_loop(
    nsteps: SupportsIndex | Value,
    body: Callable[[Any, Any], None],
    init_state: T,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> T:
    """Run `body(i, refs)` for i = 0 ... nsteps - 1, and return the final contents of `refs`.

    `refs` has the structure of `init_state`, with a Ref for each array; a Ref in `init_state` is passed to the body
    and returned as it is. The body reads Refs (`ref[i]`), writes them (`ref[i] = x`), accumulates into them
    (`ref[i] += x`), and returns None. `i` is an int32 scalar; with `reverse` it counts down. `unroll` steps are
    compiled into one iteration of the loop: all of them if True or 0; with "auto", two or four if a step computes only
    a few numbers, from those of the step before, and otherwise one. The cost of reading or writing an element does not
    depend on the size of the array, in the loop and in all its derivatives.

    `nsteps` may be traced. Then the loop is a `while_loop`, which makes no steps if `nsteps` is negative, and
    `unroll` does not apply to it.

    With `checkpoints=k` reverse mode saves at most k states at a time, or those of a schedule, and recomputes the
    others; they stay in the memory of the device, also under a policy that offloads. Without, it saves the residuals of
    each step. With `progress` (True, a label, or a `Progress`) a bar shows the progress of the loop, also in a compiled
    function.

    Raises TypeError if `nsteps` is not an integer, if a leaf of `init_state` is not an array, or if the body
    returns something; ValueError if `nsteps` is negative or `unroll` is.

    >>> import fiveloop.numpy as fnp
    >>> def body(i, r):
    ...     r[i + 1] = r[i] * 2.0
    >>> for_loop(3, body, fnp.ones(4))
    Array([1., 2., 4., 8.], dtype=float32)
    """
    check_callable("for_loop: body", body)
    bar = as_progress("for_loop", progress)
    steps = None if isinstance(nsteps, Tracer) else check_steps("for_loop: nsteps", nsteps)
    saved = check_checkpoints("for_loop", checkpoints, steps)
    flag = common.as_flag("for_loop: reverse", reverse)
    how = How(flag, progress=bar, checkpoints=saved)
    refs = common.carried_refs("for_loop: init_state", init_state)
    if refs is None:
        return _for_loop(nsteps, body, init_state, how, unroll)
    final = _for_loop(nsteps, refs.step(body, 1), refs.values, how, unroll)
    return refs.whole(final)  # type: ignore[no-any-return]


@trace.python_form(for_loop_as_python)
def _for_loop(
    nsteps: SupportsIndex | Value,
    body: Callable[[Any, Any], None],
    init_state: T,
    how: How,
    unroll: Unroll,
) -> T:
    """As `for_loop`, of states without Refs."""
    bar = how.progress
    if isinstance(nsteps, Tracer):
        check_unroll("for_loop", unroll, 1)
        return counted_loop(nsteps, body, init_state, how)  # type: ignore[no-any-return]
    steps = check_steps("for_loop: nsteps", nsteps)
    turn = check_unroll("for_loop", unroll, steps)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    if steps == 0:
        return pytree.tree_unflatten(tree, [common.strong(x) for x in values])  # type: ignore[no-any-return]

    def flat_body(i: Value, *refs: Value) -> ad.Values:
        if bar is not None:
            mark(bar)
        run_body(body, i, pytree.tree_unflatten(tree, refs))
        return []

    avals = tuple([AbstractRef(x.aval) for x in values])

    def traced_loop() -> Loop:
        names = [f"state{path}" for path in pytree.leaf_paths(tree)]
        traced = trace_body(flat_body, avals, body)
        return loop_of(steps, traced, replace(how, unroll=turn), names)

    loop = trace.traced_once(("for_loop", tree, avals, steps, how, turn), [body], traced_loop)
    return pytree.tree_unflatten(tree, loop.run(values))  # type: ignore[no-any-return]
