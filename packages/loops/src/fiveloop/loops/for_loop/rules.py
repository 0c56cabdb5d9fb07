"""Everything fiveloop knows about `for`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.extend import Body, define
from fiveloop.loops.for_loop.batch import for_batch
from fiveloop.loops.for_loop.dce import for_dce
from fiveloop.loops.for_loop.discharge import for_discharge
from fiveloop.loops.for_loop.handler import for_handler
from fiveloop.loops.for_loop.jvp import for_jvp
from fiveloop.loops.for_loop.lower import for_lower
from fiveloop.loops.for_loop.predicate import for_predicate
from fiveloop.loops.for_loop.primitive import ForParams, for_abstract_eval, for_p, for_typecheck
from fiveloop.loops.for_loop.split import for_split
from fiveloop.loops.for_loop.transpose import for_transpose
from fiveloop.state.extend import define_discharge, define_handler, define_predicate


def for_bodies(p: ForParams) -> list[Body]:
    """The body, which runs once a step."""
    return [Body(p.body, "loop", p.nsteps, plain=True, carry=1 + p.num_consts)]


define(
    for_p,
    abstract_eval=for_abstract_eval,
    typecheck=for_typecheck,
    lower=for_lower,
    jvp=for_jvp,
    batch=for_batch,
    transpose=for_transpose,
    split=for_split,
    dce=for_dce,
    bodies=for_bodies,
)
define_discharge(for_p, for_discharge)
define_handler(for_p, for_handler)
define_predicate(for_p, for_predicate)
