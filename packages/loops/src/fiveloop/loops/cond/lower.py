"""Lowering: a StableHLO case, whose branches use values from around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.backend import hlo
from fiveloop.loops.primitives.cond import CondParams


def cond_lower(ctx: Any, operands: hlo.IRValues, p: CondParams) -> list[hlo.IRValue]:
    """Write each branch in place; of two branches, an empty one comes before one with a loop.

    In the other order the XLA of jaxlib 0.10.2 copies what the loop changes, in every step.
    """
    index, *rest = operands
    jaxprs = list(p.branches)
    if len(jaxprs) == 2 and rules.holds_loop(jaxprs[0]) and _is_idle(jaxprs[1]):
        jaxprs.reverse()
        first = hlo.constant(ctx.b, np.asarray(0, np.int32), (), index.dtype)
        index = hlo.convert(ctx.b, hlo.compare(ctx.b, index, first, "EQ"), index.dtype)
    branches: list[Callable[[], list[hlo.IRValue]]] = [partial(ctx.inline, b, rest) for b in jaxprs]
    return hlo.case(ctx.b, index, branches, [(a.shape, a.dtype) for a in ctx.avals_out])


def _is_idle(jaxpr: Jaxpr) -> bool:
    """Whether it computes nothing from what it is given."""
    given = set(jaxpr.invars)
    return not any(given & ir.used_vars(eqn.invars) for eqn in jaxpr.eqns)
