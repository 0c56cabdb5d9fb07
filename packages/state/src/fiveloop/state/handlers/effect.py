"""The base of effects that are handled by giving them a Ref."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from fiveloop.core import Value
from fiveloop.core.extend import Effect, Effects


class HandledEffect(Effect):
    """An effect that a program has on one hidden Ref: what it writes there is for the effect to tell.

    A subclass is a frozen dataclass. It says what the Ref holds when a program begins (`initial`), and, if it
    `returns`, takes what the Ref holds when the program has run (`at_return`). What an equation with the effect does
    with the Ref is said with `define_handler`.
    """

    @classmethod
    def initial(cls, effects: Sequence[Self]) -> Value:
        """What the Ref holds when a program begins that has these effects."""
        raise TypeError(f"{cls.__name__} must say what its Ref holds at first: define `initial`")

    @classmethod
    def in_step(cls, ref: Value, i: Value, step: Callable[[], list[Value]]) -> list[Value]:
        """What step `i` of a loop gives, which `step` runs; an effect may look at the Ref before and after it.

        Steps are counted from 0, in the order in which they are made.
        """
        return step()

    @classmethod
    def in_lane(
        cls, ref: Value, lane: Value, around: int, step: Callable[[], list[Value]]
    ) -> list[Value]:
        """What a lane gives, which `step` runs, where lanes run one after the other; `around` batches are around it."""
        return step()


def handled_kinds(effects: Effects) -> list[type[HandledEffect]]:
    """The types of handled effects, in the order in which they are handled."""
    found: set[Any] = {type(e) for e in effects if isinstance(e, HandledEffect)}
    return sorted(found, key=lambda kind: (kind.__name__, kind.__module__))
