"""The search for plans: which stages save what, and which runs of stages are computed again, in turn, on the way back.

A plan for stages [s, t) is a sequence of steps. Either a stage saves by one of its options, or a run of stages saves
only its operands, and is planned anew when the way back comes to it. Of all plans that fit in a number of bytes the
one with the least time is found by dynamic programming over runs of stages and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fiveloop.core.dataclass import dataclass, field
from fiveloop.remat.budget.options import Option

LEVELS = 512
"""In how many steps the bytes are counted while searching."""


@dataclass(frozen=True, slots=True)
class Save:
    """Stages `first` to before `last` that save by an option."""

    first: int
    last: int
    option: Option


@dataclass(frozen=True, slots=True)
class Again:
    """Stages `first` to before `last`, of which the operands alone are saved at first; then they follow a plan."""

    first: int
    last: int
    plan: Plan


Plan: TypeAlias = "tuple[Save | Again, ...]"


@dataclass(slots=True)
class Chain:
    """The stages as the search sees them.

    `options` are those of each stage. `crossing(s, t)` are the bytes made in stages [s, t) and used later, and
    `cotangents` those of the cotangents that cross each cut.
    """

    options: Sequence[Sequence[Option]]
    crossing: np.ndarray
    cotangents: Sequence[int]
    forward_time: Sequence[float]
    _peaks: dict[Plan, tuple[int, float]] = field(default_factory=dict)

    def needs(self, first: int, last: int, option: Option) -> int:
        """The bytes to go through stages and back, besides those that are there before."""
        back = option.backward + self.cotangents[first] + self.cotangents[last]
        return option.kept + max(back, option.forward)

    def forward_needs(self, first: int, last: int) -> int:
        """The bytes to go through stages once, keeping nothing but what later ones use."""
        return max(
            int(self.crossing[first, k]) + self.options[k][0].forward + int(self.crossing[k, k + 1])
            for k in range(first, last)
        )

    def peak(self, plan: Plan, before: int = 0) -> int:
        """The bytes that a plan needs at most, where so many are there before."""
        most, here = before, before
        kept: list[int] = []
        for step in plan:
            if isinstance(step, Save):
                kept.append(step.option.kept)
                most = max(most, here + step.option.kept + step.option.forward)
            else:
                kept.append(int(self.crossing[step.first, step.last]))
                most = max(most, here + self.forward_needs(step.first, step.last))
            here += kept[-1]
        for step in reversed(plan):
            here -= kept.pop()
            if isinstance(step, Save):
                most = max(most, here + self.needs(step.first, step.last, step.option))
            else:
                most = max(most, self.peak(step.plan, here))
        return most

    def time(self, plan: Plan) -> float:
        """The estimated time of a plan, in nanoseconds."""
        total = 0.0
        for step in plan:
            if isinstance(step, Save):
                total += step.option.time
            else:
                total += sum(self.forward_time[step.first : step.last]) + self.time(step.plan)
        return total


class Search:
    """The best plan for each run of stages and each number of bytes, up to what saving everything needs."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.size = len(chain.options)
        everything = tuple(Save(k, k + 1, o[0]) for k, o in enumerate(chain.options))
        self.unit = max(chain.peak(everything), 1) / (LEVELS - 8)
        self.times: dict[tuple[int, int], np.ndarray] = {}
        self.choices: dict[tuple[int, int], np.ndarray] = {}
        for length in range(1, self.size + 1):
            for first in range(self.size - length + 1):
                self._fill(first, first + length)

    def plans(self) -> list[Plan]:
        """A plan for each time that some number of bytes allows, those of fewest bytes first."""
        times = self.times[0, self.size]
        found: list[Plan] = []
        last = np.inf
        for level, time in enumerate(times):
            if time < last:
                found.append(self._plan(0, self.size, level))
                last = time
        return found

    def _fill(self, first: int, last: int) -> None:
        """The least time of stages [first, last) for each number of bytes, and the choice that gives it.

        Choice k >= 0 is option k of the first stage; choice -k is a run of the first k stages.
        """
        best = np.full(LEVELS, np.inf)
        choice = np.zeros(LEVELS, np.int64)

        def offer(number: int, needs: int, times: np.ndarray) -> None:
            times = np.where(np.arange(LEVELS) >= self._levels(needs), times, np.inf)
            better = times < best
            best[better], choice[better] = times[better], number

        for k, option in enumerate(self.chain.options[first]):
            rest = np.zeros(LEVELS)
            if last > first + 1:
                rest = self._less(self.times[first + 1, last], option.kept)
            offer(k, self.chain.needs(first, first + 1, option), option.time + rest)
        for middle in range(first + 2, last):
            kept = int(self.chain.crossing[first, middle])
            again = sum(self.chain.forward_time[first:middle])
            rest = self._less(self.times[middle, last], kept)
            needs = self.chain.forward_needs(first, middle)
            offer(first - middle, needs, again + self.times[first, middle] + rest)
        self.times[first, last], self.choices[first, last] = best, choice

    def _levels(self, size: int) -> int:
        return int(-(-size // self.unit))

    def _less(self, times: np.ndarray, kept: int) -> np.ndarray:
        """Times by the bytes left, as times by those bytes and `kept` more."""
        levels = min(self._levels(kept), LEVELS)
        return np.concatenate([np.full(levels, np.inf), times[: LEVELS - levels]])

    def _plan(self, first: int, last: int, level: int) -> Plan:
        if first == last:
            return ()
        choice = int(self.choices[first, last][level])
        if choice >= 0:
            option = self.chain.options[first][choice]
            left = level - self._levels(option.kept)
            return (Save(first, first + 1, option), *self._plan(first + 1, last, left))
        middle = first - choice
        left = level - self._levels(int(self.chain.crossing[first, middle]))
        run = Again(first, middle, self._plan(first, middle, level))
        return (run, *self._plan(middle, last, left))
