"""Reading and writing many blocks of an array at once: gathers and scatters from indexers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fiveloop.core import ad, arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.index import block as index_block
from fiveloop.core.index.indexer import At, Entry, Indexer, Lane, Pick, Span, is_dynamic

Label: TypeAlias = tuple[str, int]


@dataclass
class _Windows:
    """A gather or scatter: its indices, its axes, and how the axes of blocks become those of the result."""

    indices: Value
    dims: prims.WindowDims
    sizes: ir.Shape
    perm: list[int]
    shape: ir.Shape
    separate: bool


def _result_labels(indexer: Indexer) -> list[Label]:
    """The axes of the result, new axes left out: batch axes, then spans with the picks among them."""
    inner: list[Label] = [
        ("span", axis) for axis, e in enumerate(indexer.entries) if isinstance(e, Span)
    ]
    picks: list[Label] = [("pick", k) for k in range(len(indexer.pick_shape))]
    inner[indexer.pick_axis : indexer.pick_axis] = picks
    lead: list[Label] = [("lead", k) for k in range(len(indexer.lead))]
    return [*lead, *inner]


def _label_size(indexer: Indexer, label: Label) -> ir.Dim:
    kind, k = label
    if kind == "lead":
        return indexer.lead[k]
    if kind == "pick":
        return indexer.pick_shape[k]
    entry = indexer.entries[k]
    assert isinstance(entry, Span), "unreachable: span labels name spans"
    return entry.size


def _window_axis(indexer: Indexer, label: Label) -> int | None:
    """The axis of the array that a label keeps as an axis of a block, or None if it is an axis of indices."""
    kind, k = label
    for axis, e in enumerate(indexer.entries):
        if kind == "lead" and isinstance(e, Lane) and e.lead == k and not indexer.paired[k]:
            return axis
        if kind == "span" and axis == k and isinstance(e, Span) and _is_window(e, indexer):
            return axis
    return None


def _is_window(e: Span, indexer: Indexer) -> bool:
    """Whether a span is read or written as a whole: its positions lie side by side, and are all inside or outside."""
    return e.stride == 1 and not (indexer.drops and e.start is None and e.size != 1)


def _windows(x_shape: ir.Shape, indexer: Indexer, operands: ad.Values) -> _Windows:
    labels = _result_labels(indexer)
    axis_of = {label: _window_axis(indexer, label) for label in labels}
    # Blocks have their own axes in the order of the array's axes, in the places of the result's.
    places = [k for k, label in enumerate(labels) if axis_of[label] is not None]
    kept = sorted([labels[k] for k in places], key=lambda label: axis_of[label] or 0)
    arranged = list(labels)
    for place, label in zip(places, kept, strict=True):
        arranged[place] = label
    batch = [label for label in labels if axis_of[label] is None]
    components, index_map = _components(indexer, operands, batch)
    shape = tuple(_label_size(indexer, label) for label in batch)
    paired = [
        (axis, batch.index(("lead", e.lead)))
        for axis, e in enumerate(indexer.entries)
        if isinstance(e, Lane) and indexer.paired[e.lead]
    ]
    window_axes = [axis_of[label] for label in kept]
    lanes = [axis for axis, _ in paired]
    collapsed = [k for k in range(len(x_shape)) if k not in window_axes and k not in lanes]
    sizes = [1] * len(x_shape)
    for label in kept:
        sizes[axis_of[label] or 0] = _label_size(indexer, label)
    dims = prims.WindowDims(
        tuple(places), tuple(collapsed), tuple(lanes), tuple(k for _, k in paired), tuple(index_map)
    )
    return _Windows(
        indices=_stacked(components, shape),
        dims=dims,
        sizes=tuple(sizes),
        perm=[arranged.index(label) for label in labels],
        shape=tuple(_label_size(indexer, label) for label in labels),
        separate=not indexer.pick_shape and len(lanes) == sum(indexer.paired),
    )


def _components(
    indexer: Indexer, operands: ad.Values, batch: Sequence[Label]
) -> tuple[list[Value], list[int]]:
    """One array of start positions, over the axes of indices, for each array axis that needs one."""
    given = iter(operands)
    dtype = operands[0].dtype if operands else np.dtype(np.int32)
    shape = tuple(_label_size(indexer, label) for label in batch)
    leads: list[Label] = [("lead", k) for k, paired in enumerate(indexer.paired) if paired]
    picks: list[Label] = [("pick", k) for k in range(len(indexer.pick_shape))]
    components: list[Value] = []
    index_map: list[int] = []
    for axis, e in enumerate(indexer.entries):
        if isinstance(e, Lane) or (isinstance(e, Span) and e.start == 0 and e.stride == 1):
            continue
        own = [*leads, *picks] if isinstance(e, Pick) else leads
        start = next(given) if is_dynamic(e) else arrays.Scalar(np.asarray(_start(e), dtype))
        own = own if is_dynamic(e) else []
        wide = prims.broadcast_in_dim(start, shape, tuple(batch.index(label) for label in own))
        if isinstance(e, Span) and not _is_window(e, indexer):
            steps = prims.mul(prims.iota(dtype, e.size), arrays.Scalar(np.asarray(e.stride, dtype)))
            at = (batch.index(("span", axis)),)
            wide = prims.add(wide, prims.broadcast_in_dim(steps, shape, at))
        components.append(wide)
        index_map.append(axis)
    return components, index_map


def _start(e: Entry) -> int:
    assert isinstance(e, (At, Span)) and e.start is not None, "unreachable: the entry is static"
    return e.start


def _stacked(components: ad.Values, shape: ir.Shape) -> Value:
    if not components:
        return prims.broadcast_in_dim(arrays.Scalar(np.zeros((), np.int32)), (*shape, 0), ())
    columns = [prims.reshape(c, (*shape, 1)) for c in prims.common_index_dtype(components)]
    return columns[0] if len(columns) == 1 else prims.concatenate(columns, len(shape))


def take_many(x: Value, indexer: Indexer, operands: ad.Values) -> Value:
    """What an indexer with picks or paired lanes reads from `x`; the operands are resolved."""
    if ir.is_empty(indexer.result_shape):  # of no lanes, even an empty array
        return prims.zeros_of(ir.ShapedArray(indexer.result_shape, x.dtype, x.aval.weak_type))
    w = _windows(x.shape, indexer, operands)
    drops = indexer.drops
    params = prims.GatherParams(
        w.dims, w.sizes, False, w.separate, in_bounds=not drops, drops=drops
    )
    return prims.reshape(
        index_block.permuted(prims.gather(x, w.indices, params), w.perm), indexer.result_shape
    )


def put_many(
    x: Value, indexer: Indexer, operands: ad.Values, v: Value, kind: str, flags: tuple[bool, bool]
) -> Value:
    """`x` with `v` combined in; `flags` say whether indices are known to be unique, and sorted."""
    if ir.is_empty(v.shape):
        return x
    w = _windows(x.shape, indexer, operands)
    v = index_block.permuted(prims.reshape(v, w.shape), index_block.inverse(w.perm))
    unique, indices_are_sorted = flags
    unique, drops = unique or w.separate, indexer.drops
    params = prims.ScatterParams(w.dims, kind, indices_are_sorted, unique, not drops, drops)
    return prims.scatter(x, w.indices, v, params)
