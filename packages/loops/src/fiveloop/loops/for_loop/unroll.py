"""How many steps of a loop are compiled into one turn of it."""

from __future__ import annotations

from typing import Any, Literal

from fiveloop.core import Jaxpr
from fiveloop.core.extend import jaxprs_in
from fiveloop.loops.common import as_count

Unroll = int | bool | Literal["auto"]
AUTO = 0
"""What stands for "auto" until the body has been traced."""

_SMALL = 16
_EQUATIONS = 64
_WHOLE = 8


def check_unroll(what: str, unroll: Any, steps: int) -> int:
    """The number of steps in a turn: all if True, one if False, AUTO for "auto"."""
    if unroll == "auto" and isinstance(unroll, str):
        return AUTO
    if isinstance(unroll, bool):
        return max(steps, 1) if unroll else 1
    return as_count(f"{what}: unroll", unroll, ', True, False or "auto"')


def steps_a_turn(unroll: int, steps: int, body: Jaxpr) -> int:
    """The number for a loop of a traced body.

    With AUTO, a body without loops and calls is unrolled until a turn has a few dozen equations, so that the
    loop's own work does not count; a loop of a few such steps is unrolled whole.
    """
    if unroll != AUTO:
        return min(unroll, steps)
    size = len(body.eqns)
    if size > _SMALL or any(jaxprs_in(eqn.params) for eqn in body.eqns):
        return 1
    if steps <= _WHOLE:
        return steps
    return min(max(1, _EQUATIONS // max(size, 1)), _WHOLE, steps)
