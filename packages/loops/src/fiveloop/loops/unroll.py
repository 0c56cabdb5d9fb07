"""How many steps of a loop are compiled into one turn of it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fiveloop.core.engine import at_source, current_source
from fiveloop.loops.common import as_count

Unroll = int | bool | Literal["auto"]
AUTO = 0
"""What stands for "auto" until the loop is planned; it is one step a turn where that is off."""


def check_unroll(what: str, unroll: Any, steps: int) -> int:
    """The number of steps in a turn: all if True or 0, one if False, AUTO for "auto"."""
    if isinstance(unroll, str):
        if unroll != "auto":
            raise ValueError(
                f"{what}: unroll must be {_EXPECTED}, got {unroll!r}{at_source(current_source())}"
            )
        return AUTO
    if isinstance(unroll, bool | np.bool_):
        return max(steps, 1) if unroll else 1
    return as_count(f"{what}: unroll", unroll, _MORE, least=0) or max(steps, 1)


_MORE = ', True, False or "auto"'
_EXPECTED = f"an integer of at least 0{_MORE}"
