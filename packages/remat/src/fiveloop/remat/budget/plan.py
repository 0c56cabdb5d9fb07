"""Plans under a budget: a differentiated jaxpr becomes one of checkpoints, the fastest whose peak keeps within it."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, errors, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.remat import timeline
from fiveloop.remat.budget.amount import Choice, UnattainableError, shown
from fiveloop.remat.budget.options import (
    both_passes,
    known_flops,
    options_of,
    with_given,
)
from fiveloop.remat.budget.search import Again, Chain, Plan, Save, Search
from fiveloop.remat.budget.stages import Program, Stage
from fiveloop.remat.policies import everything_saveable, nothing_saveable, undecided
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p

SURE = 0.7
"""What a plan needs at least of the bytes that its stages need, put together."""

SLACK, ROOM = 1.25, 2_048
"""What a compiler may need more than was simulated: it orders equations by rules of its own, and counts steps.

`benchmarks/remat/margin.py` measures what other programs need; a U-shaped network that computes runs of stages again
needs the most, 1.22 for a budget to be kept to 1.05 of it.
"""

FIRST = 3
"""Of how many plans the one of fewest bytes is found: what stages need, put together, may be more than they need."""

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

    They do not depend on a budget: of those that keep within one, the one that does the fewest operations again is
    taken, so more bytes never make a program slower. `given` is the user's policy, whose verdicts are fixed first.
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
        found = [self._candidate(p) for p in Search(self.chain).plans()]
        better = _envelope([c for c in found if c.bytes < last.bytes and c.time > last.time])
        self.plans = [*better, last]
        self._bytes: dict[int, int] = {}

    def _candidate(self, plan: Plan) -> Candidate:
        time = transforms.gradient_time(self.program.jaxpr, self.chain.again(plan))
        return Candidate(plan, self.chain.peak(plan), time)

    @property
    def candidates(self) -> list[Candidate]:
        """The plans that some budget leads to, with the bytes that they need, the compiler's margin included."""
        return _envelope([replace(c, bytes=self.bytes_of(k)) for k, c in enumerate(self.plans)])

    def bytes_of(self, place: int) -> int:
        """The bytes that a plan needs, with what the compiler may need more; it is simulated when it is asked for."""
        if place not in self._bytes:
            c = self.plans[place]
            whole = len(self.program.jaxpr.eqns) <= LARGE
            need = self.simulated(c.plan) if whole else c.bytes
            self._bytes[place] = ROOM + int(need * SLACK)
        return self._bytes[place]

    def weighed(self) -> list[Candidate]:
        """The plans whose bytes were asked for, but for those that another betters."""
        return _envelope([replace(self.plans[k], bytes=size) for k, size in self._bytes.items()])

    @property
    def least(self) -> int:
        """The fewest bytes that a plan needs."""
        return min(map(self.bytes_of, range(min(FIRST, len(self.plans)))))

    @property
    def everything(self) -> int:
        """The bytes that saving everything needs."""
        return self.bytes_of(len(self.plans) - 1)

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
        forward = {key: known_flops(*key) for key in kinds}
        return Chain(
            [options[key] for key in keys],
            self.program.crossing(),
            *self.program.cotangents(),
            [forward[key] for key in keys],
        )

    def within(self, size: int) -> Candidate | None:
        """The fastest plan that needs at most so many bytes.

        Those are passed over for which what their stages need, put together, is far more.
        """
        for place in range(len(self.plans) - 1, -1, -1):
            c = self.plans[place]
            if (c.bytes * SURE <= size or place < FIRST) and self.bytes_of(place) <= size:
                return replace(c, bytes=self.bytes_of(place))
        return None

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
    least, most = planner.least, planner.everything
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
    weighed = tuple((c.bytes, c.time / 1e6) for c in planner.weighed())
    choice = Choice(p.budget, chosen.bytes, chosen.time / 1e6, least, most, weighed)
    return replace(p, jaxpr=jaxpr, policy=policy, budget=None, choice=choice, prevent_cse=apart)
