"""The early end of a `scan`: its steps are a branch that is taken until a flag is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import (
    ShapedArray,
    Value,
    bind,
    convert,
    eval_jaxpr,
    stage_closed,
)
from fiveloop.loops.common import condition
from fiveloop.loops.cond.primitive import CondParams, cond_p
from fiveloop.loops.for_loop.primitive import INDEX
from fiveloop.loops.for_loop.trace import TracedBody
from fiveloop.state import PREDICATE, AbstractRef

FLAG = PREDICATE
COUNT = ShapedArray((), np.int32)


def holds(what: str, until: Callable[[Any], Any], carry: Any) -> Value:
    """What the condition says of a carry, a bool scalar."""
    return condition(f"{what}: until", "(carry)", until, carry)


def until_stopped(body: TracedBody) -> TracedBody:
    """The body as a branch that is taken as long as its flag, the last Ref, is not set; the steps are counted.

    body    : [i, *consts, *refs, *states, flag]        -> []
    stopped : [i, *consts, *refs, *states, flag, count] -> []
    """
    avals = [*body.jaxpr.in_avals, AbstractRef(COUNT)]

    def count(*args: Value) -> list[Value]:
        *given, counter = args
        counter[...] = counter[...] + 1
        return eval_jaxpr(body.jaxpr, given)

    skip = stage_closed(lambda *args: [], avals, "ended")
    step = stage_closed(count, avals, body.jaxpr.name)

    def run(*args: Value) -> list[Value]:
        flag = args[-2]
        has_ended = convert(flag[...], INDEX.dtype)
        return bind(cond_p, has_ended, *args, params=CondParams((step, skip)))

    stopped = stage_closed(run, avals, body.jaxpr.name)
    return TracedBody(stopped, body.consts, body.refs, body.fun)
