"""Combining rows, the first axis, in a tree: all of them, or every prefix.

Both work on tuples of arrays, with any associative `combine(left, right)`, by ordinary operations, so
that whatever they compute can be differentiated and batched; both take work linear in the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.primitives.broadcast import reshape
from fiveloop.core.primitives.elementwise_arithmetic import add
from fiveloop.core.primitives.index import static_slice
from fiveloop.core.primitives.shape import concatenate, pad

Combine = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


def part(x: Value, start: int, stop: int, stride: int = 1) -> Value:
    """The rows from `start` up to `stop` by `stride`."""
    low, high, by = [0] * x.ndim, list(x.shape), [1] * x.ndim
    low[0], high[0], by[0] = start, stop, stride
    return static_slice(x, low, high, by)


def fold(combine: Combine, xs: Sequence[Value]) -> list[Value]:
    """All rows combined: one half with the other, and again. `combine` must be commutative."""
    rows = list(xs)
    while (n := rows[0].shape[0]) > 1:
        half = n // 2
        top = [part(x, 0, half) for x in rows]
        bottom = [part(x, half, 2 * half) for x in rows]
        combined = combine(top, bottom)
        odd = n % 2 == 1
        rows = [
            concatenate([y, part(x, n - 1, n)]) if odd else y
            for x, y in zip(rows, combined, strict=True)
        ]
    return [reshape(x, x.shape[1:]) for x in rows]


def prefixes(combine: Combine, xs: Sequence[Value]) -> list[Value]:
    """Row i of the result combines rows 0 to i, in order."""
    n = xs[0].shape[0]
    if n < 2:
        return list(xs)
    # Pairs are combined first; their prefixes are the odd rows, and one step more gives the even ones.
    left = [part(x, 0, n - 1, 2) for x in xs]
    right = [part(x, 1, n, 2) for x in xs]
    odd = prefixes(combine, combine(left, right))
    first = [part(x, 0, 1) for x in xs]
    if n == 2:
        return [concatenate(pair) for pair in zip(first, odd, strict=True)]
    before = [part(x, 0, (n - 1) // 2) for x in odd]
    later = combine(before, [part(x, 2, n, 2) for x in xs])
    even = [concatenate(pair) for pair in zip(first, later, strict=True)]
    return [interleave(a, b) for a, b in zip(even, odd, strict=True)]


def interleave(even: Value, odd: Value) -> Value:
    """Rows taken in turn, the first from `even`, which may have one row more."""
    zero = Scalar(np.zeros((), even.dtype))
    rest = (0,) * (even.ndim - 1)
    extra = even.shape[0] - odd.shape[0]
    spread_even = pad(even, zero, (0, *rest), (1 - extra, *rest), (1, *rest))
    spread_odd = pad(odd, zero, (1, *rest), (extra, *rest), (1, *rest))
    return add(spread_even, spread_odd)
