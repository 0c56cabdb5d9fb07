"""Plans under a budget: a differentiated jaxpr becomes one of checkpoints, the fastest whose peak keeps within it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, errors, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.remat import timeline
from fiveloop.remat.budget.amount import Choice, UnattainableError, shown
from fiveloop.remat.budget.options import (
    Option,
    backward,
    known_time,
    options_of,
    rough_options,
    with_given,
)
from fiveloop.remat.budget.search import Again, Chain, Plan, Save, Search
from fiveloop.remat.budget.stages import Program, Stage
from fiveloop.remat.name import labels_first
from fiveloop.remat.policies import everything_saveable, nothing_saveable, undecided
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p

MOST = 8
"""How many plans are simulated."""

SLACK, ROOM = 1.25, 2_048
"""What a compiler may need more than was simulated: it orders equations by rules of its own, and counts steps.

A margin chosen on the small sizes of the seven models of the remat bench; other programs may need more, or less.
"""

LARGE = 4_000
"""How many equations a jaxpr has whose stages are estimated as they are: none of its plans is made and simulated."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, the bytes that it needs at most, and its estimated time in nanoseconds."""

    plan: Plan
    bytes: int
    time: float


class Planner:
    """The plans of a differentiated jaxpr, from the one of fewest bytes to the one that saves everything.

    They do not depend on a budget: of those that keep within one, the fastest is taken. So more bytes never make a
    program slower. `given` is the user's policy, whose verdicts are fixed first.
    """

    def __init__(self, jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None) -> None:
        self.given = given
        self.program = Program(jaxpr, unknown)
        self.size = len(self.program.cuts) - 1
        self.large = len(self.program.jaxpr.eqns) > LARGE
        self._options: dict[tuple[Jaxpr, util.Mask], list[Option]] = {}
        self.unknown = unknown
        self.chain = self._chain()
        everything: Plan = tuple(Save(k, k + 1, o[0]) for k, o in enumerate(self.chain.options))
        last = self._candidate(everything)
        found = _envelope([self._candidate(p) for p in Search(self.chain).plans()])
        if not self.large:
            last = self._simulated(last)
            found = _envelope([self._simulated(c) for c in _spread(found)])
        # Nothing is faster than to compute nothing again.
        found = [replace(c, time=max(c.time, last.time)) for c in found if c.bytes < last.bytes]
        self.candidates = [
            replace(c, bytes=ROOM + int(c.bytes * SLACK)) for c in (*_envelope(found), last)
        ]

    def _candidate(self, plan: Plan) -> Candidate:
        return Candidate(plan, self.chain.peak(plan), self.chain.time(plan))

    def _simulated(self, c: Candidate) -> Candidate:
        return replace(c, bytes=self.simulated(c.plan))

    def simulated(self, plan: Plan) -> int:
        """The most bytes that the forward and the backward pass of a plan need at once."""
        jaxpr = self.jaxpr(plan, Origin("plan"))
        at_hand = tuple(not u for u in self.unknown)
        policy = with_given(everything_saveable, self.given)
        cut = transforms.split(
            labels_first(jaxpr), self.unknown, at_hand, transforms.SavingPlan(policy)
        )
        back = backward(cut, self.unknown)
        known_ins = [v for v, u in zip(jaxpr.invars, self.unknown, strict=True) if not u]
        staged = zip(cut.staged_in, jaxpr.invars, self.unknown, strict=True)
        operands = [*cut.residuals, *[v for used, v, u in staged if used and not u]]
        cts = [ir.Var(a) for a in back.in_avals[len(operands) :]]
        eqns, outs = ir.inlined(back, [*operands, *cts])
        eqns = ir.prune([*cut.known.eqns, *eqns], outs)
        return timeline.peak(Jaxpr([*known_ins, *cts], eqns, outs))

    def _chain(self) -> Chain:
        stages = [self.program.stage(k, k + 1) for k in range(self.size)]
        options = [self._options_of(s) for s in stages]
        forward = [known_time(s.jaxpr, self._mask(s)) for s in stages]
        return Chain(options, self.program.crossing(), self.program.cotangents(), forward)

    def _mask(self, stage: Stage) -> util.Mask:
        return tuple(v in self.program.unknown for v in stage.ins)

    def _options_of(self, stage: Stage) -> list[Option]:
        key = (stage.jaxpr, self._mask(stage))
        if key not in self._options:
            find = rough_options if self.large else options_of
            self._options[key] = find(stage.jaxpr, self._mask(stage), self.given)
        return self._options[key]

    def within(self, size: int) -> Candidate | None:
        """The fastest plan that needs at most so many bytes."""
        fitting = [c for c in self.candidates if c.bytes <= size]
        return fitting[-1] if fitting else None

    def jaxpr(self, plan: Plan, origin: Origin) -> Jaxpr:
        """The jaxpr as checkpoints, by a plan."""
        program = self.program.jaxpr
        return program.replace(eqns=self._eqns(plan, origin))

    def _eqns(self, plan: Plan, origin: Origin) -> list[ir.Eqn]:
        eqns: list[ir.Eqn] = []
        cuts = self.program.cuts
        for step in plan:
            if isinstance(step, Again):
                made = self._eqns(step.plan, origin)
                stage = self.program.part(made, cuts[step.last])
                eqns.append(self._segment(stage, nothing_saveable, origin))
            elif step.option.policy is None:
                eqns += self.program.jaxpr.eqns[cuts[step.first] : cuts[step.last]]
            else:
                stage = self.program.stage(step.first, step.last)
                eqns.append(self._segment(stage, step.option.policy, origin))
        return eqns

    def _segment(self, stage: Stage, policy: transforms.Policy, origin: Origin) -> ir.Eqn:
        chosen = with_given(policy, self.given)
        params = CheckpointParams(stage.jaxpr, chosen, Origin(origin.name))
        return rules.new_eqn(checkpoint_p, stage.ins, params, stage.outs)


def _envelope(found: Sequence[Candidate]) -> list[Candidate]:
    """The plans that no other betters, those of fewest bytes first."""
    kept: list[Candidate] = []
    for c in sorted(found, key=lambda c: (c.bytes, c.time)):
        if not kept or c.time < kept[-1].time:
            kept.append(c)
    return kept


def _spread(found: Sequence[Candidate]) -> list[Candidate]:
    """A few plans, evenly from the first to the last."""
    places = np.linspace(0, len(found) - 1, min(MOST, len(found))).round()
    return [found[int(k)] for k in places]


def planned(
    p: CheckpointParams, unknown: Sequence[bool], source: ir.Source | None
) -> CheckpointParams:
    """The params without a budget: the jaxpr is made of checkpoints that keep within it.

    ValueError if the budget is less than the least that some plan needs.
    """
    assert p.budget is not None, "unreachable: called for a checkpoint with a budget"
    sized = [a for a in p.jaxpr.in_avals if not all(map(ir.is_constant, a.shape))]
    if sized:
        raise TypeError(
            f"checkpoint: budget: the sizes of the arguments of {p.origin.name} must be numbers, got {sized[0]}; give "
            f"a policy in place of a budget{errors.at_source(source)}"
        )
    given = None if p.policy == undecided else p.policy
    mask = tuple(unknown)
    planner: Planner = p.jaxpr.remember(
        ("plans", mask, given), lambda: Planner(p.jaxpr, mask, given)
    )
    least, most = planner.candidates[0].bytes, planner.candidates[-1].bytes
    size = p.budget.bytes_of(least, most)
    chosen = planner.within(size)
    if chosen is None:
        raise UnattainableError(
            f"checkpoint: budget: {p.origin.name} needs {shown(least)} ({least} bytes) at least, and the budget is "
            f"{shown(size)}; give it more, or a fraction from 0.0 to 1.0{errors.at_source(source)}",
            least,
        )
    policy = with_given(everything_saveable, given)
    jaxpr = p.jaxpr.remember(
        ("planned", mask, given, chosen.bytes), lambda: planner.jaxpr(chosen.plan, p.origin)
    )
    # What is saved outside of segments needs no barrier.
    apart = p.prevent_cse and given is not None
    choice = Choice(p.budget, chosen.bytes, chosen.time / 1e6, least, most)
    return replace(p, jaxpr=jaxpr, policy=policy, budget=None, choice=choice, prevent_cse=apart)
