"""Reading and writing many blocks of an array at once: gathers and scatters from indexers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.index_block import inverse, permuted
from fiveloop.core.indexer import At, Entry, Indexer, Lane, Pick, Span, is_dynamic
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.ir.dims import Dim, Shape, is_empty
from fiveloop.core.primitives.broadcast import broadcast_in_dim, reshape, zeros_of
from fiveloop.core.primitives.elementwise import add, mul
from fiveloop.core.primitives.gather import (
    GatherParams,
    ScatterParams,
    WindowDims,
    gather,
    scatter,
)
from fiveloop.core.primitives.index import common_index_dtype
from fiveloop.core.primitives.shape import concatenate, iota

Label: TypeAlias = tuple[str, int]


@dataclass
class _Windows:
    """A gather or scatter: its indices, its axes, and how the axes of blocks become those of the result."""

    indices: Value
    dims: WindowDims
    sizes: Shape
    perm: list[int]
    shape: Shape
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


def _label_size(indexer: Indexer, label: Label) -> Dim:
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


def _windows(x_shape: Shape, indexer: Indexer, operands: Sequence[Value]) -> _Windows:
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
    dims = WindowDims(
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
    indexer: Indexer, operands: Sequence[Value], batch: Sequence[Label]
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
        start = next(given) if is_dynamic(e) else Scalar(np.asarray(_start(e), dtype))
        own = own if is_dynamic(e) else []
        wide = broadcast_in_dim(start, shape, tuple(batch.index(label) for label in own))
        if isinstance(e, Span) and not _is_window(e, indexer):
            steps = mul(iota(dtype, e.size), Scalar(np.asarray(e.stride, dtype)))
            at = (batch.index(("span", axis)),)
            wide = add(wide, broadcast_in_dim(steps, shape, at))
        components.append(wide)
        index_map.append(axis)
    return components, index_map


def _start(e: Entry) -> int:
    assert isinstance(e, (At, Span)) and e.start is not None, "unreachable: the entry is static"
    return e.start


def _stacked(components: Sequence[Value], shape: Shape) -> Value:
    if not components:
        return broadcast_in_dim(Scalar(np.zeros((), np.int32)), (*shape, 0), ())
    columns = [reshape(c, (*shape, 1)) for c in common_index_dtype(components)]
    return columns[0] if len(columns) == 1 else concatenate(columns, len(shape))


def take_many(x: Value, indexer: Indexer, operands: Sequence[Value]) -> Value:
    """What an indexer with picks or paired lanes reads from `x`; the operands are resolved."""
    if is_empty(indexer.result_shape):  # of no lanes, even an empty array
        return zeros_of(ShapedArray(indexer.result_shape, x.dtype, x.aval.weak_type))
    w = _windows(x.shape, indexer, operands)
    drops = indexer.drops
    params = GatherParams(w.dims, w.sizes, False, w.separate, in_bounds=not drops, drops=drops)
    return reshape(permuted(gather(x, w.indices, params), w.perm), indexer.result_shape)


def put_many(
    x: Value,
    indexer: Indexer,
    operands: Sequence[Value],
    v: Value,
    kind: str,
    flags: tuple[bool, bool],
) -> Value:
    """`x` with `v` combined in; `flags` say whether indices are known to be unique, and sorted."""
    if is_empty(v.shape):
        return x
    w = _windows(x.shape, indexer, operands)
    v = permuted(reshape(v, w.shape), inverse(w.perm))
    unique, indices_are_sorted = flags
    unique, drops = unique or w.separate, indexer.drops
    params = ScatterParams(w.dims, kind, indices_are_sorted, unique, not drops, drops)
    return scatter(x, w.indices, v, params)
