"""An index into the selection of another index, as a single index: `x[outer][inner]` is `x[composed]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fiveloop.core import ad, arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access, parse
from fiveloop.core.ir.indexer import At, Entry, Indexer, Pick, Span, is_dynamic, is_one

Position: TypeAlias = Value | int
Label: TypeAlias = int | str
"""An axis of what is selected: the axis of the array that it walks along, a new one, or one of the picks."""
NEW, PICK = "new", "pick"


@dataclass(frozen=True, slots=True)
class Placed:
    """An index into an array of a shape, with its operands."""

    shape: ir.Shape
    indexer: Indexer
    operands: ad.Values
    drops: bool = False

    def axes(self) -> list[Axis]:
        """The axes of the array, each with its entry and operand."""
        given = iter(self.operands)
        return [
            Axis(e, next(given) if is_dynamic(e) else None, n, self.drops)
            for e, n in zip(self.indexer.entries, self.shape, strict=True)
        ]

    def labels(self) -> list[Label]:
        """The axes of what is selected, in order."""
        return [k if kind == "span" else kind for kind, k in self.indexer.labels()]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an array: the entry of an index for it, and its operand, if it has one."""

    entry: Entry
    operand: Value | None
    size: ir.Dim
    drops: bool

    @property
    def is_whole(self) -> bool:
        e = self.entry
        return (
            isinstance(e, Span)
            and e.start == 0
            and e.stride == 1
            and ir.same_dim(e.size, self.size)
        )

    @property
    def position(self) -> Position:
        """Where it starts, or all that it picks, negatives counted from the end; in range, unless it drops."""
        if self.operand is None:
            assert isinstance(self.entry, At | Span), "unreachable: picks have operands"
            return self.entry.start or 0
        window = self.entry.extent if isinstance(self.entry, Span) else 1
        dtype = prims.index_dtype(self.operand.dtype, (self.size,))
        return prims.resolve_index(self.operand, self.size, None if self.drops else window, dtype)


def compose(
    shape: ir.Shape,
    outer: Indexer,
    outer_operands: ad.Values,
    inner: Indexer,
    inner_operands: ad.Values,
    *,
    drops: bool = False,
) -> tuple[Indexer, list[Value]]:
    """The index into an array of `shape` that selects `x[outer][inner]`.

    An operand of `inner` is in bounds of `x[outer]`, or is clamped to it; or, if the index is to be dropping (`drops`),
    it goes outside of the array, too.
    """
    first = Placed(shape, outer, outer_operands, drops)
    second = Placed(outer.result_shape, inner, inner_operands, drops)
    return _axis_by_axis(first, second) or _by_positions(first, second)


def composes_alike(shape: ir.Shape, outer: Indexer, inner: Indexer) -> bool:
    """Whether the composed index is one for a read and a write: no run-time position is counted in a part of an axis.

    A read clamps such a position to the part, and a write leaves out what lies outside of the part.
    """
    if not outer.dynamic_axes and not inner.dynamic_axes:
        return True
    if outer.pick_shape:
        return False
    labels = Placed(shape, outer, ()).labels()
    entries = zip(labels, inner.entries, outer.result_shape, strict=True)
    return all(
        not is_dynamic(entry)
        if label == NEW
        else _is_separate(Axis(outer.entries[int(label)], None, shape[int(label)], False), entry, n)
        for label, entry, n in entries
    )


def _is_separate(outer: Axis, entry: Entry, size: ir.Dim) -> bool:
    """Whether one of two entries selects all of an axis, or both are known."""
    inner = Axis(entry, None, size, False)
    known = not is_dynamic(outer.entry) and not is_dynamic(entry)
    return known or outer.is_whole or inner.is_whole


def _axis_by_axis(outer: Placed, inner: Placed) -> tuple[Indexer, list[Value]] | None:
    """The entries of both indices combined; None where no entry stands for both."""
    places = inner.indexer.pick_shape and not any(
        isinstance(e, Pick) for e in inner.indexer.entries
    )
    if outer.indexer.pick_shape or places:
        return None
    labels = outer.labels()
    within = list(zip(labels, inner.axes(), strict=True))
    if not all(_keeps_new_axis(axis) for label, axis in within if label == NEW):
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


def _keeps_new_axis(axis: Axis) -> bool:
    """Whether an entry, for an axis of size one that the array does not have, keeps it or leaves it out."""
    if axis.drops and axis.operand is not None:
        return False
    return is_one(axis.entry)


def _combined(outer: Axis, inner: Axis) -> tuple[Entry, Position | None] | None:
    """What an entry selects of a span, as one entry and its operand."""
    span, entry = outer.entry, inner.entry
    assert isinstance(span, Span), "unreachable: what is left of an axis is a span"
    if inner.is_whole:
        return span, outer.operand
    if outer.is_whole:
        return entry, inner.operand
    if inner.drops and isinstance(entry, Span) and entry.start is None:
        return None  # what lies in the array, but outside of the span, is left out one by one
    position = _affine(outer.position, span.stride, inner.position)
    if inner.drops and isinstance(position, Value):
        position = _not_from_end(position, outer.size)
        if inner.operand is not None:
            position = _or_behind(inner, position, outer.size)
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
    first, count, by = prims.common_index_dtype([start, k, stride])
    steps = count if stride == 1 else prims.mul(count, by)
    return prims.add(prims.broadcast_in_dim(first, steps.shape, ()), steps)


def _not_from_end(position: Value, size: ir.Dim) -> Value:
    """The index that means a position, also one before the first element."""
    zero, count = (prims.full(position.shape, n, position.dtype) for n in (0, size))
    return prims.select(prims.less(position, zero), prims.sub(position, count), position)


def _or_behind(axis: Axis, position: Value, size: ir.Dim) -> Value:
    """A position where what it was made of is in bounds of an axis, and elsewhere the first behind the end."""
    k, zero, count = prims.common_index_dtype([axis.position, 0, axis.size])
    zero, count = (prims.broadcast_in_dim(n, k.shape, ()) for n in (zero, count))
    inside = prims.bitwise_and(prims.less(k, count), prims.bitwise_not(prims.less(k, zero)))
    return prims.select(inside, position, prims.full(position.shape, size, position.dtype))


def _by_positions(outer: Placed, inner: Placed) -> tuple[Indexer, list[Value]]:
    """The index as arrays of positions, one for each axis of the array."""
    if not outer.shape:
        parse.bad_index(
            f"expected an integer or a slice for a new axis of a view, got [{inner.indexer}]; index the Ref "
            "without `None` first"
        )
    labels = outer.labels()
    found = [positions(axis, k, labels, inner.shape) for k, axis in enumerate(outer.axes())]
    shape = inner.indexer.result_shape
    if not inner.shape:  # one element, perhaps several times
        operands = [prims.broadcast_in_dim(x, shape, ()) for x in found]
    elif inner.drops:
        operands = [_or_behind_all(x, n, inner) for x, n in zip(found, outer.shape, strict=True)]
    else:
        operands = [access.take(x, inner.indexer, inner.operands) for x in found]
    picks = tuple(Pick() for _ in operands)
    return Indexer(picks, shape), operands


def _or_behind_all(x: Value, size: ir.Dim, inner: Placed) -> Value:
    """What an index reads of positions along an axis; where it lies outside, the first behind the end."""
    count = prims.full((), size, x.dtype)
    x = prims.sub(x, prims.broadcast_in_dim(count, x.shape, ()))
    found = access.take(x, inner.indexer.dropping(), inner.operands)
    return prims.add(found, prims.broadcast_in_dim(count, found.shape, ()))


def positions(axis: Axis, k: int, labels: Sequence[Label], shape: ir.Shape) -> Value:
    """For each element that is selected, where it stands along an axis of the array."""
    position, entry = axis.position, axis.entry
    along = [at for at, label in enumerate(labels) if label == PICK]
    if isinstance(entry, Span):
        position = _affine(position, entry.stride, prims.iota(np.int32, entry.size))
        along = [labels.index(k)]
    elif isinstance(entry, At):
        along = []
    value = arrays.Scalar(np.asarray(position, np.int32)) if isinstance(position, int) else position
    if axis.drops and axis.operand is not None:
        value = _not_from_end(value, axis.size)
    return prims.broadcast_in_dim(value, shape, along)
