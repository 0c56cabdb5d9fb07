"""A policy made into a plan: what becomes of each known value that the staged half would like to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from fiveloop.core import ir, rules, util
from fiveloop.core.transforms.replay import happens_once

Policy = Callable[[ir.Eqn], rules.Verdict | bool]

MEMORY_COST = 12.0
"""What a byte kept costs, in operations: it is written to memory that is touched for the first time, and read once.

Measured on a CPU: an element of four bytes takes about a nanosecond on its way there and back, the time of ten
additions. Five times that is paid, because the memory itself is what a long loop runs out of.
"""

COMPUTE_COST = 1.0
"""What an operation done again costs: the unit."""

SHARE = 0.5
"""How much of what a body does one chain of equations that is done again may cost."""


@dataclass(frozen=True)
class EverythingSaveable:
    """Save whatever the staged half uses."""

    weighs: ClassVar[bool] = False

    def __call__(self, eqn: ir.Eqn) -> rules.Verdict:
        return rules.SAVE


@dataclass(frozen=True)
class NothingSaveable:
    """Save nothing but the arguments; recompute the rest."""

    weighs: ClassVar[bool] = False

    def __call__(self, eqn: ir.Eqn) -> rules.Verdict:
        return rules.RECOMPUTE


@dataclass(frozen=True)
class MinimumCut:
    """Save what makes bytes kept and operations done again cost least together.

    It may save an operand in place of several results, and do light equations again: those whose `cost` says so,
    which no contraction, reduction, sort, gather or loop is. A chain of them may cost at most `share` of what the
    body does. Never does it keep more bytes than saving everything would.

    >>> MinimumCut() == MinimumCut(memory_cost=12.0)
    True
    """

    memory_cost: float = MEMORY_COST
    compute_cost: float = COMPUTE_COST
    share: float = SHARE

    def __call__(self, eqn: ir.Eqn) -> rules.Verdict:
        return rules.Weigh(
            memory_cost=self.memory_cost, compute_cost=self.compute_cost, share=self.share
        )


@dataclass(frozen=True)
class Plainly:
    """Another policy, but for what it leaves to a cut: that is saved."""

    policy: Policy
    weighs: ClassVar[bool] = False

    def __call__(self, eqn: ir.Eqn) -> rules.Verdict | bool:
        verdict = self.policy(eqn)
        return rules.SAVE if isinstance(verdict, rules.Weigh) else verdict


def may_weigh(policy: Policy) -> bool:
    """Whether a policy may leave something to a cut; one that never does may say so by `weighs = False`."""
    return bool(getattr(policy, "weighs", True))


@dataclass(frozen=True)
class SavingPlan:
    """Verdicts under a policy. Legality is the plan's: an effect that may not run again is never recomputed.

    `cuts`: what is left to a minimum cut is decided by one; in straight-line code it is saved, since XLA merges
    a recomputation there with what it repeats. `body_work` is what the whole body does that the cut is made in,
    of which only a share may be done again; if None, it is that of the jaxpr that is split. `kept_out` says which
    results of the equation that is split are kept in any case; empty if none is.

    >>> plan = SavingPlan(lambda eqn: eqn.primitive.name == "mul")
    >>> [plan.verdict(eqn).kind for eqn in make_jaxpr(lambda x: x * x + x)(2.0).eqns]
    ['save', 'recompute']
    """

    policy: Policy
    cuts: bool = False
    body_work: int | None = None
    kept_out: util.Mask = ()

    def verdict(self, eqn: ir.Eqn) -> rules.Verdict:
        """Whether an equation's results may be saved, or are to be computed again."""
        if happens_once(eqn):
            return rules.Verdict("save", "its effects must not happen twice")
        answer = self.policy(eqn)
        if isinstance(answer, rules.Verdict):
            return answer
        return rules.SAVE if answer else rules.RECOMPUTE

    def saves_within(self, eqn: ir.Eqn) -> bool:
        """Whether an equation's results, or any value in the jaxprs that it holds, may be saved."""

        def saves(jaxpr: ir.Jaxpr) -> bool:
            key = ("saves", self.policy)
            return jaxpr.remember(key, lambda: any(map(self.saves_within, jaxpr.eqns)))

        return self.verdict(eqn).saves or any(map(saves, ir.jaxprs_in(eqn.params)))

    def at_boundary(self, work: int | None = None) -> SavingPlan:
        """The plan for a body whose residuals leave it (a loop's, a branch's) and for what it calls."""
        if not may_weigh(self.policy):
            return self
        work = self.body_work if work is None else work
        return replace(self, cuts=True, body_work=work, kept_out=())

    def plainly(self) -> SavingPlan:
        """The plan that makes no cut, in bodies within neither."""
        if not may_weigh(self.policy):
            return self
        if isinstance(self.policy, MinimumCut):
            return SavingPlan(EverythingSaveable())
        return SavingPlan(Plainly(self.policy))


SAVE_EVERYTHING = SavingPlan(EverythingSaveable())
SAVE_NOTHING = SavingPlan(NothingSaveable())
DEFAULT_PLAN = SavingPlan(MinimumCut())
"""What linearisation saves unless told otherwise: everything in straight-line code, in loops and branches a cut."""
