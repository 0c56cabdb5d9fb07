"""Dead code elimination that reaches into calls and loops, and never drops an effect."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.ir.graph import must_stay, needed
from fiveloop.core.ir.jaxpr import Eqn, Jaxpr, Var
from fiveloop.core.passes import Pass, register_pass
from fiveloop.core.rules import dce_rules
from fiveloop.core.util import Mask, select_by


def dce(
    jaxpr: Jaxpr, used_outs: Sequence[bool], keep_ins: bool | Sequence[bool] = True
) -> tuple[Jaxpr, Mask]:
    """The jaxpr that computes only the outputs used, and which inputs it still takes.

    `keep_ins` names inputs that stay although nothing uses them. Equations stay, too, with an effect that is not
    `droppable`.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, y * 3.0))(1.0, 1.0)
    >>> smaller, used_ins = dce(jaxpr, (False, True), keep_ins=False)
    >>> print(smaller, used_ins)
    { lambda a:f32*[] ; let
        b:f32*[] = mul a 3.0*
      in (b,) } (False, True)
    """
    kept = (keep_ins,) * len(jaxpr.invars) if isinstance(keep_ins, bool) else tuple(keep_ins)
    return jaxpr.remember(
        ("dce", tuple(used_outs), kept), lambda: _dce(jaxpr, tuple(used_outs), kept)
    )


def _dce_all(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr without what no result needs."""
    return dce(jaxpr, [True] * len(jaxpr.outvars))[0]


register_pass(Pass("dce", after=("rules",), applies=lambda jaxpr: True, run=_dce_all))


def _dce(jaxpr: Jaxpr, used_outs: Mask, keep_ins: Mask) -> tuple[Jaxpr, Mask]:
    outs = select_by(used_outs, jaxpr.outvars)
    eqns, used = needed(jaxpr.eqns, outs, _smaller)
    mask = tuple(keep or v in used for v, keep in zip(jaxpr.invars, keep_ins, strict=True))
    return Jaxpr(select_by(mask, jaxpr.invars), eqns, outs, jaxpr.name), mask


def _smaller(eqn: Eqn, used: set[Var]) -> Eqn | None:
    """What is left of an equation of which those results are used."""
    wanted = [v in used for v in eqn.outvars]
    rule = dce_rules.find(eqn.primitive)
    if rule is not None:
        return rule(wanted, eqn)[1]
    return eqn if any(wanted) or must_stay(eqn) else None
