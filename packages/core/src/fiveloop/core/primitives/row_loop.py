"""How running results are lowered: one XLA loop over the rows of arrays, which carries the last result.

On the CPU a loop takes 1 to 10 ns a row and compiles in a few dozen milliseconds, whatever its length; a
tree of slices runs as fast on long vectors but takes seconds to compile, and a window reduction is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue

Step = Callable[[IRValue, Sequence[IRValue]], IRValue]
"""The next result, from the last one and a row of each array."""


def row_loop(
    b: Builder, xs: Sequence[IRValue], init: IRValue, step: Step, reverse: bool
) -> IRValue:
    """All results of `carry = step(carry, rows)`, stacked; `init` is the carry before the first."""
    n, row = xs[0].shape[0], xs[0].shape[1:]
    int32 = np.dtype(np.int32)
    zero, one = hlo.constant(b, 0, (), int32), hlo.constant(b, 1, (), int32)
    stop, last = hlo.constant(b, n, (), int32), hlo.constant(b, n - 1, (), int32)
    rest = [zero] * len(row)

    def body(carried: list[IRValue]) -> list[IRValue]:
        i, carry, out = carried
        place = hlo.sub(b, last, i) if reverse else i
        rows = [hlo.reshape(b, hlo.dynamic_slice(b, x, [place, *rest], (1, *row)), row) for x in xs]
        new = step(carry, rows)
        written = hlo.reshape(b, new, (1, *row))
        return [hlo.add(b, i, one), new, hlo.dynamic_update_slice(b, out, written, [place, *rest])]

    empty = hlo.constant(b, 0, (n, *row), init.dtype)
    start = [zero, hlo.broadcast_in_dim(b, init, row, ()), empty]
    return hlo.while_(b, start, lambda c: hlo.compare(b, c[0], stop, "LT"), body)[2]


def in_front(b: Builder, x: IRValue, axis: int) -> IRValue:
    """An axis moved to the front."""
    return hlo.transpose(b, x, [axis, *[k for k in range(len(x.shape)) if k != axis]])


def put_back(b: Builder, x: IRValue, axis: int) -> IRValue:
    """The front axis moved to where it came from."""
    return hlo.transpose(b, x, [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))])
