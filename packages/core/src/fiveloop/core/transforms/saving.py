"""Saving plans: what happens to each known value that the staged half needs, under a policy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from fiveloop.core import ir, rules, util
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.transforms import policies
from fiveloop.core.transforms.eval import happens_once

Labels: TypeAlias = Mapping[ir.Atom, tuple[str, ...]]
NO_LABELS: Labels = MappingProxyType({})


def labels_of(jaxpr: ir.Jaxpr) -> Labels:
    """The labels that a jaxpr gives to its values, directly or through other labels."""

    def found() -> Labels:
        labels: dict[ir.Atom, tuple[str, ...]] = {}
        for eqn in reversed(jaxpr.eqns):
            label = rules.label_rules.find(eqn.primitive)
            if label is not None:
                (v,), (x,) = eqn.outvars, eqn.invars
                labels[v] = (label(eqn.params), *labels.get(v, ()))
                labels[x] = (*labels[v], *labels.get(x, ()))
        return labels or NO_LABELS

    return jaxpr.remember("labels of values", found)


@dataclass(frozen=True)
class SavingPlan:
    """Verdicts under a policy. Legality is the plan's: an effect that may not run again is never recomputed.

    `cuts`: what is left to a minimum cut is decided by one; in straight-line code it is saved, since XLA merges
    a recomputation there with what it repeats. `body_work` is what the whole body does that the cut is made in,
    of which only a share may be done again; if None, it is that of the jaxpr that is split. `kept_out` says which
    results of the equation that is split are kept in any case; empty if none is. `path` leads to the jaxpr: the
    primitives of the equations that hold it. With `parts`, the staged half need only have a transpose: a loop stays
    whole that changes nothing known, and computes what it needs of known values in each step.

    >>> plan = SavingPlan(lambda eqn: eqn.primitive.name == "mul")
    >>> [plan.verdict(eqn).kind for eqn in make_jaxpr(lambda x: x * x + x)(2.0).eqns]
    ['save', 'recompute']
    """

    policy: policies.Policy
    cuts: bool = False
    body_work: int | None = None
    kept_out: util.Mask = ()
    path: tuple[str, ...] = ()
    parts: bool = False

    def verdict(self, eqn: ir.Eqn, labels: Labels = NO_LABELS) -> rules.Verdict:
        """Whether an equation's results may be saved, or are to be computed again; `labels` are those of the jaxpr."""
        if happens_once(eqn):
            return rules.Verdict("save", "its effects must not happen twice")
        names = tuple([name for v in eqn.outvars for name in labels.get(v, ())]) if labels else ()
        answer = policies.answer_of(self.policy, policies.Candidate(eqn, names, self.path))
        return rules.RECOMPUTE if answer is None else answer

    def saves_within(self, eqn: ir.Eqn, labels: Labels = NO_LABELS) -> bool:
        """Whether an equation's results, or any value in the jaxprs that it holds, may be saved."""
        if self.verdict(eqn, labels).saves:
            return True
        bodies = ir.jaxprs_in(eqn.params)
        inner = self.within(eqn) if bodies else self

        def saves(jaxpr: ir.Jaxpr) -> bool:
            key = ("saves", inner.policy, inner.path)
            own = labels_of(jaxpr)
            return jaxpr.remember(key, lambda: any(inner.saves_within(e, own) for e in jaxpr.eqns))

        return any(map(saves, bodies))

    def within(self, eqn: ir.Eqn) -> SavingPlan:
        """The plan for what an equation holds."""
        return replace(self, path=(*self.path, eqn.primitive.name))

    def at_boundary(self, work: int | None = None) -> SavingPlan:
        """The plan for a body whose residuals leave it (a loop's, a branch's) and for what it calls."""
        if not policies.may_weigh(self.policy):
            return self
        work = self.body_work if work is None else work
        return replace(self, cuts=True, body_work=work, kept_out=())

    def plainly(self) -> SavingPlan:
        """The plan that makes no cut, in bodies within neither."""
        if not policies.may_weigh(self.policy):
            return self
        if isinstance(self.policy, policies.MinimumCut):
            return SavingPlan(policies.EverythingSaveable())
        return SavingPlan(policies.Plainly(self.policy), path=self.path)


SAVE_EVERYTHING = SavingPlan(policies.EverythingSaveable())
SAVE_NOTHING = SavingPlan(policies.NothingSaveable())
DEFAULT_PLAN = SavingPlan(policies.MinimumCut())
"""What linearisation saves unless told otherwise: everything in straight-line code, in loops and branches a cut."""
