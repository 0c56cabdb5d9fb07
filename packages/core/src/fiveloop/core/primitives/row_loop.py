"""How running results are lowered: one XLA loop over the rows of arrays, which carries the last result.

On the CPU a loop takes 1 to 10 ns a row and compiles in a few dozen milliseconds, whatever its length; a
tree of slices runs as fast on long vectors but takes seconds to compile, and a window reduction is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.dims import size_of

Step = Callable[[IRValue, Sequence[IRValue]], IRValue]
"""The next result, from the last one and a row of each array."""

_NARROW, _LONG = 64, 1024


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


Combine = Callable[[IRValue, IRValue], IRValue]


def prefix_loop(
    b: Builder, x: IRValue, identity: IRValue, combine: Combine, reverse: bool
) -> IRValue:
    """Every prefix of the rows combined by an associative operation.

    A long array of narrow rows is cut into blocks that run side by side; their ends are combined after.
    """
    n, row = x.shape[0], x.shape[1:]
    if n < _LONG or size_of(row) > _NARROW:
        return row_loop(b, [x], identity, lambda c, rows: combine(c, rows[0]), reverse)
    if reverse:
        turned = prefix_loop(b, hlo.reverse(b, x, [0]), identity, combine, False)
        return hlo.reverse(b, turned, [0])
    length = 1 << ((n - 1).bit_length() + 1) // 2
    blocks = -(-n // length)
    none = [0] * x_rank(x)
    padded = hlo.pad(b, x, identity, none, [blocks * length - n, *none[1:]], none)
    # side_by_side : [length, blocks, *row]
    swap = [1, 0, *range(2, x_rank(x) + 1)]
    side_by_side = hlo.transpose(b, hlo.reshape(b, padded, (blocks, length, *row)), swap)
    within = row_loop(b, [side_by_side], identity, lambda c, rows: combine(c, rows[0]), False)
    limits = [length, blocks, *row]
    ends = hlo.slice(b, within, [length - 1, *none], limits, [1] * len(limits))
    ends = hlo.reshape(b, ends, (blocks, *row))
    totals = row_loop(b, [ends], identity, lambda c, rows: combine(c, rows[0]), False)
    before = hlo.pad(b, totals, identity, [1, *none[1:]], [-1, *none[1:]], none)
    before = hlo.broadcast_in_dim(b, before, within.shape, range(1, len(limits)))
    joined = hlo.transpose(b, combine(before, within), swap)
    flat = hlo.reshape(b, joined, (blocks * length, *row))
    return hlo.slice(b, flat, none, [n, *row], [1] * len(none))


def x_rank(x: IRValue) -> int:
    """The number of axes."""
    return len(x.shape)


def in_front(b: Builder, x: IRValue, axis: int) -> IRValue:
    """An axis moved to the front."""
    return hlo.transpose(b, x, [axis, *[k for k in range(x_rank(x)) if k != axis]])


def put_back(b: Builder, x: IRValue, axis: int) -> IRValue:
    """The front axis moved to where it came from."""
    return hlo.transpose(b, x, [*range(1, axis + 1), 0, *range(axis + 1, x_rank(x))])
