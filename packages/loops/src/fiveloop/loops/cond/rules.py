"""Everything fiveloop knows about `cond`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.rules import Body, define
from fiveloop.loops.cond import dce, discharge, handler, jvp, lower, predicate, split, transpose
from fiveloop.loops.cond.batch import cond_batch
from fiveloop.loops.primitives.cond import CondParams, cond_abstract_eval, cond_p
from fiveloop.state.discharge.table import define_discharge
from fiveloop.state.handlers import define_handler
from fiveloop.state.predicate.engine import define_predicate


def cond_bodies(p: CondParams) -> list[Body]:
    """The branches, of which one runs."""
    return [Body(branch, "branch", plain=True) for branch in p.branches]


define(
    cond_p,
    abstract_eval=cond_abstract_eval,
    lower=lower.cond_lower,
    jvp=jvp.cond_jvp,
    batch=cond_batch,
    transpose=transpose.cond_transpose,
    split=split.cond_split,
    dce=dce.cond_dce,
    bodies=cond_bodies,
)
define_discharge(cond_p, discharge.cond_discharge)
define_handler(cond_p, handler.cond_handler)
define_predicate(cond_p, predicate.cond_predicate)
