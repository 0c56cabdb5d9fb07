"""References of the primitives that read or write parts of arrays: an index is followed axis by axis.

Only the dataclasses of the index's normal form are read; what they mean is written here anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core.ir.indexer import At, Indexer, Lane, Pick, Span
from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]
Places: TypeAlias = "tuple[_Array, Any]"


def places(indexer: Indexer, positions: Sequence[_Array], shape: Sequence[int]) -> Places:
    """Where each element that an index selects stands in the array laid flat, and the index of those that lie in it."""
    if positions:
        return _places(indexer, positions, shape)
    return _fixed_places(indexer, tuple(shape))


@lru_cache(maxsize=4096)
def _fixed_places(indexer: Indexer, shape: tuple[int, ...]) -> Places:
    return _places(indexer, (), shape)


def _places(indexer: Indexer, positions: Sequence[_Array], shape: Sequence[int]) -> Places:
    operands = dict(zip(dynamic_axes(indexer), positions, strict=True))
    sizes, where = _result(indexer)
    flat, inside = np.zeros(sizes, np.int64), np.ones(sizes, bool) if indexer.drops else ...
    for axis, (entry, size) in enumerate(zip(indexer.entries, shape, strict=True)):
        at = _coordinate(entry, axis, indexer, operands.get(axis), size, where)
        flat = flat * size + at
        if indexer.drops:
            inside &= (at >= 0) & (at < size)
    return flat, inside


Result: TypeAlias = "tuple[list[int], dict[tuple[str, int], _Array]]"


@lru_cache(maxsize=4096)
def _result(indexer: Indexer) -> Result:
    """The sizes of the axes of the result, and for each what it runs over with the positions along it."""
    names = _axes_of_result(indexer)
    sizes = [_size(indexer, name) for name in names]
    return sizes, dict(zip(names, np.indices(sizes, sparse=True), strict=True))


def _axes_of_result(indexer: Indexer) -> list[tuple[str, int]]:
    """What each axis of the result runs over."""
    names = [("span", axis) for axis, e in enumerate(indexer.entries) if isinstance(e, Span)]
    names[indexer.pick_axis : indexer.pick_axis] = [
        ("pick", k) for k in range(len(indexer.pick_shape))
    ]
    for k, position in enumerate(indexer.new_axes):
        names.insert(position, ("new", k))
    return [("lead", k) for k in range(len(indexer.lead))] + names


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
    where: dict[tuple[str, int], _Array],
) -> Any:
    """Where each element stands along one axis of the array."""
    lanes = tuple(where["lead", k] for k in range(len(indexer.lead)))
    match entry:
        case Lane(lead):
            return where["lead", lead]
        case Pick():
            assert operand is not None
            picks = tuple(where["pick", k] for k in range(len(indexer.pick_shape)))
            return _fitting(operand[(*lanes, *picks)], size, 1, indexer.drops)
        case At(int(start)):
            return start
        case At():
            assert operand is not None
            return _fitting(operand[lanes], size, 1, indexer.drops)
    steps = where["span", axis] * entry.stride
    if operand is None:
        return entry.start + steps
    extent = (entry.size - 1) * abs(entry.stride) + 1
    return _fitting(operand[lanes], size, extent, indexer.drops) + steps


def _fitting(i: _Array, size: int, extent: int, drops: bool) -> _Array:
    """Positions: unless their index drops, each is moved until the block fits."""
    i = i.astype(np.int64)
    return i if drops else np.minimum(np.maximum(i, 0), size - extent)


def taken(array: _Array, where: Places) -> _Array:
    """The elements at some places, and zero for those outside."""
    flat, inside = where
    out = np.zeros(flat.shape, array.dtype)
    out[inside] = array.reshape(-1)[flat[inside]]
    return out


def put(array: _Array, new: _Array, where: Places, kind: str) -> _Array:
    """The array with new elements combined into those at some places, one after the other."""
    flat, inside = where
    out = array.flatten()
    if kind == "set":
        out[flat[inside]] = new[inside]
    else:
        COMBINE[kind].at(out, flat[inside], new[inside])
    return out.reshape(array.shape)


def _take(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, *positions = values
    return [taken(x, places(p.indexer, positions, x.shape))]


COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _put(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, new, *positions = values
    return [put(x, new, places(p.indexer, positions, x.shape), p.kind)]


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
