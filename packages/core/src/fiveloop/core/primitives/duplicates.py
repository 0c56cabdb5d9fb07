"""Elements that go to one place: what each of them must know of the others, for the derivatives of writes.

The elements are sorted by their places, and combined in steps of one, two, four ... neighbours: many elements
cost little more than one. All is made of products and choices, so that it is right at zeros and in every order of
derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.dims import size_of
from fiveloop.core.primitives.broadcast import broadcast_in_dim, reshape
from fiveloop.core.primitives.elementwise import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    equal,
    mul,
    select,
)
from fiveloop.core.primitives.gather import GatherParams, WindowDims, gather
from fiveloop.core.primitives.shape import iota, pad
from fiveloop.core.primitives.sort import sort_together

Combine = Callable[[Value, Value], Value]


def product_of_others(x: Value, places: Value) -> Value:
    """For each element of `x`, the product of all other elements at its place (of `places`, of the same shape)."""
    return _in_order(
        x, places, lambda y, keys: mul(_before(y, keys, mul, 1, 1), _before(y, keys, mul, 1, -1))
    )


def is_first(flags: Value, places: Value) -> Value:
    """Which of the elements that `flags` marks is the first at its place."""

    def run(y: Value, keys: Value) -> Value:
        return bitwise_and(y, bitwise_not(_before(y, keys, bitwise_or, False, 1)))

    return _in_order(flags, places, run)


def _in_order(x: Value, places: Value, run: Callable[[Value, Value], Value]) -> Value:
    """Run a function of elements and their places on both sorted by place; equal places keep their order."""
    count = size_of(x.shape)
    if not count:
        return x
    numbers = iota(np.int32, count)
    keys, order = sort_together([reshape(places, (count,)), numbers], num_keys=1)
    back = sort_together([order, numbers], num_keys=1)[1]
    out = run(_taken(reshape(x, (count,)), order), keys)
    return reshape(_taken(out, back), x.shape)


def _taken(x: Value, order: Value) -> Value:
    """The elements of a vector in another order."""
    dims = WindowDims(collapsed=(0,), index_map=(0,))
    indices = reshape(order, (*order.shape, 1))
    return gather(x, indices, GatherParams(dims, (1,), unique_indices=True, in_bounds=True))


def _before(x: Value, keys: Value, combine: Combine, neutral: Any, way: int) -> Value:
    """For each element those before it (or after it, if `way` is -1) that have its key, combined."""
    count, done = size_of(x.shape), 1
    if count == 1:
        return broadcast_in_dim(Scalar(np.asarray(neutral).astype(x.dtype)), x.shape, ())
    out = _neighbour(x, keys, neutral, way)
    while done < count - 1:
        out = combine(_neighbour(out, keys, neutral, way * done), out)
        done *= 2
    return out


def _neighbour(x: Value, keys: Value, neutral: Any, distance: int) -> Value:
    """The element so far before each, if it has the same key."""
    nothing = Scalar(np.asarray(neutral).astype(x.dtype))
    no_key = Scalar(np.asarray(-1).astype(keys.dtype))
    same = equal(pad(keys, no_key, (distance,), (-distance,)), keys)
    shifted = pad(x, nothing, (distance,), (-distance,))
    return select(same, shifted, broadcast_in_dim(nothing, x.shape, ()))
