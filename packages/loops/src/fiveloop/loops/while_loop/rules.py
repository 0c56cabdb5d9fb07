"""Everything fiveloop knows about `while`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.dataclass import replace
from fiveloop.core.rules import Body, define
from fiveloop.loops.primitives.while_loop import WhileParams, while_abstract_eval, while_p
from fiveloop.loops.while_loop import batch, dce, handler, jvp, lower, split, transpose
from fiveloop.loops.while_loop.discharge import while_discharge
from fiveloop.loops.while_loop.predicate import while_predicate
from fiveloop.state import discharge, handlers, predicate


def while_bodies(p: WhileParams) -> list[Body]:
    """The condition and the body; how often they run is known if a loop with a number of steps saves states."""
    saved = tuple(p.num_consts + k for k, kept in enumerate(p.kept) if kept)
    steps = p.record.steps if saved else None
    trips, is_open = (1, True) if steps is None else (steps, False)
    turns, room = lower.early(p)
    body = Body(p.body, "loop", trips, plain=True, carry=p.num_consts, open=is_open, saved=saved)
    return [
        Body(p.cond, "condition", trips, plain=True, open=is_open),
        replace(body, turns=turns, room=room),
    ]


define(
    while_p,
    abstract_eval=while_abstract_eval,
    lower=lower.while_lower,
    jvp=jvp.while_jvp,
    batch=batch.while_batch,
    transpose=transpose.while_transpose,
    split=split.while_split,
    dce=dce.while_dce,
    bodies=while_bodies,
)
discharge.define_discharge(while_p, while_discharge)
handlers.define_handler(while_p, handler.while_handler)
predicate.define_predicate(while_p, while_predicate, always=True)
