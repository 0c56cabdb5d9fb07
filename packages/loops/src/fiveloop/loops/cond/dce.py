"""Dead code: branches of the results that are used, with the operands that some branch still takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ir, rules, transforms, util
from fiveloop.loops.primitives.cond import CondParams


def cond_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller equation; None if nothing is left of it."""
    p: CondParams = eqn.params
    smaller = [transforms.dce(b, used, keep_ins=False) for b in p.branches]
    if not any(used) and not any(b.eqns for b, _ in smaller):
        return [False] * len(eqn.invars), None
    kept = [any(masks) for masks in zip(*[mask for _, mask in smaller], strict=True)]
    branches = tuple(transforms.dce(b, used, keep_ins=kept)[0] for b in p.branches)
    kept = [True, *kept]
    outvars = util.select_by(used, eqn.outvars)
    params = replace(p, branches=branches)
    return kept, rules.new_eqn(
        eqn.primitive, util.select_by(kept, eqn.invars), params, outvars, eqn.source
    )
