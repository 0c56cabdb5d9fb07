"""Phases: the form of a loop's step that XLA keeps in place.

In the body of a loop, writes wait. A read goes to the contents at the start of the phase, and is forwarded
from a waiting write where the index is the same. At the end of a phase the values and indices of the
waiting writes, every value read before that is used after, and whole arrays made of such values, pass
through `order`; then all writes are carried out in program order. A write in a later phase whose value
depends on nothing that has passed an order passes through one more, that comes after the first. So no read can be
moved past a write of its array, which would make XLA copy the array in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Protocol
from typing import Literal as OneOf

import numpy as np

from fiveloop.core import Value, ad, arrays, ir, prims, util
from fiveloop.core.dataclass import replace
from fiveloop.core.index import access as indexing
from fiveloop.core.index import bounds as index_bounds
from fiveloop.core.index import overlap as index_overlap
from fiveloop.core.ir.indexer import Entry, Indexer, Span, around_block, is_dynamic, is_one
from fiveloop.state.discharge import table
from fiveloop.state.discharge.table import Cell, Operands, Place, Write

Crossing = Callable[[Cell | None], list[Value]]


class Trace(Protocol):
    """What values of a step depend on."""

    def is_ordered(self, x: Value) -> bool:
        """Whether a value depends on what has passed an order in this step."""

    def is_open(self, x: Value) -> bool:
        """Whether it depends on elements read in this phase, and so has not passed an order since."""


class DischargeContext:
    """What a discharge rule may do with the Refs among its operands, each given as a `Cell`; it keeps the phases.

    `index` is the loop's counter; without one, writes happen at once. `crossing` gives the values computed so far that
    are used later, of one Ref's parts if one is named, and `replace` takes the ordered values that stand for them;
    `trace` knows what values depend on. With `once` the program is no part of a loop and is about to be compiled: reads
    of parts of large Refs are ordered before each write. If `unrolled`, a step may be followed by another one, whose
    reads must not pass its writes either.
    """

    def __init__(
        self,
        index: Value | None,
        crossing: Crossing,
        replace: Callable[[ad.Values, ad.Values], None],
        trace: Trace | None = None,
        *,
        once: bool = False,
        unrolled: bool = False,
    ) -> None:
        self.index = index
        self.once = once
        self.unrolled = unrolled
        self._crossing = crossing
        self._replace = replace
        self._trace = trace
        self._cells: list[Cell] = []
        self._has_read = False
        self._reads: list[tuple[Cell, Place | None]] = []
        self._made_from_reads: list[Cell] = []
        self._flushes = 0
        self._places: dict[tuple[object, ...], Place] = {}
        self._clamped: set[tuple[object, ...]] = set()
        self._twins: dict[int, tuple[Value, Value]] = {}
        self._held: list[Value] = []

    def new_cell(self, contents: Value, changes: bool = True) -> Cell:
        """A new Ref with the given contents; `changes` says whether anything writes to it."""
        cell = Cell(contents, changes)
        self._cells.append(cell)
        return cell

    def read(self, cell: Cell, indexer: Indexer, index: ad.Values) -> Value:
        """What the Ref holds at an index, waiting writes included."""
        if is_whole(indexer, cell.contents.shape):
            return self.contents(cell)
        if indexer.drops and index_bounds.can_be_masked(indexer):
            found = self.read(cell, indexer.fitting(), index)
            return index_bounds.zero_outside(cell.contents.shape, indexer, index, found)
        place = self.place(cell, indexer, index)
        forwarded = self.forwarded(cell, place)
        if forwarded is None:
            self.flush()
            forwarded = self._taken(cell, self.place(cell, indexer, index))
        return forwarded

    def _taken(self, cell: Cell, place: Place) -> Value:
        self._note_read(cell, place)
        return indexing.take(cell.contents, place.indexer, place.starts, resolved=True)

    def forwarded(self, cell: Cell, place: Place) -> Value | None:
        """The element, corrected by each waiting write; None if some overlap cannot be told."""
        relations = [relation(w.place, place) for w in cell.writes]
        if place.indexer.drops and set(relations) - {"apart"}:
            return None  # of what is outside, nothing is there to be read
        if "unknown" in relations or any(
            w.kind != "set" and r != "apart" for w, r in zip(cell.writes, relations, strict=True)
        ):
            return None
        if "same" in relations and not place.indexer.names_each_once:
            return (
                None  # of an element written twice at once, only the last value is there to be read
            )
        last = max((k for k, r in enumerate(relations) if r == "same"), default=-1)
        value = cell.writes[last].value if last >= 0 else self._taken(cell, place)
        for write, rel in zip(cell.writes[last + 1 :], relations[last + 1 :], strict=True):
            # A choice between equal numbers is a number to XLA, and would not wait in an order.
            if isinstance(rel, list) and not same_number(write.value, value):
                value = prims.select(_all_equal(rel, place.indexer), write.value, value)
        return value

    def write(self, cell: Cell, indexer: Indexer, index: ad.Values, x: Value) -> None:
        """Let a write wait; outside loops it is carried out now.

        A block that may be outside is written where it fits: what it does not name there is written back.
        """
        x = self.latest(x)
        if is_whole(indexer, cell.contents.shape):
            self._assign_value(cell, x, x)
            return
        if indexer.drops and indexer.is_block and index_bounds.can_be_masked(indexer):
            inside = self._fitting(cell, indexer, index)
            with self.holding([x]):
                old = self.read(cell, inside, index)
            x = index_bounds.old_outside(cell.contents.shape, indexer, index, self.latest(x), old)
            indexer = inside
        gaps = any(isinstance(e, Span) and abs(e.stride) > 1 for e in indexer.entries)
        if self.once and gaps and indexer.is_block:
            # A write that keeps what lies between reads: better here than after what is ordered.
            around, within = around_block(indexer)
            block = self.read(cell, around, index)
            self.write(cell, around, index, indexing.put(block, within, [], x, "set"))
            return
        place = self.place(cell, indexer, index)
        cell.writes = [w for w in cell.writes if relation(w.place, place) != "same"]
        cell.writes.append(Write(place, x))
        self._settle()

    def accumulate(
        self, cell: Cell, indexer: Indexer, index: ad.Values, x: Value, monoid: str = "add"
    ) -> None:
        """Combine with an element, by the monoid of that name: read it and write it, unless the index may repeat."""
        combine = prims.MONOIDS[monoid].combine
        if is_whole(indexer, cell.contents.shape):
            old = self.contents(cell)
            self._assign_value(cell, combine(old, self.latest(x)), self.latest(x))
        elif indexer.names_each_once:
            # What is outside is not written, whatever is read for it.
            masked = indexer.drops and index_bounds.is_all_or_none(indexer)
            inside = self._fitting(cell, indexer, index) if masked else indexer
            old = self.read(cell, inside, index)
            self.write(cell, indexer, index, combine(old, self.latest(x)))
        else:
            cell.writes.append(Write(self.place(cell, indexer, index), x, monoid))
            self._settle()

    def contents(self, cell: Cell) -> Value:
        """All that the Ref holds; in a loop this ends the phase if any element has been touched."""
        if cell.changes and (self._has_read or cell.writes):
            self.flush()
        return cell.contents

    def values(self, operands: Operands) -> list[Value]:
        """The operands with all that each Ref holds in its place."""
        for x in operands:
            if isinstance(x, Cell):
                self.contents(x)  # this may end a phase
        return [x.contents if isinstance(x, Cell) else self.latest(x) for x in operands]

    def peek(self, cell: Cell) -> Value:
        """All that the Ref holds, for reading at indices: in a loop this ends the phase only if a write waits."""
        if cell.writes:
            self.flush()
        self._note_read(cell)
        return cell.contents

    def _note_read(self, cell: Cell, place: Place | None = None) -> None:
        if cell.changes:
            self._has_read = True
            self._reads.append((cell, place))

    def assign(self, cell: Cell, contents: Value) -> None:
        """Replace all that the Ref holds."""
        cell.writes.clear()
        cell.contents = contents
        self._made_from_reads = [c for c in self._made_from_reads if c is not cell]

    def _assign_value(self, cell: Cell, contents: Value, given: Value) -> None:
        """The same with what was computed, of a value that was given, which may come from elements just read."""
        self.assign(cell, contents)
        if self._trace is not None and self._trace.is_open(given):
            self._made_from_reads.append(cell)

    @property
    def num_reads(self) -> int:
        """How often elements of Refs that change have been read."""
        return len(self._reads)

    def flush(self, last: bool = False, apart: bool = False) -> None:
        """End the phase: order the reads before the writes, then write.

        A step of a single phase, alone in its turn, needs no order if it writes once, or once to each Ref and the Refs
        are independent (`apart`). But a whole array computed from its reads must be the written value, and depend on
        the elements at the place of the write alone.
        """
        waiting = [(cell, write) for cell in self._cells for write in cell.writes]
        once_each = apart and all(len(cell.writes) <= 1 for cell in self._cells)
        alone = last and self._flushes == 0 and not self.unrolled
        keeps = not self._made(waiting) and not self._hands_on(waiting)
        simple = alone and keeps and (once_each or len(waiting) <= 1)
        if self.index is not None and not simple and (self._has_read or self._is_late(waiting)):
            self._end_phase(self.index, waiting, last)
        elif self.once and self._has_read:
            self._order_once(waiting)
        for cell, write in waiting:
            at = write.place
            cell.contents = indexing.put(
                cell.contents, at.indexer, at.starts, write.value, write.kind, resolved=True
            )
        for cell in self._cells:
            cell.writes.clear()
        self._made_from_reads.clear()
        self._has_read = False
        self._flushes += 1

    def _end_phase(self, index: Value, waiting: Sequence[tuple[Cell, Write]], last: bool) -> None:
        """Order the values read, and values computed from them, before the writes."""
        made = self._made(waiting)
        crossing = made if last else [*self._crossing(None), *map(self.latest, self._held), *made]
        crossing = list({id(x): x for x in crossing}.values())
        marks = self._order(index, [w for _, w in waiting], crossing, [] if last else [index])
        for cell in self._made_from_reads:
            cell.contents = self.latest(cell.contents)
        # What is ordered by a mark comes later than all that has been read so far.
        self.index = marks[0] if marks else index

    def _made(self, waiting: Sequence[tuple[Cell, Write]]) -> list[Value]:
        """The whole arrays made of elements read in this phase that are not written at an index as well."""
        written = {id(w.value) for _, w in waiting}
        return [c.contents for c in self._made_from_reads if id(c.contents) not in written]

    def _hands_on(self, waiting: Sequence[tuple[Cell, Write]]) -> bool:
        """Whether a Ref holds what is written, too, and elements around it have been read."""
        return bool(self._made_from_reads) and any(
            cell is read and (place is None or relation(write.place, place) != "same")
            for cell, write in waiting
            for read, place in self._reads
        )

    def _is_late(self, waiting: Sequence[tuple[Cell, Write]]) -> bool:
        """Whether a write, to what an earlier phase has read, depends on nothing ordered there: it would come first."""
        return self._trace is not None and any(
            any(cell is c for c, _ in self._reads) and not self._trace.is_ordered(write.value)
            for cell, write in waiting
        )

    def _order_once(self, waiting: Sequence[tuple[Cell, Write]]) -> None:
        """Outside of loops: let a write of a small part of a large Ref pass, and what has been made from its parts."""
        for cell, write in waiting:
            is_large = not ir.is_more(LARGE, ir.size_of(cell.contents.shape))
            if is_large and is_small(write.value, cell):
                crossing = [*self._crossing(cell), *map(self.latest, self._held)]
                small = [x for x in crossing if is_small(x, cell)]
                self._order(opaque_index(write, cell), [write], small)

    def _order(
        self, index: Value, writes: Sequence[Write], crossing: ad.Values, marks: ad.Values = ()
    ) -> list[Value]:
        """Let the values and positions of the writes pass, what crosses, and marks, of which the twins are given.

        A position that is not read from what changes may stay outside of a branch.
        """
        if not writes and not crossing:
            return []
        read = [self._is_read(w.place) for w in writes]
        needed = [x for w, r in zip(writes, read, strict=True) if r for x in w.place.starts]
        light = [x for w, r in zip(writes, read, strict=True) if not r for x in w.place.starts]
        groups = [[w.value for w in writes], needed, crossing, marks, light]
        passed = prims.order(index, *[x for group in groups for x in group], light=len(light))
        values, needed, after, marks, light = util.split_list(passed, [len(g) for g in groups[:-1]])
        starts = {True: iter(needed), False: iter(light)}
        for w, value, r in zip(writes, values, read, strict=True):
            self._twins[id(w.value)] = (w.value, value)
            w.value = value
            w.place = replace(w.place, starts=tuple(next(starts[r]) for _ in w.place.starts))
        self._twins.update((id(x), (x, y)) for x, y in zip(crossing, after, strict=True))
        self._replace(crossing, after)
        return list(marks)

    def _is_read(self, place: Place) -> bool:
        """Whether an index is read from what changes, and has not passed an order since."""
        return self._trace is None or any(map(self._trace.is_open, place.index))

    @contextmanager
    def holding(self, values: ad.Values) -> Iterator[None]:
        """Within the block these values, too, are used later; `latest` tells what has become of them."""
        before, self._held = self._held, [*self._held, *values]
        try:
            yield
        finally:
            self._held = before

    def latest(self, x: Value) -> Value:
        """A value as it came out of the phases that have ended since a rule was given it: `contents` may end one."""
        while id(x) in self._twins:
            x = self._twins[id(x)][1]
        return x

    def _settle(self) -> None:
        if self.index is None:
            self.flush()

    def _fitting(self, cell: Cell, indexer: Indexer, index: ad.Values) -> Indexer:
        """The index where it fits; its place is in range: XLA reads and writes at one such place in one fusion."""
        inside = indexer.fitting()
        self.place(cell, inside, index, clamp=True)
        return inside

    def place(self, cell: Cell, indexer: Indexer, index: ad.Values, clamp: bool = False) -> Place:
        """The place of an index in a Ref, worked out once a phase; one that nothing changes does not wait for a clamp.

        An index read in an earlier phase is taken as ordered at the end of that phase: else it would be read again.
        """
        shape, index = cell.contents.shape, [self.latest(x) for x in index]
        key: tuple[object, ...] = (shape, indexer, *map(id, index))
        if clamp:
            self._clamped.add(key)
        elif not cell.changes and key in self._clamped:
            key = (key, "as it is")
        if key not in self._places:
            clamp = clamp or not indexer.is_single
            starts = tuple(indexing.resolve(shape, indexer, index, clamp=clamp))
            self._places[key] = Place(indexer, tuple(index), shape, starts)
        return self._places[key]


def positions(place: Place) -> tuple[Value, ...]:
    """The index of a place as numbers that are equal exactly if elements are; in range, or it drops."""
    if not place.indexer.is_single:
        return place.starts
    return tuple(indexing.resolve(place.shape, place.indexer, place.index))


def _all_equal(pairs: Sequence[tuple[Value, Value]], indexer: Indexer) -> Value:
    """Whether all positions are equal, in the shape of what the index reads."""
    out = reduce(prims.bitwise_and, [prims.equal(a, b) for a, b in pairs])
    if not out.shape:
        return out
    return prims.broadcast_in_dim(out, indexer.result_shape, range(len(indexer.lead)))


LARGE = 2**14
"""From about this many elements on, copying an array takes longer than ordering."""
SMALL_PART = 4
"""What is at most this part of an array is worth passing by, so that the array is not copied."""


class PartReads:
    """Which values have been made from parts of which Refs."""

    def __init__(self) -> None:
        self._sources: dict[ir.Var, frozenset[int]] = {}
        self._cells: list[table.Cell] = []

    def note(self, eqn: ir.Eqn, inputs: Iterable[ir.Var], operands: Sequence[Any]) -> None:
        """Take note of what an equation gives."""
        sources = frozenset[int]().union(*(self._sources.get(v, ()) for v in inputs))
        indexer, cell = getattr(eqn.params, "indexer", None), operands[0] if operands else None
        if isinstance(indexer, Indexer) and isinstance(cell, table.Cell):
            self._cells.append(cell)  # so that its id stays its own
            if not is_whole(indexer, cell.contents.shape):
                sources |= {id(cell)}
        if sources:
            self._sources.update((v, sources) for v in eqn.outvars)

    def of(self, cell: table.Cell) -> list[ir.Var]:
        """What has been made from parts of a Ref."""
        return [v for v, sources in self._sources.items() if id(cell) in sources]


def is_small(x: Value, cell: table.Cell) -> bool:
    """Whether a value is small beside what a Ref holds."""
    count, size = ir.size_of(x.shape), ir.size_of(cell.contents.shape)
    return not ir.is_more(count * SMALL_PART, size)


def opaque_index(write: table.Write, cell: table.Cell) -> Value:
    """A number that is never negative, which the compiler does not know: `order` takes it for a counter."""
    for position in positions(write.place):
        is_number = not position.shape and position.dtype == np.int32
        if is_number and not isinstance(position, arrays.Scalar):
            return position
    bit = lowest_bit(cell.contents)
    # The reading of it must not be repeated after the write, so what is given is past an order of its own.
    return prims.order(bit, bit)[0]


def lowest_bit(x: Value) -> Value:
    """The lowest bit of the first number of an array, as an integer: no compiler knows that it is 0 or 1."""
    first = prims.reshape(prims.static_slice(x, [0] * x.ndim, [1] * x.ndim), ())
    number = prims.real(first) if first.dtype.kind == "c" else first
    return prims.bitwise_and(prims.convert(number, np.int32), np.int32(1))


Pair = tuple[Value, Value]
Known = OneOf["same", "apart", "unknown"]
Relation = Known | list[Pair]


def relation(x: Place, y: Place) -> Relation:
    """How two places relate.

    Pairs of positions, at least one, are given where the places are the same if all are equal, and apart otherwise;
    where lanes go their own way, positions have the batch axes in front.
    "unknown" says that they may overlap in part.
    """
    known = known_relation(x.indexer, x.index, y.indexer, y.index)
    if known != "unknown":
        return known
    if x.indexer.result_shape != y.indexer.result_shape or x.indexer.lead != y.indexer.lead:
        return "unknown"
    if x.indexer.new_axes != y.indexer.new_axes:
        return "unknown"
    return _pairs(x, y)


def known_relation(
    x: Indexer, x_index: Sequence[object], y: Indexer, y_index: Sequence[object]
) -> Known:
    """How the places of two indices relate whatever they are at run time, as far as can be seen.

    Two dropping indices that are the "same" may select nothing: then a read does not return the written value.
    The operands are values or stand-ins for values: equal operands are one object, or equal numbers.
    """
    if x == y:
        pairs = zip(x_index, y_index, strict=True)
        return "same" if all(same_value(a, b) for a, b in pairs) else "unknown"
    return "apart" if index_overlap.always_apart(x, y) else "unknown"


def same_value(x: object, y: object) -> bool:
    """Whether two values are known to be equal: one value, or equal numbers."""
    if x is y:
        return True
    return (
        isinstance(x, arrays.Scalar) and isinstance(y, arrays.Scalar) and int(x.host) == int(y.host)
    )


def same_number(x: Value, y: Value) -> bool:
    """Whether two values are one, or the same number bit for bit, of one type."""
    if not (isinstance(x, arrays.Scalar) and isinstance(y, arrays.Scalar)):
        return x is y
    return x.aval is y.aval and np.asarray(x.host).tobytes() == np.asarray(y.host).tobytes()


def is_whole(indexer: Indexer, shape: Sequence[int]) -> bool:
    """Whether an index names all elements, each at its own place."""
    same_shape = indexer.result_shape == tuple(shape) and not indexer.new_axes
    return same_shape and indexer.is_all_of(tuple(shape))


def _pairs(x: Place, y: Place) -> Relation:
    ours, theirs = iter(positions(x)), iter(positions(y))
    pairs: list[Pair] = []
    for a, b in zip(x.indexer.entries, y.indexer.entries, strict=True):
        mine, its = _position(a, ours), _position(b, theirs)
        if mine is not None and its is not None:
            pairs.append((mine, its))
        elif a != b or is_dynamic(a):
            return "unknown"
    return [(a, b) for a, b in pairs if not same_value(a, b)] or "same"


def _position(entry: Entry, positions: Iterator[Value]) -> Value | None:
    """The position of an entry that selects a single element; None for other entries."""
    if not is_one(entry):
        return None
    if entry.start is not None:
        return arrays.Scalar(np.asarray(entry.start, np.int32))
    return next(positions)
