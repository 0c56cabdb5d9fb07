"""Lowering: a StableHLO while over the counter and the carried values; several steps a turn if unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core.backend import hlo
from fiveloop.loops.primitives.for_loop import INDEX, ForParams
from fiveloop.loops.progress.lower import bar_calls, shown_loop


def for_lower(ctx: Any, operands: hlo.IRValues, p: ForParams) -> list[hlo.IRValue]:
    """Whole turns in a while loop, the steps that are left after it."""
    if len(operands) != p.first_ref:
        raise TypeError("`for` has no lowering over Refs: discharge it first (`discharge_state`)")
    consts, carry = list(operands[: p.num_consts]), list(operands[p.num_consts :])
    count = max(p.unroll, 1)
    turns, left = divmod(p.nsteps, count)
    bar = bar_calls(ctx, p.body)
    if turns == 1 and bar is None:
        turns, left = 0, p.nsteps

    def number(k: int) -> hlo.IRValue:
        return hlo.constant(ctx.b, np.asarray(k, np.int32), (), INDEX.dtype)

    def step(k: hlo.IRValue, carried: hlo.IRValues) -> list[hlo.IRValue]:
        i = hlo.sub(ctx.b, number(p.nsteps - 1), k) if p.reverse else k
        return list(ctx.inline(p.body, [i, *consts, *carried]))

    def number_of(start: hlo.IRValue, n: int) -> hlo.IRValue:
        """The number of step `n` of a turn; it waits for what the step before it has read, if that tells when."""
        mark = ctx.last_mark
        if mark is None:
            return hlo.add(ctx.b, start, number(n))
        done = hlo.sub(ctx.b, number(p.nsteps - 1), mark) if p.reverse else mark
        return hlo.add(ctx.b, done, number(1))

    def turn(args: hlo.IRValues) -> list[hlo.IRValue]:
        start, *carried = args
        if p.end is not None:
            # Else there would be no turn; so XLA needs no branch, around which it may copy what is carried.
            carried[p.end] = hlo.constant(ctx.b, np.asarray(False), (), np.dtype(np.bool_))
        for n in range(count):
            k = number_of(start, n) if n else start
            carried = step(k, ctx.as_stored(carried) if n else carried)
        return [hlo.add(ctx.b, start, number(count)), *carried]

    def more(args: hlo.IRValues) -> hlo.IRValue:
        is_left = hlo.compare(ctx.b, args[0], stop, "LT")
        if p.end is None:
            return is_left
        return hlo.and_(ctx.b, is_left, hlo.not_(ctx.b, args[1 + p.end]))

    if turns:
        stop = number(turns * count)
        with ctx.region():
            state = [number(0), *carry]
            if bar is None:
                _, *carry = hlo.while_(ctx.b, state, more, turn)
            else:
                # Of a loop that has ended early, those that are left do nothing.
                after = left if p.end is None else 0
                _, *carry = shown_loop(bar, number(p.nsteps), state, more, turn, after)
    for n in range(left):
        carry = step(number(turns * count + n), ctx.as_stored(carry) if n else carry)
    return carry
