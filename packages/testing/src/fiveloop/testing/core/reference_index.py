"""References of the primitives that read or write parts of arrays: element by element, in plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]


def _slice(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    ranges = zip(p.start, p.limit, p.strides, strict=True)
    return [x[tuple(slice(lo, hi, by) for lo, hi, by in ranges)].copy()]


def _fitting(
    starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]
) -> tuple[slice, ...]:
    """The block at the given starts, each moved so far that the block fits."""
    moved = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(moved, sizes, strict=True))


def _inside(
    starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int], drops: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each element of a block that lies inside, its place in the block and in the array."""
    fitting = [s.start for s in _fitting(starts, shape, sizes)]
    first = [
        int(s) if k in drops else low
        for k, (s, low) in enumerate(zip(starts, fitting, strict=True))
    ]
    for place in np.ndindex(*sizes):
        at = tuple(a + b for a, b in zip(first, place, strict=True))
        if all(0 <= i < n for i, n in zip(at, shape, strict=True)):
            yield place, at


def _dynamic_slice(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, *starts = values
    out = np.zeros(p.sizes, x.dtype)
    for place, at in _inside(starts, x.shape, p.sizes, p.drops):
        out[place] = x[at]
    return [out]


def _dynamic_update_slice(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, update, *starts = values
    out = x.copy()
    for place, at in _inside(starts, x.shape, update.shape, p.drops):
        out[at] = update[place]
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


def _blocks(
    x: _Array, indices: _Array, rank: int, dims: Any, sizes: Sequence[int], drops: bool
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """For each block, or each that fits, where it lies in `x` and where in the array of all blocks, of `rank` axes."""
    dropped = {*dims.collapsed, *dims.operand_batch}
    for lane in np.ndindex(indices.shape[:-1]):
        starts = [0] * x.ndim
        for k, axis in enumerate(dims.index_map):
            starts[axis] = int(indices[lane][k])
        for axis, along in zip(dims.operand_batch, dims.indices_batch, strict=True):
            starts[axis] = lane[along]
        block = _fitting(starts, x.shape, sizes)
        if drops and [s.start for s in block] != starts:
            continue
        inside = tuple(s.start if k in dropped else s for k, s in enumerate(block))
        coordinates = iter(lane)
        place = [slice(None) if k in dims.window_dims else next(coordinates) for k in range(rank)]
        yield inside, tuple(place)


def _gather(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, indices = values
    dropped = {*p.dims.collapsed, *p.dims.operand_batch}
    kept = iter([k for axis, k in enumerate(p.sizes) if axis not in dropped])
    lanes = iter(indices.shape[:-1])
    rank = len(p.dims.window_dims) + indices.ndim - 1
    shape = [next(kept) if k in p.dims.window_dims else next(lanes) for k in range(rank)]
    out = np.zeros(shape, x.dtype)
    for inside, place in _blocks(x, indices, rank, p.dims, p.sizes, p.drops):
        out[place] = x[inside]
    return [out]


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatter(values: Sequence[_Array], p: Any) -> list[_Array]:
    x, indices, updates = values
    dropped = {*p.dims.collapsed, *p.dims.operand_batch}
    widths = iter([updates.shape[k] for k in sorted(p.dims.window_dims)])
    sizes = [1 if axis in dropped else next(widths) for axis in range(x.ndim)]
    out = x.copy()
    for inside, place in _blocks(x, indices, updates.ndim, p.dims, sizes, p.drops):
        out[inside] = _COMBINE[p.kind](out[inside], updates[place])
    return [out]


define_reference("slice", _slice)
define_reference("dynamic_slice", _dynamic_slice)
define_reference("dynamic_update_slice", _dynamic_update_slice)
define_reference("resolve_index", _resolve_index)
define_reference("gather", _gather)
define_reference("scatter", _scatter)
