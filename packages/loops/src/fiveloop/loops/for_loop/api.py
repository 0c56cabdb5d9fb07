"""`for_loop`: what users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fiveloop.core import (
    Value,
    as_result,
    at_source,
    boundary,
    call_user,
    check_callable,
    current_source,
    flatten_values,
    function_source,
    python_form,
    traced_once,
    tree_unflatten,
)
from fiveloop.loops.for_loop.as_python import for_loop_as_python
from fiveloop.loops.for_loop.trace import Loop, check_steps, loop_of, trace_body
from fiveloop.state import AbstractRef, Ref

T = TypeVar("T")


@boundary
@python_form(for_loop_as_python)
def for_loop(
    nsteps: int,
    body: Callable[[Any, Any], None],
    init_state: T,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> T:
    """Run `body(i, refs)` for i = 0 ... nsteps - 1, and give the final contents of `refs`.

    `refs` has the structure of `init_state`, a Ref for each array; the body reads them (`ref[i]`), writes them
    (`ref[i] = x`), accumulates into them (`ref[i] += x`), and returns None. `i` is an int32 scalar; with
    `reverse` it counts down. `unroll` steps are compiled into one turn of the loop. Reading or writing one
    element costs one element, in the loop and in all its derivatives.

    Raises TypeError if `nsteps` is not an integer, if a leaf of `init_state` is not an array, or if the body
    returns something; ValueError if `nsteps` is negative or `unroll` is less than 1.

    >>> import fiveloop.numpy as fnp
    >>> def body(i, r):
    ...     r[i + 1] = r[i] * 2.0
    >>> for_loop(3, body, fnp.ones(4))
    Array([1., 2., 4., 8.], dtype=float32)
    """
    check_callable("for_loop", body)
    steps = check_steps("for_loop", nsteps, unroll)
    values, tree = flatten_values(init_state, "for_loop: init_state")
    for x in values:
        _check_no_ref(x)
    if steps == 0:
        return tree_unflatten(tree, [as_result(x) for x in values])  # type: ignore[no-any-return]

    def flat_body(i: Value, *refs: Value) -> Sequence[Value]:
        out: object = call_user(
            "for_loop: the body", "(i, refs)", body, i, tree_unflatten(tree, refs)
        )
        if out is not None:
            raise TypeError(
                f"for_loop: the body works on its Refs and must return None, got {out!r} from "
                f"{function_source(body)}; write results to a Ref, or use `scan`{at_source(current_source())}"
            )
        return []

    avals = tuple([AbstractRef(x.aval) for x in values])

    def trace() -> Loop:
        return loop_of(steps, trace_body(flat_body, avals, body), reverse, unroll)

    loop = traced_once(("for_loop", tree, avals, steps, reverse, unroll), [body], trace)
    return tree_unflatten(tree, loop.run(values))  # type: ignore[no-any-return]


def _check_no_ref(x: Value) -> None:
    if isinstance(x, Ref):
        raise TypeError(
            f"for_loop: init_state must hold arrays, got a Ref of type {x.aval}; close over the Ref in the body "
            f"instead{at_source(current_source())}"
        )
