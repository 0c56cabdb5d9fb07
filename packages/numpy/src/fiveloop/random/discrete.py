"""Draws of integers, of bools, and from given elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Value, ir, keys, prims
from fiveloop.core.api.jit import jit
from fiveloop.core.operators import operators as op
from fiveloop.core.primitives import special
from fiveloop.numpy.indexing import searchsorted, take
from fiveloop.random.continuous import gumbel_draw, unit_interval

DType = np.dtype[Any]
U64, I64 = np.dtype(np.uint64), np.dtype(np.int64)


def randint(
    key: ArrayLike, shape: Any, minval: ArrayLike, maxval: ArrayLike, dtype: Any = np.int32
) -> Value:
    """Integers from `minval` up to, and without, `maxval`, equally likely; the bounds broadcast to `shape`.

    The probabilities differ by at most the size of the range over 2**64.

    >>> x = random.randint(random.key(0), (100,), 3, 6)
    >>> int(x.min()), int(x.max())
    (3, 5)
    """
    out, kind = prims.canonical_shape("randint", shape), prims.canonical_dtype("randint", dtype)
    if kind.kind not in "iu":
        prims.bad_type(f"randint: expected an integer dtype, got {kind.name}")
    if isinstance(minval, int) and isinstance(maxval, int):
        _check_range(minval, maxval, kind)
    bounds = [_bound(n, x) for n, x in (("minval", minval), ("maxval", maxval))]
    for name, b in zip(("minval", "maxval"), bounds, strict=True):
        if b.dtype.kind not in "iu" or prims.common_shape("randint", [b.shape, out]) != out:
            prims.bad_type(
                f"randint: expected `{name}` to be integers that broadcast to {out}, got {b.aval}"
            )
    low, high = (prims.convert(b, U64 if b.dtype == U64 else I64) for b in bounds)
    return _randint(keys.as_key("randint", key), low, high, shape=out, dtype=kind)


def _bound(name: str, x: ArrayLike) -> Value:
    """A bound as a value; a Python integer as the word of 64 bits that is congruent to it."""
    return prims.operand("randint", name, np.uint64(x % 2**64) if isinstance(x, int) else x)


def _check_range(low: int, high: int, dtype: DType) -> None:
    limits = np.iinfo(dtype)
    if not limits.min <= low < high <= int(limits.max) + 1:
        prims.bad_value(
            f"randint: expected minval < maxval within {dtype.name} ({limits.min} to {limits.max}), "
            f"got {low} and {high}"
        )


def _integers(k: Value, low: Value, high: Value, shape: ir.Shape, dtype: DType) -> Value:
    first, last = (x if x.dtype == U64 else special.bitcast_convert(x, U64) for x in (low, high))
    span = prims.broadcast_to(prims.sub(last, first), shape)
    raw = keys.random_bits(k, shape, U64)
    # A span of 2**64 does not fit: it is zero, and every number of 64 bits will do.
    offset = prims.select(prims.equal(span, 0), raw, _upper_product(raw, span))
    out = prims.add(offset, prims.broadcast_to(first, shape))
    return prims.convert(out if dtype == U64 else special.bitcast_convert(out, I64), dtype)


def _upper_product(x: Value, y: Value) -> Value:
    """The upper 64 bits of the product of 64-bit numbers, from the products of their halves."""
    mask = 0xFFFFFFFF
    (xh, xl), (yh, yl) = (
        (prims.shift_right_logical(v, 32), prims.bitwise_and(v, mask)) for v in (x, y)
    )
    left, right = prims.mul(xh, yl), prims.mul(xl, yh)
    low = prims.add(prims.bitwise_and(left, mask), prims.bitwise_and(right, mask))
    middle = prims.add(prims.shift_right_logical(prims.mul(xl, yl), 32), low)
    carried = [prims.shift_right_logical(v, 32) for v in (left, right, middle)]
    return prims.add(prims.add(prims.mul(xh, yh), carried[0]), prims.add(carried[1], carried[2]))


def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Any = None) -> Value:
    """Bools that are true with probability `p`, which broadcasts to `shape` (its own unless given).

    >>> random.bernoulli(random.key(0), 1.0, (2,))
    Array([ True,  True], dtype=bool)
    """
    (chance,) = prims.promote("bernoulli", p, inexact=True)
    chance = prims.convert(chance, chance.dtype)
    out = chance.shape if shape is None else prims.canonical_shape("bernoulli", shape)
    if prims.common_shape("bernoulli", [chance.shape, out]) != out:
        prims.bad_value(f"bernoulli: expected `p` to broadcast to shape {out}, got {chance.aval}")
    return _bernoulli(keys.as_key("bernoulli", key), chance, shape=out)


def _coin(k: Value, chance: Value, shape: ir.Shape) -> Value:
    return prims.less(unit_interval(k, shape, chance.dtype), prims.broadcast_to(chance, shape))


def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: Any = None) -> Value:
    """Indices along an axis, as int32, with probabilities proportional to `exp(logits)`.

    `shape` is that of `logits` without the axis, unless given; the former broadcasts to it.

    >>> random.categorical(random.key(0), np.array([-np.inf, 0.0, -np.inf]))
    Array(1, dtype=int32)
    """
    (value,) = prims.promote("categorical", logits, inexact=True)
    value = prims.move_axis(
        value, prims.canonical_axis("categorical", axis, value.ndim), value.ndim - 1
    )
    lead = value.shape[:-1]
    out = lead if shape is None else prims.canonical_shape("categorical", shape)
    if prims.common_shape("categorical", [lead, out]) != out:
        prims.bad_value(f"categorical: expected logits for shape {out}, got those of {lead}")
    value = prims.broadcast_to(value, (*out, value.shape[-1]))
    return _categorical(keys.as_key("categorical", key), value)


def _greatest(k: Value, logits: Value) -> Value:
    noise = gumbel_draw(k, shape=logits.shape, dtype=logits.dtype)
    return op.argmax_method(prims.add(logits, noise), -1)


def permutation(
    key: ArrayLike, x: int | ArrayLike, axis: int = 0, *, independent: bool = False
) -> Value:
    """The numbers below `x`, or an array's slices along an axis, in random order.

    With `independent`, each vector along the axis has an order of its own.

    >>> int(random.permutation(random.key(0), 5).sum())
    10
    """
    if isinstance(x, int):
        x = prims.iota(np.int32, x)
    value = prims.operand("permutation", "x", x)
    at = prims.canonical_axis("permutation", axis, value.ndim)
    k = keys.as_key("permutation", key)
    if independent and value.ndim > 1:
        return _shuffle(k, value, axis=at)
    order = _shuffle(k, prims.iota(np.int32, value.shape[at]), axis=0)
    return take(value, order, at)


def _shuffled(k: Value, x: Value, axis: int) -> Value:
    """Sorted by 64 random bits each: two are equal with a chance below 2**-24 for a million elements."""
    return prims.sort_together([keys.random_bits(k, x.shape, U64), x], axis)[1]


def choice(
    key: ArrayLike,
    a: int | ArrayLike,
    shape: Any = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
) -> Value:
    """Elements of `a`, slices along an axis, drawn at random; of an integer `a`, integers from 0 to `a` - 1.

    `p` has a probability for each; without it all are equally likely. With `replace` an element may be drawn
    again. ValueError if more are wanted than there are.

    >>> int(random.choice(random.key(0), 4, p=np.array([0.0, 0.0, 1.0, 0.0])))
    2
    """
    value = prims.operand("choice", "a", prims.iota(np.int32, a) if isinstance(a, int) else a)
    at, out = (
        prims.canonical_axis("choice", axis, value.ndim),
        prims.canonical_shape("choice", shape),
    )
    size, count = value.shape[at], ir.size_of(out)
    if (size == 0 and count) or (not replace and count > size):
        prims.bad_value(f"choice: expected at most {size} draws without replacement, got {count}")
    if p is None:
        index = (
            randint(key, out, 0, size) if replace else permutation(key, size)[:count].reshape(out)
        )
    else:
        (chance,) = prims.promote("choice", p, inexact=True)
        if chance.shape != (size,):
            prims.bad_value(f"choice: expected `p` to hold {size} chances, got {chance.aval}")
        k = keys.as_key("choice", key)
        index = (_by_chance if replace else _by_chance_once)(k, chance, shape=out)
    return take(value, index, at)


def _inverse_cumulative(k: Value, chance: Value, shape: ir.Shape) -> Value:
    edges = prims.cumsum(chance)
    # In (0, total]: a draw of exactly zero would choose an element without a chance.
    u = prims.mul(prims.sub(1.0, unit_interval(k, shape, chance.dtype)), edges[-1])
    return searchsorted(edges, u)


def _greatest_few(k: Value, chance: Value, shape: ir.Shape) -> Value:
    noise = gumbel_draw(k, shape=chance.shape, dtype=chance.dtype)
    order = prims.argsort(prims.neg(prims.add(prims.log(chance), noise)))
    return prims.reshape(order[: ir.size_of(shape)], shape)


def rademacher(key: ArrayLike, shape: Any = (), dtype: Any = np.int32) -> Value:
    """-1 or 1 with equal probability.

    >>> random.rademacher(random.key(0), (3,)).shape
    (3,)
    """
    out = prims.canonical_shape("rademacher", shape)
    coin = prims.convert(bernoulli(key, 0.5, out), dtype)
    return prims.sub(prims.mul(coin, 2), 1)


_randint = jit(_integers, static_argnames=("shape", "dtype"), inline=True)
_bernoulli = jit(_coin, static_argnames="shape", inline=True)
_categorical = jit(_greatest, inline=True)
_shuffle = jit(_shuffled, static_argnames="axis", inline=True)
_by_chance = jit(_inverse_cumulative, static_argnames="shape", inline=True)
_by_chance_once = jit(_greatest_few, static_argnames="shape", inline=True)
