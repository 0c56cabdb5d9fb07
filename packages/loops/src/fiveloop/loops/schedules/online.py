"""The online schedule, for an unknown number of steps: a grid of saved states that grows coarser while the loop runs.

The sweep stores the states before steps 0, h, 2h, ..., with h = 1, until F slots are full; F is even. From then on it
stores at each second step of the grid, over the earliest state between two that are kept. When all of these are
overwritten the states lie on a grid of stride 2h, and the same begins again. So the slots are always full, a state is
stored at fewer and fewer steps, and none is moved: the state before step p > 0 lies in slot 1 + (p - 1) mod (F - 1).

At the end the number of steps is known, and the last states are too dense for the slots that are left. The replay goes
on to forget states in the order in which the sweep overwrites them, until the last stretches of steps need no more
repeats than the best schedule of the whole.

The schedules with the fewest advances that are known store a state at nearly every step: Stumm and Walther, "New
algorithms for optimal online checkpointing", SIAM Journal on Scientific Computing 32 (2010); Wang, Moin and Iaccarino,
"Minimal repetition dynamic checkpointing algorithm for unsteady adjoint calculation", ibid. 31 (2009). Equinox stores
by both, and halves each stretch of steps backward. This one stores as many states as there are slots, then half as many
each time that the length doubles. For 4 slots or more and 3 to 10^5 steps it takes at most 1.28 times the evaluations
that are optimal for a known count, and 1.08 times in the mean.
"""

from __future__ import annotations

from typing import ClassVar, Self

from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.schedules import integers
from fiveloop.loops.schedules.binomial import Binomial, Stored, reach, reached
from fiveloop.loops.schedules.integers import Bool, Integer, WhileLoop, python_while, where


@dataclass(frozen=True)
class Online(Binomial):
    """The sweep keeps the slots full with the states of a grid whose stride doubles. It takes two slots or more."""

    sweeps: ClassVar[bool] = True
    fewest: ClassVar[int] = 2

    def within(self, steps: int) -> Self:
        """With as many slots as there are tapes, or one more: the sweep uses an even number of them."""
        tapes = self.tapes(steps)
        return replace(self, slots=min(self.slots, tapes + tapes % 2))

    @property
    def used(self) -> int:
        """How many slots the sweep uses: an even number."""
        return self.slots // 2 * 2

    def next(self, stored: Stored) -> Integer:
        """The next step of the grid."""
        return stored.stride * stored.due

    def after_next(self, stored: Stored) -> Stored:
        """One further until the slots are full, then two; at twice as many the stride doubles."""
        stride, due = stored
        further = where(due < self.used, due + 1, due + 2)
        is_coarse = further >= 2 * self.used
        return Stored(where(is_coarse, 2 * stride, stride), where(is_coarse, self.used, further))

    def count(self, stored: Stored) -> Integer:
        """All of them until the slots are full."""
        return integers.minimum(stored.due, self.used)

    def replayed(
        self, stored: Stored, length: Integer, while_loop: WhileLoop = python_while
    ) -> tuple[Stored, Integer]:
        """The grid with states forgotten until the last two stretches are short enough for their slots."""
        repeats = reach(length, self.slots, while_loop).repeats

        def is_long(stored: Stored, j: Integer, end: Integer) -> Bool:
            return end - self.position(stored, j) > reached(self.slots - j, repeats, while_loop)

        def is_dense(state: tuple[Stored, Integer]) -> Bool:
            stored, count = state
            last = self.position(stored, count - 1)
            is_long_before = is_long(stored, count - 2, last) & (count > 1)
            return is_long(stored, count - 1, length) | is_long_before

        def forget(state: tuple[Stored, Integer]) -> tuple[Stored, Integer]:
            stored, count = state
            return self.after_next(stored), count - 1

        filled = Stored(stored.stride, integers.maximum(stored.due, self.used))
        return while_loop(is_dense, forget, (filled, self.count(stored)))

    def position(self, stored: Stored, j: Integer) -> Integer:
        """Every second step of the grid where one is overwritten, then every one, then every second again."""
        overwritten = integers.quotient(integers.maximum(stored.due - self.used, 0), 2)
        dense = integers.minimum(2 * j, j + overwritten)
        return stored.stride * integers.maximum(dense, 2 * (j + overwritten) - self.used)

    def place(self, stored: Stored, j: Integer) -> Integer:
        """By its position, for a state of the sweep; the others in the slots in order."""
        last = self.position(stored, j) - 1
        by_position = where(j < 1, 0, 1 + integers.remainder(last, self.used - 1))
        return where(j < self.used, by_position, j)
