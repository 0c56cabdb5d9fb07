"""What a stage can save, and what each choice costs: bytes kept, bytes needed to go back, and time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import ClassVar

import numpy as np

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.transforms import Candidate, policies
from fiveloop.remat import timeline
from fiveloop.remat.budget.plans import Again, Option, Parts, Save
from fiveloop.remat.budget.rough import (
    NO_WAY,
    Steps,
    Way,
    differing,
    loops_of,
    rough_options,
    under,
)
from fiveloop.remat.budget.segments import Body, body_of, in_parts, with_given
from fiveloop.remat.budget.stages import Program, size_of, unknown_vars
from fiveloop.remat.buffers import backward_begins
from fiveloop.remat.policies import (
    FEWER,
    OtherNames,
    Scheduled,
    as_it_is,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    nothing_saveable,
    steps_of,
)

SLOTS = (2, 8, 32)
"""How many states of a loop of unknown length a schedule may hold."""

RUNG, RUNGS = 4, 8
"""A loop of known length may hold the fewest states of these, or this many times as many as before, so many times."""

STAGES, SMALL, ROOMS, FEW = 4, 0.03, 16, 4
"""Of the body of a loop: the most stages, the least share of its operations in a stage, how many limits on the working
memory of a step are tried, and how many options are weighed for a run of several stages."""


@dataclass(frozen=True)
class Priced(transforms.Composable):
    """Minimise the estimated time of recomputation plus `price` nanoseconds for each saved byte."""

    price: float
    weighs: ClassVar[bool] = True

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return rules.Weigh(memory_cost=self.price, share=1e9, heavy=True)


@ir.once_per_jaxpr
def longest(jaxpr: Jaxpr) -> float:
    """The steps of the longest loop that is in no other one."""
    inner = (b.jaxpr for e in jaxpr.eqns for b in rules.bodies_of(e) if not rules.is_loop(e))
    return max(chain(map(steps_of, jaxpr.eqns), map(longest, inner)), default=0)


@ir.once_per_jaxpr
def is_open(jaxpr: Jaxpr) -> bool:
    """Whether there is a loop of unknown length, at any depth."""
    bodies = [b for e in jaxpr.eqns for b in rules.bodies_of(e)]
    return any(b.open or is_open(b.jaxpr) for b in bodies)


WRITTEN: tuple[transforms.Policy, ...] = (
    nothing_saveable,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    OtherNames(frozenset()),
)
"""The policies that people write, tried on each stage and on the whole body of each loop."""

FREE = 1e-6
"""The price of a byte at which only what costs no operations is computed again."""

CUTS = 5
"""How many minimum cuts are tried, each at another price."""


def judged(jaxpr: Jaxpr, policy: transforms.Policy) -> Iterator[bool]:
    """Whether a policy saves the results of each equation, at any depth."""
    plan, labels = transforms.SavingPlan(policy), policies.labels_of(jaxpr)
    for eqn in jaxpr.eqns:
        yield plan.verdict(eqn, labels).saves
        for inner in ir.jaxprs_in(eqn.params):
            yield from judged(inner, policy)


@dataclass(frozen=True)
class Weighing:
    """Weighs what a stage may save; `given` is the user's policy."""

    jaxpr: Jaxpr
    unknown: util.Mask
    given: transforms.Policy | None

    def options(self, most: int) -> list[Option]:
        """At most so many options, without those that another betters; the first saves everything.

        If there is no time to split the stage twice, all are estimated without splitting.
        """
        if most < 2:
            return self.rough()
        first = self.option(None)
        if not any(self.unknown):
            return [replace(first, again=0)]
        found = [first]
        if rules.holds_loop(self.jaxpr):
            found += self.schedules(first)
            found += self.planned_loops(most)
        else:
            found.append(self.option(nothing_saveable))
            found += self.cuts(found[0], found[1], min(CUTS, most - 2))
            found += map(self.option, self.written[1 : max(most - 1 - CUTS, 1)])
        return [replace(first, again=0), *_bettered_by_none([o.beside(first) for o in found[1:]])]

    def rough(self) -> list[Option]:
        """Options that are estimated without splitting the stage."""
        first, nothing = rough_options(self.jaxpr, self.unknown)
        if not any(self.loops):
            return [first, nothing]
        old = under(None, self.jaxpr, self.loops)
        states = [s.nothing if s else NO_WAY for s in self.loops]
        found = [
            differing(first, old, under(p, self.jaxpr, self.loops), p) for p in self.policies()
        ]
        return [first, *_bettered_by_none([differing(first, old, states), *found])]

    @property
    def loops(self) -> list[Steps | None]:
        """The steps of each equation that is a loop."""
        return loops_of(self.jaxpr, self.unknown)

    def policies(self) -> list[Scheduled]:
        """Policies that save a few states of the stage's loops, those of fewest bytes first."""
        rungs = SLOTS if is_open(self.jaxpr) else [SLOTS[0] * RUNG**k for k in range(RUNGS)]
        ladder = [k for k in rungs if k * FEWER <= longest(self.jaxpr)]
        found = [Scheduled(k, self.given) for k in ladder]
        flat = (s for s in self.loops if s and not s.inner)
        steps = max(flat, key=lambda s: s.trips, default=None)
        if steps and (tapes := self.periods(steps)):
            found += [Scheduled(k, self.given, taped=True) for k in tapes]
        if any(s and s.inner for s in self.loops):
            found += [Scheduled(k, self.given, within=True) for k in ladder]
        return found

    def periods(self, steps: Steps) -> list[int]:
        """How many states of a loop take about as much room as the residuals of the steps between two of them."""
        least = math.sqrt(steps.trips * steps.each / max(steps.state, 1))
        found = dict.fromkeys(max(int(least * k), 2) for k in (0.5, 1))
        return [k for k in found if k * FEWER <= steps.trips]

    def schedules(self, first: Option) -> list[Option]:
        """The options that save a few states: one of them is split, and the others differ from it by a formula."""
        policies, loops = self.policies(), self.loops
        if is_open(self.jaxpr) or not any(loops):
            return [self.option(p) for p in policies if not p.taped and p.slots <= SLOTS[-1]]
        if not policies:
            return []
        kept = sum(w.kept for w in under(None, self.jaxpr, loops))
        share = min(first.kept / max(kept, 1), 1.0)
        base = self.option(policies[0])
        old = under(policies[0], self.jaxpr, loops, share)
        found = [base]
        for policy in policies[1:]:
            new = under(policy, self.jaxpr, loops, share)
            ratio = sum(w.again for w in new) / max(sum(w.again for w in old), 1)
            again = first.again + int(ratio * (base.again - first.again))
            found.append(replace(differing(base, old, new, policy), again=again))
        return found

    def under_policies(self, most: int) -> list[Option]:
        """The option of each policy that people write; none if there is no time to split the stage."""
        if most < 2 or not any(self.unknown):
            return []
        plain = self._flops(both_passes(self.jaxpr, self.unknown, self._chosen(None)))
        found: dict[tuple[bool, ...], Option] = {}
        keys = [tuple(judged(self.jaxpr, policy)) for policy in WRITTEN]
        for key, policy in zip(keys, WRITTEN, strict=True):
            if key not in found:
                o = self.option(policy)
                found[key] = replace(o, again=max(o.again - plain, 0))
        return [found[key] for key in keys]

    def _chosen(self, policy: transforms.Policy | None) -> transforms.Policy:
        return with_given(as_it_is if policy is None else policy, self.given)

    @staticmethod
    def _flops(passes: Passes) -> int:
        return transforms.operations_of(passes.jaxpr, transforms.LIGHT, transforms.OPEN)

    @property
    def written(self) -> list[transforms.Policy]:
        """The policies that people write, without those that save the same here as one before them."""
        found: dict[tuple[bool, ...], transforms.Policy] = {}
        for policy in WRITTEN:
            found.setdefault(tuple(judged(self.jaxpr, policy)), policy)
        return [*found.values()]

    def option(
        self, policy: transforms.Policy | None, parts: tuple[Parts | None, ...] = ()
    ) -> Option:
        """The option of a policy, where loop bodies follow plans; `again` counts all operations of both passes."""
        late = unknown_vars(self.jaxpr, self.unknown) if any(parts) else set[ir.Var]()
        eqns = in_parts(self.jaxpr.eqns, late, parts, self.given)
        passes = both_passes(self.jaxpr.replace(eqns=eqns), self.unknown, self._chosen(policy))
        cut = passes.cut
        outs = [v for v, u in zip(self.jaxpr.outvars, cut.out_unknown, strict=True) if not u]
        saved = [
            v for v, (kind, _) in zip(cut.residuals, cut.sources, strict=True) if kind == "saved"
        ]
        kept = sum(map(size_of, saved))
        if policy is None:
            kept, forward, backward = _whole(passes)
        else:
            forward = timeline.peak(cut.known, part=True)
            backward = timeline.peak(passes.backward, part=True)
        given = tuple(t and not u for t, u in zip(cut.staged_in, self.unknown, strict=True))
        return Option(
            policy,
            kept + sum(map(size_of, outs)),
            forward,
            backward,
            self._flops(passes),
            parts,
            given=given,
        )

    def stacks(self, most: int) -> int:
        """The bytes that loops save for all steps even if nothing else is saved."""
        if not any(self.unknown) or not rules.holds_loop(self.jaxpr):
            return 0
        if most < 2:
            return sum(s.nothing.kept for s in self.loops if s)
        cut = both_passes(self.jaxpr, self.unknown, with_given(nothing_saveable, self.given)).cut
        pairs = zip(cut.residuals, cut.sources, strict=True)
        return sum(size_of(v) for v, (kind, _) in pairs if kind == "saved")

    def cuts(self, less: Option, more: Option, most: int) -> list[Option]:
        """At most so many options between one that recomputes less and one that recomputes more, by minimum cuts.

        A cut is taken at the price of a byte at which the two cost the same. If it is better than both, it is a new
        corner of the convex hull, and there may be more corners on either side of it.
        """
        found = [self.option(Priced(FREE))]
        between = [(min(found[0], less, key=lambda o: (o.again, o.kept)), more)]
        while between and len(found) < most:
            a, b = between.pop(0)
            if a.kept <= b.kept or a.again >= b.again:
                continue
            price = (b.again - a.again) / (a.kept - b.kept)
            o = self.option(Priced(price * transforms.OPERATION))
            found.append(o)
            if o.again + price * o.kept < 0.999 * (a.again + price * a.kept):
                between += [(a, o), (o, b)]
        return found

    def equations(self) -> list[tuple[ir.Eqn, util.Mask]]:
        """The equations of the stage, and which of their operands are unknown."""
        late = unknown_vars(self.jaxpr, self.unknown)
        return [
            (e, tuple(isinstance(a, ir.Var) and a in late for a in e.invars))
            for e in self.jaxpr.eqns
        ]

    def planned_loops(self, most: int) -> list[Option]:
        """The options in which the bodies of the stage's loops follow plans.

        Two of them are split, those of most and of fewest bytes. The others lie between these, and differ from the
        first by what their plans differ.
        """
        loops = [ways_of(eqn, mask, self.given, most) for eqn, mask in self.equations()]
        if not any(loops):
            return []
        last = [ways[-1] if ways else NO_WAY for ways in loops]
        base = self.option(None, tuple(way.parts for way in last))
        plans = zip_longest(*[ways or [NO_WAY] for ways in loops])
        each = [[way or end for way, end in zip(plan, last, strict=True)] for plan in plans]
        least = min(each, key=_kept)
        span = _kept(last) - _kept(least)
        kept = self.option(None, tuple(way.parts for way in least)).kept if span > 0 else base.kept
        shares = [(_kept(plan) - _kept(least)) / max(span, 1) for plan in each]
        return [
            replace(differing(base, last, plan), kept=int(kept + share * (base.kept - kept)))
            for share, plan in zip(shares, each, strict=True)
        ]


def _kept(ways: Sequence[Way]) -> int:
    return sum(way.kept for way in ways)


def ways_of(
    eqn: ir.Eqn, unknown: util.Mask, given: transforms.Policy | None, most: int
) -> list[Way]:
    """Ways through a loop's body: what people write, and those that no other betters; none if it is no loop.

    What a step keeps is there for all steps at once, what it needs besides for one.
    """
    body = body_of(eqn, unknown) if any(unknown) else None
    if body is None or not body.computed.eqns or not any(body.unknown):
        return []
    key = ("ways", eqn.params, unknown, given, most)
    return body.whole.jaxpr.remember(key, lambda: _ways_through(body, given, most))


def _ways_through(body: Body, given: transforms.Policy | None, most: int) -> list[Way]:
    """Ways through the body of a loop."""
    program = Program(body.computed, body.unknown, STAGES, least=SMALL)
    trips = body.whole.trips
    carried = body.carried

    def with_carried(way: Way, program: Program) -> Way:
        """The way with what it keeps of the carry, which other steps write over."""
        plan = way.parts.plan if way.parts else ()
        used = carried & {v for step in plan for v in _given(program, step)}
        return replace(way, kept=way.kept + trips * sum(map(size_of, used)))

    steps = _steps(program, given, most)
    needs = {need for each in steps.values() for _, need, _, _ in each}
    rooms = np.quantile(sorted(needs), np.linspace(0, 1, ROOMS), method="nearest")
    found, written = list[Way](), list[Way]()
    for room in map(int, rooms):
        at: list[list[Way]] = [[Way(Parts(program.cuts, ()), 0, 0, room)]]
        for last in range(1, program.size + 1):
            more = [
                Way(
                    Parts(program.cuts, (*way.parts.plan, step)),
                    way.kept + trips * kept,
                    way.again + trips * again,
                    room,
                )
                for first in range(last)
                for step, need, kept, again in steps[first, last]
                if need <= room
                for way in at[first]
                if way.parts is not None
            ]
            at.append(_front(more))
        found += [with_carried(way, program) for way in at[-1]]
    whole = Weighing(body.computed, body.unknown, given)
    first, ends = whole.option(None), (0, len(body.computed.eqns))
    in_one = Program(body.computed, body.unknown, cuts=ends)
    beside = max(program.cotangents()[1])
    for policy in whole.written:
        o = whole.option(policy).beside(first)
        parts = Parts(ends, (Save(0, 1, o),))
        kept, again = trips * o.kept, trips * o.again
        way = Way(parts, kept, again, o.kept + o.backward + beside, written=True)
        written.append(with_carried(way, in_one))
    return [*written, *_front(found)]


def _steps(
    program: Program, given: transforms.Policy | None, most: int
) -> dict[tuple[int, int], list[tuple[Save | Again, int, int, int]]]:
    """For each run of stages the steps that a plan may take: what it needs, keeps and does again.

    A run is a stage of its own, or its operands alone are kept, and it is gone through again before its stages are.
    """
    crossing, (_, during) = program.crossing(), program.cotangents()
    found: dict[tuple[int, int], list[tuple[Save | Again, int, int, int]]] = {}
    for length in range(1, program.size + 1):
        for first in range(program.size - length + 1):
            last = first + length
            jaxpr, unknown = program.weighed(first, last)
            options = Weighing(jaxpr, unknown, given).options(
                most if length == 1 else min(most // 2, FEW)
            )
            beside = max(during[first:last])
            found[first, last] = [
                # A step's part of what is kept is taken out of the stack.
                (Save(first, last, o), o.kept + o.backward + beside, o.kept, o.again)
                for o in options
                if o.policy is not None or any(o.parts) or len(options) == 1
            ]
            if length > 1 and any(unknown):
                inner = [min(found[k, k + 1], key=lambda step: step[2]) for k in range(first, last)]
                plan = tuple(step for step, *_ in inner)
                kept = sum(kept for _, _, kept, _ in inner)
                need = kept + max(need - kept for _, need, kept, _ in inner)
                again = known_flops(*program.weighed(first, last - 1)) + sum(s[3] for s in inner)
                run = Again(first, last, plan)
                found[first, last].append((run, need, int(crossing[first, last]), again))
    return found


def _given(program: Program, step: Save | Again) -> Sequence[ir.Var]:
    """The operands of a step's stages that its backward pass uses."""
    ins = program.stage(step.first, step.last).ins
    return util.select_by(step.option.given, ins) if isinstance(step, Save) else ins


def _front(found: Sequence[Way]) -> list[Way]:
    """The ways that no other betters, those of fewest bytes first."""
    kept: list[Way] = []
    for way in sorted(found, key=lambda way: (way.bytes, way.again)):
        if not kept or way.again < kept[-1].again:
            kept.append(way)
    return kept


def _bettered_by_none(options: Sequence[Option]) -> list[Option]:
    kept: list[Option] = []
    for o in sorted(options, key=lambda o: (o.again, o.kept + o.backward, o.kept)):
        if o.written or not any(k.kept <= o.kept and k.backward <= o.backward for k in kept):
            kept.append(o)
    return kept


@dataclass(frozen=True)
class Passes:
    """A jaxpr cut in two, its backward pass, and both passes as one jaxpr, whose last inputs are the cotangents.

    backward : [*residuals, *ins at hand, *cts] -> [*in cts]
    jaxpr    : [*known ins, *cts]               -> [*known outs, *in cts]
    """

    cut: transforms.Split
    backward: Jaxpr
    jaxpr: Jaxpr
    num_cts: int


def both_passes(jaxpr: Jaxpr, unknown: util.Mask, policy: transforms.Policy) -> Passes:
    """The forward and the backward pass of a jaxpr, with a cotangent for each of its unknown results."""
    plan = transforms.SavingPlan(policy).at_boundary()
    at_hand = tuple(not u for u in unknown)
    cut = transforms.split(jaxpr, unknown, at_hand, plan)
    linear = (*[False] * len(cut.residuals), *util.select_by(cut.staged_in, unknown))
    staged = transforms.parted(cut.staged, linear)
    back, _ = transforms.transpose_jaxpr(staged, linear, (True,) * len(staged.outvars))
    late = set(util.select_by(unknown, jaxpr.invars))
    used = util.select_by(cut.staged_in, jaxpr.invars)
    ins = [v for v in used if v not in late or v.aval.accumulates]
    # Where the staged half takes a Ref of tangents, the backward pass takes one of their cotangents.
    refs = {v: ir.Var(v.aval) for v in ins if v in late}
    operands = [*cut.residuals, *[refs.get(v, v) for v in ins]]
    cts = [ir.Var(a) for a in back.in_avals[len(operands) :]]
    eqns, grads = ir.inlined(back, [*operands, *cts])
    known = cut.known
    outs = [*known.outvars[: len(known.outvars) - len(cut.residuals)], *grads]
    eqns = ir.prune([*known.eqns, *eqns], outs)
    late_ins = [*refs.values(), *cts]
    return Passes(cut, back, Jaxpr([*known.invars, *late_ins], eqns, outs), len(late_ins))


def _whole(passes: Passes) -> tuple[int, int, int]:
    """What both passes together keep from one to the other, and need besides in the first and in the second.

    What is light is computed where it is used, in both passes, so that less is kept than they hand on.
    """
    line = timeline.timeline(passes.jaxpr, part=True, late=passes.num_cts)
    turn = backward_begins(line, passes.jaxpr, passes.num_cts)
    kept = line.kept(turn)
    forward, backward = max(line.bytes[:turn], default=0), max(line.bytes[turn:], default=0)
    return kept, max(forward - kept, 0), max(backward - kept, 0)


@ir.once_per_jaxpr
def known_flops(jaxpr: Jaxpr, unknown: util.Mask) -> int:
    """The operations of what does not depend on unknown inputs, loops and branches cut in two."""
    late = unknown_vars(jaxpr, unknown)
    known = [e for e in jaxpr.eqns if not late.issuperset(e.outvars)]
    if any(not late.isdisjoint(e.outvars) for e in known):
        plan = transforms.SavingPlan(nothing_saveable)
        jaxpr = transforms.split(jaxpr, unknown, tuple(not u for u in unknown), plan).known
    else:
        jaxpr = jaxpr.replace(eqns=known)
    return transforms.operations_of(jaxpr, transforms.LIGHT, transforms.OPEN)
