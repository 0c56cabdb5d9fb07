"""How `order` is written, per platform and jaxlib version: the backend's secret that keeps loops in place.

XLA:CPU may clone a read of an old array version past an update of it, and then copies the array in every
step. `order` stops that: the values read and the indices written pass through it. jaxlib before 0.12 drops
optimisation barriers before fusion, so there a scalar `if` does it, whose predicate XLA cannot fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from fiveloop.core.backend import hlo
from fiveloop.core.backend.client import jaxlib_version
from fiveloop.core.backend.hlo import IRValue


class Emission(Enum):
    """One rung of the ladder of ways to write `order`."""

    BARRIER = "barrier"
    SCALAR_IF = "scalar_if"
    PLAIN = "plain"


def ladder(platform: str) -> tuple[Emission, ...]:
    """The ways to try, best first."""
    if platform == "cpu" and jaxlib_version() < (0, 12):
        return (Emission.SCALAR_IF, Emission.BARRIER)
    return (Emission.BARRIER, Emission.SCALAR_IF)


def emit_order(b: hlo.Builder, emission: Emission, operands: Sequence[IRValue]) -> list[IRValue]:
    """Write `order(index, *values)`; the index comes back as it is."""
    index, *values = operands
    match emission:
        case Emission.PLAIN:
            return list(values)
        case Emission.BARRIER:
            return list(hlo.optimization_barrier(b, values))
        case Emission.SCALAR_IF:
            return _scalar_if(b, index, values)


def _scalar_if(b: hlo.Builder, index: IRValue, values: Sequence[IRValue]) -> list[IRValue]:
    zero = hlo.constant(b, np.asarray(0), (), index.dtype)
    true = hlo.compare(b, index, zero, "GE")
    specs = [(v.shape, v.dtype) for v in values]

    def unreached() -> list[IRValue]:
        return [hlo.constant(b, np.asarray(7).astype(v.dtype), v.shape, v.dtype) for v in values]

    return list(hlo.if_(b, true, lambda: list(values), unreached, specs))
