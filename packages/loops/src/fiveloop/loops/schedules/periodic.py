"""The schedules that store a state in each period.

`Periodic` stores every state before a tape, so that no step is run again but for its tape. With tapes of about the
square root of the length it takes that many states, and that many steps' residuals.

`TwoLevel` is for two memories, one fast and small, one slow and large. The sweep stores every `period` steps in the
slow store, on the grid of `online`, which doubles the period when the slow store is full. The replay reads each of
these states once, into the fast store, all of whose slots serve the steps up to the next one. So a period costs a
write, a read and the advances of its steps. That a fixed period is optimal for long loops is shown by Aupy and
Herrmann, "Periodicity in optimal hierarchical checkpointing schemes for adjoint computations", Optimization Methods and
Software 32 (2017).
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.schedules.binomial import Binomial, Stored, reach
from fiveloop.loops.schedules.integers import Integer
from fiveloop.loops.schedules.online import Online


def shortest_tape(length: int, slots: int) -> int:
    """The fewest steps to a tape for which so many slots hold the states of `length` steps."""
    return -(-length // slots)


@dataclass(frozen=True)
class Periodic(Binomial):
    """The sweep stores the state before each tape, in the slots in order: it takes as many slots as there are tapes."""

    sweeps: ClassVar[bool] = True

    @property
    def most(self) -> int:
        """As many as the tapes have steps, with a slot for each tape."""
        return self.slots * self.tape

    def longest(self, repeats: int) -> int:
        """No step is ever advanced."""
        return self.most

    def next(self, stored: Stored) -> Integer:
        """The next tape."""
        return stored.due

    def after_next(self, stored: Stored) -> Stored:
        """One more."""
        return Stored(stored.stride, stored.due + 1)

    def count(self, stored: Stored) -> Integer:
        """One for each tape."""
        return stored.due

    def position(self, stored: Stored, j: Integer) -> Integer:
        """Before tape j."""
        return j


def best_period(slots: int, transfer: int) -> Integer:
    """The period of the least time a step, if a state's write and read take the time of `transfer` steps.

    Up to `beta(slots, r)` steps a further one costs r advances. So the time a step is least at such a number, with the
    first r for which `beta(slots + 1, r)` is not less than `transfer`.
    """
    repeats, steps = reach(transfer, slots + 1)
    return steps * (slots + 1) // (slots + 1 + repeats)


@dataclass(frozen=True)
class TwoLevel(Binomial):
    """The sweep stores in a slower store, every `period` tapes; each state is read once, into the first fast slot."""

    sweeps: ClassVar[bool] = True
    swept: ClassVar[str] = "slow"
    fewest: ClassVar[int] = 2
    slow: int = field(kw_only=True)
    period: int = field(kw_only=True)

    def within(self, steps: int) -> Self:
        """Without slots in either store that such a loop never uses."""
        periods = -(-self.tapes(steps) // self.period)
        return replace(super().within(steps), slow=self._grid.within(periods).slots)

    @property
    def slow_slots(self) -> int:
        """The slots of the slow store."""
        return self.slow

    def longest(self, repeats: int) -> int:
        """As long as a period is short enough for the fast slots; each time the slow store is full, it doubles."""
        within = super().longest(repeats)
        period = self.tape * self.period
        doubled = period << (within // period).bit_length() - 1 if within >= period else 0
        return self._grid.used * doubled or within

    def next(self, stored: Stored) -> Integer:
        """The next step of the grid."""
        return self.period * self._grid.next(stored)

    def after_next(self, stored: Stored) -> Stored:
        """The same as on the grid."""
        return self._grid.after_next(stored)

    def count(self, stored: Stored) -> Integer:
        """All of them until the slow store is full."""
        return self._grid.count(stored)

    def position(self, stored: Stored, j: Integer) -> Integer:
        """The step of the grid."""
        return self.period * self._grid.position(stored, j)

    def place(self, stored: Stored, j: Integer) -> Integer:
        """The slot of the slow store."""
        return self._grid.place(stored, j)

    @property
    def _grid(self) -> Online:
        return Online(self.slow)
