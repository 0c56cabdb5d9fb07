"""Plans under a budget: a differentiated jaxpr becomes one of checkpoints, the fastest whose peak keeps within it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, errors, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.remat import timeline
from fiveloop.remat.budget.amount import Choice, UnattainableError, shown
from fiveloop.remat.budget.options import (
    both_passes,
    known_time,
    options_of,
    with_given,
)
from fiveloop.remat.budget.search import Again, Chain, Plan, Save, Search
from fiveloop.remat.budget.stages import Program, Stage
from fiveloop.remat.policies import everything_saveable, nothing_saveable, undecided
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p

MOST = 8
"""How many plans are simulated."""

SLACK, ROOM = 1.25, 2_048
"""What a compiler may need more than was simulated: it orders equations by rules of its own, and counts steps.

A margin chosen on the small sizes of the seven models of the remat bench; other programs may need more, or less.
"""

LARGE = 1_000
"""How many equations a jaxpr has whose plans are not simulated as a whole: what their stages need is put together."""

WORK = 4_000
"""How many equations are split at most to find options, those of equal stages counted once."""


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

    def __init__(
        self, jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None, name: str = ""
    ) -> None:
        self.given = given
        self.name = name
        self.unknown = unknown
        self.program = Program(jaxpr, unknown)
        self.size = len(self.program.cuts) - 1
        self._params: dict[tuple[Jaxpr, transforms.Policy], CheckpointParams] = {}
        self.chain = self._chain()
        everything: Plan = tuple(Save(k, k + 1, o[0]) for k, o in enumerate(self.chain.options))
        last = self._candidate(everything)
        found = _envelope([self._candidate(p) for p in Search(self.chain).plans()])
        if len(self.program.jaxpr.eqns) <= LARGE:
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
        policy = with_given(everything_saveable, self.given)
        return timeline.peak(both_passes(self.jaxpr(plan), self.unknown, policy).jaxpr)

    def _chain(self) -> Chain:
        stages = [self.program.stage(k, k + 1) for k in range(self.size)]
        keys = [(s.jaxpr, tuple(v in self.program.unknown for v in s.ins)) for s in stages]
        kinds = dict.fromkeys(keys)
        most = WORK // max(sum(len(jaxpr.eqns) for jaxpr, _ in kinds), 1)
        options = {key: options_of(*key, self.given, most) for key in kinds}
        forward = {key: known_time(*key) for key in kinds}
        return Chain(
            [options[key] for key in keys],
            self.program.crossing(),
            self.program.cotangents(),
            [forward[key] for key in keys],
        )

    def within(self, size: int) -> Candidate | None:
        """The fastest plan that needs at most so many bytes."""
        fitting = [c for c in self.candidates if c.bytes <= size]
        return fitting[-1] if fitting else None

    def jaxpr(self, plan: Plan) -> Jaxpr:
        """The jaxpr as checkpoints, by a plan."""
        program = self.program.jaxpr
        return program.replace(eqns=[self._segment(*self._part(step)) for step in plan])

    def _part(self, step: Save | Again) -> tuple[Stage, transforms.Policy]:
        """What a step of a plan runs, and the policy of its residuals."""
        if isinstance(step, Save):
            stage = self.program.stage(step.first, step.last)
            return stage, step.option.policy or everything_saveable
        made = [self._segment(*self._part(inner)) for inner in step.plan]
        return self.program.part(made, self.program.cuts[step.last]), nothing_saveable

    def _segment(self, stage: Stage, policy: transforms.Policy) -> ir.Eqn:
        """A stage under a checkpoint; equal ones share its params, and so all that is derived from them."""
        key = (stage.jaxpr, policy)
        if key not in self._params:
            chosen = with_given(policy, self.given)
            self._params[key] = CheckpointParams(stage.jaxpr, chosen, Origin(self.name))
        return rules.new_eqn(checkpoint_p, stage.ins, self._params[key], stage.outs)


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
        ("plans", mask, given), lambda: Planner(p.jaxpr, mask, given, p.origin.name)
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
        ("planned", mask, given, chosen.bytes), lambda: planner.jaxpr(chosen.plan)
    )
    # What is saved outside of segments needs no barrier.
    apart = p.prevent_cse and given is not None
    weighed = tuple((c.bytes, c.time / 1e6) for c in planner.candidates)
    choice = Choice(p.budget, chosen.bytes, chosen.time / 1e6, least, most, weighed)
    return replace(p, jaxpr=jaxpr, policy=policy, budget=None, choice=choice, prevent_cse=apart)
