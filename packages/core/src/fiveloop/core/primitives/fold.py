"""Combining rows, the first axis, in a tree, by ordinary operations: what it computes has derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiveloop.core.array import Value
from fiveloop.core.primitives.broadcast import reshape
from fiveloop.core.primitives.index import static_slice
from fiveloop.core.primitives.shape import concatenate

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
