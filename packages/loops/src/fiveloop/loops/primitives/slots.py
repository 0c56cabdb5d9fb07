"""The states that a loop saves for its way back: how many, and the types of what holds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import ir, prims

COUNT = ir.ShapedArray((), np.int64)
"""The type of a number of steps, and of the number of one."""
MEMORY = 16_000_000
"""How many bytes the saved states may take where nobody says how many there are."""
FEWEST, MOST = 8, 128
"""How many states are saved at least and at most where nobody says how many."""


def default_slots(state: Sequence[ir.Aval]) -> int:
    """How many states of these types are saved where nobody says how many."""
    return int(min(max(MEMORY // max(prims.bytes_of(state), 1), FEWEST), MOST))


def cache_avals(kept: Sequence[ir.Aval], slots: int) -> list[ir.Aval]:
    """The types of a cache: the two numbers that say what is stored, and the slots for each value that is kept.

    One slot is left over, for what is never used. Nothing is stored where nothing is kept.
    """
    held = [a.strong().batched(slots + 1) for a in kept]
    return [COUNT, COUNT, *held] if held else []
