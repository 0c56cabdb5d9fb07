"""The loops of a `replay`: forward to the end, and back by the binomial schedule, with a few saved states.

Three loops: turns, each of which makes one step of the backward pass; in a turn, descents to the step before that, each
of which saves a state; in a descent, steps forward. Beside each saved state is the number of its step. A schedule with
a slower store has a fourth loop around these: over the states there, each of which begins a period of turns. The loops
are made after all derivatives: nothing of this is differentiated or batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, errors, ir, passes, prims, trace, transforms, util
from fiveloop.core.backend import client, lazy
from fiveloop.loops import reversal
from fiveloop.loops.names import name_inputs
from fiveloop.loops.primitives.replay import ReplayParams, replay_p, without_backward
from fiveloop.loops.primitives.slots import COUNT, cache_avals, sweeping
from fiveloop.loops.primitives.while_loop import kept_avals, parts, while_p
from fiveloop.loops.record import Decision, shown_aval
from fiveloop.loops.replay.dce import needed
from fiveloop.loops.schedules import binomial, simulation
from fiveloop.loops.store import ZERO, Store, for_each, loop, named, swept
from fiveloop.state import AbstractRef, api, discharge, handlers


def loops(p: ReplayParams, wanted: Sequence[bool], steps: int | None = None) -> Jaxpr:
    """The jaxpr of the loops: `[n, *consts, *forward, *backward, *cache] -> [*forward wanted, *backward]`.

    `steps` is the value of `n`, if it is known.
    """
    avals = [COUNT, *[shown_aval(a) for a in p.backward.in_avals[1:]]]
    cached = [a for a, c in zip(p.parts(avals[1:])[1], p.cached, strict=False) if c]
    avals += cache_avals(cached, p.slots)
    key = ("loops", p.forward, p.num_consts, p.lane_counts, p.slots, p.cached, tuple(wanted), steps)
    machine = _Machine(p, wanted, steps)
    return p.backward.remember(key, lambda: trace.stage_closed(machine.run, avals, p.forward.name))


class _Machine:
    def __init__(self, p: ReplayParams, wanted: Sequence[bool], steps: int | None) -> None:
        self.p, self.wanted, self.steps = p, wanted, steps

    def run(self, n: Value, *values: Value) -> list[Value]:
        """The wanted final states; the states of the forward pass come from a loop of their own."""
        if self.steps is not None:
            n = arrays.as_value(np.int64(self.steps))
        num = self.p.num_operands - 1
        named([n, *values], ["steps", *self.p.names])
        consts, forward, backward = self.p.parts(values[:num])
        binders = self.p.forward.invars[1 : 1 + self.p.num_consts]
        held = [
            api.new_ref(x) if isinstance(v.aval, AbstractRef) else x
            for v, x in zip(binders, consts, strict=True)
        ]
        named(held, self.p.names)
        return [
            *self._ahead(n, held, forward),
            *self._back(n, held, forward, backward, values[num:]),
        ]

    def _ahead(self, n: Value, consts: Sequence[Value], states: Sequence[Value]) -> list[Value]:
        """The final states of the forward pass."""
        once = self.p.forward.effects and not self.p.num_backward
        if not any(self.wanted) and not once:
            return []
        p, kept = needed(without_backward(self.p), self.wanted, [])
        refs = [api.new_ref(x) for x in states]
        operands = util.select_by(kept, [*consts, *refs])
        for_each(ZERO, n, lambda k: transforms.eval_jaxpr(p.forward, [k, *operands]))
        return [api.freeze(ref) for ref in util.select_by(self.wanted, refs)]

    def _back(
        self,
        n: Value,
        consts: list[Value],
        forward: list[Value],
        backward: list[Value],
        cache: Sequence[Value],
    ) -> list[Value]:
        """The final states of the backward pass."""
        if not backward:
            return []
        states = [api.new_ref(x) for x in backward]
        named(states, self.p.parts(self.p.names)[2])
        _WayBack(self.p, n, consts, states).run(forward, cache)
        return [api.freeze(ref) for ref in states]


class _WayBack:
    """The steps from the last to the first, tape by tape; a tape is one step, unless there is a leaf."""

    def __init__(
        self, p: ReplayParams, n: Value, consts: Sequence[Value], states: Sequence[Value]
    ) -> None:
        self.p, self.n, self.consts, self.states = p, n, consts, states
        self.back = reversal.back_alone(p)
        self.leaf = reversal.leaf_of(p)
        self.tape = 1 if self.leaf is None else self.leaf.steps
        self.names = p.parts(p.names)[1]
        self.after = reversal.after_of(p)
        avals = p.parts(p.backward.in_avals[1:])[1]
        self.held = [api.empty_ref(avals[k].shape, avals[k].dtype) for k in self.places]
        named(self.held, [f"{self.names[k]} after the step" for k in self.places])

    @property
    def places(self) -> Sequence[int]:
        """Which forward states the backward pass of a step is given as they are after it."""
        return () if self.after is None else self.after.places

    def run(self, forward: Sequence[Value], cache: Sequence[Value]) -> None:
        """All steps, from the states at the beginning or from some that are saved already."""
        tapes = (self.n + (self.tape - 1)) // self.tape
        schedule = self.p.schedule
        # What was saved in the forward pass may have been saved between steps, not between tapes.
        usable = all(self.p.cached) and self.tape == schedule.tape
        is_slow = bool(schedule.slow_slots)
        saved = Store(schedule, forward, cache if usable else (), self.names, is_slow)
        is_chosen = isinstance(self.p.slots, binomial.Binomial)
        if schedule.sweeps and is_chosen and not (usable and cache):
            saved.sweep(tapes, forward, self.advance)
        if schedule.most is not None:
            self.each(saved, tapes)
        elif is_slow:
            self.periods(saved, tapes)
        else:
            self.turns(saved, tapes)

    def each(self, saved: Store, tapes: Value) -> None:
        """The tapes of a schedule that saves the state before each."""

        def turn(left: Value) -> Value:
            self.step_back(left, [api.new_ref(x) for x in saved.states(left - 1)])
            return left - 1

        loop(lambda left: left > 0, turn, tapes)

    def periods(self, slow: Store, tapes: Value) -> None:
        """From each state of the slower store the steps up to the next one."""
        schedule = slow.schedule
        inner = binomial.Binomial(schedule.slots, schedule.tape)

        def period(carry: tuple[Value, Value]) -> tuple[Value, Value]:
            j, end = carry
            start = schedule.position(slow.stored, j) + ZERO
            self.turns(Store(inner, slow.states(j), (), self.names), end - start, start)
            return j - 1, start

        last = schedule.count(slow.stored) - 1 + ZERO
        loop(lambda carry: carry[0] >= 0, period, (last, tapes))

    def turns(self, saved: Store, tapes: Value, first: Value | None = None) -> None:
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
            carry = loop(is_last, last, carry)
        loop(lambda carry: carry[0] > 0, turn, carry)

    def advance(self, refs: Sequence[Value], start: Value, stop: Value) -> None:
        """Go forward from one tape to another."""
        ahead = [*self.consts, *refs]
        step = lambda k: transforms.eval_jaxpr(self.p.forward, [k, *ahead])
        for_each(self.tape * start, self.tape * stop, step)

    def step_back(self, left: Value, refs: Sequence[Value]) -> None:
        """Reverse the last of the tapes that are left, from the states before it."""
        ahead = [*self.consts, *refs]
        if self.leaf is None:
            transforms.eval_jaxpr(self.back, [left - 1, *ahead, *self.states])
        else:
            first = self.tape * (left - 1)
            self.leaf.reverse(first, self.taped(first), ahead, self.states)

    def taped(self, first: Value) -> Value:
        """How many steps there are in the tape from a step on."""
        whole = arrays.as_value(np.int64(self.tape))
        if isinstance(self.n, arrays.Concrete) and int(self.n) % self.tape == 0:
            return whole
        return prims.minimum(whole, self.n - first)

    def step_from_after(self, left: Value, refs: Sequence[Value]) -> None:
        """Reverse the last of the steps that are left, from the states before it and those after it."""
        assert self.after is not None, "unreachable: it is used only with these"
        ends = [x[...] for x in self.held]
        operands = [*self.consts, *refs, *self.states, *ends]
        transforms.eval_jaxpr(self.after.body, [left - 1, *operands])


@ir.once_per_jaxpr
def without_replays(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with loops in the place of its replays, in nested jaxprs too; itself if there are none."""
    used = ir.used_by(jaxpr.eqns, jaxpr.outvars)

    def change(eqn: ir.Eqn) -> tuple[ir.Eqns, ir.Atoms] | None:
        if eqn.primitive is replay_p:
            with trace.keep_source() as set_source:
                set_source(eqn.source)
                return _loops_of(eqn, used)
        params = ir.with_jaxprs(eqn.params, without_replays)
        if _saves(eqn):
            room = sweeping(params.slots).slots
            _require_room(room, prims.bytes_of(kept_avals(params)), eqn.source)
            with trace.keep_source() as set_source:
                set_source(eqn.source)
                return ir.inlined(swept(params, [a.aval for a in eqn.invars]), eqn.invars)
        return None if params is eqn.params else ([eqn.replace(params=params)], eqn.outvars)

    return ir.replaced(jaxpr, change) if has_replays(jaxpr) else jaxpr


def _loops_of(eqn: ir.Eqn, used: set[ir.Var]) -> tuple[list[ir.Eqn], list[ir.Atom]]:
    p: ReplayParams = eqn.params
    if p.num_backward:
        _require_room(p.num_slots, _bytes_of_state(p), eqn.source)
    if p.by_default and p.num_backward:
        _tell_of_default(p, eqn.source)
    wanted = [v in used for v in eqn.outvars[: p.num_forward]]
    eqns, outs = ir.inlined(without_replays(loops(p, wanted, _constant_steps(eqn))), eqn.invars)
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
    "turn": ("steps left", "slot", "its step"),
    "period": ("state in the slower store", "steps left"),
}
"""The carried values of the loops of the backward pass: the steps to come, and the problem at hand."""


def _of_schedule(p: ReplayParams, replay: ir.Eqn) -> str:
    """The decision about saved states, for `explain`."""
    taped, size = reversal.leaf_of(p), f"states of {_bytes_of_state(p)} bytes are saved"
    schedule = p.schedule if taped is None else replace(p.schedule, tape=taped.steps)
    is_chosen = isinstance(p.slots, binomial.Binomial)
    saved = f"{size} by {p.slots}" if is_chosen else f"{p.num_slots} {size} at a time"
    once = "each step runs once more to be reversed"
    if reversal.after_of(p) is not None:
        once = "the last step runs once more to be reversed; the others are reversed from the states after them"
    ends = f"{once}{_times_in_all(p, schedule, replay)}"
    if schedule.most is not None:
        return f"{saved}, so none is recomputed, and {ends}"
    most = [schedule.longest(r) for r in (1, 2, 3)]
    where = "the first ones in the forward pass, " if any(p.cached) else ""
    by = "" if is_chosen else " by the binomial schedule"
    return (
        f"{saved}, {where}and the others recomputed{by}: no step is rerun more than once in a loop of up to {most[0]} "
        f"steps, twice up to {most[1]}, three times up to {most[2]}, and {ends}"
    )


def _times_in_all(p: ReplayParams, schedule: binomial.Binomial, replay: ir.Eqn) -> str:
    """How many steps are reversed together; and how many are run again, if it is known how many there may be."""
    steps, taped, together = _constant_steps(replay), reversal.leaf_of(p), ""
    if taped is not None:
        kept = prims.bytes_of(v.aval for v in taped.cut.residuals)
        together = f"; {taped.steps} steps are reversed together, with {kept} bytes saved of each"
    most = p.steps if steps is None else steps
    if most is None:
        return together
    given = f"of these {most:,} steps" if steps is not None else f"if all {most:,} steps are taken,"
    return f"{together}; {given} {simulation.advanced(schedule, most):,} are rerun in all"


def _constant_steps(replay: ir.Eqn) -> int | None:
    """The number of steps, if it is known while tracing."""
    count = replay.invars[0]
    return int(count.value.host) if isinstance(count, ir.Literal) else None  # type: ignore[attr-defined]  # a scalar has its number


def _bytes_of_state(p: ReplayParams) -> ir.Dim:
    return prims.bytes_of(p.parts(p.backward.in_avals[1:])[1])


_ROW = 8
"""The bytes of the number of a step that is kept beside its state."""


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
        "time, and recomputes the others; choose their number with `checkpoints`, or give the loop `max_steps`, to "
        f"save the residuals of each step{errors.at_source(source or next(iter(sources), None))}"
    )


_told_of: set[tuple[str, str, int]] = set()


def _saves(eqn: ir.Eqn) -> bool:
    return eqn.primitive is while_p and any(eqn.params.kept)


@ir.once_per_jaxpr
def has_replays(jaxpr: Jaxpr) -> bool:
    """Whether there is a replay at any depth."""
    inner = any(has_replays(j) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
    return inner or any(eqn.primitive is replay_p or _saves(eqn) for eqn in jaxpr.eqns)


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
_may_replay = ir.holding(replay_p, while_p)
passes.register_pass(
    passes.Pass("replay", after=("dce", "live"), applies=_may_replay, run=without_replays)
)
