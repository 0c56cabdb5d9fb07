"""Cost functions of first-order primitives: cells of the column `cost` that whole families share.

Operations are counted in units of an addition. The weights of functions were measured on a CPU, in fused loops
over float32: 0.1 ns for an addition of elements that are at hand, about 2 ns for exp, log, sin and cos, 12 ns
and more for those that are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fiveloop.core import ir, rules

P = TypeVar("P")

DIVISION = 4
"""Divisions, remainders and reciprocal roots."""

ROOT = 16
"""Square roots, which a loop had better keep, as it does functions."""

EXP = 20
"""Functions evaluated by a short series, many elements at once."""

SLOW = 120
"""Functions evaluated by a long series or by a loop."""


def moving_cost(abstract_eval: Callable[[ir.Avals, P], ir.Avals]) -> rules.CostRule:
    """The cost of picking, repeating or rearranging elements: nothing is computed."""
    return lambda avals, p: rules.Cost(0, 2 * ir.bytes_of(abstract_eval(avals, p)), again=True)


def reduction_cost(avals: ir.Avals, p: Any) -> rules.Cost:
    """The cost of combining elements with one another."""
    total: ir.Dim = 0
    for aval in avals:
        total = total + ir.size_of(aval.shape)
    return rules.Cost(total, ir.bytes_of(avals))


def sort_cost(avals: ir.Avals, p: Any) -> rules.Cost:
    """The cost of a sort by comparisons."""
    size = ir.size_of(avals[0].shape)
    rounds = size.bit_length() if ir.is_constant(size) else 1
    return rules.Cost(size * rounds * DIVISION, 2 * ir.bytes_of(avals))
