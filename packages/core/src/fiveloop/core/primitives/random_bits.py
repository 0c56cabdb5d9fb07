"""`threefry2x32`: the counter-based cipher that random bits are made of (Salmon et al., SC 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import Tangent
from fiveloop.core.primitives.check import array_avals, bad_type
from fiveloop.core.primitives.convert import promote
from fiveloop.core.primitives.family import (
    align_elementwise,
    elementwise_shape,
    repeat_scalar,
    same_shapes,
)
from fiveloop.core.rule_types import Zero
from fiveloop.core.rules import define, pure
from fiveloop.core.trace.tracer import bind

UINT32 = np.dtype(np.uint32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

threefry2x32_p: Primitive[Any] = Primitive("threefry2x32")


def threefry2x32(
    key: tuple[ArrayLike, ArrayLike], counter: tuple[ArrayLike, ArrayLike]
) -> tuple[Value, Value]:
    """A counter of two uint32 words enciphered by a key of two words, element by element."""
    words = promote("threefry2x32", *key, *counter)
    high, low = bind(threefry2x32_p, *same_shapes("threefry2x32", words))
    return high, low


def _threefry_aval(avals: Sequence[Aval], p: Any) -> list[Aval]:
    words = array_avals("threefry2x32", avals, 4)
    if any(w.dtype != UINT32 for w in words):
        bad_type(
            f"threefry2x32: expected four operands of uint32, got {', '.join(map(str, words))}"
        )
    return [ShapedArray(elementwise_shape("threefry2x32", words), UINT32)] * 2


def _threefry_lower(ctx: Any, xs: Sequence[IRValue], p: Any) -> list[IRValue]:
    b: Builder = ctx.b
    shape = ctx.avals_out[0].shape
    k0, k1 = xs[:2]
    x0, x1 = [repeat_scalar(b, x, shape) for x in xs[2:]]
    if k0.shape != k1.shape:
        k0, k1 = repeat_scalar(b, k0, shape), repeat_scalar(b, k1, shape)
    parity = hlo.constant(b, _PARITY, k0.shape, UINT32)
    keys = [k0, k1, hlo.xor(b, hlo.xor(b, k0, k1), parity)]
    x0, x1 = _add_key(b, x0, keys[0]), _add_key(b, x1, keys[1])
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = hlo.add(b, x0, x1)
            x1 = hlo.xor(b, x0, _rotate(b, x1, rotation))
        x0 = _add_key(b, x0, keys[(block + 1) % 3])
        count = hlo.constant(b, block + 1, k0.shape, UINT32)
        x1 = _add_key(b, x1, hlo.add(b, keys[(block + 2) % 3], count))
    return [x0, x1]


def _add_key(b: Builder, x: IRValue, key: IRValue) -> IRValue:
    return hlo.add(b, x, repeat_scalar(b, key, x.shape))


def _rotate(b: Builder, x: IRValue, by: int) -> IRValue:
    left = hlo.shift_left(b, x, hlo.constant(b, by, x.shape, UINT32))
    right = hlo.shift_right_logical(b, x, hlo.constant(b, 32 - by, x.shape, UINT32))
    return hlo.or_(b, left, right)


def _threefry_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
) -> tuple[list[Value], list[Tangent]]:
    outs = bind(threefry2x32_p, *primals)
    return outs, [Zero(out.aval.tangent()) for out in outs]


def _threefry_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: Any
) -> tuple[list[Value], list[int | None]]:
    xs, place = align_elementwise(size, operands, dims)
    return bind(threefry2x32_p, *xs), [place, place]


define(
    threefry2x32_p,
    abstract_eval=pure(_threefry_aval),
    lower=_threefry_lower,
    jvp=_threefry_jvp,
    batch=_threefry_batch,
)
