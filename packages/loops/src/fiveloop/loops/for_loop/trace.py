"""From a Python body to a bound `for`: tracing, and constants that are only indexed made Refs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from fiveloop.core import Jaxpr, Tracer, Value
from fiveloop.core.engine import (
    STATIC,
    at_source,
    current_source,
    is_eager,
    partition,
    select_by,
    used_vars,
)
from fiveloop.core.extend import bind, eval_jaxpr, mutated_positions, stage
from fiveloop.loops.common import body_name, strong
from fiveloop.loops.for_loop.primitive import INDEX, ForParams, for_p
from fiveloop.loops.for_loop.ranges import keep_in_range
from fiveloop.loops.planning.constants import decisions as constants_told
from fiveloop.loops.planning.constants import promote_constants
from fiveloop.loops.planning.fold import fold_writes
from fiveloop.loops.planning.invariant import invariant_part
from fiveloop.loops.planning.names import closure_names
from fiveloop.loops.planning.options import Planning, current_planning
from fiveloop.loops.planning.promote import promote
from fiveloop.loops.planning.record import FOR_LOOP, Called, Decision, Record
from fiveloop.state import Ref


@dataclass(frozen=True, slots=True)
class TracedBody:
    """A body traced: `jaxpr : [i, *consts, *refs, *args] -> [*outs]`, with the values that it closes over.

    `fun` is the user's function that it was traced from, and `called` what it was given to.
    """

    jaxpr: Jaxpr
    consts: list[Value]
    refs: list[Value]
    fun: object = None
    called: Called = FOR_LOOP


def trace_body(
    fun: Callable[..., Sequence[Any]], avals: Sequence[Any], user_fun: object
) -> TracedBody:
    """Trace a flat body of a counter and as many arguments as `avals`; captured Refs come after other values."""
    staged = stage(fun, [INDEX, *avals], body_name(user_fun), user_fun)
    num = len(staged.captured)
    captured = list(zip(staged.captured, staged.jaxpr.invars[:num], strict=True))
    consts = [pair for pair in captured if not isinstance(pair[0], Ref)]
    refs = [pair for pair in captured if isinstance(pair[0], Ref)]
    i, *args = staged.jaxpr.invars[num:]
    # staged : [*captured, i, *args] -> [*outs];  jaxpr : [i, *consts, *refs, *args] -> [*outs]
    jaxpr = staged.jaxpr.replace(invars=[i, *[v for _, v in consts], *[v for _, v in refs], *args])
    return TracedBody(jaxpr, [x for x, _ in consts], [x for x, _ in refs], user_fun)


MOST_STEPS = 2**31 - 1
"""What the counter, an int32, holds."""


def check_steps(what: str, nsteps: Any) -> int:
    """The number of steps as an int; `what` is what messages call it."""
    try:
        steps = index(nsteps)
        if isinstance(nsteps, bool):  # which Python counts as an integer
            raise TypeError
    except TypeError:
        known, advice = "", ""
        if isinstance(nsteps, Tracer):
            known = " known while tracing"
            advice = (
                f"; {STATIC}, or for one that is not, use `for_loop`, `fori_loop` or `while_loop`"
            )
        raise TypeError(
            f"{what} must be an integer{known}, got {nsteps!r}{advice}{at_source(current_source())}"
        ) from None
    if steps < 0:
        raise ValueError(f"{what} must not be negative, got {steps}{at_source(current_source())}")
    if steps > MOST_STEPS:
        raise ValueError(
            f"{what} must be at most {MOST_STEPS}, which the counter holds, got {steps}; nest "
            f"loops{at_source(current_source())}"
        )
    return steps


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop ready to run on states: its params and the operands before these, the last of them promoted."""

    params: ForParams
    operands: list[Value]
    num_promoted: int

    def run(self, states: Sequence[Value]) -> list[Value]:
        """The final contents of the states; one that no step writes is what it was."""
        outs = bind(for_p, *self.operands, *states, params=self.params)[self.num_promoted :]
        changed = mutated_positions(self.params.body.effects)
        first = len(self.params.body.invars) - len(states)
        pairs = enumerate(zip(states, outs, strict=True), first)
        return [new if k in changed else strong(old) for k, (old, new) in pairs]


def loop_of(
    nsteps: int,
    traced: TracedBody,
    reverse: bool,
    unroll: int,
    states: Sequence[str] = (),
    stopped: Callable[[Jaxpr], Jaxpr] | None = None,
) -> Loop:
    """The loop of a traced body; `states` are the names of its states, as far as they have some.

    `stopped` makes of the planned body one that does nothing once the loop has ended.

    traced.jaxpr : [i, *consts, *refs, *states as Refs]            -> []
    body         : [i, *consts, *refs, *promoted, *states as Refs] -> []
    """
    chosen = current_planning()
    traced = replace(traced, jaxpr=keep_in_range(traced.jaxpr, nsteps))
    story = _Story(traced, states) if chosen.tell else None
    names = story.names if story else [""] * (len(traced.jaxpr.invars) - 1)
    for is_on, step in ((chosen.promote, promote), (chosen.fold, fold_writes)):
        if is_on:
            body, told = step(traced.jaxpr, names)
            traced = replace(traced, jaxpr=body)
            if story:
                story.told += told
    if chosen.hoist and nsteps > 1 and not is_eager():
        traced = _hoisted(traced, story)
    body, num_consts, num_refs = traced.jaxpr, len(traced.consts), len(traced.refs)
    mask = [False] * num_consts
    if chosen.constants:
        body, mask = promote_constants(body, num_consts, num_refs)
    consts, indexed = partition(mask, traced.consts)
    body = stopped(body) if stopped else body
    params = ForParams(nsteps, body, len(consts), reverse, min(unroll, nsteps), planning=chosen)
    if story:
        params = replace(params, record=story.record(traced.jaxpr, mask, num_refs, chosen))
    return Loop(params, [*consts, *traced.refs, *indexed], len(indexed))


def _hoisted(traced: TracedBody, story: _Story | None) -> TracedBody:
    """The body with what no step changes computed here, and among its constants; those that it needs no more are gone.

    Outside of traces that is left to the pass, so that one program does it all.
    """
    i, *binders = traced.jaxpr.invars
    num_consts, num = len(traced.consts), len(traced.consts) + len(traced.refs)
    changed = mutated_positions(traced.jaxpr.effects)
    read = [v for k, v in enumerate(binders[:num]) if k >= num_consts and k + 1 not in changed]
    found = invariant_part(traced.jaxpr, binders[:num_consts], read)
    if story:
        story.told += found.told
    if not found.results:
        return traced
    before = Jaxpr(binders[:num], found.eqns, found.results, traced.jaxpr.name)
    values = eval_jaxpr(before, [*traced.consts, *traced.refs])
    used = {a for e in found.rest for a in used_vars(e.invars)} | used_vars(traced.jaxpr.outvars)
    kept = [v in used for v in binders[:num_consts]]
    consts = [*select_by(kept, binders[:num_consts]), *found.results]
    body = Jaxpr(
        [i, *consts, *binders[num_consts:]],
        found.rest,
        traced.jaxpr.outvars,
        traced.jaxpr.name,
    )
    if story:
        story.move(kept, len(found.results))
    return replace(traced, jaxpr=body, consts=[*select_by(kept, traced.consts), *values])


class _Story:
    """What is told of a loop while it is traced: the names of its operands, and what was done."""

    def __init__(self, traced: TracedBody, states: Sequence[str]) -> None:
        closed = closure_names([traced.fun], [*traced.consts, *traced.refs])
        count = len(traced.jaxpr.invars) - 1 - len(closed)
        names = [*closed, *states][: len(closed) + count]
        self.traced = traced
        self.names = [*names, *["state"] * (len(closed) + count - len(names))]
        self.told: list[Decision] = []

    def move(self, kept: Sequence[bool], count: int) -> None:
        """Take note of constants that are gone, and of those that are computed before the loop."""
        num = len(kept)
        self.names = [
            *select_by(kept, self.names[:num]),
            *["computed before"] * count,
            *self.names[num:],
        ]

    def record(
        self, body: Jaxpr, promoted: Sequence[bool], num_refs: int, chosen: Planning
    ) -> Record:
        """The record of the loop, with names in the order of its operands."""
        num_consts = len(promoted)
        closed = self.names[:num_consts]
        if chosen.constants and not self.traced.called.kind:
            self.told += constants_told(body, closed, promoted)
        kept, indexed = partition(promoted, closed)
        rest = self.names[num_consts:]
        names = [*kept, *rest[:num_refs], *indexed, *rest[num_refs:]]
        record = Record(self.traced.called, names=tuple(names))
        return record.with_decisions(self.told)
