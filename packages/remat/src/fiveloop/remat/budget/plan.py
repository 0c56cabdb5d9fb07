"""Plans under a budget: a differentiated jaxpr becomes one of checkpoints, the fastest whose peak keeps within it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import chain

import numpy as np

from fiveloop.core import Jaxpr, Scalar, errors, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.inspect import ready_jaxpr, recomputes_in_branches
from fiveloop.remat import timeline
from fiveloop.remat.budget.amount import Choice, UnattainableError, shown_exactly
from fiveloop.remat.budget.equal import Equal, form_once
from fiveloop.remat.budget.options import WRITTEN, Passes, Weighing, both_passes, known_flops
from fiveloop.remat.budget.plans import NO_CHECKPOINT, Again, Plan, Save, rounded
from fiveloop.remat.budget.rough import rough_flops
from fiveloop.remat.budget.search import Chain, Search
from fiveloop.remat.budget.segments import Segments, computes_again, with_given
from fiveloop.remat.budget.stages import Program, effort, size_of
from fiveloop.remat.policies import as_it_is, minimum_cut, undecided
from fiveloop.remat.primitive import CheckpointParams

SIMULATED = 2_000
"""All plans are simulated to find the least, if together they have at most this many equations."""

FIRST, LIKELY, SURE = 4, 0.75, 0.85
"""Otherwise these are simulated: the `FIRST` plans of each kind by estimated bytes, and one from the middle of each
search. Where that is too much, of a kind the first one, and others only if `LIKELY` times what they need, judging by
it, is less than what any simulated plan needs. Any other plan is assumed to need at least `SURE` times the bytes that
one interpolates between them, or `LIKELY` times if it is one that people write.
"""

ASKED, BESIDE = 120_000, 2
"""If all plans together have more equations, they are not asked one by one whether they fit, and so many beside the one
that is found by halving them.
"""

ROOM, FOUND, SLACK, EXACT = 128, 1.03, 1.15, 1.005
SHORT, SHORT_LOOPS = 1.45, 1.9
"""What a plan is taken to need: its simulated peak if it is one that people write, and `FOUND` times that if it is one
that was searched for, or `ROOM` bytes more than .97 times as much. A budget that is met to a factor of `EXACT` is met:
simulations are not exacter. A compiled program may need 1.05 of its budget; `benchmarks/remat/margin.py` measures what
other programs need.

Where there are floats of two bytes at the peak, the factor is `SHORT_LOOPS` in a loop, and `SHORT` elsewhere: XLA fuses
fewer of these, and widens them to four bytes for some operations and not for others; an older compiler does so with
bfloat16 alone. `SLACK` is the factor for a sum of stages' peaks.
"""

LARGE = 3_000
"""Plans of a jaxpr with more equations, at any depth, are not simulated whole: the peaks of their stages are added up.

A sum may be far too low: what loops in loops keep is not all in it.
"""

WORK = 4_000
"""How many equations may be split to find the options of stages. Equal stages count once."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its estimates: peak bytes, time in nanoseconds, and operations that are recomputed.

    Of two plans with the same time, the one that recomputes fewer operations is better.
    """

    plan: Plan
    bytes: int
    time: float
    again: int = 0

    @property
    def estimates(self) -> tuple[object, ...]:
        """Equal for plans that are equally good. The program without a checkpoint is never equal to another."""
        return self.bytes, self.time, self.again, self.plan == NO_CHECKPOINT

    @property
    def cost(self) -> tuple[float, int]:
        """Sorts better plans first."""
        return self.time, self.again


class Planner:
    """The plans of a differentiated jaxpr, from the one of fewest bytes to the one that saves everything.

    The plans do not depend on the budget, which only selects the fastest that fits: so more bytes never make the
    estimated time longer. `given` is the user's policy, whose verdicts are fixed first.
    """

    def __init__(
        self, jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None, name: str = ""
    ) -> None:
        self.given = given
        self.name = name
        self.unknown = unknown
        self.program = Program(jaxpr, unknown)
        self.cuts = self.program.cuts
        self.late = self.program.late
        self.size = effort(self.program.jaxpr, 1)
        self.segments = Segments(self.program, given, name)
        self.equal = Equal()
        self.chain = self._chain()
        self.apart = computes_again(jaxpr, given)
        self.decided = self._decided()
        everything: Plan = tuple(Save(k, k + 1, o[0]) for k, o in enumerate(self.chain.options))
        self.all = self._candidate(everything)
        found = [map(self._candidate, Search(each).plans()) for each in self._chains()]
        fronts = [_envelope([*plans, self.all]) for plans in found]
        faster = [*map(self._candidate, self._faster(chain.from_iterable(fronts)))]
        written = [*map(self._candidate, self._written(everything))]
        self.written = {NO_CHECKPOINT, everything, *[c.plan for c in written]}
        alike: dict[object, Candidate] = {self.all.estimates: self.all}
        kinds = [
            list(dict.fromkeys(alike.setdefault(c.estimates, c) for c in kind))
            for kind in [*fronts, written, self._unchanged()]
        ]
        alike |= {c.estimates: c for c in faster if c.estimates not in alike}
        self.plans = sorted(alike.values(), key=_slowest_first)
        first = [sorted(kind, key=lambda c: c.bytes)[:FIRST] for kind in kinds]
        middle = [front[len(front) // 2] for front in kinds[: len(fronts)]]
        self._bytes: dict[Plan, int] = {}
        self._sure = set[Plan]()
        each = effort(self.program.jaxpr)
        if len(self.plans) * each <= SIMULATED:
            self.known = self.plans
        else:
            few = sum(map(len, first)) * each <= 2 * SIMULATED
            others = [self.all, *middle]
            least = [*chain.from_iterable(first)] if few else self._likely(first, others)
            self.known = [*others, *least]
        if self.size <= LARGE and transforms.mapping_time(self.all.bytes):
            self._time_anew()

    def _time_anew(self) -> None:
        """Time the plans by what the known ones are found to need, where that says whether memory is mapped anew."""
        anew = {
            c: replace(c, time=self._time(c.plan, int(need), c.again)) if c.plan else c
            for c, need in zip(self.plans, self._interpolated(self.plans), strict=True)
        }
        self.plans = sorted(anew.values(), key=_slowest_first)
        self.known = [anew[c] for c in self.known]
        self.all = anew[self.all]

    def _likely(
        self, kinds: Sequence[Sequence[Candidate]], known: Sequence[Candidate]
    ) -> list[Candidate]:
        """The plans that may need least, by what the one of fewest estimated bytes of each kind is found to need.

        None may that needs more than what is `known` besides.
        """
        found = [kind[0] for kind in kinds if kind]
        least = min(map(self._simulated, [*known, *found]))
        for first, *others in filter(None, kinds):
            ratio = LIKELY * self._simulated(first) / max(first.bytes, 1)
            found += [c for c in others if c.bytes * ratio <= least]
        return found

    def without_program(self) -> Planner:
        """The plans alone: they fit every program of the same form, and keep no arrays of this one."""
        plans = copy(self)
        del plans.program, plans.segments, plans.equal
        return plans

    def of(self, jaxpr: Jaxpr) -> Planner:
        """The same plans, for another program of the same form."""
        planner = copy(self)
        planner.program = _program(jaxpr, self.unknown, self.cuts, self.late)
        planner.segments, planner.equal = Segments(planner.program, self.given, self.name), Equal()
        return planner

    def _chains(self) -> Iterator[Chain]:
        """The chain, the same chain where every stage that reads a skip connection is a checkpoint, and leaner ones.

        Without a checkpoint, XLA computes the cotangent of a skip connection only when it is used, if that is light
        work, and keeps its operands alive until then.
        """
        yield self.chain
        ends = self.program.ends_of_skips()
        options = [each[k in ends and len(each) > 1 :] for k, each in enumerate(self.chain.options)]
        if ends:
            yield replace(self.chain, options=options)
        lean = self.chain.leaner()
        while lean:
            yield lean
            lean = lean.leaner()

    def _written(self, everything: Plan) -> list[Plan]:
        """Plans that people write: loop bodies, stages, blocks, groups or nearly everything under one policy."""
        found = [
            (*everything[:k], Save(k, k + 1, option), *everything[k + 1 :])
            for k, options in enumerate(self.chain.options)
            for option in options
            if option.written
        ]
        blocks, wholes = (self._under(runs) for runs in (self.program.blocks(), self._wholes()))
        for policy, of_blocks, of_wholes in zip(WRITTEN, blocks, wholes, strict=True):
            own = [
                Save(k, k + 1, next((o for o in each if o.policy == policy), each[0]))
                for k, each in enumerate(self.chain.options)
            ]
            found.append(tuple(own))
            for begin in range(3):
                end = max(self.program.size - 1, begin)
                others = (*everything[:begin], *own[begin:end], *everything[end:])
                found += [others, _of_blocks({s.first: s for s in of_blocks}, others, begin)]
            found += [(*everything[: s.first], s, *everything[s.last :]) for s in of_wholes]
        for groups in self.program.groups():
            runs = [Again(first, last, everything[first:last]) for first, last in groups]
            found.append((*runs, *everything[groups[-1][1] :]))
        return found

    def _unchanged(self) -> list[Candidate]:
        """The program without a checkpoint: a minimum cut decides what its loops and branches save."""
        jaxpr = self.program.jaxpr
        if self.given is not None or not len(jaxpr.eqns) < effort(jaxpr, 1) <= LARGE:
            return []
        (passes, whole), (_, plain) = map(self._passes, (NO_CHECKPOINT, self.all.plan))
        flops = [
            transforms.operations_of(both, transforms.LIGHT, transforms.OPEN)
            for both in (whole, plain)
        ]
        again, kept = max(flops[0] - flops[1], 0), sum(map(size_of, passes.cut.residuals))
        time = transforms.gradient_time(jaxpr, again, kept, timeline.peak(whole))
        return [Candidate(NO_CHECKPOINT, self.all.bytes, rounded(time), again)]

    def _wholes(self) -> list[tuple[int, int]]:
        """Runs of all stages, or of all but some at the ends, as far as there is time to weigh them."""
        size, each = self.program.size, len(WRITTEN) * effort(self.program.jaxpr)
        found = [(first, last) for last in range(size, size // 2, -1) for first in (0, 1)]
        return [(first, last) for first, last in found[: WORK // max(each, 1)] if first < last]

    def _candidate(self, plan: Plan) -> Candidate:
        peak, again = self.chain.peak(plan), self.chain.again(plan) + self.decided
        return Candidate(plan, peak, self._time(plan, peak, again), again)

    def _time(self, plan: Plan, peak: int, again: int) -> float:
        """The estimated time of a plan that needs so many bytes at its peak, and does so many operations again."""
        kept = self.chain.kept(plan) - self._results
        return rounded(transforms.gradient_time(self.program.jaxpr, again, kept, peak))

    def _faster(self, found: Iterable[Candidate]) -> Iterator[Plan]:
        """The same plans, without saving what is faster to recompute."""
        for c in found:
            yield self.chain.faster(c.plan)
            if transforms.mapping_time(c.bytes):
                yield self.chain.faster(c.plan, mapped=True)

    @cached_property
    def _results(self) -> int:
        """The bytes of the results of the forward pass, which are there in any case."""
        program = self.program
        outs = ir.used_vars(program.jaxpr.outvars) - program.unknown
        return sum(size_of(v) for v in outs if v in program.made)

    @property
    def candidates(self) -> list[Candidate]:
        """The plans that some budget leads to, with the bytes that they need, the compiler's margin included."""
        return _envelope([replace(c, bytes=self.bytes_of(c)) for c in self.plans])

    def weighed(self) -> list[Candidate]:
        """The simulated plans that no other plan betters."""
        asked = [c for c in self.plans if c.plan in self._bytes]
        return _envelope([replace(c, bytes=max(self._simulated(c), self.least)) for c in asked])

    def bytes_of(self, c: Candidate) -> int:
        """The bytes that a plan needs, with the margin; never fewer than the least of all plans."""
        return max(self._settled(c), self.least)

    def _simulated(self, c: Candidate) -> int:
        """The bytes that a plan needs if the value is asked for, too."""
        if c.plan not in self._bytes:
            whole = self.size <= LARGE
            need = self._need_with_value(c.plan) if whole else ROOM + int(c.bytes * SLACK)
            self._bytes[c.plan] = need
        return self._bytes[c.plan]

    def _settled(self, c: Candidate) -> int:
        """The bytes that a plan needs in any case, which are asked of plans that are about to be chosen."""
        found = self._simulated(c)
        if self.size <= LARGE and c.plan not in self._sure:
            self._sure.add(c.plan)
            found = self._bytes[c.plan] = self.need(c.plan)
        return found

    @cached_property
    def least(self) -> int:
        """The fewest bytes that a plan needs."""
        waiting = [(self._simulated(c), k) for k, c in enumerate(self.known)]
        heapify(waiting)
        while (need := self._settled(self.known[waiting[0][1]])) > waiting[0][0]:
            heapreplace(waiting, (need, waiting[0][1]))
        return need

    @property
    def everything(self) -> int:
        """The bytes that are needed to save everything, as far as the user's policy leaves it open."""
        return self.bytes_of(self.all)

    def need(self, plan: Plan) -> int:
        """The bytes that a plan needs, with a margin, be the value asked for or not.

        Without it, other values come into the places of what it is made of, and what is computed again may be computed
        for the first time.
        """
        passes, whole = self._passes(plan)
        results = len(passes.cut.known.outvars) - len(passes.cut.residuals)
        return max(self._need_with_value(plan), needed(whole, self._factor(plan), results))

    def _need_with_value(self, plan: Plan) -> int:
        return needed(self._passes(plan)[1], self._factor(plan))

    def _factor(self, plan: Plan) -> float:
        return 1.0 if plan in self.written else FOUND

    def _passes(self, plan: Plan) -> tuple[Passes, Jaxpr]:
        """Both passes by a plan, and as one jaxpr with equal bodies once, which has what it is lowered as."""
        jaxpr = self.segments.jaxpr(plan)
        if self.apart:
            jaxpr = self.segments.in_one(jaxpr)

        def make() -> tuple[Passes, Jaxpr]:
            passes = both_passes(jaxpr, self.unknown, _policy_of(plan))
            whole = self.equal.shared(of_loss(passes))
            ready_jaxpr(whole, self.equal.shared)  # it is remembered, so that the timeline has it
            return passes, whole

        return jaxpr.remember(("passes", self.unknown, plan == NO_CHECKPOINT), make)

    def _decided(self) -> int:
        """The operations that every plan recomputes, because the user's policy says so."""
        if not self.apart:
            return 0
        whole = self.program.jaxpr
        plain = both_passes(whole, self.unknown, as_it_is).jaxpr
        given = both_passes(self.segments.in_one(whole), self.unknown, as_it_is).jaxpr
        flops = (
            transforms.operations_of(jaxpr, transforms.LIGHT, transforms.OPEN)
            for jaxpr in (given, plain)
        )
        return max(next(flops) - next(flops), 0)

    def _chain(self) -> Chain:
        keys = [self.program.weighed(k, k + 1) for k in range(self.program.size)]
        kinds = dict.fromkeys(keys)
        self._most = WORK // max(sum(effort(jaxpr) for jaxpr, _ in kinds), 1)
        options = {key: Weighing(*key, self.given).options(self._most) for key in kinds}
        flops = rough_flops if self._most < 2 else known_flops
        forward = {key: flops(*key) for key in kinds}
        stacks = {key: Weighing(*key, self.given).stacks(self._most) for key in kinds}
        return Chain(
            [options[key] for key in keys],
            self.program.crossing(),
            *self.program.cotangents(),
            [forward[key] for key in keys],
            [stacks[key] for key in keys],
            self.program.added() if self.size > LARGE else [0] * len(keys),
        )

    def _under(self, runs: Sequence[tuple[int, int]]) -> list[list[Save]]:
        """For each policy that people write: the runs of stages under that policy."""
        found: list[list[Save]] = [[] for _ in WRITTEN]
        keys = [self.program.weighed(*run) for run in runs]
        under = {key: Weighing(*key, self.given).under_policies(self._most) for key in {*keys}}
        for (first, last), key in zip(runs, keys, strict=True):
            for saves, option in zip(found, under[key], strict=False):
                saves.append(Save(first, last, option))
        return found

    def _interpolated(self, plans: Sequence[Candidate]) -> np.ndarray:
        """The bytes that plans may need, judging by the known ones with estimates above and below theirs."""
        known = sorted((c.bytes, self._simulated(c)) for c in self.known)
        estimates, needs = map(np.array, zip(*known, strict=True))
        needs = np.minimum.accumulate(needs[::-1])[::-1]
        found: np.ndarray = np.interp([c.bytes for c in plans], estimates, needs)
        return found

    def within(self, size: int) -> Candidate | None:
        """The fastest plan that needs at most so many bytes, among all that there is time to ask.

        If there is no time to simulate all plans, those are skipped that are expected to need far more bytes, judging
        by the simulated plans with estimates above and below theirs.
        """
        if size < self.least:
            return None
        plans = self.plans[::-1]
        least = [LIKELY if c.plan in self.written else SURE for c in plans]
        expected = least * self._interpolated(plans)

        def fits(k: int) -> bool:
            asked = expected[k] <= size or plans[k] in self.known
            most = EXACT * size
            fits = bool(asked) and self._simulated(plans[k]) <= most
            return fits and self.bytes_of(plans[k]) <= most

        few = len(plans) * effort(self.program.jaxpr) <= ASKED
        asked = range(len(plans)) if few else _halved(plans, self.known, fits)
        chosen = next((plans[k] for k in asked if fits(k)), None)
        return chosen and replace(chosen, bytes=min(self.bytes_of(chosen), size))


def _slowest_first(c: Candidate) -> tuple[float, int, int]:
    return -c.time, -c.again, c.bytes


def _halved(
    plans: Sequence[Candidate], known: Sequence[Candidate], fits: Callable[[int], bool]
) -> list[int]:
    """The plans to ask, the fastest first: the one at which those of fewer and fewer estimated bytes begin to fit.

    That is found by halving them. Those just before it are asked, too, and those that are known. What fits in some
    bytes fits in more, so that the same way is taken there, or one to faster plans.
    """
    fewer, least = list[int](), math.inf
    for k, c in enumerate(plans):
        if c.bytes < least:
            fewer.append(k)
            least = c.bytes
    end = bisect_left(fewer, True, key=fits)
    last = fewer[min(end, len(fewer) - 1)]
    return sorted({*range(max(last - BESIDE, 0), last + 1), *map(plans.index, known)})


def _policy_of(plan: Plan) -> transforms.Policy:
    """What decides outside of a plan's checkpoints, which need no barrier there."""
    return minimum_cut if plan == NO_CHECKPOINT else as_it_is


def of_loss(passes: Passes) -> Jaxpr:
    """Both passes as one jaxpr; the cotangent of a number is 1, as that of a loss is."""
    *ins, ct = passes.jaxpr.invars
    if passes.num_cts != 1 or ct.aval.shape or ct.aval.accumulates:
        return passes.jaxpr
    eqns, outs = ir.inlined(passes.jaxpr, [*ins, ir.Literal(Scalar(np.ones((), ct.aval.dtype)))])
    return passes.jaxpr.replace(invars=ins, eqns=eqns, outvars=outs)


def _of_blocks(blocks: Mapping[int, Save], others: Plan, begin: int) -> Plan:
    """A plan: the blocks from a stage on, and `others` for the stages that are in no block."""
    found = [*others[:begin]]
    while (k := found[-1].last if found else 0) < len(others):
        found.append(blocks.get(k, others[k]))
    return tuple(found)


def needed(jaxpr: Jaxpr, factor: float = 1.0, unused: int = 0) -> int:
    """The bytes that a program needs, with a margin; so many of its first results are `unused`."""
    line = timeline.upper(jaxpr, unused)
    avals = [b.eqn.outvars[b.position].aval for b in line.at_peak]
    widens = not recomputes_in_branches()
    if any(
        a.dtype.itemsize == 2 and a.differentiable and (widens or a.dtype.name == "bfloat16")
        for a in avals
    ):
        in_loop = line.eqns and rules.is_loop(line.eqns[line.bytes.index(line.peak)])
        factor = SHORT_LOOPS if in_loop else SHORT
    size = factor * line.peak
    return int(max(size, ROOM + 0.97 * size))


def _envelope(found: Sequence[Candidate]) -> list[Candidate]:
    """The plans that no other betters, by bytes."""
    kept: list[Candidate] = []
    for c in sorted(found, key=lambda c: (c.bytes, c.cost)):
        if not kept or c.cost < kept[-1].cost:
            kept.append(c)
    return kept


def planned(
    p: CheckpointParams, unknown: Sequence[bool], source: ir.Source | None
) -> CheckpointParams:
    """The params without a budget: the jaxpr is made of checkpoints that keep within it.

    ValueError if the budget is less than the least that some plan needs.
    """
    sized = [a for a in p.jaxpr.in_avals if not all(map(ir.is_constant, a.shape))]
    if sized:
        raise TypeError(
            f"checkpoint: budget: the sizes of the arguments of {p.origin.name} must be numbers, got {sized[0]}; give "
            f"a policy in place of a budget{errors.at_source(source)}"
        )
    with util.without_collection():
        outcome = _outcome(p, tuple(unknown), source)
    given = _given(p)
    return replace(
        p,
        jaxpr=p.jaxpr.remember(("planned", outcome), lambda: outcome.written(p, tuple(unknown))),
        policy=with_given(_policy_of(outcome.plan), given),
        budget=None,
        choice=outcome.choice,
        prevent_cse=p.prevent_cse and computes_again(p.jaxpr, given),
    )


@dataclass(frozen=True)
class Outcome:
    """What a budget came to: the plan, where the program is cut, and which of its variables are unknown.

    It fits every program of the same form.
    """

    choice: Choice
    cuts: tuple[int, ...]
    late: util.Mask
    plan: Plan

    def written(self, p: CheckpointParams, unknown: util.Mask) -> Jaxpr:
        """The program by the plan."""
        program = _program(p.jaxpr, unknown, self.cuts, self.late)
        return Segments(program, _given(p), p.origin.name).jaxpr(self.plan)


@ir.once_per_jaxpr
def _program(jaxpr: Jaxpr, unknown: util.Mask, cuts: tuple[int, ...], late: util.Mask) -> Program:
    return Program(jaxpr, unknown, cuts=cuts, late=late)


_OUTCOMES: util.BoundedTable[Outcome] = util.BoundedTable(256)
"""What budgets came to, by the form of the program: an eager derivative traces it anew at each call."""

_PLANS: util.BoundedTable[Planner] = util.BoundedTable(16)
"""The plans without their programs, by form: another budget chooses from the same ones."""


def _given(p: CheckpointParams) -> transforms.Policy | None:
    return None if p.policy == undecided else p.policy


def _outcome(p: CheckpointParams, unknown: util.Mask, source: ir.Source | None) -> Outcome:
    form = form_once(p.jaxpr)
    if form is None:
        return _planned(p, _planner(p, unknown), source)
    of_program = (form.key, unknown, p.policy)
    found = _OUTCOMES.find((*of_program, p.budget))
    if found is None:
        plans = _PLANS.find(of_program)
        if plans is None:
            plans = _planner(p, unknown).without_program()
            _PLANS.add(of_program, plans)
        found = _planned(p, plans.of(p.jaxpr), source)
        _OUTCOMES.add((*of_program, p.budget), found)
    return found


def _planner(p: CheckpointParams, unknown: util.Mask) -> Planner:
    given, name = _given(p), p.origin.name
    found: Planner = p.jaxpr.remember(
        ("plans", unknown, given), lambda: Planner(p.jaxpr, unknown, given, name)
    )
    return found


def _planned(p: CheckpointParams, planner: Planner, source: ir.Source | None) -> Outcome:
    assert p.budget is not None, "unreachable: called for a checkpoint with a budget"
    least, most = planner.least, planner.everything
    size = p.budget.bytes_of(least, most)
    chosen = planner.within(size)
    if chosen is None:
        raise UnattainableError(
            f"checkpoint: budget: the smallest plan for {p.origin.name} needs {shown_exactly(least)} with the margin, "
            f"and the budget is {p.budget}; give it more, or a fraction from 0.0 to 1.0"
            f"{errors.at_source(source)}",
            least,
        )
    # A plan of more bytes than saving everything needs was weighed only to be passed over.
    shown_most = max(most, chosen.bytes)
    weighed = tuple((c.bytes, c.time / 1e6) for c in planner.weighed() if c.bytes <= shown_most)
    choice = Choice(p.budget, chosen.bytes, chosen.time / 1e6, least, most, weighed)
    return Outcome(choice, planner.cuts, planner.late, chosen.plan)
