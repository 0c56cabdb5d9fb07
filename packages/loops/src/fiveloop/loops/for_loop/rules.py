"""Everything fiveloop knows about `for`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.rules import Body, define
from fiveloop.loops.for_loop import batch, dce, handler, jvp, lower, split, transpose
from fiveloop.loops.for_loop.discharge import for_discharge
from fiveloop.loops.primitives.for_loop import for_abstract_eval, for_p, for_typecheck
from fiveloop.state import discharge, handlers

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
    bodies=lambda p: [Body(p.body, "loop", p.nsteps, plain=True, carry=1 + p.num_consts)],
)
discharge.define_discharge(for_p, for_discharge)
handlers.define_handler(for_p, handler.for_handler)
