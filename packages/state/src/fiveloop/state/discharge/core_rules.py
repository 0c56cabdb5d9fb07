"""Discharge of core's higher-order primitive: a call takes Refs as their contents and gives new contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fiveloop.core import Primitive, Value, bind, closed_call_p, mutated_positions
from fiveloop.state.discharge.engine import discharge_jaxpr
from fiveloop.state.discharge.table import Cell, DischargeContext, define_discharge


def call_discharge(
    prim: Primitive[Any], ctx: DischargeContext, operands: Sequence[Value | Cell], p: Any
) -> list[Value]:
    """Call the discharged jaxpr, and assign the contents that it changed; for any primitive that calls.

    p.jaxpr    : [*ins]                            -> [*outs]
    discharged : [*ins, Refs as their contents]    -> [*outs, *contents changed]
    """
    which = [isinstance(x, Cell) for x in operands]
    changed = mutated_positions(p.jaxpr.effects)
    results = [w and k in changed for k, w in enumerate(which)]
    jaxpr = discharge_jaxpr(p.jaxpr, which, results)
    values = ctx.values(operands)
    outs = bind(prim, *values, params=replace(p, jaxpr=jaxpr))
    num_outs = len(p.jaxpr.outvars)
    cells = [x for x, r in zip(operands, results, strict=True) if r and isinstance(x, Cell)]
    for cell, contents in zip(cells, outs[num_outs:], strict=True):
        ctx.assign(cell, contents)
    return outs[:num_outs]


define_discharge(closed_call_p, partial(call_discharge, closed_call_p))
