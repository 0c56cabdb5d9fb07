"""The loops of a `replay`: forward to the end, and back by the binomial schedule, with a few saved states.

Three loops: turns, each of which makes one step of the way back; in a turn, descents to the step before that, each of
which saves a state; in a descent, steps forward. Beside each saved state is a row of integers with its step. A schedule
with a slower store has a fourth loop around these: over the states there, each of which begins a period of turns. The
loops are made after all derivatives: nothing of this is differentiated or batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fiveloop.core import (
    Jaxpr,
    Value,
    ad,
    arrays,
    errors,
    ir,
    passes,
    prims,
    trace,
    transforms,
    util,
)
from fiveloop.core.backend import client, lazy
from fiveloop.loops import after, leaf
from fiveloop.loops.common import with_inputs
from fiveloop.loops.names import name_inputs
from fiveloop.loops.primitives.replay import ReplayParams, replay_p, without_backward
from fiveloop.loops.primitives.slots import COUNT, cache_avals, sweeping
from fiveloop.loops.primitives.while_loop import WhileParams, kept_avals, parts, while_p
from fiveloop.loops.record import Decision
from fiveloop.loops.replay.dce import needed
from fiveloop.loops.schedules import binomial
from fiveloop.loops.schedules.integers import Bool, Integer
from fiveloop.loops.schedules.simulation import evaluations
from fiveloop.loops.while_loop import bounded
from fiveloop.loops.while_loop.api import UNTOLD, traced_while
from fiveloop.loops.while_loop.handler import counting
from fiveloop.state import AbstractRef, api, discharge, handlers

S = TypeVar("S")


def loops(p: ReplayParams, wanted: Sequence[bool]) -> Jaxpr:
    """The jaxpr of the loops: `[n, *consts, *forward, *backward, *cache] -> [*forward wanted, *backward]`."""
    avals = [COUNT, *[_held(a) for a in p.backward.in_avals[1:]]]
    cached = [a for a, c in zip(p.parts(avals[1:])[1], p.cached, strict=False) if c]
    avals += cache_avals(cached, p.slots)
    key = ("loops", p.forward, p.num_consts, p.slots, p.cached, tuple(wanted))
    return p.backward.remember(
        key, lambda: trace.stage_closed(_Machine(p, wanted).run, avals, p.forward.name)
    )


def _held(aval: ir.Aval) -> ir.Aval:
    return aval.inner if isinstance(aval, AbstractRef) else aval


class _Machine:
    def __init__(self, p: ReplayParams, wanted: Sequence[bool]) -> None:
        self.p = p
        self.wanted = wanted

    def run(self, n: Value, *values: Value) -> list[Value]:
        """The final states that are wanted; those of the way forward from a loop of its own."""
        num = self.p.num_operands - 1
        _named(values, self.p.names)
        consts, forward, backward = self.p.parts(values[:num])
        binders = self.p.forward.invars[1 : 1 + self.p.num_consts]
        held = [
            api.new_ref(x) if isinstance(v.aval, AbstractRef) else x
            for v, x in zip(binders, consts, strict=True)
        ]
        _named(held, self.p.names)
        return [
            *self._ahead(n, held, forward),
            *self._back(n, held, forward, backward, values[num:]),
        ]

    def _ahead(self, n: Value, consts: Sequence[Value], states: Sequence[Value]) -> list[Value]:
        """The final states of the way forward."""
        once = self.p.forward.effects and not self.p.num_backward
        if not any(self.wanted) and not once:
            return []
        p, kept = needed(without_backward(self.p), self.wanted, [])
        refs = [api.new_ref(x) for x in states]
        operands = util.select_by(kept, [*consts, *refs])
        _for_each(_ZERO, n, lambda k: transforms.eval_jaxpr(p.forward, [k, *operands]))
        return [api.freeze(ref) for ref in util.select_by(self.wanted, refs)]

    def _back(
        self,
        n: Value,
        consts: list[Value],
        forward: list[Value],
        backward: list[Value],
        cache: Sequence[Value],
    ) -> list[Value]:
        """The final states of the way back."""
        if not backward:
            return []
        states = [api.new_ref(x) for x in backward]
        _named(states, self.p.parts(self.p.names)[2])
        _WayBack(self.p, n, consts, states).run(forward, cache)
        return [api.freeze(ref) for ref in states]


class _WayBack:
    """The steps from the last to the first, tape by tape; a tape is one step, unless there is a leaf."""

    def __init__(
        self, p: ReplayParams, n: Value, consts: Sequence[Value], states: Sequence[Value]
    ) -> None:
        self.p, self.n, self.consts, self.states = p, n, consts, states
        self.back = after.back_alone(p)
        self.leaf = leaf.leaf_of(p)
        self.tape = 1 if self.leaf is None else self.leaf.steps
        self.names = p.parts(p.names)[1]
        self.after = after.after_of(p)
        avals = p.parts(p.backward.in_avals[1:])[1]
        self.held = [api.empty_ref(avals[k].shape, avals[k].dtype) for k in self.places]
        _named(self.held, [f"{self.names[k]} after the step" for k in self.places])

    @property
    def places(self) -> Sequence[int]:
        """Which forward states the way back of a step is given as they are after it."""
        return () if self.after is None else self.after.places

    def run(self, forward: Sequence[Value], cache: Sequence[Value]) -> None:
        """All steps, from the states at the beginning or from some that are saved already."""
        tapes = (self.n + (self.tape - 1)) // self.tape
        schedule = self.p.schedule
        # What was saved on the way forward may have been saved between steps, not between tapes.
        usable = all(self.p.cached) and self.tape == schedule.tape
        is_slow = bool(schedule.slow_slots)
        saved = _Saved(schedule, forward, cache if usable else (), self.names, is_slow)
        is_chosen = isinstance(self.p.slots, binomial.Binomial)
        if schedule.sweeps and is_chosen and not (usable and cache):
            saved.sweep(tapes, forward, self.advance)
        if schedule.most is not None:
            self.each(saved, tapes)
        elif is_slow:
            self.periods(saved, tapes)
        else:
            self.turns(saved, tapes)

    def each(self, saved: _Saved, tapes: Value) -> None:
        """The tapes of a schedule that saves the state before each."""

        def turn(left: Value) -> Value:
            self.step_back(left, [api.new_ref(x) for x in saved.states(left - 1)])
            return left - 1

        _loop(lambda left: left > 0, turn, tapes)

    def periods(self, slow: _Saved, tapes: Value) -> None:
        """From each state of the slower store the steps up to the next one."""
        schedule = slow.schedule
        inner = binomial.Binomial(schedule.slots, schedule.tape)

        def period(carry: tuple[Value, Value]) -> tuple[Value, Value]:
            j, end = carry
            start = schedule.position(slow.stored, j) + _ZERO
            self.turns(_Saved(inner, slow.states(j), (), self.names), end - start, start)
            return j - 1, start

        last = schedule.count(slow.stored) - 1 + _ZERO
        _loop(lambda carry: carry[0] >= 0, period, (last, tapes))

    def turns(self, saved: _Saved, tapes: Value, first: Value | None = None) -> None:
        """The tapes from the first one on, or from the beginning; the states are saved from there."""

        def place(k: Value) -> Value:
            return k if first is None else first + k

        def back(carry: tuple[Any, ...], step: Callable[[Value, Any], None]) -> tuple[Any, ...]:
            left, *problem = carry
            refs = [api.new_ref(x) for x in saved.states(problem[0])]
            advance = lambda start, stop: self.advance(refs, place(start), place(stop))
            problem = saved.descend(left, problem, refs, advance)
            # These are the states after the step that is reversed next; the step back may change them.
            begun = [refs[k][...] for k in self.places]
            step(place(left), refs)
            for held, x in zip(self.held, begun, strict=True):
                held[...] = x
            return (left - 1, *saved.popped(left - 1, problem))

        def last(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            return back(carry, self.step_back)

        def turn(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            return back(carry, self.step_back if self.after is None else self.step_from_after)

        carry = (tapes, *saved.begin(tapes))
        if self.after is not None:
            # No turn before has had the states after the last step.
            is_last = lambda carry: (carry[0] > 0) & (place(carry[0]) == self.n)
            carry = _loop(is_last, last, carry)
        _loop(lambda carry: carry[0] > 0, turn, carry)

    def advance(self, refs: Sequence[Value], start: Value, stop: Value) -> None:
        """Go forward from one tape to another."""
        ahead = [*self.consts, *refs]
        step = lambda k: transforms.eval_jaxpr(self.p.forward, [k, *ahead])
        _for_each(self.tape * start, self.tape * stop, step)

    def step_back(self, left: Value, refs: Sequence[Value]) -> None:
        """Reverse the last of the tapes that are left, from the states before it."""
        ahead = [*self.consts, *refs]
        if self.leaf is None:
            transforms.eval_jaxpr(self.back, [left - 1, *ahead, *self.states])
        else:
            first, stop = self.tape * (left - 1), prims.minimum(self.tape * left, self.n)
            self.leaf.reverse(first, stop, ahead, self.states, _for_each)

    def step_from_after(self, left: Value, refs: Sequence[Value]) -> None:
        """Reverse the last of the steps that are left, from the states before it and those after it."""
        assert self.after is not None, "unreachable: it is used only with these"
        ends = [x[...] for x in self.held]
        operands = [*self.consts, *refs, *self.states, *ends]
        transforms.eval_jaxpr(self.after.body, [left - 1, *operands])


class _Saved:
    """The saved states, and for each the problem that waits there: where it begins, and its reach.

    A problem is `slot, start, *reach`: the steps from `start` on, whose state is in `slot`.
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
        self.rows = api.empty_ref((self.size + 1, 3), np.int64)
        self.stored = binomial.Stored(*(cache[:2] if cache else (_ONE, _ONE)))
        _named(self.stored, _STORED)
        if cache:
            self.slots = [api.new_ref(x) for x in cache[2:]]
        else:
            self.slots = [api.empty_ref((schedule.room + 1, *x.shape), x.dtype) for x in states]
            self.put(self.stored, _ZERO, states)
        _named([self.rows, *self.slots], ["problems that wait", *[f"saved {x}" for x in names]])

    def sweep(
        self, n: Value, states: Sequence[Value], advance: Callable[[Any, Value, Value], None]
    ) -> None:
        """Run forward from the first states, and save what the schedule says."""
        refs = [api.new_ref(x) for x in states]

        def save(state: tuple[Any, Value]) -> tuple[Any, Value]:
            stored, at = state
            stop = self.schedule.next(stored) + _ZERO
            advance(refs, at, stop)
            stored = self.schedule.after_next(stored)
            slot = self.schedule.count(stored) - 1 + _ZERO
            self.put(stored, slot, [ref[...] for ref in refs])
            return stored, stop

        first = (self.stored, _ZERO)
        self.stored = _loop(lambda s: self.schedule.next(s[0]) < n, save, first)[0]

    def begin(self, n: Value) -> list[Value]:
        """The problem of the last state that is saved; those of the others are written down."""
        self.stored, self.count = self.schedule.replayed(self.stored, n, _loop)
        _named(self.stored, _STORED)
        _loop(lambda j: j < self.count, partial(self._wait, n), _ZERO)
        return self._problem(prims.maximum(self.count - 1, _ZERO))

    def _wait(self, n: Value, j: Value) -> Value:
        """Write down the problem of a state that was saved on the way forward: the steps up to the next one."""
        start = self.schedule.position(self.stored, j)
        after = self.schedule.position(self.stored, j + 1)
        stop = prims.select(j + 1 < self.count, after, n) if isinstance(after, Value) else n
        self.rows[j] = _row(start, *binomial.reach(stop - start, self.size - j, _loop))
        return j + 1

    def put(self, stored: binomial.Stored, slot: Value, states: Sequence[Value]) -> None:
        """Save a state."""
        place = self.schedule.place(stored, slot)
        for ref, x in zip(self.slots, states, strict=True):
            ref[place] = prims.to_memory(x, SLOW) if self.slow else x

    def states(self, slot: Value) -> list[Value]:
        """What is saved in a slot."""
        place = self.schedule.place(self.stored, slot)
        found = [ref[place] for ref in self.slots]
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
            self.rows[slot] = _row(start, *found.left)
            after, before = (slot + 1, stop, *found.right), (slot, start, *found.left)
            return (stop, *_chosen(left - stop > 1, after, before))

        carry = _loop(lambda carry: left - carry[0] > 1, save, (problem[1], *problem))
        return list(carry[1:])

    def popped(self, left: Value, problem: Sequence[Value]) -> list[Value]:
        """The problem that comes next: the one that waits before, if this one is solved."""
        slot, start, *_ = problem
        waits = self._problem(prims.maximum(slot - 1, _ZERO))
        return _chosen(start == left, waits, problem)

    def _problem(self, slot: Value) -> list[Value]:
        """The problem that waits at a saved state."""
        row = self.rows[slot]
        return [slot, *[prims.reshape(row[k : k + 1], ()) for k in range(3)]]


def _named(values: Sequence[Integer], names: Sequence[str]) -> None:
    """Name values and Refs of the machine, as `explain` calls them; constants have no name."""
    for x, name in zip(values, names, strict=False):
        if isinstance(x, trace.StageTracer):
            x.binder.hint = name


def _chosen(pred: Value, yes: Sequence[Integer], no: Sequence[Integer]) -> list[Value]:
    return [prims.select(pred, x, y) for x, y in zip(yes, no, strict=True)]


def _row(*numbers: Integer) -> Value:
    return prims.concatenate([prims.reshape(x + _ZERO, (1,)) for x in numbers], 0)


def _for_each(start: Value, stop: Value, step: Callable[[Value], object]) -> None:
    """Call a function with the numbers from `start` to `stop`."""

    def body(k: Value) -> Value:
        step(k)
        return k + 1

    _loop(lambda k: k < stop, body, start)


def _loop(cond: Callable[[S], Bool], body: Callable[[S], S], init: S, /) -> S:
    """A loop of the machine's own, of which nothing is told."""
    return traced_while(cond, body, init, None, UNTOLD)


FAST, SLOW = "device", "pinned_host"
"""The memories of the slots, and of the slower store."""
_STORED = ("stride of what is saved", "next to be saved")
_ROW = 24
"""The bytes of the numbers that are kept beside a state."""
_ZERO, _ONE = [arrays.as_value(np.int64(k)) for k in range(2)]


def without_replays(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with loops in the place of its replays, in nested jaxprs too; itself if there are none."""
    return jaxpr.remember("without replays", lambda: _expanded(jaxpr))


def _expanded(jaxpr: Jaxpr) -> Jaxpr:
    used = ir.used_vars([*jaxpr.outvars, *[a for eqn in jaxpr.eqns for a in eqn.invars]])

    def change(eqn: ir.Eqn) -> tuple[Sequence[ir.Eqn], Sequence[ir.Atom]] | None:
        if eqn.primitive is replay_p:
            return _loops_of(eqn, used)
        params = ir.with_jaxprs(eqn.params, without_replays)
        if _saves(eqn):
            room = sweeping(params.slots).slots
            _require_room(room, prims.bytes_of(kept_avals(params)), eqn.source)
            with trace.keep_source() as set_source:
                set_source(eqn.source)
                return ir.inlined(_swept(params, [a.aval for a in eqn.invars]), eqn.invars)
        return None if params is eqn.params else ([eqn.replace(params=params)], eqn.outvars)

    return ir.replaced(jaxpr, change) if has_replays(jaxpr) else jaxpr


def _swept(p: WhileParams, avals: Sequence[ir.Aval]) -> Jaxpr:
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
            for slot, x in zip(slots, held(carry), strict=True):
                slot[place] = prims.to_memory(x, SLOW) if schedule.slow_slots else x
            stop = schedule.tape * schedule.next(stored) + _ZERO
            return (stored, stop, run_until(at, stop, first, [*consts], carry, refs))

        def more(state: tuple[Any, ...]) -> Value:
            return transforms.eval_jaxpr(p.cond, [*consts, *state[2], *refs])[0]

        # The first turn saves the state at the beginning.
        begin: tuple[Any, ...] = (binomial.Stored(_ONE, _ZERO), _ZERO, carry)
        end = _loop(more, lambda s: stretch(schedule.after_next(s[0]), s[1], s[2]), begin)
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


def _loops_of(eqn: ir.Eqn, used: set[ir.Var]) -> tuple[list[ir.Eqn], list[ir.Atom]]:
    p: ReplayParams = eqn.params
    if p.num_backward:
        _require_room(p.num_slots, _bytes_of_state(p), eqn.source)
    if p.by_default and p.num_backward:
        _tell_of_default(p, eqn.source)
    wanted = [v in used for v in eqn.outvars[: p.num_forward]]
    eqns, outs = ir.inlined(without_replays(loops(p, wanted)), eqn.invars)
    if p.record.tells and p.num_backward:
        eqns = [_told(e, p, eqn) for e in eqns]
    given = iter(outs)
    # What nobody uses is not computed: something else of its type has its place.
    _, states, _ = p.parts(eqn.invars[1:])
    ahead = [next(given) if w else x for w, x in zip(wanted, states, strict=True)]
    return eqns, [*ahead, *given]


def _told(eqn: ir.Eqn, p: ReplayParams, replay: ir.Eqn) -> ir.Eqn:
    """An equation of the machine: the loop of its turns tells of the whole."""
    if eqn.primitive is not while_p or eqn.params.body.name not in _CARRIED:
        return eqn
    called = replace(p.record.called, name=p.record.called.name or p.forward.name)
    record = replace(p.record, called=called, steps=_constant_steps(replay))
    text = _of_schedule(p, replay)
    record = record.with_decisions([Decision("replay", "", True, text, replay.source)])
    carry = parts(eqn.params, eqn.params.body.invars)[1]
    name_inputs(carry, _CARRIED[eqn.params.body.name])
    return eqn.replace(params=replace(eqn.params, record=record), source=replay.source)


_CARRIED = {
    "turn": ("steps left", "slot", "its step", "repeats", "reach"),
    "period": ("state in the slower store", "steps left"),
}
"""The carried values of the loops of the way back: the steps to come, and the problem at hand."""


def _of_schedule(p: ReplayParams, replay: ir.Eqn) -> str:
    """What is told of the states that are saved."""
    if isinstance(p.slots, binomial.Binomial):
        return (
            f"states of {_bytes_of_state(p)} bytes are saved by {p.slots}; {_made_for_its_way_back(p)}"
            f"{_times_in_all(p, replay)}"
        )
    slots = p.num_slots
    most = [binomial.reached(slots, r) for r in (1, 2, 3)]
    where = "the first ones on the way forward, " if p.cached else ""
    return (
        f"{slots} states of {_bytes_of_state(p)} bytes are saved at a time, {where}and the others computed "
        f"again by the binomial schedule: no step runs more than once again if there are at most {most[0]}, twice "
        f"for {most[1]}, three times for {most[2]}, and {_made_for_its_way_back(p)}{_times_in_all(p, replay)}"
    )


def _made_for_its_way_back(p: ReplayParams) -> str:
    """Which steps run once more to be reversed."""
    if after.after_of(p) is None:
        return "each step runs once more for its way back"
    return "the last step runs once more for its way back; the others are reversed with the states after them"


def _times_in_all(p: ReplayParams, replay: ir.Eqn) -> str:
    """How many steps are reversed together; and how many are run again, if it is known how many there are."""
    steps, taped, together = _constant_steps(replay), leaf.leaf_of(p), ""
    if taped is not None:
        kept = prims.bytes_of(v.aval for v in taped.cut.residuals)
        together = f"; {taped.steps} steps are reversed together, by {kept} bytes kept of each"
    is_chosen = isinstance(p.slots, binomial.Binomial)
    if steps is None or (not is_chosen and (any(p.cached) or taped is not None)):
        return together
    again = evaluations(p.schedule, steps).advanced
    return f"{together}; of these {steps:,} steps {again:,} are run again in all"


def _constant_steps(replay: ir.Eqn) -> int | None:
    """The number of steps, if it is known while tracing."""
    count = replay.invars[0]
    return int(count.value.host) if isinstance(count, ir.Literal) else None  # type: ignore[attr-defined]  # a scalar has its number


def _bytes_of_state(p: ReplayParams) -> ir.Dim:
    return prims.bytes_of(p.parts(p.backward.in_avals[1:])[1])


def _require_room(slots: int, state: ir.Dim, source: ir.Source | None) -> None:
    """Raise ValueError if so many states, and the numbers of their steps, are more than the memory holds."""
    room, most = slots * (state + _ROW), client.memory_bytes()
    if ir.is_constant(room) and room > most:
        raise ValueError(
            f"checkpoints: {slots:,} states of {state:,} bytes need {room:,} bytes, and the memory has {most:,}; give "
            "a smaller number, or `max_steps`, with which no more states are saved than there are steps"
            f"{errors.at_source(source)}"
        )


def _tell_of_default(p: ReplayParams, source: ir.Source | None) -> None:
    """Say once of each loop how many states are saved, if nobody has chosen it.

    A loop is known by the lines of its steps: what a transposition has made has no line of the loop.
    """
    sources = [eqn.source for eqn in p.forward.eqns if eqn.source is not None]
    lines = {(p.forward.name, s.file, s.line) for s in sources} or {(p.forward.name, "", 0)}
    was_told = not _told_of.isdisjoint(lines)
    _told_of.update(lines)
    num_bytes = _bytes_of_state(p)
    if was_told or num_bytes == 0:
        return
    lazy.logging().getLogger("fiveloop").warning(
        f"the gradient of the loop of `{p.forward.name}` saves {p.num_slots} states of {num_bytes} bytes at a "
        "time, and computes the others again; choose their number with `checkpoints`, or give the loop `max_steps`, so "
        f"that it keeps what it needs of each step{errors.at_source(source or next(iter(sources), None))}"
    )


_told_of: set[tuple[str, str, int]] = set()


def _saves(eqn: ir.Eqn) -> bool:
    return eqn.primitive is while_p and any(eqn.params.kept)


def has_replays(jaxpr: Jaxpr) -> bool:
    """Whether there is a replay at any depth."""

    def found() -> bool:
        inner = any(has_replays(j) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
        return inner or any(eqn.primitive is replay_p or _saves(eqn) for eqn in jaxpr.eqns)

    return jaxpr.remember("has replays", found)


def _all_loops(p: ReplayParams) -> Jaxpr:
    return without_replays(loops(p, [True] * p.num_forward))


def replay_discharge(
    ctx: discharge.DischargeContext, operands: Sequence[Value | discharge.Cell], p: ReplayParams
) -> list[Value]:
    """The loops that it stands for, without their Refs; these may be differentiated, and a cache may not."""
    p, values = p.without_cache(ctx.values(operands))
    nothing = (False,) * len(values)
    pure = discharge.discharge_jaxpr(_all_loops(p), nothing, nothing)
    return transforms.eval_jaxpr(pure, values)


def replay_handler(
    handling: handlers.Handling, ref: Value, operands: Sequence[Value], p: ReplayParams
) -> list[Value]:
    """The loops that it stands for, with the Ref."""
    p, values = p.without_cache(operands)
    return transforms.eval_jaxpr(handling.thread(_all_loops(p)), [ref, *values])


discharge.define_discharge(replay_p, replay_discharge)
handlers.define_handler(replay_p, replay_handler)
passes.register_pass(
    passes.Pass("replay", after=("dce",), applies=has_replays, run=without_replays)
)
