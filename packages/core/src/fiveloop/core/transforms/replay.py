"""What may run again: an equation without the effects in it that must not happen twice.

A recomputation is there for values. So an equation that changes no Ref and gives nothing that is used, a check or a
print, is left out of it, at any depth.
"""

from __future__ import annotations

from fiveloop.core import ir, rules


def happens_once(holder: ir.Eqn | ir.Jaxpr) -> bool:
    """Whether an equation or a jaxpr has an effect that must not happen twice, at any depth."""
    return any(
        not isinstance(e, ir.PositionalEffect) and not e.recomputable for e in holder.effects
    )


def replayed(eqn: ir.Eqn) -> list[ir.Eqn] | None:
    """What runs in place of an equation when it runs again, if anything; None if its values cannot be made again."""
    if not happens_once(eqn):
        return [eqn]
    inner = ir.jaxprs_in(eqn.params)
    if not inner:
        return None if eqn.outvars or _changes_refs(eqn) else []
    if any(_replayed_jaxpr(j) is None for j in inner):
        return None
    params = ir.with_jaxprs(eqn.params, lambda j: _replayed_jaxpr(j) or j)
    made = rules.new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
    # What still has the effect has it in a rule of its own.
    return None if happens_once(made) else [made]


def _replayed_jaxpr(jaxpr: ir.Jaxpr) -> ir.Jaxpr | None:
    return jaxpr.remember("replayed", lambda: _make_replayed(jaxpr))


def _make_replayed(jaxpr: ir.Jaxpr) -> ir.Jaxpr | None:
    used = ir.used_vars(jaxpr.outvars)
    eqns: list[ir.Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        found = replayed(eqn)
        if found is None and (_changes_refs(eqn) or not used.isdisjoint(eqn.outvars)):
            return None
        eqns += found or []
        used |= ir.used_vars([a for again in found or [] for a in again.invars])
    return jaxpr.replace(eqns=eqns[::-1])


def _changes_refs(eqn: ir.Eqn) -> bool:
    return any(isinstance(e, ir.PositionalEffect) for e in eqn.effects)
