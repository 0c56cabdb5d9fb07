"""The early end of a `scan`: its steps are a branch that is taken until a flag is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value
from fiveloop.core.extend import ShapedArray
from fiveloop.loops.analysis.early_end import until_set
from fiveloop.loops.common import condition
from fiveloop.state.extend import PREDICATE

FLAG = PREDICATE
COUNT = ShapedArray((), np.int32)


def holds(what: str, until: Callable[[Any], Any], carry: Any) -> Value:
    """What the condition says of a carry, a bool scalar."""
    return condition(f"{what}: until", "(carry)", until, carry)


def until_stopped(body: Jaxpr) -> Jaxpr:
    """The body as a branch that is taken as long as its flag, the last Ref but one, is not set.

    body, stopped : [i, *consts, *refs, *states, flag, count] -> []
    """
    return until_set(body, len(body.invars) - 2)
