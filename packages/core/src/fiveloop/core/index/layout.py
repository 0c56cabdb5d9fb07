"""The layout of a view: an array with permuted axes or another shape, and how an index into it maps to the array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import ad, arrays, ir, prims
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index.compose import NEW, PICK, Axis, Placed, Position, positions
from fiveloop.core.ir.indexer import At, Entry, Indexer, Pick, Span

Found: TypeAlias = tuple[Entry, Position | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """An array of shape `old` with its axes in the order `perm`, and that in the shape `new`."""

    old: ir.Shape
    perm: tuple[int, ...]
    new: ir.Shape

    @property
    def between(self) -> ir.Shape:
        """The shape with the axes in their new order."""
        return tuple(self.old[k] for k in self.perm)

    def of(self, x: Value) -> Value:
        """An array in this layout."""
        return prims.reshape(prims.transpose(x, self.perm), self.new)

    def undone(self, x: Value) -> Value:
        """What has this layout, as it was before."""
        return prims.transpose(prims.reshape(x, self.between), prims.inverse(self.perm))

    def before(
        self, indexer: Indexer, operands: ad.Values, drops: bool = False
    ) -> tuple[Indexer, ad.Values, tuple[Layout, ...]]:
        """The index that selects of the array what an index selects of its layout, and the layout of that."""
        placed, layouts = Placed(self.new, indexer, operands, drops), []
        if self.between != self.new:
            placed = Placed(self.between, *_before_reshape(self.between, placed))
            found, wanted = placed.indexer.result_shape, indexer.result_shape
            layouts.append(Layout(found, tuple(range(len(found))), wanted))
        if self.between != self.old or self.perm != tuple(range(len(self.old))):
            placed, layout = _before_transpose(self, placed)
            layouts.insert(0, layout)
        return placed.indexer, placed.operands, tuple(x for x in layouts if not x.is_plain)

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return self.old == self.new and self.perm == tuple(range(len(self.old)))

    def __str__(self) -> str:
        turned = "" if self.perm == tuple(range(len(self.old))) else f".transpose{self.perm}"
        return turned if self.between == self.new else f"{turned}.reshape{self.new}"


def reshaped(shape: ir.Shape, new: Any) -> Layout:
    """An array of a shape in another; one dim may be -1."""
    (aval,) = prims.reshape_aval(
        [ir.ShapedArray(shape, np.bool_)], prims.ReshapeParams(prims.fill_in(shape, new))
    )
    return Layout(shape, tuple(range(len(shape))), aval.shape)


def transposed(shape: ir.Shape, axes: Sequence[int] | None = None) -> Layout:
    """An array of a shape with its axes in another order; reversed if None."""
    order = tuple(range(len(shape)))
    perm = (
        order[::-1] if axes is None else prims.canonical_axes("transpose", axes, len(shape), "axes")
    )
    return Layout(shape, perm, tuple(shape[k] for k in perm))


def before_layouts(
    layouts: Sequence[Layout], indexer: Indexer, operands: ad.Values, *, drops: bool = False
) -> tuple[Indexer, ad.Values, tuple[Layout, ...]]:
    """As `before` of a layout, for a sequence of layouts."""
    left: tuple[Layout, ...] = ()
    for layout in reversed(layouts):
        indexer, operands, found = layout.before(indexer, operands, drops)
        left = (*found, *left)
    return indexer, operands, left


def _before_transpose(layout: Layout, placed: Placed) -> tuple[Placed, Layout]:
    """The index with its entries in the old order; its picks come first in what it selects."""
    axes = [placed.axes()[k] for k in prims.inverse(layout.perm)]
    indexer = Indexer(tuple(axis.entry for axis in axes), placed.indexer.pick_shape)
    before = Placed(layout.old, indexer, [x.operand for x in axes if x.operand is not None])
    at, picks = before.labels(), iter(range(len(indexer.pick_shape)))
    wanted = [label for label in placed.labels() if label != NEW]
    perm = tuple(next(picks) if k == PICK else at.index(layout.perm[int(k)]) for k in wanted)
    return before, Layout(indexer.result_shape, perm, placed.indexer.result_shape)


def _before_reshape(old: ir.Shape, placed: Placed) -> tuple[Indexer, ad.Values]:
    """The index into an array of shape `old` that selects the same elements in the same order."""
    shape = placed.indexer.result_shape
    if ir.is_empty(shape) or (placed.indexer.pick_shape and not old):
        picks = Indexer((Pick(),) * len(old), shape)
        return picks, [arrays.as_value(np.zeros(shape, np.int32))] * len(old)
    return _group_by_group(old, placed) or _by_positions(old, placed)


def _group_by_group(old: ir.Shape, placed: Placed) -> tuple[Indexer, list[Value]] | None:
    """Entries for the axes that are merged or split together; None where no entries stand for an index."""
    axes, labels, picked = placed.axes(), placed.labels(), placed.indexer.pick_shape
    before = labels[: labels.index(PICK)] if PICK in labels else []
    found: list[Found] = [(At(0), None)] * len(old)
    pick_axis, groups = 0, list(_groups(old, placed.shape))
    grouped = {k for _, theirs in groups for k in theirs}
    if any(x.drops and x.operand is not None for k, x in enumerate(axes) if k not in grouped):
        return None  # on an axis of size one, too, an index may be out of bounds
    for ours, theirs in groups:
        entries = _group([old[k] for k in ours], [axes[k] for k in theirs])
        sides = {k in before for k in theirs if k in labels}
        if entries is None or len(sides) == 2:
            return None
        found[ours.start : ours.stop] = entries
        pick_axis += sum(isinstance(e, Span) for e, _ in entries) if True in sides else 0
    if picked and not any(isinstance(e, Pick) for e, _ in found):
        return None
    operands = [x for _, x in found if isinstance(x, Value)]
    return Indexer(tuple(e for e, _ in found), picked, pick_axis), operands


def _groups(old: ir.Shape, new: ir.Shape) -> Iterator[tuple[range, range]]:
    """The runs of axes of both shapes that hold the same elements; axes of size one between them are left out."""
    k = m = 0
    while True:
        k = next((n for n in range(k, len(old)) if old[n] != 1), len(old))
        m = next((n for n in range(m, len(new)) if new[n] != 1), len(new))
        if k == len(old):
            return
        i, j = k + 1, m + 1
        while (ours := prod(old[k:i])) != (theirs := prod(new[m:j])):
            i, j = (i + 1, j) if ours < theirs else (i, j + 1)
        yield range(k, i), range(m, j)
        k, m = i, j


def _group(sizes: Sequence[int], axes: Sequence[Axis]) -> list[Found] | None:
    """The entries for axes of these sizes, of those for axes that hold the same elements."""
    if len(sizes) == len(axes) == 1:
        return [(axes[0].entry, axes[0].operand)]
    count, step, weight = 1, 1, 1
    for axis in reversed(axes):
        e = axis.entry
        if isinstance(e, Span) and e.size > 1:
            if count > 1 and e.stride * weight != count * step:
                return None
            step = step if count > 1 else e.stride * weight
            count *= e.size
        weight *= axis.size
    if count > 1 and any(isinstance(axis.entry, Pick) for axis in axes):
        return None
    at = _number([axis.size for axis in axes], [axis.position for axis in axes])
    found = _spread(sizes, at, count, step)
    moving = [axis for axis in axes if axis.drops and axis.operand is not None]
    if found is None or not moving:
        return found
    return _guarded(found, moving, sizes[0]) if count == 1 else None


def _guarded(found: list[Found], axes: Sequence[Axis], size: int) -> list[Found] | None:
    """The entries of one element, the first of them behind its axis where an index is out of bounds."""
    (entry, place), *rest = found
    each = [_is_inside(arrays.as_value(a.position), a.size) for a in axes]
    inside, row = reduce(prims.bitwise_and, each), arrays.as_value(place)
    return [(entry, prims.select(inside, row, prims.full(row.shape, size, row.dtype))), *rest]


def _spread(sizes: Sequence[int], at: Position, count: int, step: int) -> list[Found] | None:
    """The entries for axes of these sizes that select `count` elements, `step` apart, from number `at` on."""
    out: list[Found] = []
    for row, weight in zip(*_rows(sizes, at), strict=True):
        known = row if isinstance(row, int) else None
        if count == 1:
            out.append((Pick() if isinstance(row, Value) and row.ndim else At(known), row))
        elif step % weight == 0 and (known is not None or step > 0):
            out.append((Span(known, count, step // weight), row))
            count = 1
        elif step == 1 and count % weight == 0 and isinstance(at, int) and at % weight == 0:
            out.append((Span(known, count // weight), None))
            count = weight
        elif isinstance(at, int) and 0 <= at % weight + (count - 1) * step < weight:
            out.append((At(known), None))
        else:
            return None
    return out


def _number(sizes: Sequence[int], places: Sequence[Position]) -> Position:
    """The number, row by row, of the element at a place along each of some axes."""
    wide = prod(sizes) > np.iinfo(np.int32).max
    number: Position = 0
    for k, (size, place) in enumerate(zip(sizes, places, strict=True)):
        place = prims.convert(place, np.int64) if wide and isinstance(place, Value) else place
        number = number * size + place if k else place
    return number


def _rows(sizes: Sequence[int], number: Position) -> tuple[list[Position], list[int]]:
    """The place along each axis of the element of a number, and how many elements one step along it passes."""
    weights = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    places: list[Position] = []
    for weight in weights[:-1]:
        known = isinstance(number, int)
        places.append(number // weight if known else prims.div(number, weight))
        number = number % weight if known else prims.rem(number, weight)
    return [*places, number], weights


def _by_positions(old: ir.Shape, placed: Placed) -> tuple[Indexer, list[Value]]:
    """The index as arrays of positions, one for each old axis."""
    shape, labels = placed.indexer.result_shape, placed.labels()
    along = [positions(axis, k, labels, shape) for k, axis in enumerate(placed.axes())]
    indexer = Indexer((Pick(),) * len(old), shape)
    if not along:
        return indexer, [arrays.as_value(np.zeros(shape, np.int32))] * len(old)
    rows = [arrays.as_value(row) for row in _rows(old, _number(placed.shape, along))[0]]
    if placed.drops:
        inside = reduce(prims.bitwise_and, map(_is_inside, along, placed.shape))
        behind = [prims.full(shape, n, row.dtype) for n, row in zip(old, rows, strict=True)]
        rows = [prims.select(inside, row, n) for row, n in zip(rows, behind, strict=True)]
    return indexer, rows


def _is_inside(place: Value, size: int) -> Value:
    """Whether a place lies along an axis of a size."""
    zero, count = (prims.full(place.shape, n, place.dtype) for n in (0, size))
    return prims.bitwise_and(prims.greater_equal(place, zero), prims.less(place, count))
