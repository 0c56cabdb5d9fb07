"""Discharge: branches that take and give the contents of the Refs that some branch changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Value, bind, mutated_positions
from fiveloop.loops.cond.primitive import CondParams, cond_p
from fiveloop.state import Cell, DischargeContext, discharge_jaxpr


def cond_discharge(
    ctx: DischargeContext, operands: Sequence[Value | Cell], p: CondParams
) -> list[Value]:
    """Choose over contents.

    branch     : [*ins]                          -> [*outs]
    discharged : [*ins, Refs as their contents]  -> [*outs, *contents that any branch changes]
    """
    which = [isinstance(x, Cell) for x in operands]
    changed = {k + 1 for b in p.branches for k in mutated_positions(b.effects)}
    results = [w and k in changed for k, w in enumerate(which)]
    branches = tuple(discharge_jaxpr(b, which[1:], results[1:]) for b in p.branches)
    values = [ctx.contents(x) if isinstance(x, Cell) else x for x in operands]
    outs = bind(cond_p, *values, params=replace(p, branches=branches))
    num_outs = len(p.branches[0].outvars)
    cells = [x for x, r in zip(operands, results, strict=True) if r and isinstance(x, Cell)]
    for cell, contents in zip(cells, outs[num_outs:], strict=True):
        ctx.assign(cell, contents)
    return outs[:num_outs]
