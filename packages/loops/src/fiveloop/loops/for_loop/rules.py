"""Everything fiveloop knows about `for`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.rules import Body, define
from fiveloop.loops.for_loop import batch, dce, handler, jvp, lower, split, transpose
from fiveloop.loops.for_loop.discharge import for_discharge
from fiveloop.loops.primitives.for_loop import (
    ForParams,
    early,
    for_abstract_eval,
    for_p,
    for_typecheck,
)
from fiveloop.state import discharge, handlers


def for_bodies(p: ForParams) -> list[Body]:
    """The body, which runs once a step."""
    turns, room = early(p)
    carry, down = 1 + p.num_consts, p.reverse
    return [
        Body(p.body, "loop", p.nsteps, plain=True, carry=carry, turns=turns, room=room, down=down)
    ]


define(
    for_p,
    abstract_eval=for_abstract_eval,
    typecheck=for_typecheck,
    lower=lower.for_lower,
    jvp=jvp.for_jvp,
    batch=batch.for_batch,
    transpose=transpose.for_transpose,
    split=split.for_split,
    dce=dce.for_dce,
    bodies=for_bodies,
)
discharge.define_discharge(for_p, for_discharge)
handlers.define_handler(for_p, handler.for_handler)
