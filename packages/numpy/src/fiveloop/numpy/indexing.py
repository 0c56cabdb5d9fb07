"""Reading by index arrays and masks, and making such indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, overload

import numpy as np
from fiveloop.core import ArrayLike, Value, prims, trace
from fiveloop.core.extend import fused
from fiveloop.core.ir.indexer import Indexer, Pick
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op
from fiveloop.loops import fori_loop
from fiveloop.numpy.creation import asarray


@overload
def where(condition: ArrayLike) -> tuple[Value, ...]: ...
@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Value: ...
@partial(fused, numbers="operands")
def where(condition: ArrayLike, x: Any = None, y: Any = None) -> Value | tuple[Value, ...]:
    """Elements of `x` where the condition holds, of `y` elsewhere; all three broadcast.

    With the condition alone: the indices where it is true, as `nonzero` returns them.

    >>> fnp.where(np.array([True, False]), 1.0, np.array([5.0, 6.0]))
    Array([1., 6.], dtype=float64)
    """
    if (x is None) != (y is None):
        prims.bad_value("where: expected both `x` and `y`, or neither")
    if x is None:
        return nonzero(condition)
    return prims.select(prims.to_condition(prims.operand("where", "condition", condition)), x, y)


@fused
def select(
    conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], default: ArrayLike = 0
) -> Value:
    """Each element from the choice whose condition is the first that is true there, or the default.

    >>> fnp.select([np.array([True, False])], [np.array([1, 2])], 9)
    Array([1, 9], dtype=int64)
    """
    if len(conditions) != len(choices):
        prims.bad_value(
            f"select: expected as many choices as conditions, got {len(choices)} and {len(conditions)}"
        )
    *values, out = prims.promote("select", *choices, default)
    for condition, choice in zip(conditions[::-1], values[::-1], strict=True):
        out = where(condition, choice, out)
    return out


@fused
def take(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    *,
    mode: Literal["raise", "wrap", "clip"] = "raise",
) -> Value:
    """The elements of `x` at indices along an axis, or of all, flattened. Run-time indices are clamped.

    `mode` "wrap" counts indices modulo the size, and "clip" clamps all of them, negative ones to 0.

    >>> fnp.take(np.array([10, 20, 30]), np.array([2, 0]))
    Array([30, 10], dtype=int64)
    """
    return me.take(x, indices, axis, mode=mode)


@fused
def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int = -1) -> Value:
    """For each place of `indices` the element of `x` at that index along an axis; other axes broadcast.

    Negative indices count from the end; run-time indices are clamped.

    >>> fnp.take_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]))
    Array([[2],
           [3]], dtype=int64)
    """
    value, at, index = _along("take_along_axis", x, indices, axis)
    return prims.take_along(value, index, at)


@fused
def put_along_axis(x: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int = -1) -> Value:
    """`x` with values written at the places that `take_along_axis` reads; `values` broadcast to them.

    A value whose run-time index is out of bounds is dropped.

    >>> fnp.put_along_axis(np.array([[1, 2], [3, 4]]), np.array([[1], [0]]), 9)
    Array([[1, 9],
           [9, 4]], dtype=int64)
    """
    value, at, index = _along("put_along_axis", x, indices, axis, drops=True)
    new = prims.convert(prims.operand("put_along_axis", "values", values), value.dtype)
    indexer, positions = prims.along(value.shape, index, at)
    new = prims.move_axis(prims.broadcast_to(new, index.shape), at, -1)
    return prims.put(value, new, indexer.dropping(), positions)


def _along(
    fun: str, x: ArrayLike, indices: ArrayLike, axis: int, *, drops: bool = False
) -> tuple[Value, int, Value]:
    """The array and its indices, broadcast along all axes but one, and that axis; clamped, if nothing `drops` them."""
    value, index = prims.operand(fun, "x", x), prims.operand(fun, "indices", indices)
    if index.dtype.kind not in "iu" or index.ndim != value.ndim:
        refuse = prims.bad_value if index.dtype.kind in "iu" else prims.bad_type
        refuse(f"{fun}: expected integer indices with the axes of {value.aval}, got {index.aval}")
    at = prims.canonical_axis(fun, axis, value.ndim)
    rest = [tuple(1 if k == at else d for k, d in enumerate(v.shape)) for v in (value, index)]
    shape = prims.common_shape(fun, rest)
    value = prims.broadcast_to(value, _with(shape, at, value.shape[at]))
    index = prims.broadcast_to(index, _with(shape, at, index.shape[at]))
    index = prims.resolve_index(index, value.shape[at], None if drops else 1)
    return value, at, index


def _with(shape: tuple[int, ...], at: int, size: int) -> tuple[int, ...]:
    return (*shape[:at], size, *shape[at + 1 :])


def nonzero(x: ArrayLike) -> tuple[Value, ...]:
    """The indices of the elements that are not zero, one array per axis.

    Their number depends on the elements, so `x` must be known: a traced value is an error.

    >>> fnp.nonzero(np.array([0, 3, 4]))
    (Array([1, 2], dtype=int32),)
    """
    return me.nonzero(x)


def flatnonzero(x: ArrayLike) -> Value:
    """The indices of the elements that are not zero, as if flattened; `x` must be known.

    >>> fnp.flatnonzero(np.array([[0, 3], [4, 0]]))
    Array([1, 2], dtype=int32)
    """
    return nonzero(prims.reshape(x, (-1,)))[0]


def argwhere(x: ArrayLike) -> Value:
    """The indices of the elements that are not zero, one row each; `x` must be known.

    >>> fnp.argwhere(np.array([[0, 3], [4, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    found = prims.stack(nonzero(x), 1)
    return found if prims.operand("argwhere", "x", x).ndim else found[:, :0]


@partial(fused, numbers="operands")
def searchsorted(a: ArrayLike, v: ArrayLike, side: Literal["left", "right"] = "left") -> Value:
    """The index in the ascending vector `a` to insert each element of `v` at, as int32: before equals, or after.

    >>> fnp.searchsorted(np.array([1, 3, 5]), np.array([3, 4]))
    Array([1, 2], dtype=int32)
    """
    if side not in ("left", "right"):
        prims.bad_value(f"searchsorted: expected `side` to be 'left' or 'right', got {side!r}")
    table, wanted = prims.promote("searchsorted", a, v)
    if table.ndim != 1:
        prims.bad_value(f"searchsorted: expected `a` to be a vector, got {table.aval}")
    below = _before if side == "left" else _not_after
    size = table.shape[0]

    def halve(step: Value, found: Value) -> Value:
        """As many elements as `found` are below; of those from there on, half as many may be at each step."""
        rest = prims.shift_right_logical(prims.full((), size, np.int32), step)
        last = prims.add(found, prims.shift_right_logical(prims.sub(rest, 1), 1))
        return prims.select(below(_elements(table, last), wanted), prims.add(last, 1), found)

    found = prims.full(wanted.shape, 0, np.int32)
    return fori_loop(0, size.bit_length(), halve, found) if size else found


def _elements(table: Value, places: Value) -> Value:
    """The elements of a vector at places that are in bounds."""
    return prims.take(table, Indexer((Pick(),), places.shape), [places])


def _before(x: Value, y: Value) -> Value:
    """Whether `x` comes before `y` in a sorted vector, which has NaN last."""
    before = complex_order.less(x, y)
    if x.dtype.kind in "biu":
        return before
    return prims.bitwise_or(before, prims.bitwise_and(prims.equal(x, x), prims.is_nan(y)))


def _not_after(x: Value, y: Value) -> Value:
    """Whether `x` comes before `y` in a sorted vector, which has NaN last, or is its equal."""
    before = complex_order.less_equal(x, y)
    return before if x.dtype.kind in "biu" else prims.bitwise_or(before, prims.is_nan(y))


@fused
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Value:
    """The number of the bin that each element falls into; `bins` are edges in ascending or descending order.

    >>> fnp.digitize(np.array([0.5, 2.5]), np.array([1.0, 2.0]))
    Array([0, 2], dtype=int32)
    """
    edges = prims.operand("digitize", "bins", bins)
    up = searchsorted(edges, x, "left" if right else "right")
    if not edges.size:
        return up
    down = searchsorted(prims.reverse(edges, 0), x, "left" if right else "right")
    return prims.select(
        complex_order.less(edges[-1], edges[0]), prims.sub(edges.shape[0], down), up
    )


@fused
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
) -> Value:
    """The piecewise linear function through the points (`xp`, `fp`), at `x`; `xp` ascends.

    Before the first point it is `left`, by default the first of `fp`, and after the last `right`, by default the last.

    >>> fnp.interp(np.array([0.5, 9.0]), np.array([0.0, 1.0]), np.array([10.0, 20.0]))
    Array([15., 20.], dtype=float64)
    """
    value, points, heights = prims.promote("interp", x, xp, fp, inexact=True)
    if points.ndim != 1 or points.shape != heights.shape or not points.size:
        prims.bad_value(
            f"interp: expected `xp` and `fp` to be vectors of one size, got {points.aval} and {heights.aval}"
        )
    before = prims.sub(searchsorted(points, value, "right"), 1)
    before = prims.clamp(0, before, max(points.size - 2, 0))
    after = prims.minimum(prims.add(before, 1), points.size - 1)
    start, low = _elements(points, before), _elements(heights, before)
    width = prims.sub(_elements(points, after), start)
    has_width = prims.greater(width, 0)
    share = prims.div(prims.sub(value, start), prims.select(has_width, width, 1))
    share = prims.clamp(0, prims.select(has_width, share, 1), 1)
    out = prims.add(low, prims.mul(share, prims.sub(_elements(heights, after), low)))
    for side, is_out in (
        (left, prims.less(value, points[0])),
        (right, prims.greater(value, points[-1])),
    ):
        out = out if side is None else where(is_out, side, out)
    return out


@fused
def bincount(
    x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None
) -> Value:
    """How often each integer from 0 to `length` - 1 occurs, or the sum of its weights.

    Without `length`, `x` must be known, and the greatest integer in it, and `minlength`, decide. Integers outside
    are not counted.

    >>> fnp.bincount(np.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    """
    value = prims.operand("bincount", "x", x)
    if value.ndim != 1 or value.dtype.kind not in "iu":
        refuse = prims.bad_type if value.ndim == 1 else prims.bad_value
        refuse(f"bincount: expected a vector of integers, got {value.aval}")
    if length is None:
        if not trace.is_concrete(value):
            prims.bad_type(
                f"bincount: expected `length` to be given for the traced value {value!r}"
            )
        length = int(np.max(np.asarray(value), initial=minlength - 1)) + 1
    w = (
        prims.full(value.shape, 1, np.int32)
        if weights is None
        else prims.operand("bincount", "weights", weights)
    )
    inside = prims.bitwise_and(prims.greater_equal(value, 0), prims.less(value, length))
    if length == 0:
        return prims.zeros((0,), w.dtype)
    held = prims.select(inside, w, prims.convert(0, w.dtype))
    out: Value = prims.zeros((length,), w.dtype).at[value].add(held)
    return out


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The row and column indices of the elements at and below a diagonal.

    >>> fnp.tril_indices(2)[0]
    Array([0, 1, 1], dtype=int32)
    """
    rows, columns = np.tril_indices(n, k, m)
    return asarray(rows.astype(np.int32)), asarray(columns.astype(np.int32))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The row and column indices of the elements at and above a diagonal.

    >>> fnp.triu_indices(2)[0]
    Array([0, 0, 1], dtype=int32)
    """
    rows, columns = np.triu_indices(n, k, m)
    return asarray(rows.astype(np.int32)), asarray(columns.astype(np.int32))


@fused
def unravel_index(indices: ArrayLike, shape: Sequence[int]) -> tuple[Value, ...]:
    """The index along each axis of the elements that a flat index names; negative ones count from the end.

    An index out of range is clamped.

    >>> fnp.unravel_index(np.array([5]), (2, 3))
    (Array([1], dtype=int32), Array([2], dtype=int32))
    """
    given = prims.operand("unravel_index", "indices", indices)
    if given.dtype.kind not in "iu":
        prims.bad_type(f"unravel_index: expected integer indices, got {given.aval}")
    count = math.prod(shape)
    rest = prims.convert(prims.resolve_index(given, count), np.int32)
    out: list[Value] = []
    for size in reversed(tuple(shape)):
        out.append(op.remainder(rest, size))
        rest = op.floor_divide(rest, size)
    return tuple(reversed(out))
