"""Softmax and its kin, norms over features, and one-hot vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import ArrayLike, Value, arrays, prims, trace
from fiveloop.core.operators import operators as op
from fiveloop.nn.composite import AxesParams, composite

Axis = int | Sequence[int] | None


def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Value:
    """`exp(x)` over its sum along axes, without overflow; only of the elements where `where` is true.

    Elements that `where` leaves out get 0.

    >>> nn.softmax(np.array([0.0, 0.0]))
    Array([0.5, 0.5], dtype=float64)
    """
    value, axes = _held("softmax", x, axis, where)
    out = trace.bind1(softmax_p, value, params=AxesParams(axes))
    return out if where is None else prims.select(where, out, 0)


def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Value:
    """The logarithm of `softmax`, exact where that is small; minus infinity where `where` is false.

    >>> nn.log_softmax(np.array([0.0, 0.0]))
    Array([-0.69314718, -0.69314718], dtype=float64)
    """
    value, axes = _held("log_softmax", x, axis, where)
    out = trace.bind1(log_softmax_p, value, params=AxesParams(axes))
    return out if where is None else prims.select(where, out, -math.inf)


def logsumexp(
    x: ArrayLike, axis: Axis = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Value:
    """`log(sum(exp(x)))` over axes, or over all, without overflow.

    >>> nn.logsumexp(np.array([1000.0, 1000.0]))
    Array(1000.69314718, dtype=float64)
    """
    value, axes = _held("logsumexp", x, axis, where)
    top = _greatest(prims.real(value), axes)
    # Of nothing but -inf, or with an inf, the result is that.
    top = prims.select(prims.is_finite(top), top, 0)
    total = op.sum(prims.exp(prims.sub(value, top)), axes, keepdims=True)
    out = prims.add(prims.log(total), top)
    return out if keepdims else prims.squeeze(out, axes)


def _held(
    fun: str, x: ArrayLike, axis: Axis, where: ArrayLike | None
) -> tuple[Value, tuple[int, ...]]:
    (value,) = prims.promote(fun, x, inexact=True)
    axes = prims.canonical_axes(fun, axis, value.ndim)
    return (value if where is None else prims.select(where, value, -math.inf)), axes


def _greatest(x: Value, axes: Sequence[int]) -> Value:
    """What is taken off before exponentials, 0 if there are none; it has no part in the derivative."""
    if 0 in x.shape:
        return op.sum(x, axes, keepdims=True)
    return prims.stop_gradient(op.max(x, axes, keepdims=True))


def _softmax(x: Value, axes: tuple[int, ...]) -> Value:
    powers = prims.exp(prims.sub(x, _greatest(x, axes)))
    return prims.div(powers, op.sum(powers, axes, keepdims=True))


def _softmax_derivative(t: Value, out: Value, axes: tuple[int, ...]) -> Value:
    share = prims.mul(t, out)
    return prims.sub(share, prims.mul(out, op.sum(share, axes, keepdims=True)))


def _log_softmax(x: Value, axes: tuple[int, ...]) -> Value:
    shifted = prims.sub(x, _greatest(x, axes))
    return prims.sub(shifted, prims.log(op.sum(prims.exp(shifted), axes, keepdims=True)))


softmax_p = composite("softmax", _softmax, _softmax_derivative)
log_softmax_p = composite("log_softmax", _log_softmax)


def standardize(x: ArrayLike, axis: Axis = -1, *, epsilon: float = 1e-5) -> Value:
    """`x` minus its mean, divided by its standard deviation, along axes.

    >>> nn.standardize(np.array([1.0, 3.0]), epsilon=0.0)
    Array([-1.,  1.], dtype=float64)
    """
    (value,) = prims.promote("standardize", x, inexact=True)
    wide = prims.convert(
        value, arrays.wide_for_sums(value.dtype)
    )  # squares may be more than half floats hold
    apart = prims.sub(wide, op.mean(wide, axis, keepdims=True))
    spread = op.mean(prims.square(apart), axis, keepdims=True)
    return prims.convert(prims.mul(apart, prims.rsqrt(prims.add(spread, epsilon))), value.dtype)


def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: Axis = -1,
    epsilon: float = 1e-5,
) -> Value:
    """`x` with mean 0 and variance 1 along axes, times `scale`, plus `bias`, which broadcast.

    >>> nn.layer_norm(np.array([1.0, 3.0]), scale=2.0, bias=1.0, epsilon=0.0)
    Array([-1.,  3.], dtype=float64)
    """
    out = standardize(x, axis, epsilon=epsilon)
    out = out if scale is None else prims.mul(out, scale)
    return out if bias is None else prims.add(out, bias)


def rms_norm(
    x: ArrayLike, scale: ArrayLike | None = None, axis: Axis = -1, epsilon: float = 1e-6
) -> Value:
    """`x` over the root of the mean of its squares along axes, times `scale`, which broadcasts.

    >>> nn.rms_norm(np.array([3.0, 3.0]), epsilon=0.0)
    Array([1., 1.], dtype=float64)
    """
    (value,) = prims.promote("rms_norm", x, inexact=True)
    wide = prims.convert(value, arrays.wide_for_sums(value.dtype))
    size = op.mean(prims.square(wide), axis, keepdims=True)
    out = prims.convert(prims.mul(wide, prims.rsqrt(prims.add(size, epsilon))), value.dtype)
    return out if scale is None else prims.mul(out, scale)


def one_hot(x: ArrayLike, num_classes: int, *, dtype: Any = np.float32, axis: int = -1) -> Value:
    """A vector per integer of `x`, along a new axis: 1 at its place, 0 elsewhere; all 0 if out of range.

    >>> nn.one_hot(np.array([1, 0]), 2)
    Array([[0., 1.],
           [1., 0.]], dtype=float32)
    """
    value = prims.operand("one_hot", "x", x)
    if arrays.dtype_kind(value.dtype) not in "iu":
        prims.bad_type(f"one_hot: expected integers, got {value.aval}")
    num_classes = prims.known_int("one_hot", "num_classes", num_classes)
    at = prims.canonical_axis("one_hot", axis, value.ndim + 1)
    shape = (*value.shape[:at], num_classes, *value.shape[at:])
    wide = prims.convert(
        value, prims.index_dtype(value.dtype)
    )  # a narrow dtype may not hold all classes
    wide = prims.broadcast_to(prims.expand_dims(wide, at), shape)
    return prims.convert(prims.equal(wide, prims.iota(wide.dtype, shape, at)), dtype)
