"""What equations and jaxprs cost: an engine over the columns `cost`, `bodies` and `written_out`.

A primitive without a cell costs what its bodies cost, as often as they run; of branches only the dearest runs. One
without bodies costs what it is written out as, or an operation for each element that it is given or gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from fiveloop.core import ir, prims, rules, util
from fiveloop.core.backend import client

N = TypeVar("N", int, float)

OPERATION, FUSED, BYTE, LAUNCH = 0.05, 0.01, 0.055, 20.0
"""Nanoseconds: of an operation, of a byte that a light equation takes or gives, of one that another moves, and of
beginning an equation that is not light.

Measured by `benchmarks/remat/rates.py` on one core of a CPU, with jaxlib 0.10.2 and 0.12: an operation of a product of
matrices takes 0.01 (512 x 512) to 0.03 (64 x 64), of exp 0.03 to 0.09, of tanh 0.06, of sin 0.14, of fused arithmetic
0.16 to 0.2; a byte 0.055, where axes are rearranged 0.16; a step of a loop 45 with its two equations. All operations
count the same, so that fewer of them are never taken for slower; `FUSED` is set by judgement.
"""

PAGED, MAPPED = 0.5, 2**25
"""Nanoseconds of a byte that the system maps, and from how many bytes in one piece on that is done in each call: the C
library of Linux gives them back at once. Set by judgement between what page faults take, 0.6 (20,000 of 4 kB in 49 ms),
and by how much whole gradients get faster where the memory is not given back: 0.2 in the median, 0.1 to 0.3 in the
middle half of 24 measurements.
"""

LIGHT = 0.5
"""How much of an operation counts one of a light equation that is computed again: it is fused into what uses it.

So no product is computed again to spare light operations, which other policies compute again anyway; set by judgement.
"""


OPEN = 1_000
"""As how many steps a loop of unknown length counts in the time of a gradient: its states are kept but once."""


def equation_cost(eqn: ir.Eqn) -> rules.Cost:
    """The cost of an equation, its bodies included."""
    avals = [a.aval for a in eqn.invars]
    if eqn.primitive in rules.cost_rules:
        once = util.has_hash(eqn.params)
        return (_cost_once if once else _cost_by_rule)(eqn.primitive, eqn.params, *avals)
    bodies = rules.bodies_rules.find(eqn.primitive)
    if bodies is not None:
        return _cost_of_bodies(bodies(eqn.params))
    written_out = rules.written_out_rules.find(eqn.primitive)
    if written_out is not None:
        return jaxpr_cost(written_out(avals, eqn.params))
    # Of a Ref an equation touches what it gives and is given, not all that it holds.
    given = [a for a in avals if not a.accumulates]
    made = [v.aval for v in eqn.outvars if not v.aval.accumulates]
    return rules.Cost(max(_elements(given), _elements(made)), prims.bytes_of([*given, *made]))


def _cost_by_rule(primitive: ir.Primitive[Any], params: Any, *avals: ir.Aval) -> rules.Cost:
    return rules.cost_rules[primitive](avals, params)


_cost_once = lru_cache(maxsize=4096)(_cost_by_rule)


@ir.once_per_jaxpr
def jaxpr_cost(jaxpr: ir.Jaxpr) -> rules.Cost:
    """The cost of a jaxpr that runs once; remembered on it.

    >>> from fiveloop.core import make_jaxpr
    >>> jaxpr_cost(make_jaxpr(lambda x, y: x * y + y)(1.0, 2.0))
    Cost(flops=2, bytes=24, again=True)
    """
    costs = [equation_cost(e) for e in jaxpr.eqns]
    again = all(c.again for c in costs) and not any(e.effects for e in jaxpr.eqns)
    return rules.Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs), again)


def equation_time(eqn: ir.Eqn, steps: int = 1) -> float:
    """The estimated time of an equation in nanoseconds, its bodies included; loops of unknown length take `steps`.

    The time is that of its operations or that of the bytes that it moves, whichever is longer; light equations are
    fused with others, and move fewer.
    """
    bodies = rules.bodies_rules.find(eqn.primitive)
    if bodies is None or eqn.primitive in rules.cost_rules:
        cost = equation_cost(eqn)
        if cost.again:
            return max(cost.flops * OPERATION, cost.bytes * FUSED)
        moved = cost.bytes * BYTE
        return max(cost.flops * OPERATION, moved) + (LAUNCH if moved else 0.0)
    return _of_bodies(bodies(eqn.params), lambda body: jaxpr_time(body, steps), steps)


@ir.once_per_jaxpr
def jaxpr_time(jaxpr: ir.Jaxpr, steps: int = 1) -> float:
    """The estimated time of a jaxpr that runs once, in nanoseconds; remembered on it."""
    return sum(equation_time(eqn, steps) for eqn in jaxpr.eqns)


@ir.once_per_jaxpr
def operations_of(jaxpr: ir.Jaxpr, light: float = 1, steps: int = 1) -> ir.Dim:
    """The operations of a jaxpr, without those that only move elements to and from Refs; remembered on it.

    Each operation of a light equation counts as so much of one, a loop of unknown length as so many `steps`.
    """

    def each(eqn: ir.Eqn) -> ir.Dim:
        bodies = rules.bodies_of(eqn)
        if not bodies:
            cost = equation_cost(eqn)
            if eqn.effects:
                return 0
            return int(cost.flops * light) if light < 1 and cost.again else cost.flops
        return _of_bodies(bodies, lambda body: operations_of(body, light, steps), steps)

    return sum(map(each, jaxpr.eqns))


def gradient_time(tangents: ir.Jaxpr, again: int, kept: int, peak: int = 0) -> float:
    """The estimated nanoseconds of a gradient that does so many operations again, and keeps so many bytes.

    `tangents` computes values and tangents; to go back costs as much as the tangents do. At its `peak` it needs so many
    bytes of temporary memory.
    """
    return jaxpr_time(tangents, OPEN) + recomputation_time(again, kept) + mapping_time(peak)


def mapping_time(size: int) -> float:
    """The estimated nanoseconds to map so many bytes of temporary memory in a call, if that is done in each."""
    return PAGED * size if size >= MAPPED and client.platform() == "cpu" else 0.0


def recomputation_time(again: int, kept: int, mapped: bool = False) -> float:
    """The estimated nanoseconds of operations that are done again, and of bytes that are written, kept and read.

    If they are `mapped` in each call, that takes more.
    """
    return OPERATION * again + (2 * BYTE + PAGED * mapped) * kept


def _cost_of_bodies(bodies: Sequence[rules.Body]) -> rules.Cost:
    branches = [jaxpr_cost(b.jaxpr) for b in bodies if b.role == "branch"]
    others = [(b.trips, jaxpr_cost(b.jaxpr)) for b in bodies if b.role != "branch"]
    dearest = max(branches, key=lambda c: c.flops, default=rules.Cost(0, 0))
    called = len(bodies) == 1 and bodies[0].role == "called"
    return rules.Cost(
        dearest.flops + sum(trips * c.flops for trips, c in others),
        dearest.bytes + sum(trips * c.bytes for trips, c in others),
        again=called and others[0][1].again,
    )


def _of_bodies(bodies: Sequence[rules.Body], of: Callable[[ir.Jaxpr], N], steps: int) -> N:
    """A number of an equation from those of its bodies, as often as they run; of branches, the largest."""
    largest = max((of(b.jaxpr) for b in bodies if b.role == "branch"), default=0)
    trips = [b.trips * (steps if b.open else 1) for b in bodies]
    return largest + sum(
        n * of(b.jaxpr) for n, b in zip(trips, bodies, strict=True) if b.role != "branch"
    )


def _elements(avals: ir.Avals) -> ir.Dim:
    return sum(ir.size_of(aval.shape) for aval in avals)
