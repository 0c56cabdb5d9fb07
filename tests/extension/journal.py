"""A second package of somebody else's: rows that a program writes down, with the step of the loop, lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import ArrayLike, Value
from fiveloop.core.extend import (
    Aval,
    Effects,
    NoParams,
    Primitive,
    Refusal,
    Tangent,
    as_value,
    bind,
    bitwise_and,
    define,
    move_batch,
    select,
)
from fiveloop.state.extend import Guard, HandledEffect, Handling, define_handler, define_predicate

CAPACITY = 64
"""So many rows of a program are kept; the last one stands for all that come after."""

journals: list[list[tuple[float, ...]]] = []
"""The rows of each program that has run: the step of the innermost loop, or -1, and the numbers written down."""


@dataclass(frozen=True)
class JournalEffect(HandledEffect):
    """Rows of up to `width` numbers are written down.

    contents : f32[1 + CAPACITY + 1, 2 + width]; row 0 has how many rows there are, and the step; behind the rows there
    is one for those that nobody wants. A row is its length, the step, and its numbers.
    """

    returns: ClassVar[bool] = True
    width: int = 0

    @classmethod
    def initial(cls, effects: Sequence[Any]) -> Value:
        """No rows, and no step."""
        first = np.zeros((2 + CAPACITY, 2 + max(e.width for e in effects)), np.float32)
        first[0, 1] = -1.0
        return as_value(first)

    @classmethod
    def in_step(cls, ref: Value, i: Value, step: Callable[[], list[Value]]) -> list[Value]:
        """Say which step it is while it runs."""
        outer = ref[0, 1]
        ref[0, 1] = i.astype("float32")
        outs = step()
        ref[0, 1] = outer
        return outs

    @classmethod
    def at_return(cls, contents: Value) -> None:
        """Keep the rows."""
        rows = np.asarray(contents)
        kept = rows[1 : 1 + min(int(rows[0, 0]), CAPACITY)]
        journals.append([tuple(row[1 : 2 + int(row[0])].tolist()) for row in kept])


write_down_p: Primitive[NoParams] = Primitive("write_down")


def write_down(*numbers: ArrayLike) -> None:
    """Write down a row of scalars."""
    row = [as_value(x, "write_down").astype("float32").reshape(1) for x in numbers]
    bind(write_down_p, fnp.concatenate(row), as_value(True))


def _types(avals: Sequence[Aval], p: NoParams) -> tuple[list[Aval], Effects]:
    return [], frozenset([JournalEffect(avals[0].shape[-1])])


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: NoParams
) -> tuple[list[Value], list[Tangent]]:
    return bind(write_down_p, *primals), []


def _batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: NoParams
) -> tuple[list[Value], list[int | None]]:
    rows, wanted = (move_batch(x, size, d) for x, d in zip(operands, dims, strict=True))
    return bind(write_down_p, rows, wanted), []


def _handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: NoParams
) -> Sequence[Value]:
    """Append the rows of all lanes that want it, in their order."""
    rows, wanted = operands
    rows, wanted = rows.reshape(-1, rows.shape[-1]), wanted.reshape(-1)
    lanes, width = rows.shape
    before, step = ref[0, 0].astype("int32"), ref[0, 1]
    place = before + fnp.cumsum(wanted.astype("int32"))
    place = select(wanted, fnp.minimum(place, CAPACITY), 1 + CAPACITY)
    ref[place, 0] = fnp.full(lanes, float(width), "float32")
    ref[place, 1] = fnp.zeros(lanes, "float32") + step
    ref[place, 2 : 2 + width] = rows
    ref[0, 0] = (before + wanted.sum(dtype="int32")).astype("float32")
    return []


def _predicate(pred: Value, operands: Sequence[Value], guard: Guard, p: NoParams) -> list[Value]:
    rows, wanted = operands
    return bind(write_down_p, rows, bitwise_and(wanted, pred))


define(
    write_down_p,
    abstract_eval=_types,
    lower=Refusal("rows are kept in a Ref; handle the effect first (`thread_effect`)"),
    jvp=_jvp,
    batch=_batch,
)
define_handler(write_down_p, _handler)
define_predicate(write_down_p, _predicate)
