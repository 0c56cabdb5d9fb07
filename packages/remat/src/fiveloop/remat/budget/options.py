"""What a stage can save, and what each choice costs: bytes kept, bytes needed to go back, and time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.transforms import Candidate
from fiveloop.remat import timeline
from fiveloop.remat.budget.stages import size_of, unknown_vars
from fiveloop.remat.name import labels_first
from fiveloop.remat.policies import (
    OtherNames,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    first_of,
    minimum_cut,
    nothing_saveable,
)

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


POLICIES: tuple[transforms.Policy, ...] = (
    nothing_saveable,
    Priced(1.2),
    dots_saveable,
    Priced(6.0),
    Priced(0.25),
    Priced(30.0),
    dots_with_no_batch_dims_saveable,
    OtherNames(frozenset()),
)
"""What a stage may save: nothing, minimum cuts at some nanoseconds of computation for a byte, and what people write.

The first ones are tried where there is little time to plan.
"""


def holds_loop(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr has a loop, at any depth."""
    return any(is_loop(eqn) or any(map(holds_loop, ir.jaxprs_in(eqn.params))) for eqn in jaxpr.eqns)


@dataclass(frozen=True, slots=True)
class Option:
    """A way to go back through a stage.

    `kept` are the bytes saved besides the stage's operands, its results that later stages use included, `forward` and
    `backward` the bytes needed at most on either way besides these, `again` the operations that are done twice.
    A stage without a policy stays as it is, and keeps what its backward pass uses.
    """

    policy: transforms.Policy | None
    kept: int
    forward: int
    backward: int
    again: int

    def beside(self, first: Option) -> Option:
        """The option, where `again` are all operations of both passes, beside one that computes nothing again."""
        return replace(self, again=max(self.again - first.again, 0))


def options_of(
    jaxpr: Jaxpr, unknown: util.Mask, given: transforms.Policy | None, most: int = len(POLICIES)
) -> list[Option]:
    """At most so many ways to go back through a stage, but for those that another betters; the first saves everything.

    Where there is no time to split the stage twice, all and nothing are estimated as they are.
    """
    if most < 2:
        return rough_options(jaxpr, unknown)
    policies = [*POLICIES[: most - 1]]
    if holds_loop(jaxpr):
        policies.append(minimum_cut)
        policies += map(Scheduled, SLOTS)
    first = option_of(jaxpr, unknown, None, given)
    found = [option_of(jaxpr, unknown, policy, given) for policy in policies if any(unknown)]
    return [replace(first, again=0), *_bettered_by_none([o.beside(first) for o in found])]


def _bettered_by_none(options: Sequence[Option]) -> list[Option]:
    kept: list[Option] = []
    for o in sorted(options, key=lambda o: (o.again, o.kept + o.backward, o.kept)):
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
    passes = both_passes(jaxpr, unknown, chosen)
    cut = passes.cut
    outs = [v for v, u in zip(jaxpr.outvars, cut.out_unknown, strict=True) if not u]
    saved = [v for v, (kind, _) in zip(cut.residuals, cut.sources, strict=True) if kind == "saved"]
    kept = sum(map(size_of, saved))
    flops = transforms.operations_of(passes.jaxpr)
    if policy is None:
        kept, forward, backward = _whole(passes)
    else:
        forward = timeline.peak(cut.known, part=True)
        backward = timeline.peak(passes.backward, part=True)
    return Option(policy, kept + sum(map(size_of, outs)), forward, backward, flops)


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
    plan = transforms.SavingPlan(policy).at_boundary(transforms.body_work(jaxpr))
    at_hand = tuple(not u for u in unknown)
    cut = transforms.split(labels_first(jaxpr), unknown, at_hand, plan)
    linear = (*[False] * len(cut.residuals), *util.select_by(cut.staged_in, unknown))
    staged = transforms.parted(cut.staged, linear)
    back, _ = transforms.transpose_jaxpr(staged, linear, (True,) * len(staged.outvars))
    ins = zip(cut.staged_in, jaxpr.invars, unknown, strict=True)
    operands = [*cut.residuals, *[v for used, v, u in ins if used and not u]]
    cts = [ir.Var(a) for a in back.in_avals[len(operands) :]]
    eqns, grads = ir.inlined(back, [*operands, *cts])
    known = cut.known
    outs = [*known.outvars[: len(known.outvars) - len(cut.residuals)], *grads]
    eqns = ir.prune([*known.eqns, *eqns], outs)
    return Passes(cut, back, Jaxpr([*known.invars, *cts], eqns, outs), len(cts))


def _whole(passes: Passes) -> tuple[int, int, int]:
    """What both passes together keep from one to the other, and need besides in the first and in the second.

    What is light is computed where it is used, in both passes, so that less is kept than they hand on.
    """
    line = timeline.timeline(passes.jaxpr, part=True, late=passes.num_cts)
    turn = timeline.backward_begins(line, passes.jaxpr, passes.num_cts)
    kept = sum(b.bytes for b in line.buffers if b.start < turn <= b.end)
    forward, backward = max(line.bytes[:turn], default=0), max(line.bytes[turn:], default=0)
    return kept, max(forward - kept, 0), max(backward - kept, 0)


def known_flops(jaxpr: Jaxpr, unknown: util.Mask) -> int:
    """The operations of what does not depend on unknown inputs."""

    def found() -> int:
        late = unknown_vars(jaxpr, unknown)
        known = [e for e in jaxpr.eqns if late.isdisjoint(e.outvars)]
        return sum(transforms.equation_cost(e).flops for e in known)

    return jaxpr.remember(("known flops", unknown), found)


def rough_options(jaxpr: Jaxpr, unknown: util.Mask) -> list[Option]:
    """To save everything, and nothing: estimates that are made without splitting the stage."""
    late = unknown_vars(jaxpr, unknown)
    known = {v for eqn in jaxpr.eqns for v in eqn.outvars} - late
    used = {v for e in jaxpr.eqns if not late.isdisjoint(e.outvars) for v in ir.used_vars(e.invars)}
    outs = ir.used_vars(jaxpr.outvars) & known
    kept, given_on = (sum(map(size_of, vs)) for vs in ((used | outs) & known, outs))
    forward, back = _most_alive(jaxpr, known - used), _most_alive(jaxpr, late)
    again = known_flops(jaxpr, unknown)
    return [
        Option(None, kept, forward, back, 0),
        Option(nothing_saveable, given_on, forward, kept + forward + back, again),
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
