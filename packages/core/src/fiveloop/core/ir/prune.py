"""Equations whose results nobody uses: dropped, if their effects may be."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.ir.effects import PositionalEffect
from fiveloop.core.ir.jaxpr import Atom, Eqn, Var, used_vars


def prune(eqns: Sequence[Eqn], outs: Sequence[Atom]) -> list[Eqn]:
    """The equations that `outs` need, and those with effects that must stay; equations stay whole."""
    used: set[Var] = used_vars(outs)
    kept: list[Eqn] = []
    for eqn in reversed(eqns):
        if not used.isdisjoint(eqn.outvars) or must_stay(eqn):
            used |= used_vars(eqn.invars)
            kept.append(eqn)
    return kept[::-1]


def must_stay(eqn: Eqn) -> bool:
    """Whether an equation does something besides computing its results."""
    return any(not effect.droppable for effect in eqn.effects)


def acts(eqn: Eqn) -> bool:
    """Whether an equation does something that is no change of a Ref, and that must happen."""
    return any(not e.droppable and not isinstance(e, PositionalEffect) for e in eqn.effects)
