"""A third package of somebody else's: an effect on a Ref of the user's, whose element follows a value slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fiveloop.core import ArrayLike, Value
from fiveloop.core.extend import (
    Accumulator,
    Aval,
    Effects,
    NoParams,
    PositionalEffect,
    Primitive,
    Refusal,
    Tangent,
    UndefinedPrimal,
    Zero,
    as_value,
    bind,
    define,
    instantiate,
    iota,
    move_batch,
    normalize,
    select,
)
from fiveloop.state.extend import (
    Cell,
    DischargeContext,
    Guard,
    define_discharge,
    define_predicate,
)

SHARE = 0.25
"""So much of the new value an element takes."""


@dataclass(frozen=True)
class SmoothEffect(PositionalEffect):
    """An element of a Ref goes towards a value."""

    mutates: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True


smooth_p: Primitive[NoParams] = Primitive("smooth")


def smooth(ref: Value, i: ArrayLike, x: ArrayLike) -> None:
    """Let `ref[i]`, of a Ref with one axis, take a quarter of `x` and keep three of its own."""
    value = as_value(x, "smooth: x").astype(ref.dtype)
    bind(smooth_p, ref, value, as_value(i, "smooth: i"))


def smooth_abstract_eval(avals: Sequence[Aval], p: NoParams) -> tuple[list[Aval], Effects]:
    """No results, and an effect on the Ref."""
    return [], frozenset([SmoothEffect(0)])


def smooth_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: NoParams
) -> tuple[list[Value], list[Tangent]]:
    """What is linear does the same to the tangents."""
    (_, _, i), (ref_dot, x_dot, _) = primals, tangents
    bind(smooth_p, *primals)
    if not isinstance(ref_dot, Zero):
        bind(smooth_p, ref_dot, instantiate(x_dot), i)
    return [], []


def smooth_transpose(
    cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal | Accumulator], p: NoParams
) -> list[Tangent | None]:
    """A quarter of the element's cotangent goes to the value, and three stay."""
    ref, x, i = operands
    assert isinstance(ref, Accumulator), "unreachable: it is linear in what the Ref holds"
    there = ref.value[i]
    ref.value[i] = (1.0 - SHARE) * there
    return [None, SHARE * there if isinstance(x, UndefinedPrimal) else None, None]


def smooth_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: NoParams
) -> tuple[list[Value], list[int | None]]:
    """The element of each lane, all at once; a Ref that the lanes share cannot follow several values."""
    ref, x, i = operands
    if dims[0] is None:
        raise TypeError("smooth: the lanes share a Ref; give each its own")
    lanes = iota(np.int32, size)
    at = move_batch(i, size, dims[2])
    place = (lanes, at) if dims[0] == 0 else (at, lanes)
    ref[place] = (1.0 - SHARE) * ref[place] + SHARE * move_batch(x, size, dims[1])
    return [], []


def smooth_discharge(
    ctx: DischargeContext, operands: Sequence[Any], p: NoParams
) -> Sequence[Value | Cell]:
    """Read the element, and write it, in place."""
    cell, x, i = operands
    indexer, index = normalize(cell.contents.shape, i)
    ctx.write(
        cell, indexer, index, (1.0 - SHARE) * ctx.read(cell, indexer, index) + SHARE * ctx.latest(x)
    )
    return []


def smooth_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: NoParams
) -> list[Value]:
    """Elsewhere the element goes towards itself."""
    ref, x, i = operands
    return bind(smooth_p, ref, select(pred, x, ref[i]), i)


define(
    smooth_p,
    abstract_eval=smooth_abstract_eval,
    lower=Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=smooth_jvp,
    batch=smooth_batch,
    transpose=smooth_transpose,
)
define_discharge(smooth_p, smooth_discharge)
define_predicate(smooth_p, smooth_predicate)
