"""In place outside of loops: what is read from a part of a large Ref is ordered before that Ref is written.

XLA copies an array that is updated where a read of its old contents may come later. In loops the phases see to that
for all Refs at once; in code that runs once, only reads of parts of large arrays are worth it, and only if what has
been made from them is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fiveloop.core import Value, arrays, ir, prims
from fiveloop.core.ir.indexer import Indexer, Span
from fiveloop.state.discharge import overlap, table

LARGE = 2**14
"""From about this many elements on, copying an array takes longer than ordering."""
SMALL_PART = 4
"""What is at most this part of an array is worth passing by, so that the array is not copied."""


class PartReads:
    """Which values have been made from parts of which Refs."""

    def __init__(self) -> None:
        self._sources: dict[ir.Var, frozenset[int]] = {}
        self._cells: list[table.Cell] = []

    def note(self, eqn: ir.Eqn, inputs: Iterable[ir.Var], operands: Sequence[Any]) -> None:
        """Take note of what an equation gives."""
        sources = frozenset[int]().union(*(self._sources.get(v, ()) for v in inputs))
        indexer, cell = getattr(eqn.params, "indexer", None), operands[0] if operands else None
        if isinstance(indexer, Indexer) and isinstance(cell, table.Cell):
            self._cells.append(cell)  # so that its id stays its own
            if not overlap.is_whole(indexer, cell.contents.shape):
                sources |= {id(cell)}
        if sources:
            self._sources.update((v, sources) for v in eqn.outvars)

    def of(self, cell: table.Cell) -> list[ir.Var]:
        """What has been made from parts of a Ref."""
        return [v for v, sources in self._sources.items() if id(cell) in sources]


def is_worth_ordering(write: table.Write, cell: table.Cell) -> bool:
    """Whether a write goes to a small part of a large array."""
    size = ir.size_of(cell.contents.shape)
    return not ir.is_more(LARGE, size) and is_small(write.value, cell)


def is_small(x: Value, cell: table.Cell) -> bool:
    """Whether a value is small beside what a Ref holds."""
    count, size = ir.size_of(x.shape), ir.size_of(cell.contents.shape)
    return not ir.is_more(count * SMALL_PART, size)


def is_spread(indexer: Indexer) -> bool:
    """Whether an index names a block with gaps, the same in all lanes."""
    gaps = any(isinstance(e, Span) and abs(e.stride) > 1 for e in indexer.entries)
    return gaps and indexer.is_block


def opaque_index(write: table.Write, cell: table.Cell) -> Value:
    """A number that is never negative, which the compiler does not know: `order` takes it for a counter."""
    for position in write.place.positions:
        if (
            not position.shape
            and position.dtype == np.int32
            and not isinstance(position, arrays.Scalar)
        ):
            return position
    first = prims.static_slice(cell.contents, [0] * cell.contents.ndim, [1] * cell.contents.ndim)
    number = (
        prims.real(prims.reshape(first, ()))
        if first.dtype.kind == "c"
        else prims.reshape(first, ())
    )
    bit = prims.bitwise_and(prims.convert(number, np.int32), arrays.Scalar(np.asarray(1, np.int32)))
    # The reading of it must not be repeated after the write, so what is given is past an order of its own.
    return prims.order(bit, bit)[0]
