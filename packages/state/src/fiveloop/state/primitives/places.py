"""The number of the element of a Ref that each element of what an index selects is; equal where an index repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Value, ad, arrays, ir, prims
from fiveloop.core.index import access as indexing
from fiveloop.core.index.indexer import At, Indexer, Lane, Pick, Span, is_dynamic

_Label = tuple[str, int]


def element_numbers(shape: tuple[int, ...], indexer: Indexer, index: ad.Values) -> Value:
    """For each element of what the index selects, its number among those of an array of this shape, in C order.

    It is -1 for what lies outside, of an index that drops.
    """
    dtype = np.dtype(np.int32 if ir.size_of(shape) <= np.iinfo(np.int32).max else np.int64)
    axes = _result_axes(indexer)
    paired = [axes["lead", k] for k, p in enumerate(indexer.paired) if p]
    picks = [axes["pick", k] for k in range(len(indexer.pick_shape))]
    operands = iter(indexing.resolve(shape, indexer, index))
    total = _spread(arrays.Scalar(np.zeros((), dtype)), indexer, [])
    for axis, entry in enumerate(indexer.entries):
        stride = ir.size_of(shape[axis + 1 :])
        if is_dynamic(entry):
            along = [*paired, *picks] if isinstance(entry, Pick) else paired
            start = _spread(prims.convert(next(operands), dtype), indexer, along)
            total = prims.add(total, _times(start, stride))
        elif isinstance(entry, (At, Span)):
            total = prims.add(total, arrays.Scalar(np.asarray((entry.start or 0) * stride, dtype)))
        if isinstance(entry, (Span, Lane)):
            at = axes["span", axis] if isinstance(entry, Span) else axes["lead", entry.lead]
            steps = _spread(prims.iota(dtype, indexer.result_shape[at]), indexer, [at])
            by = entry.stride if isinstance(entry, Span) else 1
            total = prims.add(total, _times(steps, by * stride))
    if not indexer.drops:
        return total
    inside = indexing.take(prims.full(shape, True, np.bool_), indexer, index)
    return prims.select(inside, total, prims.full(total.shape, -1, dtype))


def _result_axes(indexer: Indexer) -> dict[_Label, int]:
    """Which axis of the result is which: of a batch, of a span by the Ref's axis, of the picks."""
    labels: list[_Label] = [
        ("span", axis) for axis, e in enumerate(indexer.entries) if isinstance(e, Span)
    ]
    picks: list[_Label] = [("pick", k) for k in range(len(indexer.pick_shape))]
    labels[indexer.pick_axis : indexer.pick_axis] = picks
    for position in indexer.new_axes:
        labels.insert(position, ("new", position))
    labels = [*[("lead", k) for k in range(len(indexer.lead))], *labels]
    return {label: k for k, label in enumerate(labels)}


def _spread(x: Value, indexer: Indexer, axes: Sequence[int]) -> Value:
    return prims.broadcast_in_dim(x, indexer.result_shape, axes)


def _times(x: Value, n: int) -> Value:
    return prims.mul(x, arrays.Scalar(np.asarray(n, x.dtype)))
