"""Why a turn of a loop is one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fiveloop.core.engine import is_constant
from fiveloop.core.extend import Eqn, Primitive, Source, Var, size_of
from fiveloop.loops.for_loop.early_end import end_flag
from fiveloop.loops.for_loop.primitive import for_p
from fiveloop.loops.for_loop.unroll import AUTO
from fiveloop.loops.planning.record import Decision
from fiveloop.loops.planning.unroll import (
    LEAST_TURNS,
    TURNS,
    is_long,
    is_read_back,
    is_whole,
    steps_a_turn,
    waits,
)
from fiveloop.state import AbstractRef
from fiveloop.state.engine import callback_p

STEP = "unroll"
_RUNS: Mapping[Primitive[Any], str] = {callback_p: "calls Python", for_p: "runs an inner loop"}


def not_unrolled(eqn: Eqn) -> list[Decision]:
    """Why a loop that carries something as a value, and whose caller leaves that open, has one step to a turn."""
    p = eqn.params
    if p.unroll != AUTO or p.num_carry or p.nsteps < 2:
        return []
    why = _why_not(eqn)
    return (
        [] if why is None else [Decision(STEP, "", False, f"a turn is one step: {why[0]}", why[1])]
    )


def _why_not(eqn: Eqn) -> tuple[str, Source | None] | None:
    p = eqn.params
    if end_flag(p.body) is not None:
        return "it may end after any", eqn.source
    refs = [r for r in p.body.invars[p.first_ref + 1 :] if isinstance(r.aval, AbstractRef)]
    carried = [ref for ref in refs if _is_carried(p.body.eqns, ref)]
    if not carried:
        return None
    for e in filter(is_long, p.body.eqns):
        return f"it {_RUNS.get(e.primitive, f'runs `{e.primitive}`')}", e.source
    if not any(waits(p.body, ref) for ref in refs):
        return (
            f"what it waits for is {carried[0].aval.dtype.name}, no floating-point number",
            eqn.source,
        )
    count = steps_a_turn(p.body)
    if count == 1:
        return _size(eqn)
    if p.nsteps < LEAST_TURNS * count:
        return f"{p.nsteps} steps are too few for several turns of {count}", eqn.source
    for ref in refs:
        if is_read_back(p.body, ref):
            changing = [e for e in p.body.eqns if ref in e.invars and not is_whole(e, ref)]
            name = p.names[p.body.invars.index(ref) - 1]
            return f"it reads `{name}` and changes it at indices", changing[0].source
    return None


def _is_carried(eqns: Sequence[Eqn], ref: Var) -> bool:
    """Whether a step takes all that a Ref holds, and changes it."""
    users = [e for e in eqns if ref in e.invars]
    reads, writes = any(e.outvars for e in users), any(not e.outvars for e in users)
    return reads and writes and all(is_whole(e, ref) for e in users)


def _size(eqn: Eqn) -> tuple[str, Source | None]:
    """What of a body is too large."""
    made = [(size_of(v.aval.shape), e) for e in eqn.params.body.eqns for v in e.outvars]
    if not all(is_constant(size) for size, _ in made):
        return "the sizes of what it computes are not known", eqn.source
    size, largest = max(made, key=lambda pair: pair[0])
    most = max(most for most, _, _ in TURNS)
    if size > most:
        return f"it computes an array of {size:,} elements, more than {most:,}", largest.source
    return f"it is long, {len(eqn.params.body.eqns)} operations", eqn.source
