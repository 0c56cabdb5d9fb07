"""A package of somebody else's: an effect, its primitive and how it is handled, with public names alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
    define,
    select,
)
from fiveloop.state.extend import Guard, HandledEffect, Handling, define_handler, define_predicate

totals: list[float] = []
"""What each program that has run has counted."""


@dataclass(frozen=True)
class TallyEffect(HandledEffect):
    """Something is counted. The Ref holds the total."""

    returns: ClassVar[bool] = True

    @classmethod
    def initial(cls, effects: Sequence[Any]) -> Value:
        """Nothing has been counted."""
        return fnp.zeros(())

    @classmethod
    def at_return(cls, contents: Value) -> None:
        """Note the total of the program."""
        totals.append(float(contents))


tally_p: Primitive[NoParams] = Primitive("tally")


def tally(x: ArrayLike) -> None:
    """Count `x`: the sum of all its elements, in every lane."""
    bind(tally_p, as_value(x, "tally: x").astype("float32"))


def _types(avals: Sequence[Aval], p: NoParams) -> tuple[list[Aval], Effects]:
    return [], frozenset([TallyEffect()])


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: NoParams
) -> tuple[list[Value], list[Tangent]]:
    return bind(tally_p, *primals), []


def _batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: NoParams
) -> tuple[list[Value], list[int | None]]:
    return bind(tally_p, *operands), []


def _handler(
    handling: Handling, ref: Value, operands: Sequence[Value], p: NoParams
) -> Sequence[Value]:
    (x,) = operands
    ref[...] += fnp.sum(x)
    return []


def _predicate(pred: Value, operands: Sequence[Value], guard: Guard, p: NoParams) -> list[Value]:
    (x,) = operands
    return bind(tally_p, select(pred, x, fnp.zeros_like(x)))


define(
    tally_p,
    abstract_eval=_types,
    lower=Refusal("a total is counted in a Ref; handle the effect first (`thread_effect`)"),
    jvp=_jvp,
    batch=_batch,
)
define_handler(tally_p, _handler)
define_predicate(tally_p, _predicate)
