"""The normal form of `x[index]`: one entry per axis of the array, the same for arrays, tracers and Refs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from fiveloop.core import errors, ir


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
    size: ir.Dim
    stride: int = 1

    @property
    def extent(self) -> ir.Dim:
        """How many positions lie between the first and the last, both included."""
        if ir.same_dim(self.size, 0) or abs(self.stride) == 1:
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
    """A batch axis of the indexed array, which is the result's axis `lead`, in front of all others."""

    lead: int


Entry: TypeAlias = At | Span | Pick | Lane


@dataclass(frozen=True)
class Indexer:
    """What `x[index]` reads or writes.

    `entries` has one entry per axis of `x`. The axes of the picks, of shape `pick_shape`, stand in the
    result before its span number `pick_axis`. `new_axes` are the positions in the result (counted without
    batch axes) of axes of size one.

    A batched indexer has leading axes of sizes `lead`. Where `paired` says so, each operand has that axis
    too, so that each lane reads with its own indices (from its own array, if there is a `Lane` for it);
    where not, all lanes read at the same place of their own arrays.

    Operands that are out of bounds are moved until all fits; or, if the index `drops`, what lies outside is not
    written, and is read as zero.
    """

    entries: tuple[Entry, ...]
    pick_shape: ir.Shape = ()
    pick_axis: int = 0
    new_axes: tuple[int, ...] = ()
    lead: ir.Shape = ()
    paired: tuple[bool, ...] = ()
    drops: bool = False

    @property
    def result_shape(self) -> ir.Shape:
        """The shape of what is read, or of what can be written."""
        inner = [e.size for e in self.entries if isinstance(e, Span)]
        inner[self.pick_axis : self.pick_axis] = self.pick_shape
        for position in self.new_axes:
            inner.insert(position, 1)
        return (*self.lead, *inner)

    @property
    def is_plain(self) -> bool:
        """Whether it is one block: no picks, no strides, the same place in all lanes."""
        return self.is_block and all(e.stride == 1 for e in self.entries if isinstance(e, Span))

    @property
    def is_block(self) -> bool:
        """Whether it lies evenly in one block: strides are allowed, picks and paired lanes are not."""
        return not any(self.paired) and not any(isinstance(e, Pick) for e in self.entries)

    @property
    def dynamic_axes(self) -> list[int]:
        """The axes of the indexed array whose entries take an operand, in order."""
        return [axis for axis, e in enumerate(self.entries) if is_dynamic(e)]

    @property
    def operand_lead(self) -> ir.Shape:
        """The leading axes that every operand has."""
        return tuple(n for n, paired in zip(self.lead, self.paired, strict=True) if paired)

    def operand_shape(self, axis: int) -> ir.Shape:
        """The shape of the operand of the entry at an axis."""
        own = self.pick_shape if isinstance(self.entries[axis], Pick) else ()
        return (*self.operand_lead, *own)

    def pretty(self, names: Sequence[Any] = (), shape: ir.Shape | None = None) -> str:
        """The index as it is written, with the given operand names; full spans as `:` if `shape` is given.

        A name is marked by `?` where what lies outside is dropped.

        >>> Indexer((At(None), Span(2, 3), Span(0, 4))).pretty(["i"], (8, 8, 4))
        'i, 2:5, :'
        """
        marks = map("{}?".format if self.drops else str, names)
        given = iter([*marks, *["?"] * len(self.entries)])
        parts = [
            self._entry(e, given, shape[axis] if shape is not None else None)
            for axis, e in enumerate(self.entries)
        ]
        return ", ".join(parts)

    def dropping(self) -> Indexer:
        """The same index for a write: what lies outside at run time is left out."""
        return replace(self, drops=True) if self.dynamic_axes else self

    def fitting(self) -> Indexer:
        """The same index for a read: what is out of bounds is moved until it fits."""
        return replace(self, drops=False) if self.drops else self

    def _entry(self, e: Entry, names: Iterator[str], size: ir.Dim | None) -> str:
        match e:
            case At(start):
                return next(names) if start is None else str(start)
            case Pick():
                return next(names)
            case Lane(lead):
                return f"lane {lead}" if self.paired[lead] else ":"
            case Span(None, count, stride):
                return f"ds({next(names)}, {count}{f', {stride}' if stride != 1 else ''})"
        if size is not None and ir.same_dim(e.size, size) and e.stride == 1:
            return ":"
        assert e.start is not None, "unreachable: dynamic spans are written above"
        start = e.start
        stop = start + e.size * e.stride
        bounds = f"{start}:{stop if stop >= 0 else ''}"
        return bounds if e.stride == 1 else f"{bounds}:{e.stride}"

    def __str__(self) -> str:
        return self.pretty()


def is_dynamic(e: Entry) -> bool:
    """Whether an entry takes an operand."""
    return isinstance(e, Pick) or (isinstance(e, (At, Span)) and e.start is None)


@dataclass(frozen=True)
class DynamicSpan:
    """The index that `ds` makes: `size` positions from a start that may be known only at run time."""

    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: int, stride: int = 1) -> DynamicSpan:
    """An index of `size` positions from `start` on, where the start may be a traced integer.

    A negative start counts from the end. A traced one is clamped for a read, so that the span fits; a write leaves out
    the positions that are outside. A start that is a Python number must fit.

    >>> ds(2, 3)
    DynamicSpan(start=2, size=3, stride=1)
    """
    given: dict[str, Any] = {"size": size, "stride": stride}
    for name, x in given.items():
        if not isinstance(x, int) or isinstance(x, bool):
            raise TypeError(
                f"ds: expected an int as {name}, got {x!r}; sizes must be known while tracing: {errors.STATIC}"
                f"{errors.at_source(ir.user_source())}"
            )
    if size < 0 or stride < 1:
        raise ValueError(
            f"ds: expected size >= 0 and stride >= 1, got {size} and {stride}{errors.at_source(ir.user_source())}"
        )
    return DynamicSpan(start, size, stride)


def whole_indexer(shape: ir.Shape) -> Indexer:
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
