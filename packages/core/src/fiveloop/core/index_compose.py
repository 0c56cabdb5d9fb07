"""An index into what another index selects, as one index: `x[outer][inner]` is `x[composed]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fiveloop.core.array import Scalar, Value
from fiveloop.core.dims import Dim, Shape, same_dim
from fiveloop.core.index_parse import bad_index
from fiveloop.core.indexer import At, Entry, Indexer, Pick, Span, is_dynamic
from fiveloop.core.indexing import take
from fiveloop.core.primitives.broadcast import broadcast_in_dim
from fiveloop.core.primitives.elementwise import add, mul
from fiveloop.core.primitives.index import common_index_dtype, index_dtype, resolve_index
from fiveloop.core.primitives.shape import iota

Position: TypeAlias = Value | int
Label: TypeAlias = int | str
"""An axis of what is selected: the axis of the array that it walks along, a new one, or one of the picks."""
NEW, PICK = "new", "pick"


@dataclass(frozen=True, slots=True)
class Placed:
    """An index into an array of a shape, with its operands."""

    shape: Shape
    indexer: Indexer
    operands: Sequence[Value]

    def axes(self) -> list[Axis]:
        """The axes of the array, each with its entry and operand."""
        given = iter(self.operands)
        return [
            Axis(e, next(given) if is_dynamic(e) else None, n)
            for e, n in zip(self.indexer.entries, self.shape, strict=True)
        ]

    def labels(self) -> list[Label]:
        """The axes of what is selected, in order."""
        indexer = self.indexer
        labels: list[Label] = [k for k, e in enumerate(indexer.entries) if isinstance(e, Span)]
        labels[indexer.pick_axis : indexer.pick_axis] = [PICK] * len(indexer.pick_shape)
        for position in indexer.new_axes:
            labels.insert(position, NEW)
        return labels


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an array: the entry of an index for it, and its operand, if it has one."""

    entry: Entry
    operand: Value | None
    size: Dim

    @property
    def is_whole(self) -> bool:
        e = self.entry
        return (
            isinstance(e, Span) and e.start == 0 and e.stride == 1 and same_dim(e.size, self.size)
        )

    @property
    def position(self) -> Position:
        """Where it starts, or all that it picks: in range, negatives counted from the end."""
        if self.operand is None:
            assert isinstance(self.entry, At | Span), "unreachable: picks have operands"
            return self.entry.start or 0
        window = self.entry.extent if isinstance(self.entry, Span) else 1
        return resolve_index(self.operand, self.size, window, index_dtype(self.operand.dtype))


def compose(
    shape: Shape,
    outer: Indexer,
    outer_operands: Sequence[Value],
    inner: Indexer,
    inner_operands: Sequence[Value],
) -> tuple[Indexer, list[Value]]:
    """The index into an array of `shape` that selects what `inner` selects of what `outer` selects.

    An operand of `inner` is in bounds of what `outer` selects, or is clamped to that.
    """
    first = Placed(shape, outer, outer_operands)
    second = Placed(outer.result_shape, inner, inner_operands)
    return _axis_by_axis(first, second) or _by_positions(first, second)


def _axis_by_axis(outer: Placed, inner: Placed) -> tuple[Indexer, list[Value]] | None:
    """The entries of both indices combined; None where no entry stands for both."""
    places = inner.indexer.pick_shape and not any(
        isinstance(e, Pick) for e in inner.indexer.entries
    )
    if outer.indexer.pick_shape or places:
        return None
    labels = outer.labels()
    within = list(zip(labels, inner.axes(), strict=True))
    if not all(_keeps_new_axis(axis.entry) for label, axis in within if label == NEW):
        return None
    inside = dict(within)
    entries: list[Entry] = []
    operands: list[Value] = []
    for k, axis in enumerate(outer.axes()):
        found = _combined(axis, inside[k]) if k in inside else (axis.entry, axis.operand)
        if found is None:
            return None
        entries.append(found[0])
        operands += [found[1]] if isinstance(found[1], Value) else []
    layout = [labels[k] if isinstance(k, int) else k for k in inner.labels()]
    new_axes = tuple(k for k, label in enumerate(layout) if label == NEW)
    before = layout[: layout.index(PICK)] if PICK in layout else []
    pick_axis = sum(isinstance(label, int) for label in before)
    return Indexer(tuple(entries), inner.indexer.pick_shape, pick_axis, new_axes), operands


def _keeps_new_axis(entry: Entry) -> bool:
    """Whether an entry, for an axis of size one that the array does not have, keeps it or drops it."""
    return isinstance(entry, At) or (isinstance(entry, Span) and entry.size == 1)


def _combined(outer: Axis, inner: Axis) -> tuple[Entry, Position | None] | None:
    """What an entry selects of a span, as one entry and its operand."""
    span, entry = outer.entry, inner.entry
    assert isinstance(span, Span), "unreachable: what is left of an axis is a span"
    if inner.is_whole:
        return span, outer.operand
    if outer.is_whole:
        return entry, inner.operand
    position = _affine(outer.position, span.stride, inner.position)
    start = position if isinstance(position, int) else None
    match entry:
        case At():
            return At(start), position
        case Span(_, 0, _):
            return Span(0, 0), None
        case Span(_, size, stride):
            stride = stride * span.stride if size > 1 else 1
            return None if start is None and stride < 0 else (Span(start, size, stride), position)
    return Pick(), position


def _affine(start: Position, stride: int, k: Position) -> Position:
    """`start + stride * k`."""
    if isinstance(start, int) and isinstance(k, int):
        return start + stride * k
    first, count, by = common_index_dtype([start, k, stride])
    steps = count if stride == 1 else mul(count, by)
    return add(broadcast_in_dim(first, steps.shape, ()), steps)


def _by_positions(outer: Placed, inner: Placed) -> tuple[Indexer, list[Value]]:
    """The index as arrays of positions, one for each axis of the array."""
    if not outer.shape:
        bad_index(
            f"expected an integer or a slice for a new axis of a view, got [{inner.indexer}]; index the Ref "
            "without `None` first"
        )
    labels = outer.labels()
    found = [positions(axis, k, labels, inner.shape) for k, axis in enumerate(outer.axes())]
    shape = inner.indexer.result_shape
    if inner.shape:
        operands = [take(x, inner.indexer, inner.operands) for x in found]
    else:  # one element, perhaps several times
        operands = [broadcast_in_dim(x, shape, ()) for x in found]
    picks = tuple(Pick() for _ in operands)
    return Indexer(picks, shape), operands


def positions(axis: Axis, k: int, labels: Sequence[Label], shape: Shape) -> Value:
    """For each element that is selected, where it stands along an axis of the array."""
    position, entry = axis.position, axis.entry
    along = [at for at, label in enumerate(labels) if label == PICK]
    if isinstance(entry, Span):
        position = _affine(position, entry.stride, iota(np.int32, entry.size))
        along = [labels.index(k)]
    elif isinstance(entry, At):
        along = []
    value = Scalar(np.asarray(position, np.int32)) if isinstance(position, int) else position
    return broadcast_in_dim(value, shape, along)
