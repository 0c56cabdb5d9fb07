"""Everything fiveloop knows about `closed_call`. Read the row here, then the cell you need."""

from __future__ import annotations

from functools import partial

from fiveloop.core.closed_call import batch, dce, jvp, lower, primitive, split, transpose
from fiveloop.core.rules import Body, define


def closed_call_bodies(p: primitive.ClosedCallParams) -> list[Body]:
    """The one jaxpr, which runs once."""
    return [Body(p.jaxpr, "called", plain=True)]


define(
    primitive.closed_call_p,
    abstract_eval=primitive.call_abstract_eval,
    lower=lower.closed_call_lower,
    jvp=partial(jvp.call_jvp, primitive.closed_call_p),
    batch=partial(batch.call_batch, primitive.closed_call_p),
    transpose=partial(transpose.call_transpose, primitive.closed_call_p),
    split=split.call_split,
    dce=dce.call_dce,
    bodies=closed_call_bodies,
)
