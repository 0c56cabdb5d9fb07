"""Partial evaluation: a call of the known half and a call of the staged half, residuals between them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from fiveloop.core import ir, rules, transforms, util
from fiveloop.core.closed_call.primitive import ClosedCallParams


def call_split(
    plan: transforms.SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: ir.Eqn
) -> rules.EqnSplit:
    r"""Call both halves; a residual that is an operand or a result of the call is not passed twice.

    For any primitive that calls `p.jaxpr`, as its cell `split`.

    >>> jaxpr = make_jaxpr(lambda x, t: (x * x) * t)(1.0, 1.0)
    >>> eqn = new_eqn(closed_call_p, jaxpr.invars, ClosedCallParams(jaxpr))
    >>> cut = call_split(DEFAULT_PLAN, [False, True], [False, False], eqn)
    >>> print(cut.out_unknown, *cut.known, *cut.staged, sep="\n")
    (True,)
    b:f32*[] = closed_call a
      jaxpr { lambda a:f32*[] ; let
          c:f32*[] = mul a a
        in (c,) }
    c:f32*[] = closed_call a b
      jaxpr { lambda d:f32*[] b:f32*[] ; let
          e:f32*[] = mul d b
        in (e,) }
    """
    p: ClosedCallParams = eqn.params
    again = gives_again(plan, eqn)
    kept = plan.kept_out or False
    cut = transforms.split(p.jaxpr, unknown, inst, plan, ensure_out_inst=again, kept_out=kept)
    known_ins, _ = util.partition(unknown, eqn.invars)
    known_outs, _ = util.partition(cut.out_unknown, eqn.outvars)
    known_jaxpr, saved, residuals = forward_residuals(cut, eqn, known_outs)
    known = rules.new_eqn(
        eqn.primitive, known_ins, replace(p, jaxpr=known_jaxpr), [*known_outs, *saved], eqn.source
    )
    staged_ins = [*residuals, *util.select_by(cut.staged_in, eqn.invars)]
    staged_outs = util.select_by(cut.out_staged, eqn.outvars)
    staged = rules.new_eqn(
        eqn.primitive, staged_ins, replace(p, jaxpr=cut.staged), staged_outs, eqn.source
    )
    return set_apart([known], staged, cut.out_unknown, kept_outs([cut]) if again else None)


def gives_again(plan: transforms.SavingPlan, eqn: ir.Eqn) -> bool:
    """Whether the staged half of a call should give its known results, too: the plan does not save them as such."""
    refs = any(a.aval.accumulates for a in eqn.invars)
    return not refs and not plan.verdict(eqn).saves


def kept_outs(cuts: Sequence[transforms.Split]) -> set[int]:
    """Which results of an equation are residuals of each of its jaxprs."""
    found = [{k for kind, k in cut.sources if kind == "output"} for cut in cuts]
    return set.intersection(*found)


def set_apart(
    known: list[ir.Eqn], staged: ir.Eqn, out_unknown: util.Mask, kept: Set[int] | None
) -> rules.EqnSplit:
    """The halves of an equation; known results that the staged half gives, but for those kept, are made apart.

    `kept` is None if the staged half gives none. Each of its two parts takes what it needs of the residuals.
    """
    if kept is None:
        return rules.EqnSplit(known, [staged], out_unknown)
    dce = rules.dce_rules[staged.primitive]
    unknown = dce(list(out_unknown), staged)[1]
    again = dce([not u and k not in kept for k, u in enumerate(out_unknown)], staged)[1]
    # What the staged half does besides, it does once.
    if again is not None and ir.must_stay(again):
        again = None
    return rules.EqnSplit(
        known, [unknown] if unknown else [], out_unknown, [again] if again else []
    )


def forward_residuals(
    cut: transforms.Split, eqn: ir.Eqn, known_outs: Sequence[ir.Var]
) -> tuple[ir.Jaxpr, list[ir.Var], list[ir.Atom]]:
    """The known half without the residuals that are at hand outside; the others' variables; all residuals.

    cut.known : [*known ins] -> [*known outs, *residuals]
    known     : [*known ins] -> [*known outs, *saved]
    """
    saved: list[ir.Var] = []
    residuals: list[ir.Atom] = []
    kept = list(cut.known.outvars[: len(known_outs)])
    for v, (kind, k) in zip(cut.residuals, cut.sources, strict=True):
        if kind == "input":
            residuals.append(eqn.invars[k])
        elif kind == "output" and not cut.out_unknown[k]:
            residuals.append(eqn.outvars[k])
        else:
            saved.append(ir.Var(v.aval))
            kept.append(v)
            residuals.append(saved[-1])
    return cut.known.replace(outvars=kept), saved, residuals
