"""Products of arrays: vectors, matrices, tensors, and `einsum`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from fiveloop.core import ArrayLike, Value, ir, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op


@fused
def matmul(x: ArrayLike, y: ArrayLike, *, preferred_element_type: Any = None) -> Value:
    """The matrix product of the last two axes; those before broadcast. A vector is a row, or a column.

    `preferred_element_type` is the dtype of sums and result. ValueError if the inner sizes differ.

    >>> fnp.matmul(np.eye(2), np.array([3.0, 4.0]))
    Array([3., 4.], dtype=float64)
    """
    return prims.matmul(x, y, preferred_element_type)


@fused
def dot(x: ArrayLike, y: ArrayLike) -> Value:
    """Products summed over the last axis of `x` and the last but one of `y` (its only one, of a vector).

    >>> fnp.dot(np.array([1, 2]), np.array([3, 4]))
    Array(11, dtype=int64)
    """
    return me.dot(x, y)


@fused
def vdot(x: ArrayLike, y: ArrayLike) -> Value:
    """The sum of the products of all elements; those of a complex `x` conjugated.

    >>> fnp.vdot(np.array([1j]), np.array([1j]))
    Array(1.+0.j, dtype=complex128)
    """
    a, b = prims.promote("vdot", x, y)
    a = prims.conj(a) if a.dtype.kind == "c" else a
    return dot(prims.reshape(a, (-1,)), prims.reshape(b, (-1,)))


@fused
def vecdot(x: ArrayLike, y: ArrayLike, *, axis: int = -1) -> Value:
    """The sum of products along an axis of two arrays that broadcast; those of a complex `x` conjugated.

    >>> fnp.vecdot(np.array([[1, 2], [3, 4]]), np.array([1, 1]))
    Array([3, 7], dtype=int64)
    """
    a, b = prims.promote("vecdot", x, y)
    a = prims.conj(a) if a.dtype.kind == "c" else a
    at, to = (prims.canonical_axis("vecdot", axis, z.ndim) for z in (a, b))
    if not ir.same_dim(a.shape[at], b.shape[to]):
        prims.bad_value(
            f"vecdot: expected equal sizes along axis {axis}, got {a.aval} and {b.aval}"
        )
    return op.sum(prims.mul(prims.move_axis(a, at, -1), prims.move_axis(b, to, -1)), -1)


@fused
def inner(x: ArrayLike, y: ArrayLike) -> Value:
    """Products summed over the last axes of both.

    >>> fnp.inner(np.array([[1, 2]]), np.array([[3, 4], [5, 6]]))
    Array([[11, 17]], dtype=int64)
    """
    a, b = prims.promote("inner", x, y)
    if not a.ndim or not b.ndim:
        return prims.mul(a, b)
    return me.contract("inner", a, b, (a.ndim - 1,), (b.ndim - 1,))


@fused
def outer(x: ArrayLike, y: ArrayLike) -> Value:
    """The product of each element of `x` with each of `y`, as a matrix.

    >>> fnp.outer(np.array([1, 2]), np.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int64)
    """
    a, b = prims.promote("outer", x, y)
    return prims.mul(prims.reshape(a, (-1, 1)), prims.reshape(b, (1, -1)))


@fused
def tensordot(x: ArrayLike, y: ArrayLike, axes: int | Sequence[Any] = 2) -> Value:
    """Products summed over pairs of axes: the last of `x` and first of `y`, so many; or two lists of them.

    >>> fnp.tensordot(np.ones((2, 3)), np.ones((3, 2)), 1)
    Array([[3., 3.],
           [3., 3.]], dtype=float64)
    """
    a, b = prims.promote("tensordot", x, y)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            prims.bad_value(f"tensordot: expected `axes` in [0, {min(a.ndim, b.ndim)}], got {axes}")
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        left = prims.canonical_axes("tensordot", axes[0], a.ndim, "axes")
        right = prims.canonical_axes("tensordot", axes[1], b.ndim, "axes")
    return me.contract("tensordot", a, b, left, right)


@fused
def kron(x: ArrayLike, y: ArrayLike) -> Value:
    """The Kronecker product: each element of `x` times all of `y`.

    >>> fnp.kron(np.array([1, 2]), np.array([1, 1]))
    Array([1, 1, 2, 2], dtype=int64)
    """
    a, b = prims.promote("kron", x, y)
    rank = max(a.ndim, b.ndim)
    a = prims.reshape(a, [1] * (rank - a.ndim) + list(a.shape))
    b = prims.reshape(b, [1] * (rank - b.ndim) + list(b.shape))
    wide_a = prims.reshape(a, [d for size in a.shape for d in (size, 1)])
    wide_b = prims.reshape(b, [d for size in b.shape for d in (1, size)])
    return prims.reshape(
        prims.mul(wide_a, wide_b), [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    )


@fused
def cross(x: ArrayLike, y: ArrayLike, *, axis: int = -1) -> Value:
    """The cross product of vectors of three components along an axis.

    >>> fnp.cross(np.array([1, 0, 0]), np.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int64)
    """
    a, b = prims.promote("cross", x, y)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        prims.bad_value(
            f"cross: expected three components along axis {axis}, got {a.aval} and {b.aval}"
        )
    u, v = ([prims.move_axis(z, axis, 0)[k] for k in range(3)] for z in (a, b))
    parts = [
        prims.sub(prims.mul(u[i], v[j]), prims.mul(u[j], v[i])) for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return prims.move_axis(prims.stack(parts), 0, axis)


@fused
def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements with equal indices along two axes, `offset` apart; they become the last axis.

    >>> fnp.diagonal(np.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int64)
    """
    return me.diagonal(x, offset, axis1, axis2)


@fused
def diag(x: ArrayLike, k: int = 0) -> Value:
    """The matrix with a vector on its `k`-th diagonal, or the `k`-th diagonal of a matrix.

    >>> fnp.diag(np.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int64)
    """
    value = prims.operand("diag", "x", x)
    if value.ndim == 2:
        return diagonal(value, k)
    if value.ndim != 1:
        prims.bad_value(f"diag: expected a vector or a matrix, got {value.aval}")
    n = value.shape[0] + abs(k)
    row = prims.pad(value, prims.convert(0, value.dtype), [max(k, 0)], [max(-k, 0)])
    places = prims.equal(
        prims.add(prims.iota(np.int32, (n, n), 0), k), prims.iota(np.int32, (n, n), 1)
    )
    return prims.select(
        places, prims.broadcast_in_dim(row, (n, n), (1,)), prims.convert(0, value.dtype)
    )


@fused
def trace(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of a diagonal of two axes.

    >>> fnp.trace(np.array([[1, 2], [3, 4]]))
    Array(5, dtype=int64)
    """
    return me.trace(x, offset, axis1, axis2)


@fused
def norm(
    x: ArrayLike,
    ord: float | Literal["fro"] | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Value:
    """The Euclidean length over axes, or over all; with `ord`, the norm of that order of a vector or a matrix.

    Along one axis lie vectors, whose `ord` is a number; along two lie matrices, whose `ord` is "fro", 1, -1, inf or
    -inf: sums of magnitudes down the columns, or along the rows, of which the greatest, or the least, is taken.
    ValueError for other orders (2 and -2 of a matrix need singular values), and for an `ord` without one or two axes.

    >>> fnp.linalg.norm(np.array([3.0, 4.0])), fnp.linalg.norm(np.array([3.0, 4.0]), 1)
    (Array(5., dtype=float64), Array(7., dtype=float64))
    """
    (value,) = prims.promote("norm", x, inexact=True)
    axes = prims.canonical_axes("norm", axis, value.ndim)
    if ord is None or (ord == "fro" and len(axes) == 2) or (ord == 2 and len(axes) == 1):
        return prims.sqrt(op.sum(op.squared_size(value), axes, keepdims=keepdims))
    size = prims.abs(value)
    if len(axes) == 2 and ord in (1, -1, math.inf, -math.inf):
        rows, columns = axes if abs(ord) == 1 else axes[::-1]
        find = op.max if ord > 0 else op.min
        out = find(op.sum(size, rows, keepdims=True), columns, keepdims=True)
        return out if keepdims else prims.squeeze(out, axes)
    if len(axes) != 1 or not isinstance(ord, (int, float, np.number)):
        prims.bad_value(
            "norm: expected `ord` to be a number for one axis, or 'fro', 1, -1, inf or -inf for two, got "
            f"{ord!r} for {len(axes)} axes of {value.aval}; name the axes in `axis`"
        )
    if abs(ord) == math.inf:
        return (op.max if ord > 0 else op.min)(size, axes, keepdims=keepdims)
    if ord == 0:
        return op.sum(prims.convert(prims.not_equal(size, 0), size.dtype), axes, keepdims=keepdims)
    if ord == 1:
        return op.sum(size, axes, keepdims=keepdims)
    return prims.pow(op.sum(prims.pow(size, ord), axes, keepdims=keepdims), 1 / ord)
