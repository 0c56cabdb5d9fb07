"""Draws of real numbers. Element i of a draw depends on the key and on i alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Value, arrays, ir, keys, prims
from fiveloop.core.api.jit import jit
from fiveloop.core.primitives import special

DType = np.dtype[Any]
_STATIC = ("shape", "dtype")


def uniform(
    key: ArrayLike,
    shape: Any = (),
    dtype: Any = np.float32,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Value:
    """Numbers in `[minval, maxval)`, all equally likely; the bounds broadcast to `shape`.

    >>> x = random.uniform(random.key(0), (1000,))
    >>> x.dtype, bool(x.min() >= 0), bool(x.max() < 1)
    (dtype('float32'), True, True)
    """
    out, kind = check_draw("uniform", shape, dtype, minval=minval, maxval=maxval)
    if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)) and minval > maxval:
        prims.bad_value(f"uniform: expected minval <= maxval, got {minval} and {maxval}")
    k = keys.as_key("uniform", key)
    if isinstance(minval, (int, float)) and (minval, maxval) == (0, 1):
        return _unit(k, shape=out, dtype=kind)
    return _uniform(
        k, prims.convert(minval, kind), prims.convert(maxval, kind), shape=out, dtype=kind
    )


def normal(key: ArrayLike, shape: Any = (), dtype: Any = np.float32) -> Value:
    """Numbers of the normal distribution with mean 0 and variance 1.

    >>> x = random.normal(random.key(0), (10_000,))
    >>> bool(abs(x.mean()) < 0.05), bool(abs((x * x).mean() - 1) < 0.05)
    (True, True)
    """
    out, kind = check_draw("normal", shape, dtype)
    return _normal(keys.as_key("normal", key), shape=out, dtype=kind)


def truncated_normal(
    key: ArrayLike, lower: ArrayLike, upper: ArrayLike, shape: Any = None, dtype: Any = np.float32
) -> Value:
    """Numbers of the standard normal distribution, given that they lie between two bounds.

    `shape` is that of the bounds unless given.

    >>> x = random.truncated_normal(random.key(0), -1.0, 1.0, (100,))
    >>> bool(abs(x).max() <= 1)
    True
    """
    bounds = [
        prims.operand("truncated_normal", n, x) for n, x in (("lower", lower), ("upper", upper))
    ]
    given = (
        prims.common_shape("truncated_normal", [b.shape for b in bounds])
        if shape is None
        else shape
    )
    out, kind = check_draw("truncated_normal", given, dtype, lower=lower, upper=upper)
    low, high = (prims.convert(b, kind) for b in bounds)
    return _truncated(keys.as_key("truncated_normal", key), low, high, shape=out, dtype=kind)


def exponential(key: ArrayLike, shape: Any = (), dtype: Any = np.float32) -> Value:
    """Numbers of the exponential distribution with mean 1.

    >>> bool(random.exponential(random.key(0), (100,)).min() >= 0)
    True
    """
    out, kind = check_draw("exponential", shape, dtype)
    return _exponential(keys.as_key("exponential", key), shape=out, dtype=kind)


def gumbel(key: ArrayLike, shape: Any = (), dtype: Any = np.float32) -> Value:
    """Numbers of the standard Gumbel distribution: the greatest of many logits plus these is a draw by softmax.

    >>> random.gumbel(random.key(0), (2, 3)).shape
    (2, 3)
    """
    out, kind = check_draw("gumbel", shape, dtype)
    return gumbel_draw(keys.as_key("gumbel", key), shape=out, dtype=kind)


def laplace(key: ArrayLike, shape: Any = (), dtype: Any = np.float32) -> Value:
    """Numbers of the Laplace distribution with mean 0 and scale 1.

    >>> random.laplace(random.key(0), (4,)).shape
    (4,)
    """
    out, kind = check_draw("laplace", shape, dtype)
    return _laplace(keys.as_key("laplace", key), shape=out, dtype=kind)


def check_draw(fun: str, shape: Any, dtype: Any, **bounds: ArrayLike) -> tuple[ir.Shape, DType]:
    """The shape and dtype of a draw, checked, and that its bounds broadcast to that shape."""
    out, kind = prims.canonical_shape(fun, shape), prims.canonical_dtype(fun, dtype)
    if arrays.dtype_kind(kind) != "f":
        prims.bad_type(f"{fun}: expected a real floating point dtype, got {kind.name}")
    for name, x in bounds.items():
        value = prims.operand(fun, name, x)
        if prims.common_shape(fun, [value.shape, out]) != out:
            prims.bad_value(
                f"{fun}: expected `{name}` to broadcast to shape {out}, got {value.aval}"
            )
    return out, kind


def unit_interval(k: Value, shape: ir.Shape, dtype: DType) -> Value:
    """Numbers in [0, 1): as many random bits as the dtype's mantissa holds, over the number of cases."""
    width = dtype.itemsize * 8
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}.get(dtype.name)
    if digits is None:
        prims.bad_type(f"random: expected float16, bfloat16, float32 or float64, got {dtype.name}")
    raw = keys.random_bits(k, shape, np.dtype(f"uint{width}"))
    # The top bit is clear after the shift, so the signed conversion, which is the faster one, is exact.
    count = prims.convert(prims.shift_right_logical(raw, width - digits), np.dtype(f"int{width}"))
    return prims.mul(prims.convert(count, dtype), 2.0**-digits)


def _between(k: Value, low: Value, high: Value, shape: ir.Shape, dtype: DType) -> Value:
    u = unit_interval(k, shape, dtype)
    low, high = prims.broadcast_to(low, shape), prims.broadcast_to(high, shape)
    out = prims.add(prims.mul(u, prims.sub(high, low)), low)
    # Rounding may reach the upper bound, which is left out.
    below = prims.nextafter(high, low)
    return prims.maximum(low, prims.minimum(out, below))


def _standard_normal(k: Value, shape: ir.Shape, dtype: DType) -> Value:
    wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    one = np.ones((), wide)
    low = prims.convert(float(np.nextafter(-one, one)), wide)
    u = _between(k, low, prims.convert(1.0, wide), shape, wide)
    return prims.convert(prims.mul(special.erf_inv(u), math.sqrt(2.0)), dtype)


def _truncated_normal(k: Value, low: Value, high: Value, shape: ir.Shape, dtype: DType) -> Value:
    root = math.sqrt(2.0)
    at_low, at_high = (special.erf(prims.div(b, root)) for b in (low, high))
    out = prims.mul(special.erf_inv(_between(k, at_low, at_high, shape, dtype)), root)
    low, high = prims.broadcast_to(low, shape), prims.broadcast_to(high, shape)
    # In the tails the error function rounds to 1, and its inverse to infinity.
    return prims.maximum(low, prims.minimum(out, high))


def _exponential_draw(k: Value, shape: ir.Shape, dtype: DType) -> Value:
    return prims.neg(prims.log1p(prims.neg(unit_interval(k, shape, dtype))))


def _gumbel_draw(k: Value, shape: ir.Shape, dtype: DType) -> Value:
    u = unit_interval(k, shape, dtype)
    tiny = 2.0**-125 if dtype.name != "float16" else 2.0**-14
    return prims.neg(prims.log(prims.neg(prims.log(prims.maximum(u, tiny)))))


def _laplace_draw(k: Value, shape: ir.Shape, dtype: DType) -> Value:
    u = unit_interval(k, shape, dtype)
    apart = prims.sub(prims.mul(u, 2.0), 1.0)
    inside = prims.minimum(
        prims.abs(apart), 1.0 - 2.0**-10 if dtype.itemsize < 4 else 1.0 - 2.0**-24
    )
    return prims.mul(prims.sign(apart), prims.log1p(prims.neg(inside)))


_unit = jit(unit_interval, static_argnames=_STATIC, inline=True)
_uniform = jit(_between, static_argnames=_STATIC, inline=True)
_normal = jit(_standard_normal, static_argnames=_STATIC, inline=True)
_truncated = jit(_truncated_normal, static_argnames=_STATIC, inline=True)
_exponential = jit(_exponential_draw, static_argnames=_STATIC, inline=True)
_laplace = jit(_laplace_draw, static_argnames=_STATIC, inline=True)
gumbel_draw = jit(_gumbel_draw, static_argnames=_STATIC, inline=True)
