"""What the ranges of operands say of the range of a result holds for all integers in them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from fiveloop.core import prims
from fiveloop.loops.analysis.integers import Integer, integer_rules

CELLS: dict[str, tuple[Any, Callable[[int, int], int]]] = {
    "//": (prims.floor_div, operator.floordiv),
    "%": (prims.mod, operator.mod),
    "&": (prims.bitwise_and, operator.and_),
    ">>": (prims.shift_right_arithmetic, operator.rshift),
    "+": (prims.add, operator.add),
    "*": (prims.mul, operator.mul),
}
ENDS = (-7, -3, -1, 0, 1, 2, 5, 8)
INTERVALS = [Integer(low, high) for low, high in product(ENDS, ENDS) if low <= high]


@pytest.mark.parametrize("name", CELLS)
def test_a_range_holds_for_all_integers(name: str) -> None:
    function, of_numbers = CELLS[name]
    rule = integer_rules[function.prim]
    known = 0
    for x, y in product(INTERVALS, INTERVALS):
        found = rule([x, y], None)
        if found is None:
            continue
        known += 1
        numbers = product(range(x.low, x.high + 1), range(y.low, y.high + 1))
        results = [of_numbers(a, b) for a, b in numbers]
        assert found.low <= min(results) <= max(results) <= found.high, (x, y, found)
    assert known >= 200
