"""Sorting, and the order of elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import methods as me
from fiveloop.numpy.indexing import take_along_axis


@fused
def sort(
    x: ArrayLike, axis: int | None = -1, *, stable: bool = True, descending: bool = False
) -> Value:
    """The elements in order along an axis, or of all, flattened; NaN last (first if `descending`).

    >>> fnp.sort(np.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int64)
    """
    return me.sort(x, axis, stable=stable, descending=descending)


@fused
def argsort(
    x: ArrayLike, axis: int | None = -1, *, stable: bool = True, descending: bool = False
) -> Value:
    """The indices, as int32, that put the elements in order along an axis; ties keep their order.

    >>> fnp.argsort(np.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    """
    return me.argsort(x, axis, stable=stable, descending=descending)


@fused
def lexsort(keys: Sequence[ArrayLike], axis: int = -1) -> Value:
    """The indices, as int32, that order by the last key, ties by the key before it, and so on.

    >>> fnp.lexsort([np.array([1, 2, 0]), np.array([1, 0, 1])])
    Array([1, 2, 0], dtype=int32)
    """
    values = [prims.operand("lexsort", f"keys[{k}]", x) for k, x in enumerate(keys)]
    if not values:
        prims.bad_value("lexsort: expected at least one key, got none")
    at = prims.canonical_axis("lexsort", axis, values[0].ndim)
    numbers = prims.iota(np.int32, values[0].shape, at)
    return prims.sort_together([*values[::-1], numbers], at, num_keys=len(values))[-1]


@fused
def top_k(x: ArrayLike, k: int, axis: int = -1) -> tuple[Value, Value]:
    """The `k` greatest elements along an axis, in descending order, and their indices; ties in the order of `x`.

    NaN is the greatest, and 0.0 is greater than -0.0.

    >>> fnp.top_k(np.array([1, 9, 5]), 2)
    (Array([9, 5], dtype=int64), Array([1, 2], dtype=int32))
    """
    value = prims.operand("top_k", "x", x)
    at, k = prims.canonical_axis("top_k", axis, value.ndim), prims.known_int("top_k", "k", k)
    if not 0 <= k <= value.shape[at]:
        prims.bad_value(
            f"top_k: expected `k` in [0, {value.shape[at]}] along axis {at} of {value.aval}, got {k}"
        )
    if not k or arrays.dtype_kind(value.dtype) in "bc":
        order = argsort(value, at, descending=True)[(*(slice(None),) * at, slice(0, k))]
        return take_along_axis(value, order, at), order
    greatest, places = prims.top_k(prims.move_axis(value, at, -1), k)
    return prims.move_axis(greatest, -1, at), prims.move_axis(places, -1, at)
