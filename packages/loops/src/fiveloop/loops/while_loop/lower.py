"""Lowering: a StableHLO while over the carried values, which uses constants from around it."""

from __future__ import annotations

from math import inf
from typing import Any

from fiveloop.core import ir
from fiveloop.core.backend import hlo
from fiveloop.loops.primitives.slots import num_slots, room_beside
from fiveloop.loops.primitives.while_loop import WhileParams
from fiveloop.loops.progress.lower import bar_calls, shown_loop, total_of
from fiveloop.loops.progress.rules import ProgressEffect


@ir.once_per(lambda p: (p.body, p.slots, p.num_consts))
def early(p: WhileParams) -> tuple[int, float]:
    """For how many steps, and in how many bytes, what all steps use may be made before them."""
    if p.slots is None:
        return 1, inf
    state = p.body.in_avals[p.num_consts :]
    return num_slots(p.slots, state), room_beside(p.slots, state)  # who saves so many expects more


def while_lower(ctx: Any, operands: hlo.IRValues, p: WhileParams) -> list[hlo.IRValue]:
    """Write condition and body in place."""
    if len(operands) != p.first_ref:
        raise TypeError("`while` has no lowering over Refs: discharge it first (`discharge_state`)")
    consts, carry = list(operands[: p.num_consts]), ctx.late(operands[p.num_consts :])

    def holds(args: hlo.IRValues) -> hlo.IRValue:
        pred: hlo.IRValue = ctx.inline(p.cond, [*consts, *args])[0]
        return pred

    def step(args: hlo.IRValues) -> list[hlo.IRValue]:
        return list(ctx.inline(p.body, [*consts, *args]))

    bar = bar_calls(ctx, p.body) if ir.has_effect(p.body, ProgressEffect) else None
    if bar is None:
        return hlo.while_(ctx.b, carry, holds, step, *early(p))

    def counted(args: hlo.IRValues) -> list[hlo.IRValue]:
        count, *carried = args
        return [hlo.add(ctx.b, count, bar.number(1)), *step(carried)]

    total = total_of(bar, p.body, consts)
    more = lambda args: holds(args[1:])
    return shown_loop(bar, total, [bar.number(0), *carry], more, counted)[1:]
