"""`for_loop`: what users call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

from fiveloop.core import Tracer, Value, ad, pytree
from fiveloop.core.api.flatten import check_callable, flatten_values
from fiveloop.core.trace.boundary import boundary
from fiveloop.core.trace.modes import python_form
from fiveloop.core.trace.same_function import traced_once
from fiveloop.loops import carried_refs, common
from fiveloop.loops.for_loop.forms import counted_loop, for_loop_as_python, run_body
from fiveloop.loops.how import How, Unroll, check_checkpoints, check_unroll
from fiveloop.loops.progress.api import Shown, as_progress, mark
from fiveloop.loops.tracing import Loop, check_steps, loop_of, trace_body
from fiveloop.state import AbstractRef

T = TypeVar("T")


@boundary
def for_loop(
    nsteps: SupportsIndex | Value,
    body: Callable[[Any, Any], None],
    init_state: T,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    checkpoints: int | None = None,
    progress: Shown = False,
) -> T:
    """Run `body(i, refs)` for i = 0 ... nsteps - 1, and give the final contents of `refs`.

    `refs` has the structure of `init_state`, a Ref for each array; a Ref in `init_state` goes in and comes out as it
    is. The body reads Refs (`ref[i]`), writes them (`ref[i] = x`), accumulates into them (`ref[i] += x`), and returns
    None. `i` is an int32 scalar; with `reverse` it counts down. `unroll` steps are compiled into one turn of the
    loop: all of them if True or 0; with "auto", two or four where a few numbers are all that a step computes, from
    those of the step before, and otherwise one. Reading or writing one element costs one element, in the loop and in
    all its derivatives.

    `nsteps` may be computed in a traced function. Such a loop is a `while_loop`, of no steps if it is negative,
    and `unroll` does not apply to it.

    With `checkpoints` reverse mode saves so many states at a time, and computes the others again from them; without,
    it keeps what it needs of each step. With `progress` (True, a label, or a `Progress`) a bar shows how far the loop
    is, also from within a compiled function.

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
    saved = check_checkpoints("for_loop", checkpoints)
    flag = common.as_flag("for_loop: reverse", reverse)
    how = How(flag, progress=bar, checkpoints=saved)
    refs = carried_refs.carried_refs("for_loop: init_state", init_state)
    if refs is None:
        return _for_loop(nsteps, body, init_state, how, unroll)
    final = _for_loop(nsteps, refs.step(body, 1), refs.values, how, unroll)
    return refs.whole(final)  # type: ignore[no-any-return]


@python_form(for_loop_as_python)
def _for_loop(
    nsteps: SupportsIndex | Value,
    body: Callable[[Any, Any], None],
    init_state: T,
    how: How,
    unroll: Unroll,
) -> T:
    """As `for_loop`, of states without Refs."""
    reverse, bar = how.reverse, how.progress
    if isinstance(nsteps, Tracer):
        check_unroll("for_loop", unroll, 1)
        return counted_loop(nsteps, body, init_state, how)  # type: ignore[no-any-return]
    steps = check_steps("for_loop: nsteps", nsteps)
    turn = check_unroll("for_loop", unroll, steps)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    if steps == 0:
        return pytree.tree_unflatten(tree, [common.strong(x) for x in values])  # type: ignore[no-any-return]

    def flat_body(i: Value, *refs: Value) -> ad.Values:
        mark(bar)
        run_body(body, i, pytree.tree_unflatten(tree, refs))
        return []

    avals = tuple([AbstractRef(x.aval) for x in values])

    def trace() -> Loop:
        names = [f"state{path}" for path in pytree.leaf_paths(tree)]
        traced = trace_body(flat_body, avals, body)
        return loop_of(steps, traced, reverse, turn, names, slots=how.checkpoints)

    loop = traced_once(("for_loop", tree, avals, steps, how, turn), [body], trace)
    return pytree.tree_unflatten(tree, loop.run(values))  # type: ignore[no-any-return]
