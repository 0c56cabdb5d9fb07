"""Dead code elimination that reaches into calls and loops, and never drops an effect."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from fiveloop.core import ir, passes, rules, util
from fiveloop.core.ir.graph import Keep


@ir.once_per(lambda j, used, keep_ins=True: (j, tuple(used), util.full(keep_ins, len(j.invars))))
def dce(
    jaxpr: ir.Jaxpr, used_outs: Sequence[bool], keep_ins: bool | Sequence[bool] = True
) -> tuple[ir.Jaxpr, util.Mask]:
    """The jaxpr that computes only the outputs used, and which inputs it still takes.

    `keep_ins` names inputs that stay although nothing uses them. Equations stay, too, with an effect that is not
    `droppable`; but what only changes Refs that the jaxpr makes, and that nothing uses afterwards, goes.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * 2.0, y * 3.0))(1.0, 1.0)
    >>> smaller, used_ins = dce(jaxpr, (False, True), keep_ins=False)
    >>> print(smaller, used_ins)
    { lambda a:f32*[] ; let
        b:f32*[] = mul a 3.0*
      in (b,) } (False, True)
    """
    outs = util.select_by(used_outs, jaxpr.outvars)
    done = all(used_outs) and jaxpr.remembers(_MINIMAL)
    eqns: ir.Eqns = jaxpr.eqns
    if done:
        used = ir.used_by(eqns, outs)
    else:
        eqns, used = ir.needed(eqns, outs, _left_of(eqns))
    kept = util.full(keep_ins, len(jaxpr.invars))
    mask = tuple(keep or v in used for v, keep in zip(jaxpr.invars, kept, strict=True))
    if done and all(mask):
        return jaxpr, mask
    made = ir.Jaxpr(util.select_by(mask, jaxpr.invars), eqns, outs, jaxpr.name)
    made.remember(_MINIMAL, lambda: True)
    return made, mask


def with_equations(jaxpr: ir.Jaxpr, eqns: ir.Eqns) -> ir.Jaxpr:
    """The jaxpr with other equations, but for those that nothing uses any more; itself if they are the same."""
    if len(eqns) == len(jaxpr.eqns) and all(map(is_, eqns, jaxpr.eqns)):
        return jaxpr
    return dce(jaxpr.replace(eqns=eqns), [True] * len(jaxpr.outvars))[0]


_MINIMAL = ("dce", "minimal")
"""Remembered by a jaxpr without dead code, at any depth, if all its results are used: it is not searched again."""


passes.register_pass(
    passes.Pass(
        "dce",
        after=("rules",),
        applies=lambda jaxpr: True,
        run=lambda jaxpr: dce(jaxpr, [True] * len(jaxpr.outvars))[0],
    )
)


def _left_of(eqns: ir.Eqns) -> Keep:
    """What is left of an equation, given the variables used after it; it need not change made Refs not used."""
    made = {v for eqn in eqns for v in eqn.outvars if v.aval.accumulates}
    if not made:
        return smaller

    def left_of(eqn: ir.Eqn, used: set[ir.Var]) -> ir.Eqn | None:
        changed = ir.changed_refs(eqn)
        unused = (changed & made) - used
        if changed and unused == changed and used.isdisjoint(eqn.outvars) and not ir.acts(eqn):
            return None
        left = smaller(eqn, used)
        return left if left is None or not unused else _without_changes(left, unused, used)

    return left_of


def smaller(eqn: ir.Eqn, used: set[ir.Var]) -> ir.Eqn | None:
    """What is left of an equation of which the results in `used` are used, if anything."""
    wanted = [v in used for v in eqn.outvars]
    if not any(wanted) and not ir.must_stay(eqn):
        return None
    rule = rules.dce_rules.find(eqn.primitive)
    return eqn if rule is None else rule(wanted, eqn)[1]


@ir.once_per(lambda body, wanted: (body, frozenset(wanted)))
def needed_body(body: ir.Jaxpr, wanted: ir.Vars) -> ir.Jaxpr:
    """The body of a loop without writes to Refs whose contents no step and no result needs, at any depth.

    The Refs in `wanted` are needed after the loop; what a needed result or Ref is made of is needed by the next step.
    """
    made = [v for eqn in body.eqns for v in eqn.outvars]
    refs = {v for v in [*body.invars, *made] if v.aval.accumulates}
    needed = set(wanted)
    while True:
        kept = _changing(body, needed, refs)
        grown = needed | (ir.used_by(kept) & refs)
        if grown == needed:
            outs = (True,) * len(body.outvars)
            return dce(body.replace(eqns=kept), outs, keep_ins=True)[0]
        needed = grown


def _changing(body: ir.Jaxpr, needed: set[ir.Var], refs: set[ir.Var]) -> list[ir.Eqn]:
    """The equations whose results are used, that change a needed Ref, or that have effects outside the loop's Refs."""

    def left_of(eqn: ir.Eqn, used: set[ir.Var]) -> ir.Eqn | None:
        changed = ir.changed_refs(eqn) & refs
        outside = ir.acts(eqn) or (ir.must_stay(eqn) and not changed)
        if not outside and changed.isdisjoint(needed) and used.isdisjoint(eqn.outvars):
            return None
        left = smaller(eqn, used)
        return left if left is None else _without_changes(left, refs - needed, used)

    return ir.needed(body.eqns, body.outvars, left_of)[0]


def _without_changes(eqn: ir.Eqn, unneeded: set[ir.Var], used: set[ir.Var]) -> ir.Eqn | None:
    """What is left of a loop, a choice or a call that need not change some Refs; any other equation stays."""
    bodies = rules.plain_bodies(eqn.primitive, eqn.params)
    # What has no split rule, as a call with a user's rule, stays whole.
    whole = not bodies or rules.split_rules.find(eqn.primitive) is None
    if whole or unneeded.isdisjoint(ir.changed_refs(eqn)):
        return eqn
    needed = {a for body in bodies for a in _needed_besides(eqn, body)}

    def without(body: ir.Jaxpr) -> ir.Jaxpr:
        # The final contents of what is a Ref inside alone follow the other results.
        finals = iter(eqn.outvars[len(body.outvars) :])
        wanted = list[ir.Var]()
        for a, v in _inputs(eqn, body):
            if v.aval.accumulates:
                is_ref = a.aval.accumulates
                if (a in needed or a not in unneeded) if is_ref else next(finals) in used:
                    wanted.append(v)
        return needed_body(body, wanted)

    return smaller(rules.with_bodies(eqn, without), used)


def _needed_besides(eqn: ir.Eqn, body: rules.Body) -> list[ir.Atom]:
    """The operands whose contents are saved on the way, or decide whether there is a next step."""
    jaxpr = body.jaxpr
    needed = {jaxpr.invars[k] for k in body.saved}
    if body.role == "condition":
        needed |= ir.used_by(jaxpr.eqns)
    return [a for a, v in _inputs(eqn, jaxpr) if v in needed]


def _inputs(eqn: ir.Eqn, body: ir.Jaxpr) -> list[tuple[ir.Atom, ir.Var]]:
    """The operands that an equation gives to one of its bodies, and what they are there, in order."""
    pairs = zip(reversed(eqn.invars), reversed(body.invars), strict=False)
    return [*pairs][::-1]
