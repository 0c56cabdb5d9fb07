"""`next_key`: a key that has not been given before, from a Ref that holds a key and a count.

state : u32[3], the two words of the key, and how many keys have been made of it

Key number n is the key with n folded in. A Ref that the lanes of a batch share is counted up once, and its next key is
split among them; lanes with Refs of their own take the next key each of its own. A second operand says whether the
count goes up: where it does not, what is given does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from fiveloop.core import Value
from fiveloop.core.engine import batch_flat, whole_indexer
from fiveloop.core.extend import (
    Aval,
    Effects,
    NoParams,
    PositionalEffect,
    Primitive,
    Refusal,
    ShapedArray,
    Tangent,
    bind,
    bind1,
    bitwise_and,
    concatenate,
    define,
    move_batch,
    select,
    zero_like,
)
from fiveloop.core.keys import fold_in, split
from fiveloop.state.avals import AbstractRef
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge
from fiveloop.state.predicate.engine import PREDICATE, Guard, define_predicate
from fiveloop.state.primitives.common import IndexParams, SwapParams, get_p, swap_p

KEY = ShapedArray((2,), np.uint32)
STATE = ShapedArray((3,), np.uint32)


@dataclass(frozen=True)
class KeyEffect(PositionalEffect):
    """The next key is taken from the Ref at a position: by each lane one of its own."""

    mutates: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True


next_key_p: Primitive[NoParams] = Primitive("next_key")


def next_key_abstract_eval(avals: Sequence[Aval], p: NoParams) -> tuple[list[Aval], Effects]:
    """A key; the Ref is counted up."""
    ref, *condition = avals
    if ref is not AbstractRef(STATE) or condition not in ([], [PREDICATE]):
        raise TypeError(
            f"next_key: expected a Ref of type {AbstractRef(STATE)} and perhaps {PREDICATE}, got {list(avals)}"
        )
    return [KEY], frozenset([KeyEffect(0)])


def next_key_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: NoParams
) -> tuple[list[Value], list[Tangent]]:
    """A key has no tangent."""
    key = bind1(next_key_p, *primals)
    return [key], [zero_like(key)]


def next_key_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: NoParams
) -> tuple[list[Value], list[int | None]]:
    """Split the next key among lanes that share the Ref; let lanes with Refs of their own take each its next."""
    (ref, *condition), (dim, *condition_dim) = operands, dims
    if dim is None:
        anywhere = [
            c if d is None else c.any() for c, d in zip(condition, condition_dim, strict=True)
        ]
        return [split(bind1(next_key_p, ref, *anywhere), size)], [0]
    whole = IndexParams(whole_indexer(ref.shape))
    before = bind1(get_p, ref, params=whole)
    (keys, after), (key_dim, after_dim) = batch_flat(
        _advanced, size, [before, *condition], [dim, *condition_dim]
    )
    after = move_batch(after, size, after_dim, dim)
    bind(swap_p, ref, after, params=SwapParams(whole.indexer, returns_old=False))
    return [keys], [key_dim]


def _advanced(state: Value, *condition: Value) -> list[Value]:
    """The next key of a state, and the state after it."""
    key, count = state[:2], state[2]
    after = concatenate([key, (count + np.uint32(1)).reshape(1)], 0)
    return [fold_in(key, count), *([select(c, after, state) for c in condition] or [after])]


def next_key_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: NoParams
) -> list[Value]:
    """Read the state, and write the one after it."""
    cell, *condition = operands
    whole = whole_indexer(STATE.shape)
    key, after = _advanced(ctx.read(cell, whole, []), *condition)  # type: ignore[arg-type]  # the first operand is the Ref
    ctx.write(cell, whole, [], after)  # type: ignore[arg-type]
    return [key]


def next_key_predicate(
    pred: Value, operands: Sequence[Value], guard: Guard, p: NoParams
) -> list[Value]:
    """Count up where the condition holds."""
    ref, *condition = operands
    return bind(next_key_p, ref, reduce(bitwise_and, condition, pred))


define(
    next_key_p,
    abstract_eval=next_key_abstract_eval,
    lower=Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=next_key_jvp,
    batch=next_key_batch,
)
define_discharge(next_key_p, next_key_discharge)
define_predicate(next_key_p, next_key_predicate)
