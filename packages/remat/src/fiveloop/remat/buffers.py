"""Buffers: the memory that values fill from one equation to another, and where they have room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate

from fiveloop.core import ir
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.inspect import ready_jaxpr


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that one value, or one after the other in place, fills from an equation to another, both included.

    `eqn` makes the last of these values, as its result at `position`.
    """

    bytes: int
    eqn: ir.Eqn
    position: int
    start: int
    end: int
    path: tuple[str, ...] = ()


def alive(buffers: Iterable[Buffer], num: int) -> list[int]:
    """How many bytes are alive while each of so many equations runs."""
    changes = [0] * (num + 1)
    for buffer in buffers:
        changes[buffer.start] += buffer.bytes
        changes[buffer.end + 1] -= buffer.bytes
    return list(accumulate(changes[:-1]))


@dataclass(frozen=True, slots=True)
class Invariant:
    """A value that is the same in all steps of a loop: its buffer, and the binders of which it is made, by position."""

    buffer: Buffer
    binders: frozenset[int]


@dataclass(frozen=True)
class Timeline:
    """The buffers of a program; `inner` are the timelines of what loops and branches hold, by the equation's place.

    `numbers` say of which equation of the jaxpr, by its place there, each equation is, or is a part. Of a loop's step
    `invariant` is what the compiler computes before the loop. `copied` are the binders, by position, that loops change
    copies of, and the bytes of these.
    """

    eqns: tuple[ir.Eqn, ...]
    buffers: tuple[Buffer, ...]
    inner: dict[int, Timeline]
    numbers: tuple[int, ...]
    invariant: tuple[Invariant, ...] = ()
    copied: tuple[tuple[int, int], ...] = ()

    @cached_property
    def bytes(self) -> tuple[int, ...]:
        """How many bytes are alive while each equation runs, the most of what runs within it included."""
        alive_here = alive(self.buffers, len(self.eqns))
        for place, inside in self.inner.items():
            alive_here[place] += inside.peak
        return tuple(alive_here)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many equations run at each place, those within included."""
        within = {place: sum(inside.sizes) for place, inside in self.inner.items()}
        return tuple(within.get(place) or 1 for place in range(len(self.eqns)))

    @cached_property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return max(self.bytes, default=0)

    def kept(self, turn: int) -> int:
        """The bytes that are there both before and from a place on."""
        return sum(b.bytes for b in self.buffers if b.start < turn <= b.end)

    @property
    def at_peak(self) -> tuple[Buffer, ...]:
        """The buffers that are alive at the peak, the largest first."""
        if not self.eqns:
            return ()
        place = self.bytes.index(self.peak)
        found = [b for b in self.buffers if b.start <= place <= b.end and b.bytes]
        inside = self.inner[place].at_peak if place in self.inner else ()
        return tuple(sorted([*found, *inside], key=lambda b: -b.bytes))


def backward_begins(line: Timeline, jaxpr: ir.Jaxpr, num_cts: int) -> int:
    """The place that best parts the equations that depend on the last inputs, the cotangents, from the others.

    The two are not wholly apart: the value of the loss may be computed last, and its cotangent be divided first.
    """
    ready = ready_jaxpr(jaxpr)
    late = ir.reachable(ready, ready.invars[len(ready.invars) - num_cts :])
    early = {k for k, eqn in enumerate(ready.eqns) if late.isdisjoint(eqn.outvars)}
    signed = [n if k in early else -n for n, k in zip(line.sizes, line.numbers, strict=True)]
    in_place = [0, *accumulate(signed)]
    return in_place.index(max(in_place))


@dataclass(frozen=True, slots=True)
class Over:
    """The values over which a value may be `written`.

    What is `updated` in place shares memory with its updates alone, but where both have room in one result.
    """

    written: Mapping[int, Sequence[int]]
    updated: Set[int]

    def alone(self, v: int) -> Iterator[int]:
        """What a value may be written over in memory that holds no result."""
        found = () if v in self.updated else self.written.get(v, ())
        return (x for x in found if x not in self.updated)


def in_memory(
    made: Mapping[int, Buffer],
    results: Set[int],
    over: Over,
    rooms: Mapping[int, Sequence[int]],
) -> list[Buffer]:
    """The buffers of no results that need memory of their own; one is that of values written over each other.

    The others have room where one of the results is written only later, beside what is in its `rooms`. As in XLA
    the largest come first, then those made first, each where what it may be written over has room, or in the smallest
    result that holds it, of equal ones in the one made last.
    """
    order = sorted(made, key=lambda v: -made[v].bytes)
    taken = {v: [*rooms[v]] for v in reversed(order) if v in rooms}
    room: dict[int, int] = {}
    left: dict[int, Buffer] = {}
    for v in order:
        if v in results:
            continue
        for r in [*(room[x] for x in over.alone(v) if x in room), *taken]:
            if made[r].bytes >= made[v].bytes and _is_free(taken[r], v, made, over):
                taken[r].append(v)
                room[v] = r
                break
        else:
            left[v] = made[v]
    return _merged(left, over)


def _is_free(taken: Iterable[int], v: int, made: Mapping[int, Buffer], over: Over) -> bool:
    """Whether a buffer's time overlaps with none that is taken, but where one is written over the other."""
    start, end = made[v].start, made[v].end
    for w in taken:
        before, behind = made[w].end - start, end - made[w].start
        if before < 0 or behind < 0:
            continue
        if (before or w not in over.written.get(v, ())) and (
            behind or v not in over.written.get(w, ())
        ):
            return False
    return True


def _merged(left: dict[int, Buffer], over: Over) -> list[Buffer]:
    """The buffers, with those that are written over each other as one."""
    for v in sorted(left, key=lambda v: -left[v].start):
        x = next((x for x in over.alone(v) if x in left), None)
        if x is not None:
            left[x] = replace(left.pop(v), start=left[x].start)
    return [*left.values()]
