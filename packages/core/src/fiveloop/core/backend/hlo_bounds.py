"""Blocks of arrays that may lie outside, in part or whole: read as zero there, and not written.

Only the block is masked, never the array, so that an update stays in place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .hlo_builder import Builder, IRValue
from .hlo_constant import constant
from .hlo_elementwise import add, and_, clamp, compare, neg, select, sub
from .hlo_index import dynamic_slice, dynamic_update_slice
from .hlo_reduce import reduce
from .hlo_shape import broadcast_in_dim, iota, pad

Distances = Mapping[int, IRValue]
"""For some axes, how far a block is from the place where it fits."""


def slice_or_zero(
    b: Builder, x: IRValue, starts: Sequence[IRValue], sizes: Sequence[int], axes: Sequence[int]
) -> IRValue:
    """A block of `sizes` at run-time `starts`, with zeros where it lies outside along `axes`."""
    fitting, away = _fitting(b, x, starts, sizes, axes)
    found = dynamic_slice(b, x, fitting, sizes)
    zero = constant(b, 0, found.shape, x.dtype)
    return select(b, _inside(b, sizes, away), _moved(b, found, away), zero)


def update_inside(
    b: Builder, x: IRValue, update: IRValue, starts: Sequence[IRValue], axes: Sequence[int]
) -> IRValue:
    """`x` with a block replaced at run-time `starts`, without what lies outside along `axes`."""
    fitting, away = _fitting(b, x, starts, update.shape, axes)
    back = {k: neg(b, d) for k, d in away.items()}
    old = dynamic_slice(b, x, fitting, update.shape)
    new = select(b, _inside(b, update.shape, back), _moved(b, update, back), old)
    return dynamic_update_slice(b, x, new, fitting)


def zero_outside(b: Builder, blocks: IRValue, x: IRValue, indices: IRValue, p: Any) -> IRValue:
    """What a gather with these params reads, with zeros in the place of blocks that do not fit."""
    last = [x.shape[k] - p.sizes[k] for k in p.dims.index_map]
    rank = len(indices.shape) - 1
    high = constant(b, np.asarray(last, indices.dtype))
    high = broadcast_in_dim(b, high, indices.shape, (rank,))
    low = constant(b, 0, indices.shape, indices.dtype)
    fits = and_(b, compare(b, indices, low, "GE"), compare(b, indices, high, "LE"))
    kept = [k for k in range(len(blocks.shape)) if k not in p.dims.window_dims]
    mask = broadcast_in_dim(b, reduce(b, fits, (rank,), "and"), blocks.shape, kept)
    return select(b, mask, blocks, constant(b, 0, blocks.shape, blocks.dtype))


def _fitting(
    b: Builder, x: IRValue, starts: Sequence[IRValue], sizes: Sequence[int], axes: Sequence[int]
) -> tuple[list[IRValue], Distances]:
    """The starts moved until the block fits, and how far they were away."""
    fitting, away = list(starts), {}
    for k in axes:
        low = constant(b, 0, (), starts[k].dtype)
        high = constant(b, x.shape[k] - sizes[k], (), starts[k].dtype)
        fitting[k] = clamp(b, low, starts[k], high)
        away[k] = sub(b, starts[k], fitting[k])
    return fitting, away


def _inside(b: Builder, sizes: Sequence[int], away: Distances) -> IRValue:
    """For each position of a block, or for the whole of it, whether it is in the block again so far away."""
    masks = [_inside_along(b, sizes[k], d) for k, d in away.items()]
    if all(not mask.shape for mask in masks):
        wide = masks
    else:
        pairs = zip(away, masks, strict=True)
        wide = [broadcast_in_dim(b, m, tuple(sizes), (k,) if m.shape else ()) for k, m in pairs]
    out = wide[0]
    for mask in wide[1:]:
        out = and_(b, out, mask)
    return out


def _inside_along(b: Builder, size: int, away: IRValue) -> IRValue:
    if size == 1:
        return compare(b, away, constant(b, 0, (), away.dtype), "EQ")
    position = iota(b, (size,), away.dtype, 0)
    position = add(b, position, broadcast_in_dim(b, away, (size,), ()))
    first = compare(b, position, constant(b, 0, (size,), away.dtype), "GE")
    return and_(b, first, compare(b, position, constant(b, size, (size,), away.dtype), "LT"))


def _moved(b: Builder, x: IRValue, away: Distances) -> IRValue:
    """A block in which each element stands so far before its place; what comes from outside is zero."""
    far = {k: d for k, d in away.items() if x.shape[k] > 1}
    if not far:
        return x
    room = [n if k in far else 0 for k, n in enumerate(x.shape)]
    dtype = next(iter(far.values())).dtype
    starts = []
    for k, n in enumerate(room):
        start = constant(b, n, (), dtype)
        if n:
            start = add(b, start, clamp(b, neg(b, start), far[k], start))
        starts.append(start)
    wide = pad(b, x, constant(b, 0, (), x.dtype), room, room, [0] * len(room))
    return dynamic_slice(b, wide, starts, x.shape)
