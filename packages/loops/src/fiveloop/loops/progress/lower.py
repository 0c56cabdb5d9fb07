"""Lowering of a loop that shows its progress: rounds of as many steps as fit between two updates of the bar.

The steps of a round are a loop of their own, which has nothing in it but the steps. The host says after each round how
many the next one has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.progress import api
from fiveloop.loops.progress.bars import CLOSE, OPEN, SHOW, LoopBars
from fiveloop.loops.progress.rules import COUNT, ProgressEffect, mark_p

States = hlo.IRValues


@dataclass(frozen=True, slots=True)
class BarCalls:
    """The calls that the program makes for a loop's bar."""

    ctx: Any
    bars: LoopBars

    def make(self, what: int, number: hlo.IRValue, count: hlo.IRValue) -> list[hlo.IRValue]:
        """The bar's number, and the step at which to call again."""
        operands = [self.number(what), number, count]
        calls = self.ctx.host_call(self.bars, operands, has_side_effect=True, avals=[COUNT, COUNT])
        return list(calls)

    def number(self, k: int) -> hlo.IRValue:
        """A constant."""
        return hlo.constant(self.ctx.b, np.asarray(k, np.int32), (), COUNT.dtype)


def bar_calls(ctx: Any, body: Jaxpr) -> BarCalls | None:
    """The calls for the loop of a body; None if it shows no progress."""
    found = mark_of(body)
    if found is None:
        return None
    return BarCalls(ctx, LoopBars(api.Progress(found.params.desc, found.params.every)))


def mark_of(body: Jaxpr) -> ir.Eqn | None:
    """The mark of a body's own loop, which may stand in a branch or a call."""
    if not ir.has_effect(body, ProgressEffect):
        return None
    for eqn in body.eqns:
        if eqn.primitive is mark_p:
            return eqn
        if not rules.is_loop(eqn):
            found = next(filter(None, map(mark_of, ir.jaxprs_in(eqn.params))), None)
            if found is not None:
                return found
    return None


def total_of(calls: BarCalls, body: Jaxpr, consts: States) -> hlo.IRValue:
    """The number of steps that the mark is given, if constants of the loop tell it; else -1.

    body : [*consts, *rest] -> [*outs]
    """
    found = mark_of(body)
    binders = body.invars[: len(consts)]
    if found is not None and found.invars:
        needed = ir.prune([eqn for eqn in body.eqns if not eqn.effects], found.invars)
        made = {v for eqn in needed for v in eqn.outvars}
        asked = ir.used_by(needed, found.invars) - made
        if asked <= set(binders):
            total: hlo.IRValue = calls.ctx.inline(
                Jaxpr(binders, needed, found.invars, "total"), consts
            )[0]
            return total
    return calls.number(-1)


def shown_loop(
    calls: BarCalls,
    total: hlo.IRValue,
    init: States,
    more: Callable[[States], hlo.IRValue],
    turn: Callable[[States], list[hlo.IRValue]],
    left: int = 0,
) -> list[hlo.IRValue]:
    """`while more(state): state = turn(state)` in rounds; the first of the state is how many steps are done.

    `left` steps come after the loop.
    """
    b = calls.ctx.b
    number, first_stop = calls.make(OPEN, calls.number(0), total)

    def round_of_steps(args: States) -> list[hlo.IRValue]:
        number, stop, *state = args
        within = lambda state: hlo.and_(b, more(state), hlo.compare(b, state[0], stop, "LT"))
        state = hlo.while_(b, state, within, turn)
        return [*calls.make(SHOW, number, state[0]), *state]

    outer = hlo.while_(b, [number, first_stop, *init], lambda args: more(args[2:]), round_of_steps)
    number, _, *state = outer
    calls.make(CLOSE, number, hlo.add(b, state[0], calls.number(left)))
    return state
