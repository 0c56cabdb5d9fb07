"""The StableHLO of an index: slices for one block, gathers and scatters for many elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fiveloop.core import ir
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue, IRValues
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import At, Entry, Indexer, Label, Lane, Pick, Span, is_dynamic

MOST = 2**31 - 1
"""The greatest int32: positions along a longer axis are int64, and several axes are not merged into one."""

SPARSE = 16
"""How many elements there are for each position, from which on several axes are not merged: XLA would no longer add
what is scattered to another array in place. The gradient of a cross entropy takes .7 to .9 of the time for it.
"""

# one block


@dataclass
class _Block:
    """One block of an array, strides filled up: where it starts, and how long it is along each axis."""

    starts: list[IRValue | int]
    extents: list[int]
    strides: list[int]
    reversed: list[int]
    drops: Sequence[int]

    def read(self, b: Builder, x: IRValue) -> IRValue:
        """All that lies in it."""
        low = [s for s in self.starts if isinstance(s, int)]
        if len(low) == len(self.starts):
            limit = [s + n for s, n in zip(low, self.extents, strict=True)]
            return hlo.slice(b, x, low, limit, [1] * len(low))
        if self.drops:
            return hlo.slice_or_zero(b, x, self.operands(b), self.extents, self.drops)
        return hlo.dynamic_slice(b, x, self.operands(b), self.extents)

    def operands(self, b: Builder) -> list[IRValue]:
        """Where it starts along each axis, as operands of one dtype."""
        given = [s for s in self.starts if not isinstance(s, int)]
        dtype = given[0].dtype if given else np.dtype(np.int32)
        return [hlo.constant(b, s, (), dtype) if isinstance(s, int) else s for s in self.starts]


def _block(indexer: Indexer, positions: IRValues) -> _Block:
    given, spans = iter(positions), indexer.spans
    return _Block(
        [next(given) if span.start is None else span.low for span in spans],
        [span.extent for span in spans],
        [abs(span.stride) for span in spans],
        [k for k, span in enumerate(spans) if span.stride < 0],
        indexer.dynamic_axes if indexer.drops else (),
    )


def take_block(b: Builder, x: IRValue, indexer: Indexer, positions: IRValues) -> IRValue:
    """What a block index reads from an array."""
    block = _block(indexer, positions)
    if indexer.dynamic_axes:
        out = block.read(b, x)
        out = hlo.slice(b, out, [0] * len(x.shape), block.extents, block.strides)
    else:
        low = [s for s in block.starts if isinstance(s, int)]
        limit = [s + n for s, n in zip(low, block.extents, strict=True)]
        out = hlo.slice(b, x, low, limit, block.strides)
    return hlo.reshape(b, hlo.reverse(b, out, block.reversed), indexer.result_shape)


def put_block(b: Builder, x: IRValue, v: IRValue, indexer: Indexer, positions: IRValues) -> IRValue:
    """An array with a value written where a block index points."""
    block = _block(indexer, positions)
    v = hlo.reshape(b, v, [span.size for span in indexer.spans])
    v = hlo.reverse(b, v, block.reversed)
    whole = tuple(block.extents) == x.shape and not block.drops
    if any(by != 1 for by in block.strides):
        v = _between(b, x if whole else block.read(b, x), v, block)
    if whole:
        return v
    if block.drops:
        return hlo.update_inside(b, x, v, block.operands(b), block.drops)
    return hlo.dynamic_update_slice(b, x, v, block.operands(b))


def _between(b: Builder, old: IRValue, v: IRValue, block: _Block) -> IRValue:
    """The contents of a block with gaps, in which the old elements stay."""
    nothing = [0] * len(old.shape)
    between = [by - 1 for by in block.strides]
    holes = hlo.broadcast_in_dim(b, hlo.constant(b, True, (), np.bool_), v.shape, ())
    no = hlo.constant(b, False, (), np.bool_)
    mask = hlo.pad(b, holes, no, nothing, nothing, between)
    zero = hlo.constant(b, 0, (), v.dtype)
    return hlo.select(b, mask, hlo.pad(b, v, zero, nothing, nothing, between), old)


# many elements


@dataclass
class _Windows:
    """A gather or scatter: its indices, its axes and sizes, in an array that is reshaped to `form`."""

    indices: IRValue
    places: list[int]
    collapsed: list[int]
    lanes: list[int]
    lanes_of_indices: list[int]
    index_map: list[int]
    sizes: list[int]
    shape: ir.Shape
    form: list[int]


def _is_window(e: Span, indexer: Indexer) -> bool:
    """Whether a span is read or written as a whole: its positions lie side by side, and are all inside or outside."""
    return e.stride == 1 and not (indexer.drops and e.start is None and e.size != 1)


def _size(indexer: Indexer, label: Label) -> int:
    kind, k = label
    if kind == "lead":
        return indexer.lead[k]
    return indexer.pick_shape[k] if kind == "pick" else indexer.spans[k].size


def whole_axes(indexer: Indexer) -> list[int]:
    """The axes of an array along which an index with picks or lanes reads or writes windows."""
    spans = [(k, e) for k, e in enumerate(indexer.entries) if isinstance(e, Span)]
    return [k for k, e in spans if _is_window(e, indexer)]


def batch_of(indexer: Indexer) -> list[Label]:
    """The axes of what is selected that are not axes of windows: there is an index for each of their positions."""
    windows = whole_axes(indexer)
    return [x for x in indexer.labels(new=False) if x[0] != "span" or x[1] not in windows]


def _names_picks_alone(indexer: Indexer) -> bool:
    """Whether indices ascend where picks do: those of lanes, and of positions along spans, begin again for each."""
    return all(kind == "pick" for kind, _ in batch_of(indexer))


def batch_shape(indexer: Indexer) -> ir.Shape:
    """The sizes of the axes that are not axes of windows."""
    return tuple(_size(indexer, label) for label in batch_of(indexer))


def columns_of(indexer: Indexer, shape: ir.Shape, in_loop: bool) -> list[int]:
    """The axes of an array that need positions, as a compiler sees them: lanes do, merged axes need one."""
    merged = merged_axes(indexer, shape, in_loop)[1:]
    entries = [(k, e) for k, e in enumerate(indexer.entries) if k not in merged]
    return [k for k, e in entries if not _is_from_start(e)]


def _is_from_start(e: Entry) -> bool:
    return isinstance(e, Span) and e.start == 0 and e.stride == 1


def _windows(b: Builder, shape: ir.Shape, indexer: Indexer, positions: IRValues) -> _Windows:
    labels = indexer.labels(new=False)
    # Axes of windows stand in the result in the order in which the array has them.
    windows, batch = whole_axes(indexer), batch_of(indexer)
    columns = _columns(b, indexer, positions, batch)
    lanes = {k: e.lead for k, e in enumerate(indexer.entries) if isinstance(e, Lane)}
    axes, form = [*range(len(shape))], [*shape]
    merged = merged_axes(indexer, shape, b.is_in_loop)
    if merged:
        columns[merged[0]] = _in_one(b, merged, columns, lanes, indexer, shape)
        columns = {k: columns[k] for k in sorted(columns) if k not in merged[1:]}
        axes = [k for k in axes if k not in merged[1:]]
        form[merged[0] : merged[-1] + 1] = [ir.size_of([shape[k] for k in merged])]
        lanes = {}
    return _Windows(
        indices=_side_by_side(b, [*columns.values()], batch_shape(indexer)),
        places=[k for k, label in enumerate(labels) if label not in batch],
        collapsed=[n for n, k in enumerate(axes) if k not in windows and k not in lanes],
        lanes=[*lanes],
        lanes_of_indices=[batch.index(("lead", lead)) for lead in lanes.values()],
        index_map=[axes.index(k) for k in columns],
        sizes=[indexer.spans[k].size if k in windows else 1 for k in axes],
        shape=tuple(_size(indexer, label) for label in labels),
        form=form,
    )


def merged_axes(indexer: Indexer, shape: ir.Shape, in_loop: bool) -> list[int]:
    """The axes whose positions an index names one by one, if they lie side by side: they are indexed as one.

    In a loop they are not: XLA copies an array in each step that is reshaped between reads and writes in place. Nor are
    few positions in a large array.
    """
    windows = whole_axes(indexer)
    singles = [k for k in range(len(shape)) if k not in windows]
    beside = singles == [*range(singles[0], singles[-1] + 1)] if singles else False
    size = ir.size_of([shape[k] for k in singles])
    sparse = ir.is_more(size, SPARSE * ir.size_of(batch_shape(indexer)))
    merges = beside and size <= MOST and not (sparse or indexer.drops or in_loop)
    return singles if len(singles) > 1 and merges else []


def _in_one(
    b: Builder,
    merged: Sequence[int],
    columns: Mapping[int, IRValue],
    lanes: Mapping[int, int],
    indexer: Indexer,
    shape: ir.Shape,
) -> IRValue:
    """The positions in several axes of an array, merged into one."""
    batch = batch_of(indexer)
    sizes = batch_shape(indexer)
    dtype = next((c.dtype for c in columns.values()), np.dtype(np.int32))
    found: IRValue | None = None
    for k in merged:
        column = columns.get(k)
        if column is None:
            column = hlo.iota(b, sizes, dtype, batch.index(("lead", lanes[k])))
        if found is not None:
            column = hlo.add(b, hlo.mul(b, found, hlo.constant(b, shape[k], sizes, dtype)), column)
        found = column
    assert found is not None, "unreachable: there are several axes"
    return found


def _columns(
    b: Builder, indexer: Indexer, positions: IRValues, batch: Sequence[Label]
) -> dict[int, IRValue]:
    """One array of positions, over the axes of the indices, for each axis of the array that needs one."""
    given = iter(positions)
    shape = batch_shape(indexer)
    dtype = positions[0].dtype if positions else np.dtype(np.int32)
    leads = range(len(indexer.lead))
    picks = [batch.index(("pick", k)) for k in range(len(indexer.pick_shape))]
    columns: dict[int, IRValue] = {}
    for axis, e in enumerate(indexer.entries):
        if isinstance(e, Lane) or _is_from_start(e):
            continue
        along = [*leads, *picks] if isinstance(e, Pick) else [*leads]
        if is_dynamic(e):
            column = hlo.broadcast_in_dim(b, next(given), shape, along)
        else:
            assert isinstance(e, At | Span) and e.start is not None, "unreachable: it is static"
            column = hlo.broadcast_in_dim(b, hlo.constant(b, e.start, (), dtype), shape, ())
        if isinstance(e, Span) and not _is_window(e, indexer):
            at = batch.index(("span", axis))
            column = hlo.add(b, column, _steps(b, e, shape, at, dtype))
        columns[axis] = column
    return columns


def _steps(b: Builder, e: Span, shape: ir.Shape, at: int, dtype: np.dtype[np.generic]) -> IRValue:
    """How far each position of a span is from its start, along an axis of the indices."""
    steps = hlo.iota(b, (e.size,), dtype, 0)
    if e.stride != 1:
        steps = hlo.mul(b, steps, hlo.constant(b, e.stride, (e.size,), dtype))
    return hlo.broadcast_in_dim(b, steps, shape, (at,))


def _side_by_side(b: Builder, columns: IRValues, shape: ir.Shape) -> IRValue:
    if not columns:
        return hlo.constant(b, 0, (*shape, 0), np.int32)
    wide = [hlo.reshape(b, c, (*shape, 1)) for c in columns]
    return wide[0] if len(wide) == 1 else hlo.concatenate(b, wide, len(shape))


def gather(
    b: Builder, x: IRValue, indexer: Indexer, positions: IRValues, ascending: bool
) -> IRValue:
    """What an index with picks or lanes reads from an array."""
    if not all(indexer.result_shape):  # of no lanes, even an empty array
        return hlo.constant(b, 0, indexer.result_shape, x.dtype)
    w = _windows(b, x.shape, indexer, positions)
    out = hlo.gather(
        b,
        hlo.reshape(b, x, w.form),
        w.indices,
        offset_dims=w.places,
        collapsed_slice_dims=w.collapsed,
        operand_batching_dims=w.lanes,
        start_indices_batching_dims=w.lanes_of_indices,
        start_index_map=w.index_map,
        index_vector_dim=len(w.indices.shape) - 1,
        slice_sizes=w.sizes,
        indices_are_sorted=ascending and _names_picks_alone(indexer),
    )
    if indexer.drops:
        out = hlo.zero_outside(b, out, x, w.indices, w.index_map, w.sizes, w.places)
    return hlo.reshape(b, out, indexer.result_shape)


def scatter(
    b: Builder,
    x: IRValue,
    v: IRValue,
    indexer: Indexer,
    positions: IRValues,
    kind: str,
    unique: bool,
    ascending: bool,
) -> IRValue:
    """An array with a value combined in where an index with picks or lanes points."""
    if not all(v.shape):
        return x
    w = _windows(b, x.shape, indexer, positions)
    out = hlo.scatter(
        b,
        hlo.reshape(b, x, w.form),
        w.indices,
        hlo.reshape(b, v, w.shape),
        update_window_dims=w.places,
        inserted_window_dims=w.collapsed,
        input_batching_dims=w.lanes,
        scatter_indices_batching_dims=w.lanes_of_indices,
        scatter_dims_to_operand_dims=w.index_map,
        index_vector_dim=len(w.indices.shape) - 1,
        kind=kind,
        unique_indices=unique or indexer.names_each_once,
        indices_are_sorted=ascending and _names_picks_alone(indexer),
    )
    return hlo.reshape(b, out, x.shape)
