"""Everything fiveloop knows about `while`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.extend import Body, Refusal, define
from fiveloop.loops.while_loop.batch import while_batch
from fiveloop.loops.while_loop.dce import while_dce
from fiveloop.loops.while_loop.discharge import while_discharge
from fiveloop.loops.while_loop.handler import while_handler
from fiveloop.loops.while_loop.jvp import while_jvp
from fiveloop.loops.while_loop.lower import while_lower
from fiveloop.loops.while_loop.predicate import while_predicate
from fiveloop.loops.while_loop.primitive import WhileParams, while_abstract_eval, while_p
from fiveloop.loops.while_loop.split import while_split
from fiveloop.state.extend import define_discharge, define_handler, define_predicate


def while_bodies(p: WhileParams) -> list[Body]:
    """The condition and the body; how often they run is not known."""
    return [
        Body(p.cond, "condition", plain=True),
        Body(p.body, "loop", plain=True, carry=p.num_consts),
    ]


define(
    while_p,
    abstract_eval=while_abstract_eval,
    lower=while_lower,
    jvp=while_jvp,
    batch=while_batch,
    transpose=Refusal(
        "how many steps it makes is not known before it runs, so what they compute cannot be kept for the way "
        "back. It stands for a `while_loop`, or for a `fori_loop` or `for_loop` whose bounds are traced; use "
        "`for_loop`, `scan` or `fori_loop` with bounds that are Python numbers (`scan(until=)` ends early), or "
        "forward mode (`jvp`)"
    ),
    split=while_split,
    dce=while_dce,
    bodies=while_bodies,
)
define_discharge(while_p, while_discharge)
define_handler(while_p, while_handler)
define_predicate(while_p, while_predicate, always=True)
