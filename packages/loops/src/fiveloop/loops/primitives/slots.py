"""The saved states of a loop: how many there are, and the types of their storage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import ir, prims
from fiveloop.loops import common
from fiveloop.loops.schedules.binomial import Binomial, Slots
from fiveloop.loops.schedules.online import Online

COUNT = ir.ShapedArray((), np.int64)
"""The type of a number of steps, and of the number of one."""
MEMORY = 16_000_000
"""How many bytes the saved states may take where nobody says how many there are."""
FEWEST, MOST = 8, 128
"""How many states are saved at least and at most where nobody says how many."""


LEAST_SHARE = 16
"""Steps are taped together if a state takes at least so many times the room of what is kept of a step."""
SMALL, TAPE, MOST_TAPED = 1_024, 256_000, 64
"""How many bytes a small state has, how many the steps that are taped together take, and how many these are."""


def is_slots(x: object) -> bool:
    """Whether it says how many states are saved, or by which schedule; None leaves it open."""
    return x is None or isinstance(x, Binomial) or (common.is_count(x) and x > 0)  # type: ignore[operator]  # a count is a number


def num_slots(slots: Slots | None, state: Sequence[ir.Aval]) -> int:
    """How many states of these types are saved at a time."""
    chosen = settled(slots, state)
    return chosen.slots if isinstance(chosen, Binomial) else chosen


def settled(slots: Slots | None, state: Sequence[ir.Aval]) -> Slots:
    """The same choice, which is a number where nobody has made one."""
    return default_slots(state) if slots is None else slots


def room_beside(slots: Slots, state: Sequence[ir.Aval]) -> float:
    """How many bytes a loop may take beside its saved states, to be faster: two thirds of theirs."""
    return num_slots(slots, state) * prims.bytes_of(state) * 2 / 3


def sweeping(slots: Slots | None) -> Binomial:
    """By which schedule a loop saves states in the forward pass."""
    assert slots is not None, "unreachable: it is settled what is saved"
    return slots if isinstance(slots, Binomial) else Online(slots)


def default_slots(state: Sequence[ir.Aval]) -> int:
    """How many states of these types are saved where nobody says how many."""
    return int(min(max(MEMORY // max(prims.bytes_of(state), 1), FEWEST), MOST))


def taped_steps(state: ir.Dim, kept: ir.Dim, slots: Slots | None, contracts: bool) -> int:
    """How many steps the backward pass tapes together, each with so many bytes of residuals; 1 if each goes alone.

    As many as a schedule says. Without one, as many as take the room of a state, where a state is far larger. And some
    where nobody says how many states are saved, if the state is small or a step contracts: to go back to a saved state
    for each would cost as much as a step.
    """
    if isinstance(slots, Binomial):
        return slots.tape
    if not kept or not ir.is_constant(kept) or not ir.is_constant(state):
        return 1
    if ir.is_more(state, LEAST_SHARE * kept):
        return int(state) // int(kept)
    if slots is None and (contracts or not ir.is_more(state, SMALL)):
        return int(min(max(TAPE // int(kept), 1), MOST_TAPED))
    return 1


contracts = ir.holding(prims.dot_general_p)
"""Whether a body contracts axes, itself or in what it calls."""


def cache_avals(kept: Sequence[ir.Aval], slots: Slots | None) -> list[ir.Aval]:
    """The types of a cache: two numbers that describe its contents, and the slots of each saved value.

    One extra slot takes values that are never used. A cache without saved values stores nothing.
    """
    if not kept:
        return []
    size = sweeping(slots).room + 1
    return [COUNT, COUNT, *[a.strong().batched(size) for a in kept]]
