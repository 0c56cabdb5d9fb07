"""The forward pass of a `while` that saves states: stretches of steps, after each of which one is saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms
from fiveloop.loops.common import with_inputs
from fiveloop.loops.names import name_inputs
from fiveloop.loops.primitives.slots import COUNT, sweeping
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p
from fiveloop.loops.schedules import binomial
from fiveloop.loops.store import ONE, ZERO, loop, write_at
from fiveloop.loops.while_loop import bounded
from fiveloop.loops.while_loop.handler import counting
from fiveloop.state import api


def swept(p: WhileParams, avals: Sequence[ir.Aval]) -> Jaxpr:
    """A `while` that saves states on the way: `[*consts, *carry, *refs] -> [*carry, *cache]`."""
    schedule = sweeping(p.slots)
    run_until = _until(replace(p, kept=()))

    def run(*args: Value) -> list[Value]:
        consts, carry, refs = parts(p, args)

        def held(carry: Sequence[Value]) -> list[Value]:
            given = zip((*carry, *refs), p.kept, strict=True)
            return [x[...] if x.aval.accumulates else x for x, keep in given if keep]

        slots = [api.empty_ref((schedule.room + 1, *x.shape), x.dtype) for x in held(carry)]
        first = carry

        def stretch(stored: binomial.Stored, at: Value, carry: Sequence[Value]) -> tuple[Any, ...]:
            """Save the state, and go on to the next one that is to be saved."""
            place = schedule.place(stored, schedule.count(stored) - 1)
            write_at(place, slots, held(carry), bool(schedule.slow_slots))
            stop = schedule.tape * schedule.next(stored) + ZERO
            return (stored, stop, run_until(at, stop, first, [*consts], carry, refs))

        def more(state: tuple[Any, ...]) -> Value:
            return transforms.eval_jaxpr(p.cond, [*consts, *state[2], *refs])[0]

        # The first turn saves the state at the beginning.
        begin: tuple[Any, ...] = (binomial.Stored(ONE, ZERO), ZERO, carry)
        end = loop(more, lambda s: stretch(schedule.after_next(s[0]), s[1], s[2]), begin)
        return [*end[2], *end[0], *[api.freeze(ref) for ref in slots]]

    return trace.stage_closed(run, avals, p.body.name)


def _until(p: WhileParams) -> Callable[..., list[Value]]:
    """The loop from one step to another, or to its end; a counter of its own counts the steps, if it has one.

    cond, body : [*consts, stop, *carry, *refs] -> [holds], [*carry]
    """
    counter = bounded.counter_of(p.cond, p.body, p.num_consts)
    counted = counting(p, COUNT.dtype) if counter is None else p
    place = 0 if counter is None else counter.carried
    num, avals = p.num_consts, counted.body.in_avals
    number = avals[num + place]

    def holds(*args: Value) -> list[Value]:
        more = args[num + 1 + place] < args[num]
        if counter is not None:
            return [more]
        return [more & transforms.eval_jaxpr(counted.cond, [*args[:num], *args[num + 1 :]])[0]]

    body = with_inputs(counted.body, [number], num)
    name_inputs(body.invars[num:], ["next to be saved"])
    cond = trace.stage_closed(holds, [*avals[:num], number, *avals[num:]], p.cond.name)
    params = replace(counted, cond=cond, body=body, num_consts=num + 1)

    def run(
        at: Value,
        stop: Value,
        first: ad.Values,
        consts: list[Value],
        carry: ad.Values,
        refs: ad.Values,
    ) -> list[Value]:
        if counter is None:
            return trace.bind(while_p, *consts, stop, at, *carry, *refs, params=params)[1:]
        stop = prims.minimum(stop, counter.left(consts, first))
        stop = prims.convert(first[place] + stop, number.dtype)
        return trace.bind(while_p, *consts, stop, *carry, *refs, params=params)

    return run
