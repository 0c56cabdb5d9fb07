"""Partial evaluation under the policy: the known half saves what it may, the staged half computes the rest again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core.engine import (
    body_work,
    forward_residuals,
    gives_again,
    kept_outs,
    partition,
    select_by,
    set_apart,
)
from fiveloop.core.extend import Eqn, EqnSplit, SavingPlan, new_eqn, split
from fiveloop.remat.checkpoint.labels import labels_first
from fiveloop.remat.checkpoint.primitive import CheckpointParams
from fiveloop.remat.makers import made_by
from fiveloop.remat.policies import both_save


def checkpoint_split(
    plan: SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: Eqn
) -> EqnSplit:
    """Both halves; every known operand is at hand in the staged one, and so need not be saved by the policy."""
    p: CheckpointParams = eqn.params
    at_hand = [
        not u and (i or not a.aval.accumulates)
        for u, i, a in zip(unknown, inst, eqn.invars, strict=True)
    ]
    inner = SavingPlan(both_save(p.policy, plan.policy)).at_boundary(body_work(p.jaxpr))
    again = gives_again(plan, eqn)
    cut = split(labels_first(p.jaxpr), unknown, at_hand, inner, ensure_out_inst=again)
    known_ins, _ = partition(unknown, eqn.invars)
    known_outs, _ = partition(cut.out_unknown, eqn.outvars)
    known_jaxpr, saved, residuals = forward_residuals(cut, eqn, known_outs)
    known_params = replace(p, jaxpr=known_jaxpr, recomputes=False)
    known = new_eqn(eqn.primitive, known_ins, known_params, [*known_outs, *saved], eqn.source)
    staged_ins = [*residuals, *select_by(cut.staged_in, eqn.invars)]
    staged_params = replace(p, jaxpr=cut.staged, recomputes=True)
    staged_outs = select_by(cut.out_staged, eqn.outvars)
    staged = new_eqn(eqn.primitive, staged_ins, staged_params, staged_outs, eqn.source)
    # A result is had outside, where the outer policy alone decides.
    saved_outs = {k for k in range(len(eqn.outvars)) if plan.verdict(made_by(eqn, k)).saves}
    kept = kept_outs([cut]) | saved_outs if again else None
    return set_apart([known], staged, cut.out_unknown, kept)
