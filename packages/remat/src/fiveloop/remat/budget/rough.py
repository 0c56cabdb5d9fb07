"""Estimates of what a stage can save that are made without splitting it: sums of sizes, and closed forms for loops."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, ir, prims, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.remat.budget.plans import Option, Parts, Save
from fiveloop.remat.budget.segments import Body, body_of
from fiveloop.remat.budget.stages import (
    most_alive,
    size_of,
    unknown_vars,
    unknown_within,
    without_calls,
)
from fiveloop.remat.policies import nothing_saveable
from fiveloop.state import AbstractRef

STATES, MOST_STATES = 16_000_000, 128
"""How many bytes, and how many states at most, a loop of unknown length is taken to hold where it is left as it is."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way through the body of a loop: the bytes kept and the operations again of all steps, the bytes of one.

    One that is `written` puts the whole body under what people write.
    """

    parts: Parts | None
    kept: int
    again: int
    need: int
    written: bool = False

    @property
    def bytes(self) -> int:
        """What is there at most."""
        return self.kept + self.need


NO_WAY = Way(None, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a loop: how many, the bytes of a state and the operations of one forward, and two ways through them.

    The ways are to leave the loop as it is, and to save the states alone. To save everything of a step takes `each`
    bytes, and to go back through it `need` besides. `inner` are the loops of a step.
    """

    trips: int
    state: int
    flops: int
    each: int
    need: int
    everything: Way
    nothing: Way
    inner: tuple[Steps, ...] = ()

    def scheduled(self, verdict: rules.Verdict, share: float = 1.0) -> Way:
        """The way under a verdict; if that is for a few states, steps keep a share of the bytes that are estimated."""
        if not isinstance(verdict, rules.Slots):
            return self.everything
        each, need, again = self.each, self.need, 0
        if verdict.within:
            old = [s.everything for s in self.inner]
            new = [
                s.scheduled(verdict) if s.trips > verdict.slots else s.everything
                for s in self.inner
            ]
            each += sum(w.kept for w in new) - sum(w.kept for w in old)
            need += _highest(new) - _highest(old)
            again = self.trips * sum(w.again for w in new)
        states = verdict.slots * self.state
        need += int(share * each * verdict.tape)
        if verdict.tape > 1:
            return Way(None, states, self.trips * self.flops + again, need)
        again += (self.trips + advances(self.trips, verdict.slots)) * self.flops
        return Way(None, 0, again, states + need)


def _highest(ways: Sequence[Way]) -> int:
    return max((w.need for w in ways), default=0)


def advances(length: int, slots: int) -> int:
    """The fewest steps run for a later state that reverse so many steps from so many states at a time."""
    repeats, reached = 0, 1
    while reached < length:
        repeats += 1
        reached = reached * (slots + repeats) // repeats
    return repeats * length - reached * repeats // (slots + 1)


def steps_through(eqn: ir.Eqn, unknown: util.Mask) -> Steps | None:
    """The steps of a loop; None if the equation is no loop, or nothing of it is unknown."""
    bodies = [b for b in rules.bodies_of(eqn) if b.role != "condition"] if any(unknown) else []
    if len(bodies) != 1 or bodies[0].role != "loop":
        return None

    def make() -> Steps:
        body = body_of(eqn, unknown)
        if body is None or not body.computed.eqns or not any(body.unknown):
            return _steps_in_place(bodies[0], unknown)
        return _steps_of(body)

    found: Steps = bodies[0].jaxpr.remember(("steps", eqn.params, unknown), make)
    return found


def _steps_in_place(body: rules.Body, unknown: util.Mask) -> Steps:
    """The steps of a loop whose body is not divided in parts: it writes before it reads, or is of unknown length."""
    jaxpr, trips = without_calls(body.jaxpr), body.trips * (transforms.OPEN if body.open else 1)
    late = unknown_within(jaxpr, unknown)
    mask = tuple([v in late for v in jaxpr.invars])
    everything, nothing = rough_options(jaxpr, mask)[:2]
    changed = {v for eqn in jaxpr.eqns for v in ir.changed_refs(eqn)}
    carried = set(jaxpr.invars[body.carry :][: len(jaxpr.outvars)])
    state = sum(_contents(v) for v in (changed.intersection(jaxpr.invars) | carried) - late)
    each, flops = everything.kept - nothing.kept, rough_flops(jaxpr, mask)
    need = everything.forward + everything.backward
    way = Way(None, trips * each, 0, need)
    if body.open:
        slots = min(STATES // max(state, 1), MOST_STATES)
        again = (trips + advances(trips, max(slots, 1))) * flops
        way = Way(None, 0, again, slots * state + each + need)
    inner = tuple(filter(None, loops_of(jaxpr, mask)))
    return Steps(trips, state, flops, each, need, way, way, inner)


def _contents(v: ir.Var) -> int:
    """The bytes of a value, or of what a Ref holds."""
    return int(prims.bytes_of([v.aval.inner])) if isinstance(v.aval, AbstractRef) else size_of(v)


def _steps_of(body: Body) -> Steps:
    jaxpr, trips = body.computed, body.whole.trips
    everything, nothing = rough_options(jaxpr, body.unknown)[:2]
    carried = body.carried

    def carry(option: Option) -> int:
        """What an option uses of the carry, which other steps write over."""
        given = util.select_by(option.given, jaxpr.invars)
        return sum(map(size_of, carried.intersection(given)))

    # The results of a step are in the states of the loop.
    kept = everything.kept - nothing.kept + carry(everything)
    need = everything.forward + everything.backward
    parts = Parts((0, len(jaxpr.eqns)), (Save(0, 1, nothing),))
    known = (v for v, u in zip(jaxpr.invars, body.unknown, strict=True) if not u)
    return Steps(
        trips,
        sum(map(size_of, carried.intersection(known))),
        rough_flops(jaxpr, body.unknown),
        kept,
        need,
        Way(None, trips * kept, 0, need),
        Way(parts, trips * carry(nothing), trips * nothing.again, nothing.backward, written=True),
        tuple(filter(None, loops_of(jaxpr, body.unknown))),
    )


@ir.once_per_jaxpr
def rough_flops(jaxpr: Jaxpr, unknown: util.Mask) -> int:
    """The operations of what does not depend on unknown inputs; of a loop those of the known part of each step."""
    late = unknown_vars(jaxpr, unknown)
    known = [e for e in jaxpr.eqns if late.isdisjoint((*e.outvars, *ir.changed_refs(e)))]
    alone = transforms.operations_of(jaxpr.replace(eqns=known), transforms.LIGHT, transforms.OPEN)
    return alone + sum(s.trips * s.flops for s in loops_of(jaxpr, unknown) if s)


def _mask(eqn: ir.Eqn, late: set[ir.Var]) -> util.Mask:
    return tuple([isinstance(a, ir.Var) and a in late for a in eqn.invars])


@ir.once_per_jaxpr
def rough_options(jaxpr: Jaxpr, unknown: util.Mask) -> list[Option]:
    """To save everything, and nothing."""
    late = unknown_vars(jaxpr, unknown)
    known = {v for eqn in jaxpr.eqns for v in eqn.outvars} - late
    used = {v for e in jaxpr.eqns if not late.isdisjoint(e.outvars) for v in ir.used_vars(e.invars)}
    outs = ir.used_vars(jaxpr.outvars) & known
    kept, given_on = (sum(map(size_of, vs)) for vs in ((used | outs) & known, outs))
    forward, back = most_alive(jaxpr, known - used), most_alive(jaxpr, late)
    again = rough_flops(jaxpr, unknown)
    given = tuple(v not in late for v in jaxpr.invars)
    at_once = tuple(v in used and v not in late for v in jaxpr.invars)
    ways = under(None, jaxpr, loops_of(jaxpr, unknown))
    within = sum(w.kept for w in ways)
    everything = Option(None, kept + within, forward, back + _highest(ways), 0, given=at_once)
    need = kept + forward + back + max((w.bytes for w in ways), default=0)
    return [everything, Option(nothing_saveable, given_on, forward, need, again, given=given)]


def loops_of(jaxpr: Jaxpr, unknown: util.Mask) -> list[Steps | None]:
    """The steps of each equation that is a loop."""
    late = unknown_vars(jaxpr, unknown)
    return [steps_through(eqn, _mask(eqn, late)) for eqn in jaxpr.eqns]


def under(
    policy: transforms.Policy | None,
    jaxpr: Jaxpr,
    loops: Sequence[Steps | None],
    share: float = 1.0,
) -> list[Way]:
    """The ways through the loops of a jaxpr under a policy that saves a few states, or else everything."""
    if policy is None:
        return [s.everything if s else NO_WAY for s in loops]
    plan = transforms.SavingPlan(policy)
    pairs = zip(jaxpr.eqns, loops, strict=True)
    return [s.scheduled(plan.verdict(eqn), share) if s else NO_WAY for eqn, s in pairs]


def differing(
    base: Option,
    first: Sequence[Way],
    other: Sequence[Way],
    policy: transforms.Policy | None = None,
) -> Option:
    """The option that takes other ways through loops than one whose ways are `first`."""
    kept = base.kept + sum(w.kept for w in other) - sum(w.kept for w in first)
    backward = base.backward + max(w.need for w in other) - max(w.need for w in first)
    return Option(
        policy,
        max(kept, 0),
        base.forward,
        max(backward, 0),
        base.again + sum(w.again for w in other) - sum(w.again for w in first),
        () if policy else tuple(w.parts for w in other),
        any(w.written for w in other) and policy is None,
        base.given,
    )
