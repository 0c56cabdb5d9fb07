"""References of the primitives that read or write parts of arrays: an index is followed element by element.

Only the dataclasses of the index's normal form are read; what they mean is written here anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fiveloop.core.ir.indexer import At, Indexer, Lane, Pick, Span
from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]
_Place = tuple[int, ...]


def places(
    indexer: Indexer, positions: Sequence[_Array], shape: Sequence[int]
) -> Iterator[tuple[_Place, _Place]]:
    """For each element of what an index selects: where it stands in the result, and where in the array.

    Of one that drops, those that lie in the array.
    """
    operands = dict(zip(dynamic_axes(indexer), positions, strict=True))
    spans = [axis for axis, e in enumerate(indexer.entries) if isinstance(e, Span)]
    names: list[Any] = [("span", axis) for axis in spans]
    names[indexer.pick_axis : indexer.pick_axis] = [
        ("pick", k) for k in range(len(indexer.pick_shape))
    ]
    for position in indexer.new_axes:
        names.insert(position, ("new", 0))
    names = [("lead", k) for k in range(len(indexer.lead))] + names
    sizes = [_size(indexer, name) for name in names]
    for place in np.ndindex(*sizes):
        where = dict(zip(names, place, strict=True))
        at = tuple(
            _coordinate(entry, axis, indexer, operands.get(axis), shape[axis], where)
            for axis, entry in enumerate(indexer.entries)
        )
        if not indexer.drops or all(0 <= i < n for i, n in zip(at, shape, strict=True)):
            yield place, at


def dynamic_axes(indexer: Indexer) -> list[int]:
    """The axes of the array whose entries take an operand."""
    return [
        axis
        for axis, e in enumerate(indexer.entries)
        if isinstance(e, Pick) or (isinstance(e, (At, Span)) and e.start is None)
    ]


def _size(indexer: Indexer, name: tuple[str, int]) -> int:
    kind, k = name
    if kind == "lead":
        return indexer.lead[k]
    if kind == "pick":
        return indexer.pick_shape[k]
    entry = indexer.entries[k] if kind == "span" else None
    return entry.size if isinstance(entry, Span) else 1


def _coordinate(
    entry: Any,
    axis: int,
    indexer: Indexer,
    operand: _Array | None,
    size: int,
    where: dict[Any, int],
) -> int:
    lanes = tuple(where["lead", k] for k in range(len(indexer.lead)))
    match entry:
        case Lane(lead):
            return where["lead", lead]
        case Pick():
            assert operand is not None
            picks = tuple(where["pick", k] for k in range(len(indexer.pick_shape)))
            return _fitting(int(operand[(*lanes, *picks)]), size, 1, indexer.drops)
        case At(int(start)):
            return start
        case At():
            assert operand is not None
            return _fitting(int(operand[lanes]), size, 1, indexer.drops)
    extent, start = (entry.size - 1) * abs(entry.stride) + 1, entry.start
    if operand is not None:
        start = _fitting(int(operand[lanes]), size, extent, indexer.drops)
    return int(start + where["span", axis] * entry.stride)


def _fitting(i: int, size: int, extent: int, drops: bool) -> int:
    """A position: unless its index drops, it is moved until the block fits."""
    return i if drops else min(max(i, 0), size - extent)


def _take(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, *positions = values
    out = np.zeros(p.indexer.result_shape, x.dtype)
    for place, source in places(p.indexer, positions, x.shape):
        out[place] = x[source]
    return [out]


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _put(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, new, *positions = values
    out = x.copy()
    for place, target in places(p.indexer, positions, x.shape):
        out[target] = COMBINE[p.kind](out[target], new[place])
    return [out]


def _resolve_index(values: Sequence[_Array], p: Any) -> list[_Array]:
    (index,) = values
    out = np.empty(index.shape, p.dtype)
    for at in np.ndindex(index.shape):
        i = int(index[at])
        if i < 0 and p.size:
            i += p.size
        if p.window is not None:
            i = min(max(i, 0), max(0, p.size - p.window))
        out[at] = np.asarray(min(i, np.iinfo(np.int64).max)).astype(p.dtype)
    return [out]


define_reference("take", _take)
define_reference("put", _put)
define_reference("resolve_index", _resolve_index)
