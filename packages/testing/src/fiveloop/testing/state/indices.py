"""Random indices of every kind, and what each means to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from fiveloop.core import ds
from fiveloop.core.primitives.elementwise import add
from fiveloop.testing.core.programs import Draw, Scope, Shape, draw_int

HostArray: TypeAlias = "np.ndarray[Any, Any]"
ROOM = 8
"""More than any axis has elements: so far around an array nothing is in bounds."""


@dataclass(frozen=True)
class Plain:
    """An item that both sides take as it is: an integer, a slice, None or `...`."""

    item: Any


@dataclass(frozen=True)
class RunTime:
    """A run-time integer of the program."""

    integer: int


@dataclass(frozen=True)
class Stretch:
    """`ds(start, size, stride)` from a static start or a run-time integer."""

    start: int | RunTime
    size: int
    stride: int = 1


@dataclass(frozen=True)
class Picks:
    """An array of positions; with an integer, that is added to each at run time."""

    positions: tuple[Any, ...]
    integer: int | None = None


Item: TypeAlias = "Plain | RunTime | Stretch | Picks"


@dataclass(frozen=True)
class Index:
    """An index into an array of the given shape, one item after the other."""

    items: tuple[Item, ...]
    shape: Shape

    def library(self, ints: Sequence[Any]) -> Any:
        """The index as fiveloop takes it."""
        return tuple(_library_item(item, ints) for item in self.items)

    def twin(self, ints: Sequence[Any], room: int = 0) -> Any:
        """The index as NumPy takes it, run-time integers resolved; of an array with so much room around it."""
        sized = [_twin_item(item, size, ints, room) for item, size in self._sized()]
        if not room:
            return tuple(sized)
        dots = [k for k, item in enumerate(self.items) if item == Plain(...)]
        at = dots[0] if dots else len(sized)
        used = [not _consumes_nothing(item) for item in self.items]
        first, left = sum(used[:at]), len(self.shape) - sum(used)
        whole = [slice(room, room + n) for n in self.shape[first : first + left]]
        return (*sized[:at], *whole, *sized[at + 1 :])

    def is_outside(self, ints: Sequence[Any]) -> bool:
        """Whether a single run-time integer among its items is out of bounds."""
        found = [(int(ints[i.integer]), n) for i, n in self._sized() if isinstance(i, RunTime)]
        return any(not -n <= k < n for k, n in found)

    def _sized(self) -> list[tuple[Item, int]]:
        """The items with the size of the axis that each consumes."""
        used = sum(not _consumes_nothing(item) for item in self.items)
        sizes = iter(self.shape)
        out: list[tuple[Item, int]] = []
        for item in self.items:
            if item == Plain(...):
                for _ in range(len(self.shape) - used):
                    next(sizes)
                out.append((item, 0))
            else:
                out.append((item, 0 if _consumes_nothing(item) else next(sizes)))
        return out

    @property
    def result_shape(self) -> Shape:
        """The shape of what the index selects; run-time integers have no say in it."""
        return tuple(np.empty(self.shape)[self.twin([0] * 64)].shape)


@dataclass(frozen=True)
class HostIndex:
    """An index of a NumPy array, with the program's integers."""

    index: Index
    ints: Sequence[Any]

    def read(self, array: HostArray) -> HostArray:
        """What is read, where it fits."""
        return np.array(array[self.index.twin(self.ints)])

    def written(self, numbers: HostArray) -> HostArray:
        """Of the numbers of elements those that are written; -1 for what lies outside."""
        if not self.index.items:
            return numbers
        wide = np.pad(numbers, ROOM, constant_values=-1)
        return np.array(wide[self.index.twin(self.ints, ROOM)])

    def update(self, array: HostArray, x: HostArray, combine: Callable[[Any, Any], Any]) -> None:
        """Combine a value with what is written, one element after the other."""
        update(array, self.written(np.arange(array.size).reshape(array.shape)), x, combine)


def update(
    array: HostArray, numbers: HostArray, x: HostArray, combine: Callable[[Any, Any], Any]
) -> None:
    """Combine a value with the elements of these numbers, one after the other; none has the number -1."""
    shares = np.broadcast_to(x, numbers.shape).ravel()
    for number, share in zip(numbers.ravel(), shares, strict=True):
        if number >= 0:
            array.flat[number] = combine(array.flat[number], share)


def second(old: Any, new: Any) -> Any:
    """What a write combines to."""
    return new


def _consumes_nothing(item: Item) -> bool:
    return isinstance(item, Plain) and (item.item is None or item.item is ...)


def _library_item(item: Item, ints: Sequence[Any]) -> Any:
    match item:
        case Plain(x):
            return x
        case RunTime(k):
            return ints[k]
        case Stretch(start, size, stride):
            return ds(ints[start.integer] if isinstance(start, RunTime) else start, size, stride)
        case Picks(positions, None):
            return np.array(positions, np.int32)
        case Picks(positions, int(k)):
            return add(np.array(positions, np.int32), ints[k])


def _twin_item(item: Item, size: int, ints: Sequence[Any], room: int) -> Any:
    match item:
        case Plain(int(i)) if room:
            return i % size + room
        case Plain(slice() as s) if room:
            start, stop, step = s.indices(size)
            return slice(start + room, stop + room, step)
        case Plain(x):
            return x
        case RunTime(k):
            return _resolved(int(ints[k]), size, 1, room)
        case Stretch(start, count, stride):
            extent = (count - 1) * stride + 1
            low = int(ints[start.integer]) if isinstance(start, RunTime) else start
            low = _resolved(low, size, extent, room)
            return slice(low, low + extent, stride)
        case Picks(positions, k):
            flat = np.array(positions, np.int32) + (0 if k is None else int(ints[k]))
            return np.vectorize(lambda i: _resolved(int(i), size, 1, room), otypes=[np.int32])(flat)


def _resolved(i: int, size: int, extent: int, room: int) -> int:
    i = i + size if i < 0 else i
    return max(-room, min(i, size - extent + room)) + room


def draw_index(draw: Draw, scope: Scope, shape: Shape) -> Index:
    """Any index into an array of this shape."""
    picks = draw(st.integers(0, 2)) == 0
    rows = draw(st.integers(1, 3))
    items: list[Item] = [_draw_item(draw, scope, size, picks, rows) for size in shape]
    if items and draw(st.integers(0, 3)) == 0:
        keep = draw(st.integers(0, len(items) - 1))
        items[keep:] = [Plain(...)]
    if draw(st.integers(0, 5)) == 0:
        items.insert(draw(st.integers(0, len(items))), Plain(None))
    return Index(tuple(items), shape)


def _draw_item(draw: Draw, scope: Scope, size: int, picks: bool, rows: int) -> Item:
    if not size:
        return Plain(slice(None))
    kind = draw(
        st.sampled_from(["all", "run time", "static", "slice", "stretch", *["picks"] * picks])
    )
    match kind:
        case "all":
            return Plain(slice(None))
        case "run time":
            return RunTime(draw_int(draw, scope))
        case "static":
            return Plain(draw(st.integers(-size, size - 1)))
        case "slice":
            start, stop = draw(st.integers(-size, size)), draw(st.none() | st.integers(-size, size))
            return Plain(slice(start, stop, draw(st.sampled_from([None, 1, 2, -1, -2]))))
        case "stretch":
            return _draw_stretch(draw, scope, size)
    positions = tuple(draw(st.integers(-size, size - 1)) for _ in range(rows))
    if draw(st.booleans()):
        positions = (positions[0], *positions[:-1])  # the first twice, so that places repeat
    table = draw(st.integers(0, 3)) == 0
    shaped: tuple[Any, ...] = tuple((p,) for p in positions) if table else positions
    return Picks(shaped, draw_int(draw, scope) if draw(st.booleans()) else None)


def _draw_stretch(draw: Draw, scope: Scope, size: int) -> Stretch:
    stride = draw(st.sampled_from([1, 1, 2])) if size >= 3 else 1
    count = draw(st.integers(1, (size - 1) // stride + 1))
    extent = (count - 1) * stride + 1
    if draw(st.booleans()):
        return Stretch(RunTime(draw_int(draw, scope)), count, stride)
    return Stretch(draw(st.integers(0, size - extent)), count, stride)
