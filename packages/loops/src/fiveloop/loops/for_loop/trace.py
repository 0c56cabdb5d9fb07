"""From a Python body to a bound `for`: tracing, and constants that are only indexed made Refs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from fiveloop.core import (
    STATIC,
    Jaxpr,
    Tracer,
    Value,
    at_source,
    bind,
    current_source,
    partition,
    stage,
)
from fiveloop.loops.for_loop.carried_arrays import carried_arrays_as_refs
from fiveloop.loops.for_loop.primitive import INDEX, ForParams, for_p
from fiveloop.loops.for_loop.promote import promote_constants
from fiveloop.loops.for_loop.unroll import steps_a_turn
from fiveloop.state import Ref


@dataclass(frozen=True, slots=True)
class TracedBody:
    """A body traced: `jaxpr : [i, *consts, *refs, *args] -> [*outs]`, with the values that it closes over."""

    jaxpr: Jaxpr
    consts: list[Value]
    refs: list[Value]


def trace_body(
    fun: Callable[..., Sequence[Any]], avals: Sequence[Any], user_fun: object
) -> TracedBody:
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


def check_steps(what: str, nsteps: Any) -> int:
    """The number of steps as an int."""
    try:
        steps = index(nsteps)
    except TypeError:
        known, advice = "", ""
        if isinstance(nsteps, Tracer):
            known = " known while tracing"
            advice = (
                f"; {STATIC}, or for one that is not, use `for_loop`, `fori_loop` or `while_loop`"
            )
        raise TypeError(
            f"{what}: the number of steps must be an integer{known}, got {nsteps!r}{advice}"
            f"{at_source(current_source())}"
        ) from None
    if steps < 0:
        raise ValueError(
            f"{what}: the number of steps must not be negative, got {steps}{at_source(current_source())}"
        )
    return steps


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop ready to run on states: its params and the operands before these, the last of them promoted."""

    params: ForParams
    operands: list[Value]
    num_promoted: int

    def run(self, states: Sequence[Value]) -> list[Value]:
        """The final contents of the states."""
        outs = bind(for_p, *self.operands, *states, params=self.params)
        return outs[self.num_promoted :]


def loop_of(nsteps: int, traced: TracedBody, reverse: bool, unroll: int) -> Loop:
    """The loop of a traced body.

    traced.jaxpr : [i, *consts, *refs, *states as Refs]            -> []
    body         : [i, *consts, *refs, *promoted, *states as Refs] -> []
    """
    indexed_body = carried_arrays_as_refs(traced.jaxpr)
    body, promoted = promote_constants(indexed_body, len(traced.consts), len(traced.refs))
    consts, indexed = partition(promoted, traced.consts)
    turn = steps_a_turn(unroll, nsteps, body)
    params = ForParams(nsteps, body, len(consts), reverse, turn)
    return Loop(params, [*consts, *traced.refs, *indexed], len(indexed))
