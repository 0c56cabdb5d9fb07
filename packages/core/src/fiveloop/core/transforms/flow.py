"""The maximum flow through a network, for the minimum cut that it leaves (Dinic's algorithm).

The networks of a loop's body have a few hundred edges, and take less time here than to import and call a library.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


def reaching_the_sink(edges: Sequence[tuple[P, P, int]], source: P, sink: P) -> set[P]:
    """The nodes from which the maximum flow leaves a way to the sink: the fewest that a minimum cut leaves there.

    An edge is two nodes and a capacity.

    >>> sorted(reaching_the_sink([("s", "a", 2), ("a", "b", 3), ("b", "t", 9)], "s", "t"))
    ['a', 'b', 't']
    """
    network = _Residual(edges, source, sink)
    far = network.distances()
    while network.source in far:
        network.block(far)
        far = network.distances()
    return {network.places[node] for node in far}


class _Residual(Generic[P]):
    """What is left of the capacities: of edge 2k, and of edge 2k + 1, the way back along it."""

    def __init__(self, edges: Sequence[tuple[P, P, int]], source: P, sink: P) -> None:
        self.places = [*dict.fromkeys([source, sink, *[p for a, b, _ in edges for p in (a, b)]])]
        self.source, self.sink = 0, 1
        numbers = {place: k for k, place in enumerate(self.places)}
        self.ends: list[int] = []
        self.left: list[int] = []
        self.out: list[list[int]] = [[] for _ in self.places]
        for a, b, capacity in edges:
            for start, end, left in ((a, b, capacity), (b, a, 0)):
                self.out[numbers[start]].append(len(self.ends))
                self.ends.append(numbers[end])
                self.left.append(left)

    def distances(self) -> dict[int, int]:
        """How many edges lead from a node to the sink, for each that has such a way."""
        far = {self.sink: 0}
        nearest = [self.sink]
        for node in nearest:
            for back in self.out[node]:
                before = self.ends[back]
                if before not in far and self.left[back ^ 1]:
                    far[before] = far[node] + 1
                    nearest.append(before)
        return far

    def block(self, far: dict[int, int]) -> None:
        """Send flow along shortest ways until each of them has a full edge."""
        ends, left = self.ends, self.left
        untried = [list(out) for out in self.out]
        way: list[int] = []
        node = self.source
        while True:
            nearer = far[node] - 1
            edges = untried[node]
            while edges and not (left[edges[-1]] and far.get(ends[edges[-1]]) == nearer):
                edges.pop()
            if edges:
                way.append(edges[-1])
                node = ends[edges[-1]]
            elif way:
                node = ends[way.pop() ^ 1]
                untried[node].pop()
            else:
                return
            if node == self.sink:
                del way[self._fill(way) :]
                node = ends[way[-1]] if way else self.source

    def _fill(self, way: Sequence[int]) -> int:
        """Send along a way what its edges have left, and give the place of the first one that is full then."""
        amount = min([self.left[edge] for edge in way])
        for edge in way:
            self.left[edge] -= amount
            self.left[edge ^ 1] += amount
        return next(k for k, edge in enumerate(way) if not self.left[edge])
