"""Reading and writing one evenly spaced block of an array: slices, static and dynamic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fiveloop.core import ad, arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index.indexer import At, Indexer, Lane, Span, is_dynamic


@dataclass
class _Block:
    """One block of an array: where it starts and ends, and the order of its axes in the result."""

    starts: list[Value | int]
    extents: list[ir.Dim]
    strides: list[int]
    reversed: list[int]
    perm: list[int]
    drops: Sequence[int]

    @property
    def is_static(self) -> bool:
        return all(isinstance(s, int) for s in self.starts)

    def sizes(self, indexer: Indexer) -> ir.Shape:
        """The block's shape after strides, in the order of the array's axes."""
        pairs = zip(indexer.entries, self.extents, strict=True)
        return tuple(e.size if isinstance(e, Span) else n for e, n in pairs)


def _block(shape: ir.Shape, indexer: Indexer, operands: ad.Values) -> _Block:
    block = _Block([], [], [], [], [], indexer.dynamic_axes if indexer.drops else ())
    given = iter(operands)
    for axis, e in enumerate(indexer.entries):
        start: Value | int = next(given) if is_dynamic(e) else 0
        extent: ir.Dim = 1
        match e:
            case At(int(low)):
                start = low
            case Span():
                start, extent = (start if e.start is None else e.low), e.extent
            case Lane():
                extent = shape[axis]
        block.starts.append(start)
        block.extents.append(extent)
        block.strides.append(abs(e.stride) if isinstance(e, Span) else 1)
        if isinstance(e, Span) and e.stride < 0:
            block.reversed.append(axis)
    block.perm = _lanes_first(indexer)
    return block


def _lanes_first(indexer: Indexer) -> list[int]:
    """The array's axes with batch axes in front, or in order where that only moves axes of size one."""
    entries = indexer.entries
    lanes = {e.lead: axis for axis, e in enumerate(entries) if isinstance(e, Lane)}
    front = [lanes[k] for k in sorted(lanes)]
    perm = front + [axis for axis in range(len(entries)) if axis not in front]
    wide = [axis for axis in perm if not isinstance(entries[axis], At)]
    return perm if wide != sorted(wide) else list(range(len(entries)))


def _read(x: Value, block: _Block) -> Value:
    """The block's whole extent, strides not yet taken."""
    if block.is_static:
        low = [s for s in block.starts if isinstance(s, int)]
        return prims.static_slice(x, low, [s + n for s, n in zip(low, block.extents, strict=True)])
    return prims.dynamic_slice(x, _dynamic_starts(block), block.extents, block.drops)


def _dynamic_starts(block: _Block) -> list[Value]:
    known = [s for s in block.starts if isinstance(s, Value)]
    dtype = known[0].dtype if known else np.dtype(np.int32)
    return [
        s if isinstance(s, Value) else arrays.Scalar(np.asarray(s, dtype)) for s in block.starts
    ]


def take_block(x: Value, indexer: Indexer, operands: ad.Values) -> Value:
    """What a block indexer reads from `x`."""
    if _names_nothing(x, indexer):
        return prims.broadcast_in_dim(
            arrays.Scalar(np.zeros((), x.dtype)), indexer.result_shape, ()
        )
    block = _block(x.shape, indexer, operands)
    if block.is_static:
        low = [s for s in block.starts if isinstance(s, int)]
        limit = [s + n for s, n in zip(low, block.extents, strict=True)]
        out = prims.static_slice(x, low, limit, block.strides)
    else:
        out = _read(x, block)
        out = prims.static_slice(out, [0] * x.ndim, block.extents, block.strides)
    if block.reversed:
        out = prims.reverse(out, tuple(block.reversed))
    return prims.reshape(permuted(out, block.perm), indexer.result_shape)


def _names_nothing(x: Value, indexer: Indexer) -> bool:
    """Whether it is a mask without axes that is False, of an array without axes."""
    return not x.ndim and ir.is_empty(indexer.result_shape)


def put_block(x: Value, indexer: Indexer, operands: ad.Values, v: Value, kind: str) -> Value:
    """`x` with `v`, of the indexer's result shape, combined into the block."""
    if _names_nothing(x, indexer):
        return x
    block = _block(x.shape, indexer, operands)
    sizes = block.sizes(indexer)
    v = prims.reshape(v, tuple(sizes[axis] for axis in block.perm))
    v = permuted(v, inverse(block.perm))
    if block.reversed:
        v = prims.reverse(v, tuple(block.reversed))
    whole = ir.same_shape(block.extents, x.shape) and not block.drops
    if kind != "set" or any(by != 1 for by in block.strides):
        old = x if whole else _read(x, block)
        v = _combined(old, v, block, kind)
    if whole:
        return v
    return prims.dynamic_update_slice(x, v, _dynamic_starts(block), block.drops)


def _combined(old: Value, v: Value, block: _Block, kind: str) -> Value:
    """The new contents of the block's whole extent."""
    if all(by == 1 for by in block.strides):
        return prims.MONOIDS[kind].combine_evenly(old, v)
    nothing = [0] * old.ndim
    between = [by - 1 for by in block.strides]
    holes = prims.broadcast_in_dim(arrays.Scalar(np.asarray(True)), v.shape, ())
    mask = prims.pad(holes, arrays.Scalar(np.asarray(False)), nothing, nothing, between)
    spread = prims.pad(v, arrays.Scalar(np.zeros((), v.dtype)), nothing, nothing, between)
    new = spread if kind == "set" else prims.MONOIDS[kind].combine_evenly(old, spread)
    return prims.select(mask, new, old)


def permuted(x: Value, perm: Sequence[int]) -> Value:
    """The axes of `x` in another order."""
    return x if list(perm) == list(range(len(perm))) else prims.transpose(x, tuple(perm))


def inverse(perm: Sequence[int]) -> list[int]:
    """The order that undoes another."""
    return [perm.index(axis) for axis in range(len(perm))]
