"""The periodic schedule: every state before a tape is stored, and no step is run again but for its tape.

With tapes of about the square root of the length it takes that many states, and that many steps' residuals.
"""

from __future__ import annotations

from typing import ClassVar

from fiveloop.core.dataclass import dataclass
from fiveloop.loops.schedules.binomial import Binomial, Stored
from fiveloop.loops.schedules.integers import Integer


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
