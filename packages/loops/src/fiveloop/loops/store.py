"""The store of saved states: filled by the forward pass of a `while`, and used up by the backward pass.

Beside each slot are the steps that wait to be reversed from the state in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, arrays, ir, prims, trace, transforms
from fiveloop.loops.analysis.slots import slot_indexer
from fiveloop.loops.common import with_inputs
from fiveloop.loops.names import name_inputs
from fiveloop.loops.primitives.slots import COUNT, sweeping
from fiveloop.loops.primitives.while_loop import WhileParams, parts, while_p
from fiveloop.loops.schedules import binomial
from fiveloop.loops.schedules.integers import Bool, Integer
from fiveloop.loops.while_loop import bounded
from fiveloop.loops.while_loop.api import UNTOLD, While, traced_while
from fiveloop.loops.while_loop.handler import counting
from fiveloop.state import api, primitives

S = TypeVar("S")


class Store:
    """The saved states, and for each the step from which on a problem waits there.

    A problem is `slot, start`: the steps from `start` on, whose state is in `slot`.
    """

    def __init__(
        self,
        schedule: binomial.Binomial,
        states: Sequence[Value],
        cache: Sequence[Value],
        names: Sequence[str],
        slow: bool = False,
    ) -> None:
        self.schedule, self.size, self.slow = schedule, schedule.slots, slow
        self.starts = api.empty_ref((self.size + 1,), np.int64)
        self.stored = binomial.Stored(*(cache[:2] if cache else (ONE, ONE)))
        named(self.stored, STORED)
        if cache:
            self.slots = [api.new_ref(x) for x in cache[2:]]
        else:
            self.slots = [api.empty_ref((schedule.room + 1, *x.shape), x.dtype) for x in states]
            self.put(self.stored, ZERO, states)
        named([self.starts, *self.slots], ["problems that wait", *[f"saved {x}" for x in names]])

    def sweep(
        self, n: Value, states: Sequence[Value], advance: Callable[[Any, Value, Value], None]
    ) -> None:
        """Run forward from the first states, and save what the schedule says."""
        refs = [api.new_ref(x) for x in states]

        def save(state: tuple[Any, Value]) -> tuple[Any, Value]:
            stored, at = state
            stop = self.schedule.next(stored) + ZERO
            advance(refs, at, stop)
            stored = self.schedule.after_next(stored)
            slot = self.schedule.count(stored) - 1 + ZERO
            self.put(stored, slot, [ref[...] for ref in refs])
            return stored, stop

        first = (self.stored, ZERO)
        self.stored = loop(lambda s: self.schedule.next(s[0]) < n, save, first)[0]

    def begin(self, n: Value) -> list[Value]:
        """The problem of the last state that is saved; those of the others are written down."""
        self.stored, self.count = self.schedule.replayed(self.stored, n, loop)
        named(self.stored, STORED)

        def wait(j: Value) -> None:
            write_at(j, [self.starts], [self.schedule.position(self.stored, j) + ZERO])

        for_each(ZERO, self.count + ZERO, wait)
        return self._problem(prims.maximum(self.count - 1, ZERO))

    def put(self, stored: binomial.Stored, slot: Value, states: Sequence[Value]) -> None:
        """Save a state."""
        place = self.schedule.place(stored, slot)
        write_at(place, self.slots, states, self.slow)

    def states(self, slot: Value) -> list[Value]:
        """What is saved in a slot."""
        place = self.schedule.place(self.stored, slot)
        found = [read_at(place, ref) for ref in self.slots]
        return [prims.to_memory(x, FAST) for x in found] if self.slow else found

    def descend(
        self,
        left: Value,
        problem: Sequence[Value],
        refs: Sequence[Value],
        advance: Callable[[Value, Value], None],
    ) -> list[Value]:
        """Go on from a problem's start to the step before the last that is left, and save states on the way."""

        def save(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            at, slot, start, *reach = carry
            found = binomial.split(left - at, self.size - slot, binomial.Reach(*reach))
            stop = at + found.advances
            advance(at, stop)
            self.put(self.stored, slot + 1, [ref[...] for ref in refs])
            write_at(slot + 1, [self.starts], [stop])
            goes_on = left - stop > 1
            return (stop, *_chosen(goes_on, (slot + 1, stop), (slot, start)), *found.right)

        slot, start = problem
        within = binomial.reach(left - start, self.size - slot, loop)
        first = (start, slot, start, *within)
        return list(loop(lambda carry: left - carry[0] > 1, save, first)[1:3])

    def popped(self, left: Value, problem: Sequence[Value]) -> list[Value]:
        """The problem that comes next: the one that waits before, if this one is solved."""
        waits = self._problem(prims.maximum(problem[0] - 1, ZERO))
        return _chosen(problem[1] == left, waits, problem)

    def _problem(self, slot: Value) -> list[Value]:
        """The problem that waits at a saved state."""
        return [slot, read_at(slot, self.starts)]


def write_at(
    place: Integer, refs: Sequence[Value], xs: Sequence[Value], slow: bool = False
) -> None:
    """Write values to a slot of each Ref, which is there: no index is checked."""
    for ref, x in zip(refs, xs, strict=True):
        moved = prims.to_memory(x, SLOW) if slow else x
        params = primitives.SwapParams(slot_indexer(ref.aval), returns_old=False)
        trace.bind(primitives.swap_p, ref, moved, place + ZERO, params=params)


def read_at(place: Integer, ref: Value) -> Value:
    """What is in a slot of a Ref."""
    params = primitives.IndexParams(slot_indexer(ref.aval))
    return trace.bind1(primitives.get_p, ref, place + ZERO, params=params)


def named(values: Sequence[Integer], names: Sequence[str]) -> None:
    """Name values and Refs of the machine, as `explain` calls them; constants have no name."""
    for x, name in zip(values, names, strict=False):
        if isinstance(x, trace.StageTracer):
            x.binder.hint = name


def _chosen(pred: Value, yes: Sequence[Integer], no: Sequence[Integer]) -> list[Value]:
    return [prims.select(pred, x, y) for x, y in zip(yes, no, strict=True)]


def for_each(start: Value, stop: Value, step: Callable[[Value], object]) -> None:
    """Call a function with the numbers from `start` to `stop`."""

    def body(k: Value) -> Value:
        step(k)
        return k + 1

    loop(lambda k: k < stop, body, start)


def loop(cond: Callable[[S], Bool], body: Callable[[S], S], init: S, /) -> S:
    """A loop of the machine's own, of which nothing is told."""
    found: S = traced_while(While(cond, body, init, written=UNTOLD))
    return found


FAST, SLOW = "device", "pinned_host"
"""The memories of the slots, and of the slower store."""
STORED = ("stride of what is saved", "next to be saved")
ZERO, ONE = [arrays.as_value(np.int64(k)) for k in range(2)]


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
