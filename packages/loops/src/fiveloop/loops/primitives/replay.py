"""The primitive `replay`: a loop with a known number of steps, and the backward pass over these steps."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, ir, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.util import T
from fiveloop.loops import common
from fiveloop.loops.primitives import slots
from fiveloop.loops.record import EMPTY, Record, names_of
from fiveloop.loops.schedules.binomial import Binomial, Slots
from fiveloop.state import AbstractRef


@dataclass(frozen=True)
class ReplayParams:
    """A loop of `forward`, and then a loop of `backward` over the same steps from the last to the first.

    forward  : [k, *consts, *forward states]                    -> []
    backward : [k, *consts, *forward states, *backward states]  -> []
    operands : [n, *consts, *forward states, *backward states, *cache]
    results  : [*final forward states, *final backward states]

    All operands are values. The states are Refs to the bodies, and so may constants be, which no step changes. Step `k`
    of the backward pass begins with the forward states as they were before step `k` of the forward pass, and may change
    them as that does: so it needs no copy of them. It is linear in the backward states. `slots` of the forward states
    are saved at a time, from which the others are computed again; if None, as many as a default amount of memory holds.
    `cached` marks forward states of which some are saved already: the cache is what the schedule has stored, `Online`
    if none is given, and the slots of each. The first `lane_counts` constants are numbers of steps of lanes: in a step
    that a lane does not make, nothing is written that is computed for it. `by_default` says that nobody has chosen how
    many slots there are. `steps` is the number of steps, if it is a constant: the cost depends on it.
    """

    forward: Jaxpr
    backward: Jaxpr
    num_consts: int
    slots: Slots | None = None
    cached: util.Mask = ()
    lane_counts: int = 0
    by_default: bool = False
    steps: int | None = None
    record: Record = field(default=EMPTY, compare=False)

    @property
    def num_forward(self) -> int:
        return len(self.forward.invars) - 1 - self.num_consts

    @property
    def num_backward(self) -> int:
        return len(self.backward.invars) - len(self.forward.invars)

    @property
    def num_operands(self) -> int:
        """How many operands there are before the cache."""
        return len(self.backward.invars)

    @property
    def num_slots(self) -> int:
        """How many states are saved at a time."""
        return slots.num_slots(self.slots, self.parts(self.backward.in_avals[1:])[1])

    @property
    def settled_slots(self) -> Slots:
        """How many states are saved at a time, or by which schedule."""
        return slots.settled(self.slots, self.parts(self.backward.in_avals[1:])[1])

    @property
    def schedule(self) -> Binomial:
        """The schedule that saves states: the given schedule, or a default for a known or unknown number of steps."""
        if isinstance(self.slots, Binomial):
            return self.slots
        return slots.sweeping(self.slots) if any(self.cached) else Binomial(self.num_slots)

    def without_cache(self, xs: Sequence[T]) -> tuple[ReplayParams, list[T]]:
        """The same replay without saved states, and the part of its operands that remains."""
        return replace(self, cached=()), list(xs[: self.num_operands])

    @property
    def names(self) -> list[str]:
        """The names of the operands after the number of steps."""
        return names_of(self.backward.invars[1:])

    def parts(self, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        """What belongs to the constants, to the forward states and to the backward states."""
        consts, forward, backward = util.split_list(xs, [self.num_consts, self.num_forward])
        return consts, forward, backward


replay_p: ir.Primitive[ReplayParams] = ir.Primitive("replay")


def replay_abstract_eval(
    avals: Sequence[ir.Aval], p: ReplayParams
) -> tuple[list[ir.Aval], ir.Effects]:
    """The types of the states; the effects of the bodies that are on no Ref."""
    _check(avals[: p.num_operands], p)
    _, forward, backward = p.parts(avals[1 : p.num_operands])
    _check_cache(avals[p.num_operands :], forward, p)
    effects = [
        e for e in p.forward.effects | p.backward.effects if not isinstance(e, ir.PositionalEffect)
    ]
    return [a.strong() for a in (*forward, *backward)], frozenset(effects)


def replay_typecheck(avals: Sequence[ir.Aval], p: ReplayParams) -> tuple[list[ir.Aval], ir.Effects]:
    """The same of params that any equation may hold."""
    is_mask = p.cached == () or len(p.cached) == p.num_forward
    common.check_params(
        "replay",
        ("num_consts", p.num_consts, common.is_count(p.num_consts), "an integer of at least 0"),
        ("slots", p.slots, slots.is_slots(p.slots), "None, a schedule or an integer of at least 1"),
        ("cached", p.cached, is_mask, "empty or a mask of the forward states"),
    )
    return replay_abstract_eval(avals, p)


def _check(avals: Sequence[ir.Aval], p: ReplayParams) -> None:
    num = len(p.forward.invars)
    binders = p.backward.in_avals
    if p.forward.in_avals != binders[:num]:
        raise TypeError("replay: the binders of `forward` must be the first ones of `backward`")
    if (
        len(avals) != len(binders)
        or binders[0] is not slots.COUNT
        or avals[0].strong() is not slots.COUNT
    ):
        raise TypeError(f"replay: expected operands for {binders}, got {list(avals)}")
    for k, (given, binder) in enumerate(zip(avals, binders, strict=True)):
        held = binder.inner if isinstance(binder, AbstractRef) else binder.strong()
        if given.strong() is not held:
            raise TypeError(f"replay: operand {k} of type {given} does not fit the body's {binder}")
        if k > p.num_consts and not isinstance(binder, AbstractRef):
            raise TypeError(f"replay: state {k} must be a Ref to the bodies, got {binder}")
    first = 1 + p.num_consts
    bodies = (p.forward, p.backward)
    changed = [k for body in bodies for k in ir.mutated_positions(body.effects) if k < first]
    if changed:
        raise TypeError(f"replay: operand {min(changed)} must only be read by the body")


def _check_cache(avals: Sequence[ir.Aval], forward: Sequence[ir.Aval], p: ReplayParams) -> None:
    cached = [x for x, c in zip(forward, p.cached, strict=False) if c]
    want = slots.cache_avals(cached, p.slots)
    if [a.strong() for a in avals] != want:
        raise TypeError(f"replay: expected a cache of {want}, got {list(avals)}")


def without_backward(p: ReplayParams) -> ReplayParams:
    """The loop forward alone."""
    return replace(p, cached=(), backward=p.forward)
