"""From a Python body to a `for` equation: tracing, and Refs for constants that are only indexed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import index
from typing import Any, TypeAlias

from fiveloop.core import Jaxpr, Value, ad, errors, ir, trace, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops import common, names, options
from fiveloop.loops.analysis.integers import keep_in_range
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, for_p, until_set
from fiveloop.loops.record import EMPTY, FOR_LOOP, Called, Decision, Record


@dataclass(frozen=True, slots=True)
class TracedBody:
    """A body traced: `jaxpr : [i, *consts, *refs, *args] -> [*outs]`, with the values that it closes over.

    `fun` is the user's function that it was traced from, and `called` what it was given to. The last `num_promoted` of
    the `refs` are values that the body has as Refs. `told` are the decisions of the passes over it.
    """

    jaxpr: Jaxpr
    consts: list[Value]
    refs: list[Value]
    fun: object = None
    called: Called = FOR_LOOP
    num_promoted: int = 0
    told: Sequence[Decision] = ()


def trace_body(
    fun: Callable[..., Sequence[Any]], avals: Sequence[Any], user_fun: object
) -> TracedBody:
    """Trace a flat body of a counter and as many arguments as `avals`; captured Refs come after other values."""
    staged = trace.stage(fun, [INDEX, *avals], common.body_name(user_fun), user_fun)
    closures = common.share_captured([staged])
    (jaxpr,) = closures.jaxprs
    sizes = [len(closures.consts), 1 + len(avals)]
    consts, (i, *args), refs = util.split_list(jaxpr.invars, sizes)
    # jaxpr : [*consts, i, *args, *refs] -> [*outs];  moved : [i, *consts, *refs, *args] -> [*outs]
    moved = jaxpr.replace(invars=[i, *consts, *refs, *args])
    return TracedBody(moved, closures.consts, closures.refs, user_fun)


MOST_STEPS = 2**31 - 1
"""What the counter, an int32, holds."""


def check_steps(what: str, nsteps: Any) -> int:
    """The number of steps as an int; messages name it `what`."""
    try:
        steps = index(nsteps)
        if isinstance(nsteps, bool):  # which Python counts as an integer
            raise TypeError
    except TypeError:
        known, advice = "", ""
        if isinstance(nsteps, trace.Tracer):
            known = " known while tracing"
            advice = f"; {errors.STATIC}; a number that is computed belongs in the condition that ends the loop"
        raise TypeError(f"{what} must be an integer{known}, got {nsteps!r}{advice}") from None
    if steps < 0:
        raise ValueError(f"{what} must not be negative, got {steps}")
    if steps > MOST_STEPS:
        raise ValueError(
            f"{what} must be at most {MOST_STEPS}, which the counter holds, got {steps}; nest loops"
        )
    return steps


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop ready to run on states: its params and the operands before these, the last of them promoted."""

    params: ForParams
    operands: list[Value]
    num_promoted: int

    def run(self, states: ad.Values, *count: Value) -> list[Value]:
        """The final contents of the states; a state that no step writes keeps its own. A counted loop takes a count."""
        operands = [*count, *self.operands, *states]
        outs = trace.bind(for_p, *operands, params=self.params)[self.num_promoted :]
        changed = ir.mutated_positions(self.params.body.effects)
        first = len(self.params.body.invars) - len(states)
        pairs = enumerate(zip(states, outs, strict=True), first)
        return [new if k in changed else common.strong(old) for k, (old, new) in pairs]


def loop_of(
    nsteps: int,
    traced: TracedBody,
    how: options.How,
    states: Sequence[str] = (),
    *,
    flag: int | None = None,
    counted: bool = False,
) -> Loop:
    """The loop of a traced body; `states` are the names of its states, as far as they have some.

    With a `flag` the planned body does nothing once the Ref at that position, counted from the end, is set. If it is
    `counted`, it takes the first steps, as many as it is told.

    traced.jaxpr : [i, *consts, *refs, *states as Refs]                    -> []
    body         : [i, *count, *consts, *refs, *promoted, *states as Refs] -> []
    """
    chosen = options.current_planning()
    if chosen.tell:
        closed = names.closure_names([traced.fun], [*traced.consts, *traced.refs])
        names.name_inputs(traced.jaxpr.invars[1:], chain(closed, states, repeat("state")))
    traced = replace(traced, jaxpr=keep_in_range(traced.jaxpr, nsteps))
    for name, run in BODY_PASSES.items():
        if name not in chosen.off:
            traced = run(traced, nsteps, chosen.tell)
    body = traced.jaxpr
    if flag is not None:
        body = until_set(body, len(body.invars) + flag)
    record = Record(traced.called, tells=True).with_decisions(traced.told) if chosen.tell else EMPTY
    num_consts, turn = len(traced.consts) + counted, min(how.unroll, nsteps)
    if counted:
        body = common.with_inputs(body, [INDEX], 1)
        names.name_inputs(body.invars[1:], ["steps"])
    params = ForParams(
        nsteps,
        body,
        num_consts,
        how.reverse,
        turn,
        counted="lowest" if counted else "",
        slots=how.checkpoints,
        off=chosen.off,
        record=record,
    )
    return Loop(params, [*traced.consts, *traced.refs], traced.num_promoted)


BodyPass: TypeAlias = Callable[[TracedBody, int, bool], TracedBody]
"""Changes the body of a loop of so many steps while it is traced, before any derivative; if asked to, it says why."""


BODY_PASSES: dict[str, BodyPass] = {}
"""The passes over traced bodies by the names of their planning steps, in order."""
