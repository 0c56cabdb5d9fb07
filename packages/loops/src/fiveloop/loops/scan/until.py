"""The early end of a `scan`: its steps are a branch that is taken until a flag is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import Value
from fiveloop.core.extend import ShapedArray, eval_jaxpr, stage_closed
from fiveloop.loops.common import condition
from fiveloop.loops.for_loop.early_end import until_set
from fiveloop.loops.for_loop.trace import TracedBody
from fiveloop.state import AbstractRef
from fiveloop.state.extend import PREDICATE

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

    step = until_set(stage_closed(count, avals, body.jaxpr.name), len(avals) - 2)
    return TracedBody(step, body.consts, body.refs, body.fun)
