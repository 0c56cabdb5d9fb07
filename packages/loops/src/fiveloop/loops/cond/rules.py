"""Everything fiveloop knows about `cond`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.extend import Body, define
from fiveloop.loops.cond.batch import cond_batch
from fiveloop.loops.cond.dce import cond_dce
from fiveloop.loops.cond.discharge import cond_discharge
from fiveloop.loops.cond.handler import cond_handler
from fiveloop.loops.cond.jvp import cond_jvp
from fiveloop.loops.cond.lower import cond_lower
from fiveloop.loops.cond.predicate import cond_predicate
from fiveloop.loops.cond.primitive import CondParams, cond_abstract_eval, cond_p
from fiveloop.loops.cond.split import cond_split
from fiveloop.loops.cond.transpose import cond_transpose
from fiveloop.state.extend import define_discharge, define_handler, define_predicate


def cond_bodies(p: CondParams) -> list[Body]:
    """The branches, of which one runs."""
    return [Body(branch, "branch", plain=True) for branch in p.branches]


define(
    cond_p,
    abstract_eval=cond_abstract_eval,
    lower=cond_lower,
    jvp=cond_jvp,
    batch=cond_batch,
    transpose=cond_transpose,
    split=cond_split,
    dce=cond_dce,
    bodies=cond_bodies,
)
define_discharge(cond_p, cond_discharge)
define_handler(cond_p, cond_handler)
define_predicate(cond_p, cond_predicate)
