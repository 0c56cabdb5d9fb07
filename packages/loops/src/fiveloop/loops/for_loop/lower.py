"""Lowering: a StableHLO while over the counter and the carried values; several steps a turn if unrolled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, ir, prims, rules
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.primitives.for_loop import INDEX, ForParams, early
from fiveloop.loops.progress.lower import BarCalls, bar_calls, shown_loop
from fiveloop.loops.progress.rules import ProgressEffect


def for_lower(ctx: Any, operands: hlo.IRValues, p: ForParams) -> list[hlo.IRValue]:
    """Whole turns in a while loop, and the steps that are left after it: in a loop as well if they are counted."""
    if len(operands) != p.first_ref:
        raise TypeError("`for` has no lowering over Refs: discharge it first (`discharge_state`)")
    steps = _Steps(ctx, p, operands[: p.num_consts])
    outs = _run(ctx, steps, steps.start(ctx.late(operands[p.num_consts :])))
    return outs[: len(operands) - p.num_consts]


def _run(ctx: Any, steps: _Steps, carry: list[hlo.IRValue]) -> list[hlo.IRValue]:
    p = steps.p
    bar = bar_calls(ctx, p.body) if ir.has_effect(p.body, ProgressEffect) else None
    turn = max(p.unroll, 1)
    if bar is None and not p.counted and p.nsteps < 2 * turn:
        return steps.in_line(carry)
    with ctx.region():
        return steps.in_loops([steps.number(0), *carry], turn, bar)[1:]


class _Steps:
    """The steps of a loop, numbered from 0 in the order in which they run."""

    def __init__(self, ctx: Any, p: ForParams, consts: hlo.IRValues) -> None:
        self.ctx, self.b, self.p = ctx, ctx.b, p
        self.consts = list(consts)
        self.late = self._late() if p.starts_late else None
        apart = ctx.platform not in prims.ONE_MEMORY and p.nsteps > 1
        self.ahead = fetched_ahead(p.body, p.num_consts) if apart else None

    def number(self, k: int) -> hlo.IRValue:
        """A constant."""
        return hlo.constant(self.b, np.asarray(k, np.int32), (), INDEX.dtype)

    def count(self) -> hlo.IRValue:
        """How many steps there are."""
        most = self.number(self.p.nsteps)
        return hlo.min(self.b, self.consts[0], most) if self.p.counted else most

    def _late(self) -> hlo.IRValue:
        """The counter of the first step, if that is computed."""
        if self.p.reverse:
            return hlo.sub(self.b, self.count(), self.number(1))
        return hlo.sub(self.b, self.number(self.p.nsteps), self.count())

    def counter(self, k: hlo.IRValue) -> hlo.IRValue:
        """The loop's counter in step `k`; if that goes down, also the step in which it is `k`."""
        if self.p.reverse:
            return hlo.sub(self.b, self.late or self.number(self.p.nsteps - 1), k)
        return hlo.add(self.b, self.late, k) if self.late else k

    def start(self, carry: hlo.IRValues) -> list[hlo.IRValue]:
        """What the first step is given: the carried values, and what it needs from another memory."""
        return [*carry, *self.fetched(self.number(0))] if self.ahead else list(carry)

    def step(self, k: hlo.IRValue, carried: hlo.IRValues) -> list[hlo.IRValue]:
        """What step `k` carries on, and what it fetches for the step after it."""
        if self.ahead is None:
            return list(self.ctx.inline(self.p.body, [self.counter(k), *self.consts, *carried]))
        after = hlo.min(
            self.b,
            hlo.add(self.b, k, self.number(1)),
            hlo.sub(self.b, self.count(), self.number(1)),
        )
        outs = self.ctx.inline(self.ahead.body, [self.counter(k), *self.consts, *carried])
        return [*outs, *self.fetched(after)]

    def fetched(self, k: hlo.IRValue) -> list[hlo.IRValue]:
        """What step `k` needs from another memory."""
        if self.ahead is None:
            return []
        return list(self.ctx.inline(self.ahead.fetch, [self.counter(k), *self.consts]))

    def number_of(self, start: hlo.IRValue, n: int) -> hlo.IRValue:
        """The number of step `n` of a turn; it waits for the reads of the previous step, if they are given."""
        mark = self.ctx.last_mark
        if mark is None:
            return hlo.add(self.b, start, self.number(n))
        if self.p.reverse:
            mark = self.counter(mark)
        elif self.late:
            mark = hlo.sub(self.b, mark, self.late)
        return hlo.add(self.b, mark, self.number(1))

    def turn(self, args: hlo.IRValues, count: int) -> list[hlo.IRValue]:
        """So many steps, from that on whose number comes first."""
        start, *carried = args
        if self.p.end is not None:
            # Else there would be no turn; so XLA needs no branch, around which it may copy what is carried.
            carried[self.p.end] = hlo.constant(self.b, np.asarray(False), (), np.dtype(np.bool_))
        for n in range(count):
            k = self.number_of(start, n) if n else start
            carried = self.step(k, self.ctx.as_stored(carried) if n else carried)
        return [hlo.add(self.b, start, self.number(count)), *carried]

    def in_line(self, carry: hlo.IRValues) -> list[hlo.IRValue]:
        """All steps, one after the other."""
        carried = list(carry)
        for n in range(self.p.nsteps):
            carried = self.step(self.number(n), self.ctx.as_stored(carried) if n else carried)
        return carried

    def in_loops(
        self, state: list[hlo.IRValue], turn: int, bar: BarCalls | None
    ) -> list[hlo.IRValue]:
        """Whole turns, and a loop of the steps that are left: XLA compiles one of them, however many there are."""
        stop = self.count()
        if self.p.counted:
            if turn > 1 and bar is None:
                size = self.number(turn)
                whole = hlo.mul(self.b, hlo.div(self.b, stop, size), size)
                state = self.run(state, whole, turn, None)
            return self.run(state, stop, 1, bar)
        left = self.p.nsteps % turn
        if left == 1 and self.p.nsteps > 2 * turn + 1:
            left += turn  # XLA would put a loop of one step in line
        state = self.run(state, self.number(self.p.nsteps - left), turn, bar, left)
        return self.run(state, stop, 1, None) if left else state

    def run(
        self,
        state: list[hlo.IRValue],
        stop: hlo.IRValue,
        count: int,
        bar: BarCalls | None,
        left: int = 0,
    ) -> list[hlo.IRValue]:
        """Turns of so many steps up to the step `stop`; `left` come after the loop."""
        end = self.p.end

        def more(args: hlo.IRValues) -> hlo.IRValue:
            is_left = hlo.compare(self.b, args[0], stop, "LT")
            if end is None:
                return is_left
            return hlo.and_(self.b, is_left, hlo.not_(self.b, args[1 + end]))

        turn = lambda args: self.turn(args, count)
        if bar is None:
            turns, room = early(self.p)
            return list(hlo.while_(self.b, state, more, turn, turns, room))
        return shown_loop(bar, self.count(), state, more, turn, left)


DEVICE = "device"


@dataclass(frozen=True)
class Ahead:
    """A body in two parts.

    fetch : [i, *consts]                      -> [*fetched]
    body  : [i, *consts, *carry, *fetched]    -> [*carry]
    """

    fetch: Jaxpr
    body: Jaxpr


def fetched_ahead(body: Jaxpr, num_consts: int) -> Ahead | None:
    """The body without its moves to the device of what the counter and constants alone decide; None if it has none.

    While a step computes, what the next step needs is on its way.

    body : [i, *consts, *carry] -> [*carry]
    """
    known = body.invars[: 1 + num_consts]
    eqns = [e for eqn in body.eqns for e in _moves_before_call(eqn)]
    fetched = _moved(eqns, known)
    if not fetched:
        return None
    fetch = body.replace(invars=known, eqns=ir.prune(eqns, fetched), outvars=fetched)
    return Ahead(fetch, _without(body.replace(eqns=eqns), fetched))


def _moved(eqns: Collection[ir.Eqn], known: Collection[ir.Var]) -> list[ir.Var]:
    """The values that are moved to the device and depend on nothing but what is known."""
    found = ir.invariant(eqns, known)
    moves = [e for e in eqns if e.primitive is prims.to_memory_p and e.params.memory == DEVICE]
    return [v for e in moves for v in e.outvars if v in found]


def _without(jaxpr: Jaxpr, fetched: Collection[ir.Var]) -> Jaxpr:
    """The jaxpr that is given some of its values: [*ins, *fetched] -> [*outs]."""
    rest = [eqn for eqn in jaxpr.eqns if set(fetched).isdisjoint(eqn.outvars)]
    eqns = ir.prune(rest, jaxpr.outvars)
    return jaxpr.replace(invars=[*jaxpr.invars, *fetched], eqns=eqns)


def _moves_before_call(eqn: ir.Eqn) -> list[ir.Eqn]:
    """An equation; the moves within a call, of what the call is given, come before the call."""
    bodies = rules.bodies_of(eqn)
    if len(bodies) != 1 or not bodies[0].plain or bodies[0].role == "loop":
        return [eqn]
    called = bodies[0].jaxpr
    called = called.replace(eqns=[e for inner in called.eqns for e in _moves_before_call(inner)])
    fetched = _moved(called.eqns, called.invars)
    if not fetched:
        return [eqn]
    outside: dict[ir.Var, ir.Atom] = dict(zip(called.invars, eqn.invars, strict=True))
    before = ir.copied_eqns(ir.prune(called.eqns, fetched), outside)
    rest = _without(called, fetched)
    used = ir.used_by(rest.eqns, rest.outvars)
    left = [v for v in rest.invars if v in used]
    params = ir.with_jaxprs(eqn.params, lambda _: rest.replace(invars=left))
    operands = [outside[v] for v in left]
    return [*before, rules.new_eqn(eqn.primitive, operands, params, eqn.outvars, eqn.source)]
