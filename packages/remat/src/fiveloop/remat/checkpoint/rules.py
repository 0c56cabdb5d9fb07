"""Everything fiveloop knows about `checkpoint`. Read the row here, then the cell you need.

The cells that do with a call what they do with any call are core's.
"""

from __future__ import annotations

from functools import partial

from fiveloop.core.extend import Body, call_abstract_eval, call_batch, call_dce, call_jvp, define
from fiveloop.remat.checkpoint.lower import checkpoint_lower
from fiveloop.remat.checkpoint.primitive import CheckpointParams, checkpoint_p
from fiveloop.remat.checkpoint.split import checkpoint_split
from fiveloop.remat.checkpoint.transpose import checkpoint_transpose
from fiveloop.state.extend import (
    call_discharge,
    call_handler,
    call_predicate,
    define_discharge,
    define_handler,
    define_predicate,
)


def checkpoint_bodies(p: CheckpointParams) -> list[Body]:
    """The one jaxpr, which runs once."""
    return [Body(p.jaxpr, "checkpointed", plain=True)]


define(
    checkpoint_p,
    abstract_eval=call_abstract_eval,
    lower=checkpoint_lower,
    jvp=partial(call_jvp, checkpoint_p),
    batch=partial(call_batch, checkpoint_p),
    transpose=checkpoint_transpose,
    split=checkpoint_split,
    dce=call_dce,
    bodies=checkpoint_bodies,
)
define_discharge(checkpoint_p, partial(call_discharge, checkpoint_p))
define_handler(checkpoint_p, partial(call_handler, checkpoint_p))
define_predicate(checkpoint_p, partial(call_predicate, checkpoint_p))
