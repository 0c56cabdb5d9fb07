"""The cost of a schedule: its sweep and its replay on step numbers alone, with the real stack and slots."""

from __future__ import annotations

from typing import NamedTuple

from fiveloop.loops.schedules.binomial import Binomial, Stored, advances, reach, split
from fiveloop.loops.schedules.integers import Integer


class Evaluations(NamedTuple):
    """How often the steps of a loop are run, and how many slots of the fast store are used.

    `swept` steps are run by the sweep, `advanced` ones by the replay for a later state, and `taped` ones by the replay
    with all that their reverse needs.
    """

    swept: Integer
    advanced: Integer
    taped: Integer
    slots: int

    @property
    def total(self) -> Integer:
        """All the steps that are run."""
        return self.swept + self.advanced + self.taped


def evaluations(schedule: Binomial, length: int) -> Evaluations:
    """Run a schedule on a loop of so many steps; a slot must hold the state that the schedule takes from it."""
    replay = _Replay(schedule, -(-length // schedule.tape))
    replay.run()
    return Evaluations(length, replay.advanced * schedule.tape, length, len(replay.slots))


def advanced(schedule: Binomial, length: int) -> int:
    """How many steps the replay runs for a later state, by the closed form for the steps after each stored state."""
    tapes, stored = schedule.tapes(length), schedule.first()
    while 0 < schedule.next(stored) < tapes:
        stored = schedule.after_next(stored)
    stored, count = schedule.replayed(stored, tapes)
    found, end = 0, tapes
    for j in reversed(range(int(count))):
        start = int(schedule.position(stored, j))
        found += int(advances(end - start, schedule.slots - int(schedule.height(j))))
        end = start
    return found * schedule.tape


class _Replay:
    """A sweep and a replay whose states are their positions; a tape counts as one step."""

    def __init__(self, schedule: Binomial, length: int) -> None:
        self.schedule = schedule
        self.length: Integer = length
        self.advanced: Integer = 0
        self.swept: dict[Integer, Integer] = {0: 0}
        # The slots of the fast store, which are those of the sweep where there is no slow store.
        self.slots: dict[Integer, Integer] = {} if schedule.slow_slots else self.swept

    def run(self) -> None:
        """Sweep, then reverse the steps from each stored state to the next, from the last to the first."""
        stored, count = self.schedule.replayed(self.sweep(), self.length)
        end = self.length
        for j in reversed(range(count)):
            start = self.swept[self.schedule.place(stored, j)]
            assert start == self.schedule.position(stored, j)
            self.reverse(start, end, stored, self.schedule.height(j))
            end = start

    def sweep(self) -> Stored:
        """Store what the schedule says."""
        stored = self.schedule.first()
        while 0 < (step := self.schedule.next(stored)) < self.length:
            stored = self.schedule.after_next(stored)
            last = self.schedule.count(stored) - 1
            self.swept[self.schedule.place(stored, last)] = step
        return stored

    def reverse(self, start: Integer, end: Integer, stored: Stored, height: Integer) -> None:
        """Reverse the steps from a stored state by the binomial schedule, in the slots from its height on."""
        slots = self.schedule.slots
        stack = [(start, reach(end - start, slots - height))]
        self.slots[self.slot(stored, height)] = start
        while end > start:
            top = height + len(stack) - 1
            position, within = stack[-1]
            assert self.slots[self.slot(stored, top)] == position
            while end - position > 1:
                kept, left, right = split(end - position, slots - top, within)
                self.advanced += kept
                stack[-1] = (stack[-1][0], left)
                position, within = position + kept, right
                if end - position > 1:
                    top += 1
                    stack.append((position, right))
                    self.slots[self.slot(stored, top)] = position
            end -= 1
            if stack[-1][0] == end:
                stack.pop()

    def slot(self, stored: Stored, j: Integer) -> Integer:
        """The slot of entry j of the stack in the fast store."""
        return j if self.schedule.slow_slots else self.schedule.place(stored, j)
