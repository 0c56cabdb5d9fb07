"""A policy made into a plan: what becomes of each known value that the staged half would like to have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fiveloop.core.ir.effects import PositionalEffect
from fiveloop.core.ir.jaxpr import Eqn
from fiveloop.core.rule_types import RECOMPUTE, SAVE, Verdict

Policy = Callable[[Eqn], Verdict | bool]


@dataclass(frozen=True)
class EverythingSaveable:
    """Save whatever the staged half uses."""

    def __call__(self, eqn: Eqn) -> Verdict:
        return SAVE


@dataclass(frozen=True)
class NothingSaveable:
    """Save nothing but the arguments; recompute the rest."""

    def __call__(self, eqn: Eqn) -> Verdict:
        return RECOMPUTE


@dataclass(frozen=True)
class SavingPlan:
    """Verdicts under a policy. Legality is the plan's: an effect that may not run again is never recomputed."""

    policy: Policy

    def verdict(self, eqn: Eqn) -> Verdict:
        """Whether an equation's results may be saved, or are to be computed again."""
        if any(not isinstance(e, PositionalEffect) and not e.recomputable for e in eqn.effects):
            return Verdict("save", "its effects must not happen twice")
        answer = self.policy(eqn)
        if isinstance(answer, Verdict):
            return answer
        return SAVE if answer else RECOMPUTE


SAVE_EVERYTHING = SavingPlan(EverythingSaveable())
SAVE_NOTHING = SavingPlan(NothingSaveable())
