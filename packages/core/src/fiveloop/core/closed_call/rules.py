"""Everything fiveloop knows about `closed_call`. Read the row here, then the cell you need."""

from __future__ import annotations

from fiveloop.core.closed_call.batch import closed_call_batch
from fiveloop.core.closed_call.dce import closed_call_dce
from fiveloop.core.closed_call.jvp import closed_call_jvp
from fiveloop.core.closed_call.lower import closed_call_lower
from fiveloop.core.closed_call.primitive import ClosedCallParams, closed_call_abstract_eval, closed_call_p
from fiveloop.core.closed_call.split import closed_call_split
from fiveloop.core.closed_call.transpose import closed_call_transpose
from fiveloop.core.rule_types import Body
from fiveloop.core.rules import define


def closed_call_bodies(p: ClosedCallParams) -> list[Body]:
    """The one jaxpr, which runs once."""
    return [Body(p.jaxpr, "called")]


define(
    closed_call_p,
    abstract_eval=closed_call_abstract_eval,
    lower=closed_call_lower,
    jvp=closed_call_jvp,
    batch=closed_call_batch,
    transpose=closed_call_transpose,
    split=closed_call_split,
    dce=closed_call_dce,
    bodies=closed_call_bodies,
)
