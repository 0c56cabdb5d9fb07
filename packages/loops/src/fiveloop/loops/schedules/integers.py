"""Integer arithmetic on Python integers or traced scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from fiveloop.core import Value, prims

S = TypeVar("S")

Integer: TypeAlias = int | Value
Bool: TypeAlias = bool | Value


class WhileLoop(Protocol):
    """A loop over a state of integers: Python's, or `fiveloop.loops.while_loop`."""

    def __call__(self, cond: Callable[[S], Bool], body: Callable[[S], S], init: S, /) -> S:
        """The state at which the condition fails."""
        ...


def python_while(cond: Callable[[S], Bool], body: Callable[[S], S], init: S, /) -> S:
    """Run the loop in Python."""
    state = init
    while cond(state):
        state = body(state)
    return state


def where(pred: Bool, x: Integer, y: Integer) -> Integer:
    """`x` if `pred` holds, else `y`."""
    if isinstance(pred, Value):
        return prims.select(pred, x, y)
    return x if pred else y


def quotient(x: Integer, y: Integer) -> Integer:
    """The whole part of a quotient of integers that are not negative."""
    return prims.div(x, y) if isinstance(x, Value) or isinstance(y, Value) else x // y


def remainder(x: Integer, y: Integer) -> Integer:
    """What such a division leaves."""
    return prims.rem(x, y) if isinstance(x, Value) or isinstance(y, Value) else x % y


def minimum(x: Integer, y: Integer) -> Integer:
    """The smaller of two integers."""
    return where(x < y, x, y)


def maximum(x: Integer, y: Integer) -> Integer:
    """The larger of two integers."""
    return where(x < y, y, x)
