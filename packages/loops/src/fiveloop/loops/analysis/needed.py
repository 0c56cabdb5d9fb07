"""What of a body is needed for what some of its Refs hold in the end."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, ir, transforms


def needed_body(body: Jaxpr, wanted: Sequence[ir.Var]) -> Jaxpr:
    """The body without writes to Refs whose contents neither a result nor a kept equation needs."""
    made = [v for eqn in body.eqns for v in eqn.outvars]
    refs = {v for v in [*body.invars, *made] if v.aval.accumulates}
    needed = set(wanted)
    while True:
        kept = _walk_back(body, needed, refs)
        grown = needed | {a for e in kept for a in ir.used_vars(e.invars) if a in refs}
        if grown == needed:
            return transforms.dce(body.replace(eqns=kept), (), keep_ins=True)[0]
        needed = grown


def _walk_back(body: Jaxpr, needed: set[ir.Var], refs: set[ir.Var]) -> list[ir.Eqn]:
    """The equations whose results are used, that change a needed Ref, or that have effects outside the loop's Refs."""
    used: set[ir.Var] = set()
    kept: list[ir.Eqn] = []
    for eqn in reversed(body.eqns):
        changed = ir.used_vars(eqn.invars[k] for k in ir.mutated_positions(eqn.effects)) & refs
        outside = ir.acts(eqn) or (ir.must_stay(eqn) and not changed)
        if outside or not changed.isdisjoint(needed) or not used.isdisjoint(eqn.outvars):
            left = transforms.smaller(eqn, used)
            assert left is not None, "unreachable: there is a use of it"
            kept.append(left)
            used |= ir.used_vars(left.invars)
    return kept[::-1]
