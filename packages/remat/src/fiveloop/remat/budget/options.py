"""What a stage can save, and what each choice costs: bytes kept, bytes needed to go back, and time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.core.transforms import Candidate, cost, saving
from fiveloop.remat import timeline
from fiveloop.remat.budget.stages import size_of, unknown_vars
from fiveloop.remat.name import labels_first
from fiveloop.remat.policies import (
    everything_saveable,
    first_of,
    nothing_saveable,
)

PRICES = (0.25, 1.2, 6.0, 30.0)
"""Nanoseconds of computation that a byte kept may cost: the prices at which minimum cuts are made."""

SLOTS = (2, 8, 32)
"""How many states of a loop may be saved at a time."""


@dataclass(frozen=True)
class Priced(transforms.Composable):
    """Save what makes the estimated time of recomputation, and `price` nanoseconds for each byte, least together."""

    price: float
    weighs: ClassVar[bool] = True

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return rules.Weigh(memory_cost=self.price, share=1e9, heavy=True)


@dataclass(frozen=True)
class Scheduled(transforms.Composable):
    """Go back through loops from a few states that are saved at a time; save the rest."""

    slots: int

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return rules.Slots(slots=self.slots) if is_loop(eqn.eqn) else rules.SAVE


def is_loop(eqn: ir.Eqn) -> bool:
    """Whether an equation runs a jaxpr several times."""
    bodies = rules.bodies_rules.find(eqn.primitive)
    return bodies is not None and any(b.role == "loop" for b in bodies(eqn.params))


def holds_loop(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr has a loop, at any depth."""
    return any(is_loop(eqn) or any(map(holds_loop, ir.jaxprs_in(eqn.params))) for eqn in jaxpr.eqns)


@dataclass(frozen=True, slots=True)
class Option:
    """A way to go back through a stage.

    `kept` are the bytes saved besides the stage's operands, its results that later stages use included, `forward` and
    `backward` the bytes needed at most on either way besides these, `time` the estimated time of both in nanoseconds.
    A stage without a policy stays as it is, and keeps what its backward pass uses.
    """

    policy: transforms.Policy | None
    kept: int
    forward: int
    backward: int
    time: float


def options_of(jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None) -> list[Option]:
    """The ways to go back through a stage, without those that another betters; the first saves everything."""
    policies: list[transforms.Policy] = [*map(Priced, PRICES), nothing_saveable]
    if holds_loop(jaxpr):
        policies += map(Scheduled, SLOTS)
    found = [option_of(jaxpr, unknown, None, given)]
    for policy in policies if any(unknown) else []:
        found.append(option_of(jaxpr, unknown, policy, given))
    return [found[0], *_bettered_by_none(found[1:])]


def _bettered_by_none(options: Sequence[Option]) -> list[Option]:
    kept: list[Option] = []
    for o in sorted(options, key=lambda o: (o.time, o.kept + o.backward, o.kept)):
        if not any(k.kept <= o.kept and k.backward <= o.backward for k in kept):
            kept.append(o)
    return kept


def with_given(policy: transforms.Policy, given: transforms.Policy | None) -> transforms.Policy:
    """A policy that leaves to another what the user's policy has no opinion of."""
    return policy if given is None else first_of(given, policy)


def option_of(
    jaxpr: Jaxpr,
    unknown: util.Mask,
    policy: transforms.Policy | None,
    given: transforms.Policy | None,
) -> Option:
    """What a policy makes of a stage."""
    chosen = with_given(everything_saveable if policy is None else policy, given)
    plan = saving.SavingPlan(chosen)
    if policy is not None:
        plan = plan.at_boundary(transforms.body_work(jaxpr))
    at_hand = tuple(not u for u in unknown)
    cut = transforms.split(labels_first(jaxpr), unknown, at_hand, plan)
    back = backward(cut, unknown)
    outs = [v for v, u in zip(jaxpr.outvars, cut.out_unknown, strict=True) if not u]
    kept = [v for v, (kind, _) in zip(cut.residuals, cut.sources, strict=True) if kind == "saved"]
    return Option(
        policy,
        sum(map(size_of, [*kept, *outs])),
        timeline.peak(cut.known),
        timeline.peak(back),
        transforms.jaxpr_time(cut.known)
        + transforms.jaxpr_time(back)
        + cost.KEPT * sum(map(size_of, kept)),
    )


def backward(cut: transforms.Split, unknown: util.Mask) -> Jaxpr:
    """The staged half of a stage backward, with a cotangent for each of its results."""
    linear = (*[False] * len(cut.residuals), *util.select_by(cut.staged_in, unknown))
    staged = transforms.parted(cut.staged, linear)
    return transforms.transpose_jaxpr(staged, linear, (True,) * len(staged.outvars))[0]


def known_time(jaxpr: Jaxpr, unknown: util.Mask) -> float:
    """The estimated time of what does not depend on unknown inputs, in nanoseconds."""
    late = unknown_vars(jaxpr, unknown)
    return sum(transforms.equation_time(e) for e in jaxpr.eqns if late.isdisjoint(e.outvars))


def rough_options(
    jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None
) -> list[Option]:
    """To save everything, and nothing: estimates that are made without splitting the stage."""
    late = unknown_vars(jaxpr, unknown)
    known = {v for eqn in jaxpr.eqns for v in eqn.outvars} - late
    used = {v for e in jaxpr.eqns if not late.isdisjoint(e.outvars) for v in ir.used_vars(e.invars)}
    outs = ir.used_vars(jaxpr.outvars) & known
    kept, given_on = (sum(map(size_of, vs)) for vs in ((used | outs) & known, outs))
    forward, back = _most_alive(jaxpr, known - used), _most_alive(jaxpr, late)
    first, whole = known_time(jaxpr, unknown), transforms.jaxpr_time(jaxpr)
    return [
        Option(None, kept, forward, back, whole),
        Option(nothing_saveable, given_on, forward, kept + forward + back, whole + first),
    ]


def _most_alive(jaxpr: Jaxpr, which: set[ir.Var]) -> int:
    """The most bytes of some variables that are alive at once."""
    last = {v: k for k, eqn in enumerate(jaxpr.eqns) for v in ir.used_vars(eqn.invars)}
    change = [0] * (len(jaxpr.eqns) + 2)
    for k, eqn in enumerate(jaxpr.eqns):
        for v in which.intersection(eqn.outvars):
            change[k] += size_of(v)
            change[last.get(v, k) + 1] -= size_of(v)
    return max(accumulate(change))
