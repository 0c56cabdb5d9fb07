"""The binomial schedule: the fewest advances for a known number of steps, by Griewank and Walther.

With `s` slots, `beta(s, r) = (s + r)! / (s! r!)` steps can be reversed if no step is advanced more than `r` times.
Griewank and Walther, "Algorithm 799: revolve", ACM Transactions on Mathematical Software 26 (2000), show that each
position that keeps both parts within the bounds of their slots and repeats is an optimal one for the next stored state.
`split` takes the last of these. It needs no search and no table: the bounds of both parts follow from the bound of the
whole by a product and an exact division each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

from fiveloop.core.dataclass import dataclass, fields, replace
from fiveloop.loops import common
from fiveloop.loops.schedules import integers
from fiveloop.loops.schedules.integers import Bool, Integer, WhileLoop, python_while, quotient


class Reach(NamedTuple):
    """How many steps some slots can reverse if no step is advanced more than `repeats` times."""

    repeats: Integer
    steps: Integer


class Split(NamedTuple):
    """Store after `advances` steps; what is before the new state has the reach `left`, what is after it `right`."""

    advances: Integer
    left: Reach
    right: Reach


def reach(length: Integer, slots: Integer, while_loop: WhileLoop = python_while) -> Reach:
    """The reach of so many slots that covers `length` steps with the fewest repeats."""
    return _extended(slots, lambda found: found.steps < length, length, while_loop)


def reached(slots: Integer, repeats: Integer, while_loop: WhileLoop = python_while) -> Integer:
    """The steps that so many slots reverse with so many repeats: `beta(slots, repeats)`."""
    return _extended(slots, lambda found: found.repeats < repeats, repeats, while_loop).steps


def _extended(
    slots: Integer, is_short: Callable[[Reach], Bool], like: Integer, while_loop: WhileLoop
) -> Reach:
    """The first reach that is not too short; its integers are of the type of `like`."""

    def repeated(found: Reach) -> Reach:
        repeats = found.repeats + 1
        return Reach(repeats, quotient(found.steps * (slots + repeats), repeats))

    return while_loop(is_short, repeated, Reach(0 * like, 0 * like + 1))


def split(length: Integer, slots: Integer, within: Reach) -> Split:
    """Where to store the next state of `length` steps, two or more, whose first state is in one of `slots` free slots.

    The length is within the reach, and not below the reach of one repeat less. The same holds of both parts, the left
    one with `slots` slots, the right one with one slot less.
    """
    repeats, steps = within
    before = quotient(steps * repeats, slots + repeats)  # beta(slots, repeats - 1)
    after = steps - before  # beta(slots - 1, repeats)
    least_after = quotient(after * repeats, slots + repeats - 1)  # beta(slots - 1, repeats - 1)
    kept = integers.minimum(before, length - least_after)
    return Split(kept, Reach(repeats - 1, before), Reach(repeats, after))


def advances(length: Integer, slots: Integer, while_loop: WhileLoop = python_while) -> Integer:
    """The fewest advances that reverse `length` steps with so many slots."""
    repeats, steps = reach(length, slots, while_loop)
    return repeats * length - steps * repeats // (slots + 1)


class Stored(NamedTuple):
    """What the sweep has stored: states on a grid, whose next one is due before step `stride * due`."""

    stride: Integer
    due: Integer


@dataclass(frozen=True)
class Binomial:
    """The sweep stores the initial state alone; the replay stores the others.

    The states that a sweep stores have numbers `j = 0, 1, ...` by position. The replay holds a stack of states: those
    of the sweep lie below, those that the replay stores itself above. With `sweeps`, the sweep stores more than the
    initial state, in `swept` slots, of which there are `fewest` at least.
    """

    slots: int
    tape: int = 1
    sweeps: ClassVar[bool] = False
    swept: ClassVar[str] = "slots"
    fewest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for f in fields(self):
            least = self.fewest if f.name == self.swept else 1
            name = f"{type(self).__name__}: {f.name}"
            count = common.as_count(name, getattr(self, f.name), least=least)
            object.__setattr__(self, f.name, count)

    def within(self, steps: int) -> Self:
        """The same for loops of at most so many steps, with no slots that such a loop never uses."""
        return replace(self, slots=min(self.slots, self.tapes(steps)))

    def tapes(self, steps: int) -> int:
        """How many tapes so many steps are; one for no steps."""
        return max(-(-steps // self.tape), 1)

    @property
    def most(self) -> int | None:
        """The most steps that it is for; None if there may be any number."""
        return None

    def longest(self, repeats: int) -> int:
        """How many steps it is for if no step is advanced more than so many times."""
        return self.tape * int(reached(self.slots, repeats))

    @property
    def room(self) -> int:
        """How many states the sweep has slots for."""
        room: int = getattr(self, self.swept)
        return room

    @property
    def slow_slots(self) -> int:
        """How many states a slower store holds; if there is one, the sweep stores there."""
        return 0

    def first(self) -> Stored:
        """What is stored before the first step: the initial state."""
        return Stored(1, 1)

    def next(self, stored: Stored) -> Integer:
        """The step before which the next state is stored, or -1."""
        return -1

    def after_next(self, stored: Stored) -> Stored:
        """What is stored once the next state is."""
        return stored

    def count(self, stored: Stored) -> Integer:
        """How many states the sweep has stored and not overwritten."""
        return 1

    def replayed(
        self, stored: Stored, length: Integer, while_loop: WhileLoop = python_while
    ) -> tuple[Stored, Integer]:
        """The states that the replay of `length` steps begins with, and how many: some may be forgotten."""
        return stored, self.count(stored)

    def position(self, stored: Stored, j: Integer) -> Integer:
        """The step before which state j was stored."""
        return 0

    def place(self, stored: Stored, j: Integer) -> Integer:
        """The slot of entry j of the stack; with a slower store, its slot of state j of the sweep."""
        return j

    def height(self, j: Integer) -> Integer:
        """The entry of the stack that is state j of the sweep while the steps after it are reversed.

        In one store the states of the sweep are in the stack from the beginning.
        """
        return j if self.sweeps and not self.slow_slots else 0


Slots = int | Binomial
"""How many states are saved at a time, or by which schedule."""
