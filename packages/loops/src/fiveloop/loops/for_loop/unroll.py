"""How many steps of a loop are compiled into one turn of it."""

from __future__ import annotations

from typing import Any, Literal

from fiveloop.loops.common import as_count

Unroll = int | bool | Literal["auto"]
AUTO = 0
"""What stands for "auto" until the loop is planned; it is one step a turn where that is off."""


def check_unroll(what: str, unroll: Any, steps: int) -> int:
    """The number of steps in a turn: all if True, one if False, AUTO for "auto"."""
    if unroll == "auto" and isinstance(unroll, str):
        return AUTO
    if isinstance(unroll, bool):
        return max(steps, 1) if unroll else 1
    return as_count(f"{what}: unroll", unroll, ', True, False or "auto"')
