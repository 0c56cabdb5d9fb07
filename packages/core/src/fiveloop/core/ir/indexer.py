"""The normal form of `x[index]`: one entry per axis of the array, the same for arrays, tracers and Refs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.ir.avals import Dim, Shape, is_more, same_dim


@dataclass(frozen=True)
class At:
    """One position of an axis, which the result does not have; None: the next operand, a scalar."""

    start: int | None


@dataclass(frozen=True)
class Span:
    """`size` positions from `start` on, `stride` apart; None: the start is the next operand, a scalar.

    The stride may be negative only where the start is static.
    """

    start: int | None
    size: Dim
    stride: int = 1

    @property
    def extent(self) -> Dim:
        """How many positions lie between the first and the last, both included."""
        if same_dim(self.size, 0) or abs(self.stride) == 1:
            return self.size
        return (self.size - 1) * abs(self.stride) + 1

    @property
    def low(self) -> int:
        """The least position of a static span."""
        assert self.start is not None, "unreachable: asked of a static span"
        return self.start if self.stride > 0 else self.start + (self.size - 1) * self.stride


@dataclass(frozen=True)
class Pick:
    """Positions from the next operand, an integer array; all picks go along with each other."""


@dataclass(frozen=True)
class Lane:
    """A batch axis of the indexed array, along which each lane has its own part: the result's axis `lead`."""

    lead: int


Entry: TypeAlias = At | Span | Pick | Lane
Label: TypeAlias = tuple[str, int]
"""An axis of what an index selects: of a batch ("lead"), of a span by the array's axis, of the picks, or new."""


@dataclass(frozen=True)
class Indexer:
    """What `x[index]` reads or writes.

    `entries` has one entry per axis of `x`. The axes of the picks, of shape `pick_shape`, stand in the
    result before its span number `pick_axis`. `new_axes` are the positions in the result (counted without
    batch axes) of axes of size one.

    An index with lanes has leading axes of sizes `lead`, and so has each of its operands: each lane reads with its own
    indices, from its own part of the array if there is a `Lane` for it.

    Operands that are out of bounds are moved until all fits; or, if the index `drops`, what lies outside is not
    written, and is read as zero.
    """

    entries: tuple[Entry, ...]
    pick_shape: Shape = ()
    pick_axis: int = 0
    new_axes: tuple[int, ...] = ()
    lead: Shape = ()
    drops: bool = False

    @property
    def result_shape(self) -> Shape:
        """The shape of a read, or of a value to be written."""
        inner = [e.size for e in self.entries if isinstance(e, Span)]
        inner[self.pick_axis : self.pick_axis] = self.pick_shape
        for position in self.new_axes:
            inner.insert(position, 1)
        return (*self.lead, *inner)

    def labels(self, new: bool = True) -> list[Label]:
        """The axes of what is selected, in order; without the new ones unless `new`."""
        labels = [("span", k) for k, e in enumerate(self.entries) if isinstance(e, Span)]
        picks = [("pick", k) for k in range(len(self.pick_shape))]
        labels[self.pick_axis : self.pick_axis] = picks
        for position in self.new_axes if new else ():
            labels.insert(position, ("new", position))
        return [*[("lead", k) for k in range(len(self.lead))], *labels]

    @property
    def is_block(self) -> bool:
        """Whether it lies evenly in one block: strides are allowed, picks and lanes are not."""
        return not self.lead and not any(isinstance(e, Pick) for e in self.entries)

    @property
    def is_single(self) -> bool:
        """Whether it is a block that begins at positions known at run time alone: a read or write clamps these."""
        entries = [self.entries[axis] for axis in self.dynamic_axes]
        return self.is_block and not any(isinstance(e, Span) and e.extent != 1 for e in entries)

    @property
    def names_each_once(self) -> bool:
        """Whether no element is named twice: there are no picks, and each lane has its own part of the array."""
        lanes = {e.lead for e in self.entries if isinstance(e, Lane)}
        return len(lanes) == len(self.lead) and not any(isinstance(e, Pick) for e in self.entries)

    @property
    def spans(self) -> list[Span]:
        """The entries of a block as spans, along all axes of the array."""
        return [
            e if isinstance(e, Span) else Span(getattr(e, "start", None), 1) for e in self.entries
        ]

    def is_all_of(self, shape: Shape) -> bool:
        """Whether it is a block that holds all elements of an array, in order."""
        if not self.is_block or (self.drops and self.dynamic_axes):
            return False
        pairs = zip(self.spans, shape, strict=True)
        return all(same_dim(s.size, n) and s.start == 0 and s.stride == 1 for s, n in pairs)

    def is_outside(self, shape: Shape) -> bool:
        """Whether some entry does not fit an array of a shape."""
        return any(map(_is_outside, self.entries, shape))

    @property
    def dynamic_axes(self) -> list[int]:
        """The axes of the indexed array whose entries take an operand, in order."""
        return [axis for axis, e in enumerate(self.entries) if is_dynamic(e)]

    def operand_shape(self, axis: int) -> Shape:
        """The shape of the operand of the entry at an axis."""
        return (*self.lead, *(self.pick_shape if isinstance(self.entries[axis], Pick) else ()))

    def with_axis(self, axis: int, size: Dim) -> tuple[Indexer, int]:
        """The index into an array with one more axis, of which it takes all; and which axis of the result that is."""
        entries: list[Entry] = [*self.entries[:axis], Span(0, size), *self.entries[axis:]]
        before = sum(isinstance(e, Span) for e in entries[:axis])
        goes_first = bool(self.pick_shape) and before <= self.pick_axis
        place = before if goes_first else before + len(self.pick_shape)
        for position in self.new_axes:
            place += position < place
        new_axes = tuple(k + (k >= place) for k in self.new_axes)
        pick_axis = self.pick_axis + goes_first
        wider = replace(self, entries=tuple(entries), pick_axis=pick_axis, new_axes=new_axes)
        return wider, len(self.lead) + place

    def with_lanes(self, axis: int | None, size: Dim) -> Indexer:
        """The index for lanes that have their own operands and, along an axis if one is given, parts of the array."""
        entries = [Lane(e.lead + 1) if isinstance(e, Lane) else e for e in self.entries]
        if axis is not None:
            entries.insert(axis, Lane(0))
        return replace(self, entries=tuple(entries), lead=(size, *self.lead))

    def pretty(self, names: Sequence[Any] = (), shape: Shape | None = None) -> str:
        """The index as it is written, with the given operand names; full spans as `:` if `shape` is given.

        A name is marked by `?` where what lies outside is dropped.

        >>> Indexer((At(None), Span(2, 3), Span(0, 4))).pretty(["i"], (8, 8, 4))
        'i, 2:5, :'
        """
        marks = map("{}?".format if self.drops else str, names)
        given = iter([*marks, *["?"] * len(self.entries)])
        sizes = shape or [None] * len(self.entries)
        parts = [self._entry(*pair, given) for pair in zip(self.entries, sizes, strict=True)]
        return ", ".join(parts)

    def dropping(self) -> Indexer:
        """The same index for a write: what lies outside at run time is left out."""
        return replace(self, drops=True) if self.dynamic_axes else self

    def fitting(self) -> Indexer:
        """The same index for a read: what is out of bounds is moved until it fits."""
        return replace(self, drops=False) if self.drops else self

    def _entry(self, e: Entry, size: Dim | None, names: Iterator[str]) -> str:
        match e:
            case At(start):
                return next(names) if start is None else str(start)
            case Pick():
                return next(names)
            case Lane(lead):
                return f"lane {lead}"
            case Span(None, count, stride):
                return f"ds({next(names)}, {count}{f', {stride}' if stride != 1 else ''})"
        if size is not None and same_dim(e.size, size) and e.stride == 1:
            return ":"
        assert e.start is not None, "unreachable: dynamic spans are written above"
        stop = e.start + e.size * e.stride
        bounds = f"{e.start}:{stop if stop >= 0 else ''}"
        return bounds if e.stride == 1 else f"{bounds}:{e.stride}"

    def __str__(self) -> str:
        return self.pretty()


def is_dynamic(e: Entry) -> bool:
    """Whether an entry takes an operand."""
    return isinstance(e, Pick) or (isinstance(e, (At, Span)) and e.start is None)


def is_one(e: Entry) -> TypeGuard[At | Span]:
    """Whether an entry takes one position of its axis, which the result may have or not."""
    return isinstance(e, At) or (isinstance(e, Span) and e.size == 1)


def _is_outside(e: Entry, size: Dim) -> bool:
    """Whether an entry does not fit an axis of a size."""
    match e:
        case At(int(start)):
            return is_more(0, start) or is_more(start + 1, size)
        case Span(None, _, _):
            return is_more(e.extent, size)
        case Span():
            return is_more(0, e.low) or is_more(e.low + e.extent, size)
    return False


def whole_indexer(shape: Shape) -> Indexer:
    """The index of all elements: `x[...]`."""
    return Indexer(tuple(Span(0, n) for n in shape))


@lru_cache(maxsize=4096)
def around_block(indexer: Indexer) -> tuple[Indexer, Indexer]:
    """The block that an index lies in, strides filled up, and the index into that block."""
    outer: list[Entry] = []
    inner: list[Entry] = []
    for e in indexer.entries:
        if not isinstance(e, Span):
            outer.append(e)
            continue
        low = None if e.start is None else e.low
        first = 0 if e.stride > 0 else (e.size - 1) * -e.stride
        outer.append(Span(low, e.extent))
        inner.append(Span(first, e.size, e.stride))
    around = Indexer(tuple(outer), drops=indexer.drops)
    return around, Indexer(tuple(inner), new_axes=indexer.new_axes)
