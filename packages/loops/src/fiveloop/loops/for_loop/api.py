"""`for_loop`: what users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar

from fiveloop.core import (
    Jaxpr,
    Value,
    as_value,
    at_source,
    bind,
    current_source,
    stage,
    tree_flatten,
    tree_unflatten,
)
from fiveloop.loops.for_loop.primitive import INDEX, ForParams, for_p
from fiveloop.state import AbstractRef, Ref

T = TypeVar("T")


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
    steps = check_steps("for_loop", nsteps, unroll)
    leaves, tree = tree_flatten(init_state)
    values = [_leaf(x) for x in leaves]
    if steps == 0:
        return tree_unflatten(tree, values)  # type: ignore[no-any-return]

    def flat_body(i: Value, *refs: Value) -> Sequence[Value]:
        out = body(i, tree_unflatten(tree, refs))
        if out is not None:
            raise TypeError(
                f"for_loop: the body works on its Refs and must return None, got {out!r}; write results "
                f"to a Ref, or use `scan`{at_source(current_source())}"
            )
        return []

    traced = trace_body(flat_body, [AbstractRef(x.aval) for x in values], body)
    params = ForParams(steps, traced.jaxpr, len(traced.consts), reverse, min(unroll, steps))
    outs = bind(for_p, *traced.consts, *traced.refs, *values, params=params)
    return tree_unflatten(tree, outs)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class TracedBody:
    """A body traced: `jaxpr : [i, *consts, *refs, *args] -> [*outs]`, with the values that it closes over."""

    jaxpr: Jaxpr
    consts: list[Value]
    refs: list[Value]


def trace_body(fun: Callable[..., Sequence[Any]], avals: Sequence[Any], user_fun: object) -> TracedBody:
    """Trace a flat body of a counter and as many arguments as `avals`; captured Refs come after other values."""
    staged = stage(fun, [INDEX, *avals], getattr(user_fun, "__name__", "body"), user_fun)
    num = len(staged.captured)
    captured = list(zip(staged.captured, staged.jaxpr.invars[:num], strict=True))
    consts = [pair for pair in captured if not isinstance(pair[0], Ref)]
    refs = [pair for pair in captured if isinstance(pair[0], Ref)]
    i, *args = staged.jaxpr.invars[num:]
    # staged : [*captured, i, *args] -> [*outs];  jaxpr : [i, *consts, *refs, *args] -> [*outs]
    jaxpr = staged.jaxpr.replace(invars=[i, *[v for _, v in consts], *[v for _, v in refs], *args])
    return TracedBody(jaxpr, [x for x, _ in consts], [x for x, _ in refs])


def check_steps(what: str, nsteps: Any, unroll: Any) -> int:
    """The number of steps as an int."""
    try:
        steps = index(nsteps)
    except TypeError:
        raise TypeError(
            f"{what}: the number of steps must be an integer known while tracing, got {nsteps!r}; for one that is "
            f"not, use `while_loop`{at_source(current_source())}"
        ) from None
    if steps < 0:
        raise ValueError(f"{what}: the number of steps must not be negative, got {steps}{at_source(current_source())}")
    if not isinstance(unroll, int) or unroll < 1:
        raise ValueError(f"{what}: unroll must be an integer of at least 1, got {unroll!r}{at_source(current_source())}")
    return steps


def _leaf(x: Any) -> Value:
    if isinstance(x, Ref):
        raise TypeError(
            f"for_loop: init_state must hold arrays, got a Ref of type {x.aval}; close over the Ref in the body "
            f"instead{at_source(current_source())}"
        )
    return as_value(x, "for_loop: a leaf of init_state")
