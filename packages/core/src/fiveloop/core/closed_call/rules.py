"""Everything fiveloop knows about `closed_call`. Read the row here, then the cell you need."""

from __future__ import annotations

from functools import partial

from fiveloop.core.closed_call.batch import call_batch
from fiveloop.core.closed_call.dce import call_dce
from fiveloop.core.closed_call.jvp import call_jvp
from fiveloop.core.closed_call.lower import closed_call_lower
from fiveloop.core.closed_call.primitive import ClosedCallParams, call_abstract_eval, closed_call_p
from fiveloop.core.closed_call.split import call_split
from fiveloop.core.closed_call.transpose import call_transpose
from fiveloop.core.rule_types import Body
from fiveloop.core.rules import define


def closed_call_bodies(p: ClosedCallParams) -> list[Body]:
    """The one jaxpr, which runs once."""
    return [Body(p.jaxpr, "called", plain=True)]


define(
    closed_call_p,
    abstract_eval=call_abstract_eval,
    lower=closed_call_lower,
    jvp=partial(call_jvp, closed_call_p),
    batch=partial(call_batch, closed_call_p),
    transpose=partial(call_transpose, closed_call_p),
    split=call_split,
    dce=call_dce,
    bodies=closed_call_bodies,
)
