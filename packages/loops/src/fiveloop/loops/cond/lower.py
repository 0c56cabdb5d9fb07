"""Lowering: a StableHLO case; what the branches take, they take from around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fiveloop.core.extend import IRValue, hlo
from fiveloop.loops.cond.primitive import CondParams


def cond_lower(ctx: Any, operands: Sequence[IRValue], p: CondParams) -> list[IRValue]:
    """Write each branch in place."""
    index, *rest = operands
    branches: list[Callable[[], list[IRValue]]] = [partial(ctx.inline, b, rest) for b in p.branches]
    return hlo.case(ctx.b, index, branches, [(a.shape, a.dtype) for a in ctx.avals_out])
