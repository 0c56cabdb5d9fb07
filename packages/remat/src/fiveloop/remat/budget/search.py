"""The search for plans: which stages save what, and which runs of stages the backward pass recomputes, in turn.

A plan for stages [s, t) is a sequence of steps. Either a stage saves by one of its options, or a run of stages saves
only its operands, and is planned anew when the backward pass comes to it. Of all plans that fit in a number of bytes
the one that recomputes the fewest operations is found by dynamic programming over runs of stages and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from fiveloop.core import transforms
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.remat.budget.plans import Again, Option, Plan, Save
from fiveloop.remat.policies import nothing_saveable

LEVELS = 512
"""In how many steps the bytes are counted while searching."""

DEPTH = 1
"""How deep runs may be: within one of depth 1 every stage saves by an option.

Deeper runs save little more memory, and XLA:CPU schedules them worse than the simulation assumes.
"""

LEAN = 64
"""If a plan needs so many times less than the fastest one, plans of options that need at most twice as much as that are
searched for by themselves, in finer steps."""

MOST = 48
"""How many plans there are at most."""


@dataclass(frozen=True)
class Chain:
    """The stages as the search sees them.

    `options` are those of each stage. `crossing[s, t]` are the bytes made in stages [s, t) and used later, `pending`
    those of the cotangents that are there before each stage is gone back through, and `cotangents` while it is.
    `stacks` are the bytes that loops save of all steps of each stage, whatever the policy around them. `added` are
    those of the cotangents that a stage without a checkpoint leaves to be added to others.
    """

    options: Sequence[Sequence[Option]]
    crossing: np.ndarray
    pending: Sequence[int]
    cotangents: Sequence[int]
    forward_flops: Sequence[int]
    stacks: Sequence[int]
    added: Sequence[int]

    @cached_property
    def kept_of_runs(self) -> np.ndarray:
        """The bytes that a run of stages [s, t) keeps."""
        before = np.cumsum([0, *self.stacks])
        found: np.ndarray = self.crossing + np.maximum(before[None, :] - before[:, None], 0)
        return found

    @cached_property
    def forward_needs(self) -> np.ndarray:
        """The peak of running stages [s, t) forward once, where only the results that later stages use are kept."""
        size = len(self.options)
        found = np.zeros((size + 1, size + 1), np.int64)
        own = [self.options[k][0].forward + self.crossing[k, k + 1] for k in range(size)]
        for first in range(size):
            needs = own[first:] + self.crossing[first, first:size]
            found[first, first + 1 :] = np.maximum.accumulate(needs)
        return found

    def needs(self, save: Save) -> int:
        """The peak of running stages forward and backward, without the bytes that are there before."""
        option, cotangents = save.option, max(self.cotangents[save.first : save.last])
        return option.kept + max(option.backward + cotangents, option.forward)

    def peak(self, plan: Plan, before: int = 0, pending: int = 0) -> int:
        """The bytes that a plan needs at most: `before` are there already, `pending` until its backward pass begins."""
        most, here = before, before
        kept: list[int] = []
        for step in plan:
            kept.append(self.kept((step,)))
            if isinstance(step, Save):
                most = max(most, here + pending + kept[-1] + step.option.forward)
            else:
                most = max(most, here + pending + int(self.forward_needs[step.first, step.last]))
            here += kept[-1]
        for step in reversed(plan):
            here -= kept.pop()
            if isinstance(step, Save):
                most = max(most, here + self.needs(step))
                here += self.added[step.first] if step.option.policy is None else 0
            else:
                most = max(most, self.peak(step.plan, here, self.pending[step.last - 1]))
        return most

    def faster(self, plan: Plan, mapped: bool = False) -> Plan:
        """The plan, at no higher peak, but without saving what is faster to recompute.

        The search counts operations only, and saves whatever there is room for. `mapped` says whether the memory of a
        saved byte is mapped anew in each call.
        """
        most, here = self.peak(plan), 0
        found: list[Save | Again] = []
        for step in plan:
            if isinstance(step, Save):
                ways = [replace(step, option=o) for o in self.options[step.first]]
                less = [way for way in ways if way.option.kept <= step.option.kept]
                fitting = [way for way in less if here + self.needs(way) <= most]
                step = min([step, *fitting], key=lambda way: _time(way.option, mapped))
            found.append(step)
            here += self.kept((step,))
        return tuple(found)

    def leaner(self) -> Chain | None:
        """The chain without the options of the plans that need most; None if no plan needs far less than those."""
        fastest = self.peak(self.by(_time))
        fitting = [[o for o in each if self.room(o) * LEAN <= 2 * fastest] for each in self.options]
        if self.peak(self.by(self.room)) * LEAN > fastest or fitting == self.options:
            return None
        least = (min(each, key=self.room) for each in self.options)
        return replace(self, options=[f or [one] for f, one in zip(fitting, least, strict=True)])

    def by(self, cost: Callable[[Option], float]) -> Plan:
        """The plan in which every stage saves by the option that costs least."""
        return tuple(Save(k, k + 1, min(o, key=cost)) for k, o in enumerate(self.options))

    @staticmethod
    def room(option: Option) -> int:
        """The bytes that an option needs at most."""
        return option.kept + max(option.forward, option.backward)

    def kept(self, plan: Plan) -> int:
        """The bytes that a plan saves between the two passes."""
        each = [
            s.option.kept if isinstance(s, Save) else int(self.kept_of_runs[s.first, s.last])
            for s in plan
        ]
        return sum(each)

    def again(self, plan: Plan) -> int:
        """The operations that a plan does twice, or more often."""
        total = 0
        for step in plan:
            if isinstance(step, Save):
                total += step.option.again
            else:
                total += sum(self.forward_flops[step.first : step.last - 1]) + self.again(step.plan)
                end = step.plan[-1]
                assert isinstance(end, Save), "unreachable: runs are one deep"
                total += int(self.within_run(end.first, end.option, True))
        return total

    def within_run(self, stage: int, option: Option, last: bool) -> float:
        """The operations done again of a stage that a run adds, besides those of all stages before its last.

        A run judges what is saved within it, too: its stages save all that they use, or nothing.
        """
        if option.policy is None:
            return self.forward_flops[stage] if last else 0
        return 0 if option.policy == nothing_saveable else np.inf


def _time(option: Option, mapped: bool = False) -> float:
    """The estimated nanoseconds that an option adds."""
    return transforms.recomputation_time(option.again, option.kept, mapped)


@dataclass(frozen=True)
class _Own:
    """What a stage's options keep and need, in levels, and compute again, alone and within a run, not the last or last.

    `forward` are the operations of the stages from it on, up to each.
    """

    kept: np.ndarray
    needs: np.ndarray
    again: np.ndarray
    within_run: np.ndarray
    forward: np.ndarray


class Search:
    """The best plan for each run of stages and each number of bytes, up to what the fastest options need.

    `least[depth, s, t]` are the fewest operations done again of stages [s, t), by the bytes that there are, where runs
    within runs are at most so deep; `choices` give them: k >= 0 is option k of the first stage, -k a run of the first k
    stages.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.size = len(chain.options)
        self.unit = max(chain.peak(chain.by(_time)), 1) / (LEVELS - 2 * self.size)
        shape = (DEPTH + 1, self.size + 1, self.size + 1, LEVELS)
        # Before each row there is one for bytes that are too few, so that those left are a part of the two.
        rows = np.full((*shape[:-1], 2 * LEVELS), np.inf, np.float32)
        self.least = rows[..., LEVELS:]
        self._parts = np.lib.stride_tricks.sliding_window_view(rows, LEVELS, axis=-1)
        self.choices = np.zeros(shape, np.int16)
        self._own = [self._own_of(k) for k in range(self.size)]
        self._pending = self._levels(chain.pending)
        self._kept_of_runs = self._levels(chain.kept_of_runs)
        self._forward_needs = self._levels(chain.forward_needs)
        for k in range(self.size + 1):
            self.least[:, k, k] = 0.0
        for depth in range(DEPTH + 1):
            for length in range(1, self.size + 1):
                for first in range(self.size - length + 1):
                    self._fill(depth, first, first + length)

    def plans(self) -> list[Plan]:
        """Plans for some numbers of bytes, those of fewest bytes first."""
        again = self.least[DEPTH, 0, self.size]
        levels = [k for k in range(LEVELS) if again[k] < (again[k - 1] if k else np.inf)]
        places = np.linspace(0, len(levels) - 1, min(MOST, len(levels))).round()
        return [self._plan(DEPTH, 0, self.size, levels[int(k)]) for k in places]

    def _own_of(self, k: int) -> _Own:
        """The options of a stage."""
        options = self.chain.options[k]
        within = [[self.chain.within_run(k, o, last) for o in options] for last in (False, True)]
        return _Own(
            self._levels([o.kept for o in options]),
            self._levels([self.chain.needs(Save(k, k + 1, o)) for o in options]),
            np.array([[o.again] for o in options], np.float32),
            np.array(within, np.float32)[..., None],
            np.cumsum(self.chain.forward_flops[k:], dtype=np.float32)[:, None],
        )

    def _fill(self, depth: int, first: int, last: int) -> None:
        """The fewest operations again of stages [first, last) by the bytes, and the choices that lead to them."""
        own = self._own[first]
        found = self._left(depth, first + 1, last, own.kept) + own.again
        needs, numbers = own.needs, np.arange(len(own.needs))
        if not depth:
            found += own.within_run[int(last == first + 1)]
        elif last > first + 2:
            middles = np.arange(first + 2, last)
            inner = self._left(depth - 1, first, middles, self._pending[middles - 1])
            inner += self._left(depth, middles, last, self._kept_of_runs[first, middles])
            inner += own.forward[: len(middles)]
            found = np.concatenate([found, inner])
            needs = np.concatenate([needs, self._forward_needs[first, middles]])
            numbers = np.concatenate([numbers, first - middles])
        found[np.arange(LEVELS) < needs[:, None]] = np.inf
        self.least[depth, first, last] = found.min(axis=0)
        self.choices[depth, first, last] = numbers[found.argmin(axis=0)]

    def _levels(self, sizes: Sequence[int] | np.ndarray) -> np.ndarray:
        return np.ceil(np.asarray(sizes) / self.unit).astype(np.int64)

    def _left(
        self, depth: int, first: int | np.ndarray, last: int | np.ndarray, levels: np.ndarray
    ) -> np.ndarray:
        """The fewest operations again of stages by the bytes of which so many are taken before: a row for each."""
        found: np.ndarray = self._parts[depth, first, last, LEVELS - np.minimum(levels, LEVELS)]
        return found

    def _plan(self, depth: int, first: int, last: int, level: int) -> Plan:
        if first == last:
            return ()
        choice = int(self.choices[depth, first, last, level])
        if choice >= 0:
            option = self.chain.options[first][choice]
            left = level - self._levels([option.kept])[0]
            return (Save(first, first + 1, option), *self._plan(depth, first + 1, last, left))
        middle = first - choice
        inside = level - self._levels([self.chain.pending[middle - 1]])[0]
        run = Again(first, middle, self._plan(depth - 1, first, middle, inside))
        left = level - self._levels([self.chain.kept_of_runs[first, middle]])[0]
        return (run, *self._plan(depth, middle, last, left))
