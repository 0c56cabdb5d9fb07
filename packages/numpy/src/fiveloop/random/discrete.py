"""Draws of integers, of bools, and from given elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Value, jit
from fiveloop.core import operators as op
from fiveloop.core.ir.dims import Shape, size_of
from fiveloop.core.keys import as_key, random_bits
from fiveloop.core.primitives import broadcast as bc
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import running as cu
from fiveloop.core.primitives import shape as sh
from fiveloop.core.primitives import sort as so
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.check import (
    bad_type,
    bad_value,
    canonical_axis,
    canonical_dtype,
    canonical_shape,
    common_shape,
)
from fiveloop.core.primitives.convert import convert, operand, promote
from fiveloop.numpy.indexing import searchsorted, take
from fiveloop.random.continuous import gumbel_draw, unit_interval

DType = np.dtype[Any]
U64, I64 = np.dtype(np.uint64), np.dtype(np.int64)


def randint(
    key: ArrayLike, shape: Any, minval: ArrayLike, maxval: ArrayLike, dtype: Any = np.int32
) -> Value:
    """Integers from `minval` up to, and without, `maxval`, equally likely; the bounds broadcast to `shape`.

    The chances differ by at most the size of the range over 2**64.

    >>> x = random.randint(random.key(0), (100,), 3, 6)
    >>> int(x.min()), int(x.max())
    (3, 5)
    """
    out, kind = canonical_shape("randint", shape), canonical_dtype("randint", dtype)
    if kind.kind not in "iu":
        bad_type(f"randint: expected an integer dtype, got {kind.name}")
    if isinstance(minval, int) and isinstance(maxval, int):
        _check_range(minval, maxval, kind)
    bounds = [_bound(n, x) for n, x in (("minval", minval), ("maxval", maxval))]
    for name, b in zip(("minval", "maxval"), bounds, strict=True):
        if b.dtype.kind not in "iu" or common_shape("randint", [b.shape, out]) != out:
            bad_type(
                f"randint: expected `{name}` to be integers that broadcast to {out}, got {b.aval}"
            )
    low, high = (convert(b, U64 if b.dtype == U64 else I64) for b in bounds)
    return _randint(as_key("randint", key), low, high, shape=out, dtype=kind)


def _bound(name: str, x: ArrayLike) -> Value:
    """A bound as a value; a Python integer as the word of 64 bits that is congruent to it."""
    return operand("randint", name, np.uint64(x % 2**64) if isinstance(x, int) else x)


def _check_range(low: int, high: int, dtype: DType) -> None:
    limits = np.iinfo(dtype)
    if not limits.min <= low < high <= int(limits.max) + 1:
        bad_value(
            f"randint: expected minval < maxval within {dtype.name} ({limits.min} to {limits.max}), "
            f"got {low} and {high}"
        )


def _integers(k: Value, low: Value, high: Value, shape: Shape, dtype: DType) -> Value:
    first, last = (x if x.dtype == U64 else sp.bitcast_convert(x, U64) for x in (low, high))
    span = bc.broadcast_to(ew.sub(last, first), shape)
    raw = random_bits(k, shape, U64)
    # A span of 2**64 does not fit: it is zero, and every number of 64 bits will do.
    offset = ew.select(ew.equal(span, 0), raw, _upper_product(raw, span))
    out = ew.add(offset, bc.broadcast_to(first, shape))
    return convert(out if dtype == U64 else sp.bitcast_convert(out, I64), dtype)


def _upper_product(x: Value, y: Value) -> Value:
    """The upper 64 bits of the product of 64-bit numbers, from the products of their halves."""
    mask = 0xFFFFFFFF
    (xh, xl), (yh, yl) = ((ew.shift_right_logical(v, 32), ew.bitwise_and(v, mask)) for v in (x, y))
    left, right = ew.mul(xh, yl), ew.mul(xl, yh)
    low = ew.add(ew.bitwise_and(left, mask), ew.bitwise_and(right, mask))
    middle = ew.add(ew.shift_right_logical(ew.mul(xl, yl), 32), low)
    carried = [ew.shift_right_logical(v, 32) for v in (left, right, middle)]
    return ew.add(ew.add(ew.mul(xh, yh), carried[0]), ew.add(carried[1], carried[2]))


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Any = None) -> Value:
    """Bools that are true with chance `p`, which broadcasts to `shape` (its own unless given).

    >>> random.bernoulli(random.key(0), 1.0, (2,))
    Array([ True,  True], dtype=bool)
    """
    (chance,) = promote("bernoulli", p, inexact=True)
    chance = convert(chance, chance.dtype)
    out = chance.shape if shape is None else canonical_shape("bernoulli", shape)
    if common_shape("bernoulli", [chance.shape, out]) != out:
        bad_value(f"bernoulli: expected `p` to broadcast to shape {out}, got {chance.aval}")
    return _bernoulli(as_key("bernoulli", key), chance, shape=out)


def _coin(k: Value, chance: Value, shape: Shape) -> Value:
    return ew.less(unit_interval(k, shape, chance.dtype), bc.broadcast_to(chance, shape))


def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: Any = None) -> Value:
    """Indices along an axis, as int32, with chances in proportion to `exp(logits)`.

    `shape` is that of `logits` without the axis, unless given; the former broadcasts to it.

    >>> random.categorical(random.key(0), np.array([-np.inf, 0.0, -np.inf]))
    Array(1, dtype=int32)
    """
    (value,) = promote("categorical", logits, inexact=True)
    value = bc.move_axis(value, canonical_axis("categorical", axis, value.ndim), value.ndim - 1)
    lead = value.shape[:-1]
    out = lead if shape is None else canonical_shape("categorical", shape)
    if common_shape("categorical", [lead, out]) != out:
        bad_value(f"categorical: expected logits for shape {out}, got those of {lead}")
    value = bc.broadcast_to(value, (*out, value.shape[-1]))
    return _categorical(as_key("categorical", key), value)


def _greatest(k: Value, logits: Value) -> Value:
    noise = gumbel_draw(k, shape=logits.shape, dtype=logits.dtype)
    return op.argmax_method(ew.add(logits, noise), -1)


def permutation(
    key: ArrayLike, x: int | ArrayLike, axis: int = 0, *, independent: bool = False
) -> Value:
    """The numbers below `x`, or an array's slices along an axis, in random order.

    With `independent`, each vector along the axis has an order of its own.

    >>> int(random.permutation(random.key(0), 5).sum())
    10
    """
    if isinstance(x, int):
        x = sh.iota(np.int32, x)
    value = operand("permutation", "x", x)
    at = canonical_axis("permutation", axis, value.ndim)
    k = as_key("permutation", key)
    if independent and value.ndim > 1:
        return _shuffle(k, value, axis=at)
    order = _shuffle(k, sh.iota(np.int32, value.shape[at]), axis=0)
    return take(value, order, at)


def _shuffled(k: Value, x: Value, axis: int) -> Value:
    """Sorted by 64 random bits each: two are equal with a chance below 2**-24 for a million elements."""
    return so.sort_together([random_bits(k, x.shape, U64), x], axis)[1]


def choice(
    key: ArrayLike,
    a: int | ArrayLike,
    shape: Any = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
) -> Value:
    """Elements of `a` (slices along an axis; the numbers below it, if it is one) drawn at random.

    `p` gives a chance for each; without it all are equally likely. With `replace` an element may be drawn
    again. ValueError if more are wanted than there are.

    >>> int(random.choice(random.key(0), 4, p=np.array([0.0, 0.0, 1.0, 0.0])))
    2
    """
    value = operand("choice", "a", sh.iota(np.int32, a) if isinstance(a, int) else a)
    at, out = canonical_axis("choice", axis, value.ndim), canonical_shape("choice", shape)
    size, count = value.shape[at], size_of(out)
    if (size == 0 and count) or (not replace and count > size):
        bad_value(f"choice: expected at most {size} draws without replacement, got {count}")
    if p is None:
        index = (
            randint(key, out, 0, size) if replace else permutation(key, size)[:count].reshape(out)
        )
    else:
        (chance,) = promote("choice", p, inexact=True)
        if chance.shape != (size,):
            bad_value(f"choice: expected `p` to hold {size} chances, got {chance.aval}")
        k = as_key("choice", key)
        index = (_by_chance if replace else _by_chance_once)(k, chance, shape=out)
    return take(value, index, at)


def _inverse_cumulative(k: Value, chance: Value, shape: Shape) -> Value:
    edges = cu.cumsum(chance)
    # In (0, total]: a draw of exactly zero would choose an element without a chance.
    u = ew.mul(ew.sub(1.0, unit_interval(k, shape, chance.dtype)), edges[-1])
    return searchsorted(edges, u)


def _greatest_few(k: Value, chance: Value, shape: Shape) -> Value:
    noise = gumbel_draw(k, shape=chance.shape, dtype=chance.dtype)
    order = so.argsort(ew.neg(ew.add(ew.log(chance), noise)))
    return bc.reshape(order[: size_of(shape)], shape)


def rademacher(key: ArrayLike, shape: Any = (), dtype: Any = np.int32) -> Value:
    """-1 or 1 with equal chance.

    >>> random.rademacher(random.key(0), (3,)).shape
    (3,)
    """
    out = canonical_shape("rademacher", shape)
    coin = convert(bernoulli(key, 0.5, out), dtype)
    return ew.sub(ew.mul(coin, 2), 1)


_randint = jit(_integers, static_argnames=("shape", "dtype"), inline=True)
_bernoulli = jit(_coin, static_argnames="shape", inline=True)
_categorical = jit(_greatest, inline=True)
_shuffle = jit(_shuffled, static_argnames="axis", inline=True)
_by_chance = jit(_inverse_cumulative, static_argnames="shape", inline=True)
_by_chance_once = jit(_greatest_few, static_argnames="shape", inline=True)
