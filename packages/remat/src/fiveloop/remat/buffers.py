"""Buffers: the memory that values fill from one equation to another, and where they have room."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from fiveloop.core import ir
from fiveloop.core.dataclass import dataclass


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


@dataclass(frozen=True)
class Timeline:
    """The buffers of a program; `inner` are the timelines of what loops and branches hold, by the equation's place.

    `numbers` say of which equation of the jaxpr, by its place there, each equation is, or is a part.
    """

    eqns: tuple[ir.Eqn, ...]
    buffers: tuple[Buffer, ...]
    inner: dict[int, Timeline]
    numbers: tuple[int, ...]

    @cached_property
    def bytes(self) -> tuple[int, ...]:
        """How many bytes are alive while each equation runs, the most of what runs within it included."""
        changes = [0] * (len(self.eqns) + 1)
        for buffer in self.buffers:
            changes[buffer.start] += buffer.bytes
            changes[buffer.end + 1] -= buffer.bytes
        alive = list(accumulate(changes[:-1]))
        for place, inside in self.inner.items():
            alive[place] += inside.peak
        return tuple(alive)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many equations run at each place, those within included."""
        within = {place: sum(inside.sizes) for place, inside in self.inner.items()}
        return tuple(within.get(place) or 1 for place in range(len(self.eqns)))

    @cached_property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return max(self.bytes, default=0)

    @property
    def at_peak(self) -> tuple[Buffer, ...]:
        """The buffers that are alive at the peak, the largest first."""
        if not self.eqns:
            return ()
        place = self.bytes.index(self.peak)
        found = [b for b in self.buffers if b.start <= place <= b.end and b.bytes]
        inside = self.inner[place].at_peak if place in self.inner else ()
        return tuple(sorted([*found, *inside], key=lambda b: -b.bytes))


def without_room(buffers: Sequence[Buffer], results: Sequence[Buffer]) -> list[Buffer]:
    """The buffers that need memory of their own: the others have room where a result is written only later.

    The largest come first, each to the smallest result that holds it.
    """
    rooms = [(r, list[tuple[int, int]]()) for r in sorted(results, key=lambda r: r.bytes)]
    left = []
    for b in sorted(buffers, key=lambda b: -b.bytes):
        for result, taken in rooms:
            if result.bytes >= b.bytes and b.end < result.start and _is_free(taken, b):
                insort(taken, (b.start, b.end))
                break
        else:
            left.append(b)
    return left


def _is_free(taken: Sequence[tuple[int, int]], b: Buffer) -> bool:
    """Whether a buffer's time overlaps with none that is taken; these are sorted, and do not overlap."""
    place = bisect(taken, (b.start, b.end))
    after = place == len(taken) or taken[place][0] > b.end
    return after and (not place or taken[place - 1][1] < b.start)
