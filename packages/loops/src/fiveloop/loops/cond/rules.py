"""Everything fiveloop knows about `cond`. Read the row here, then the cell you need."""

from __future__ import annotations

from functools import partial

from fiveloop.core.closed_call import call_dce, call_jvp, call_transpose
from fiveloop.core.rules import Body, define
from fiveloop.loops.cond import discharge, lower, split
from fiveloop.loops.cond.batch import cond_batch
from fiveloop.loops.primitives.cond import CondParams, cond_abstract_eval, cond_p
from fiveloop.state.discharge.table import define_discharge


def cond_bodies(p: CondParams) -> list[Body]:
    """The branches, of which one runs."""
    return [Body(branch, "branch", plain=True) for branch in p.branches]


define(
    cond_p,
    abstract_eval=cond_abstract_eval,
    lower=lower.cond_lower,
    jvp=partial(call_jvp, cond_p),
    batch=cond_batch,
    transpose=partial(call_transpose, cond_p),
    split=split.cond_split,
    dce=call_dce,
    bodies=cond_bodies,
)
define_discharge(cond_p, discharge.cond_discharge)
