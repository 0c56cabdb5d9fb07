"""The maximum flow: the cut that it leaves costs the least, and leaves the fewest nodes with the sink."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fiveloop.core.transforms.residuals import reaching_the_sink

SOURCE, SINK = 0, 1
Edge = tuple[int, int, int]


def cost(edges: list[Edge], side: set[int]) -> int:
    """The capacity into a set of nodes."""
    return sum(c for a, b, c in edges if a not in side and b in side)


def every_side(nodes: set[int]) -> list[set[int]]:
    """Every set with the sink and without the source."""
    free = sorted(nodes - {SOURCE, SINK})
    return [{SINK, *some} for k in range(len(free) + 1) for some in combinations(free, k)]


def drawn(seed: int) -> list[Edge]:
    """A network of eight nodes with cycles, parallel edges, and capacities that often tie."""
    draw = np.random.default_rng(seed)
    ends = draw.integers(0, 8, (24, 2)).tolist()
    return [(a, b, int(draw.integers(0, 4))) for a, b in ends if a != b]


@pytest.mark.parametrize("seed", range(25))
def test_no_cut_costs_less_or_is_smaller(seed: int) -> None:
    edges = drawn(seed)
    side = reaching_the_sink(edges, SOURCE, SINK)
    sides = every_side({SOURCE, SINK, *[p for a, b, _ in edges for p in (a, b)]})
    least = min(cost(edges, s) for s in sides)
    assert side == set.intersection(*[s for s in sides if cost(edges, s) == least])


def test_a_long_way_with_many_exits_is_no_recursion() -> None:
    n = 5000
    edges = [(k, k + 1, 2) for k in range(2, n)]
    edges += [(SOURCE, 2, 2), (n, SINK, 1), *[(k, SINK, 1) for k in range(n - 3, n - 1)]]
    assert reaching_the_sink(edges, SOURCE, SINK) == {SINK, *range(n - 3, n + 1)}


def test_without_a_way_the_source_stays_behind() -> None:
    assert reaching_the_sink([("s", "a", 1), ("b", "t", 1)], "s", "t") == {"b", "t"}
