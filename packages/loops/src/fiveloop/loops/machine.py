"""The loops that a `replay` stands for: forward to the end, and back by the binomial schedule, with a few saved states.

Three loops: turns, each of which makes one step of the way back; in a turn, descents to the step before that, each of
which saves a state; in a descent, steps forward. What a saved state is of is a row of integers beside it. The loops
are made after all derivatives: nothing of this is differentiated or batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, passes, prims, trace, transforms, util
from fiveloop.loops import leaf
from fiveloop.loops.primitives.replay import COUNT, ReplayParams, replay_p, without_backward
from fiveloop.loops.replay.dce import needed
from fiveloop.loops.schedules import binomial
from fiveloop.loops.schedules.integers import Bool, Integer
from fiveloop.loops.while_loop.api import UNTOLD, traced_while
from fiveloop.state import AbstractRef, api

S = TypeVar("S")
MEMORY = 16_000_000
"""How many bytes the saved states may take where nobody says how many there are."""
FEWEST, MOST = 8, 128
"""How many states are saved at least and at most where nobody says how many."""


def loops(p: ReplayParams, wanted: Sequence[bool]) -> Jaxpr:
    """The jaxpr of the loops: `[n, *consts, *forward, *backward] -> [*forward wanted, *backward]`."""
    avals = [COUNT, *[_held(v.aval) for v in p.backward.invars[1:]]]
    key = ("loops", p.forward, p.num_consts, p.slots, tuple(wanted))
    return p.backward.remember(
        key, lambda: trace.stage_closed(_Machine(p, wanted).run, avals, p.forward.name)
    )


def _held(aval: ir.Aval) -> ir.Aval:
    return aval.inner if isinstance(aval, AbstractRef) else aval


def num_slots(p: ReplayParams) -> int:
    """How many states are saved at a time."""
    if p.slots is not None:
        return p.slots
    state = prims.bytes_of(v.aval for v in p.parts(p.forward.invars[1:])[1])
    return int(min(max(MEMORY // max(state, 1), FEWEST), MOST))


class _Machine:
    def __init__(self, p: ReplayParams, wanted: Sequence[bool]) -> None:
        self.p = p
        self.wanted = wanted

    def run(self, n: Value, *values: Value) -> list[Value]:
        """The final states that are wanted; those of the way forward from a loop of its own."""
        consts, forward, backward = self.p.parts(values)
        binders = self.p.forward.invars[1 : 1 + self.p.num_consts]
        held = [
            api.new_ref(x) if isinstance(v.aval, AbstractRef) else x
            for v, x in zip(binders, consts, strict=True)
        ]
        return [*self._ahead(n, held, forward), *self._back(n, held, forward, backward)]

    def _ahead(self, n: Value, consts: list[Value], states: list[Value]) -> list[Value]:
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
        self, n: Value, consts: list[Value], forward: list[Value], backward: list[Value]
    ) -> list[Value]:
        """The final states of the way back."""
        if not backward:
            return []
        size = num_slots(self.p)
        saved = _Saved(size, forward)
        states = [api.new_ref(x) for x in backward]
        taped = leaf.leaf_of(self.p)
        steps = 1 if taped is None else taped.steps

        def turn(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            left, *problem = carry
            refs = [api.new_ref(x) for x in saved.states(problem[0])]
            ahead = [*consts, *refs]
            step = lambda k: transforms.eval_jaxpr(self.p.forward, [k, *ahead])
            advance = lambda start, stop: _for_each(steps * start, steps * stop, step)
            problem = saved.descend(left, problem, refs, advance)
            if taped is None:
                transforms.eval_jaxpr(self.p.backward, [left - 1, *ahead, *states])
            else:
                first, stop = steps * (left - 1), prims.minimum(steps * left, n)
                taped.reverse(first, stop, ahead, states, step, _for_each)
            return (left - 1, *saved.popped(left - 1, problem))

        num_tapes = (n + (steps - 1)) // steps
        begin: tuple[Any, ...] = (
            num_tapes,
            _ZERO,
            _ZERO,
            *binomial.reach(num_tapes, size, _loop),
        )
        _loop(lambda carry: carry[0] > 0, turn, begin)
        return [api.freeze(ref) for ref in states]


class _Saved:
    """The saved states, and for each the problem that waits there: where it begins, and its reach.

    A problem is `slot, start, *reach`: the steps from `start` on, whose state is in `slot`.
    """

    def __init__(self, size: int, states: Sequence[Value]) -> None:
        self.size = size
        # One is written to and never used, so that every step of a descent writes.
        self.slots = [api.empty_ref((size + 1, *x.shape), x.dtype) for x in states]
        self.rows = api.empty_ref((size + 1, 3), np.int64)
        for slot, x in zip(self.slots, states, strict=True):
            slot[0] = x

    def states(self, slot: Value) -> list[Value]:
        """What is saved in a slot."""
        return [ref[slot] for ref in self.slots]

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
            for saved, ref in zip(self.slots, refs, strict=True):
                saved[slot + 1] = ref[...]
            self.rows[slot] = _row(start, *found.left)
            after, before = (slot + 1, stop, *found.right), (slot, start, *found.left)
            return (stop, *_chosen(left - stop > 1, after, before))

        carry = _loop(lambda carry: left - carry[0] > 1, save, (problem[1], *problem))
        return list(carry[1:])

    def popped(self, left: Value, problem: Sequence[Value]) -> list[Value]:
        """The problem that comes next: the one that waits before, if this one is solved."""
        slot, start, *_ = problem
        before = prims.maximum(slot - 1, _ZERO)
        row = self.rows[before]
        waits = (before, *[prims.reshape(row[k : k + 1], ()) for k in range(3)])
        return _chosen(start == left, waits, problem)


def _chosen(pred: Value, yes: Sequence[Integer], no: Sequence[Integer]) -> list[Value]:
    return [prims.select(pred, x, y) for x, y in zip(yes, no, strict=True)]


def _row(*numbers: Integer) -> Value:
    return prims.concatenate([prims.reshape(x, (1,)) for x in numbers], 0)


def _for_each(start: Value, stop: Value, step: Callable[[Value], object]) -> None:
    """Call a function with the numbers from `start` to `stop`."""

    def body(k: Value) -> Value:
        step(k)
        return k + 1

    _loop(lambda k: k < stop, body, start)


def _loop(cond: Callable[[S], Bool], body: Callable[[S], S], init: S, /) -> S:
    """A loop of the machine's own, of which nothing is told."""
    return traced_while(cond, body, init, None, UNTOLD)


_ZERO = arrays.as_value(np.int64(0))


def without_replays(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with loops in the place of its replays, in nested jaxprs too; itself if there are none."""
    return jaxpr.remember("without replays", lambda: _expanded(jaxpr))


def _expanded(jaxpr: Jaxpr) -> Jaxpr:
    used = ir.used_vars([*jaxpr.outvars, *[a for eqn in jaxpr.eqns for a in eqn.invars]])

    def change(eqn: ir.Eqn) -> tuple[Sequence[ir.Eqn], Sequence[ir.Atom]] | None:
        if eqn.primitive is replay_p:
            return _loops_of(eqn, used)
        params = ir.with_jaxprs(eqn.params, without_replays)
        return None if params is eqn.params else ([eqn.replace(params=params)], eqn.outvars)

    return ir.replaced(jaxpr, change) if has_replays(jaxpr) else jaxpr


def _loops_of(eqn: ir.Eqn, used: set[ir.Var]) -> tuple[list[ir.Eqn], list[ir.Atom]]:
    p: ReplayParams = eqn.params
    wanted = [v in used for v in eqn.outvars[: p.num_forward]]
    eqns, outs = ir.inlined(without_replays(loops(p, wanted)), eqn.invars)
    given = iter(outs)
    # What nobody uses is not computed: something else of its type has its place.
    _, states, _ = p.parts(eqn.invars[1:])
    ahead = [next(given) if w else x for w, x in zip(wanted, states, strict=True)]
    return eqns, [*ahead, *given]


def has_replays(jaxpr: Jaxpr) -> bool:
    """Whether there is a replay at any depth."""

    def found() -> bool:
        inner = any(has_replays(j) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
        return inner or any(eqn.primitive is replay_p for eqn in jaxpr.eqns)

    return jaxpr.remember("has replays", found)


passes.register_pass(
    passes.Pass("replay", after=("dce",), applies=has_replays, run=without_replays)
)
