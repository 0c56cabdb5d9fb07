"""The type checker: a jaxpr's variables, types and effects are what its equations say."""

from __future__ import annotations

from fiveloop.core import errors, ir, rules, trace


def typecheck(jaxpr: ir.Jaxpr) -> None:
    """Raise TypecheckError, with the equation, if a jaxpr is not well typed.

    >>> jaxpr = make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> typecheck(jaxpr)
    >>> typecheck(jaxpr.replace(invars=[]))
    Traceback (most recent call last):
    fiveloop.core.errors.TypecheckError: a variable of type f32*[] is used before it is bound
      in the equation b:f32*[] = mul a 2.0*
      at ...
    """
    bound: set[ir.Var] = set()
    for v in jaxpr.invars:
        if v in bound:
            raise errors.TypecheckError(
                f"an input of {jaxpr.name or 'the jaxpr'} is bound twice: {v}"
            )
        bound.add(v)
    for eqn in jaxpr.eqns:
        _check_eqn(eqn, bound)
        for inner in ir.jaxprs_in(eqn.params):
            typecheck(inner)
        for v in eqn.outvars:
            if v in bound:
                raise errors.TypecheckError(f"a variable of type {v.aval} is bound twice{_at(eqn)}")
            bound.add(v)
    for atom in jaxpr.outvars:
        _check_bound(atom, bound, None)
    _check_axes(jaxpr)
    found = ir.effects_of(jaxpr.invars, jaxpr.eqns)
    if found != jaxpr.effects:
        raise errors.TypecheckError(
            f"the jaxpr declares the effects {ir.effects_text(jaxpr.effects)}, its equations "
            f"have {ir.effects_text(found)}"
        )


def _check_axes(jaxpr: ir.Jaxpr) -> None:
    """A named axis has one size throughout."""
    sizes: dict[object, int] = {}
    for axis in ir.axes_of(jaxpr.effects):
        if sizes.setdefault((axis.name, axis.level), axis.size) != axis.size:
            raise errors.TypecheckError(
                f"the named axis {axis.name!r} has the sizes {sizes[axis.name, axis.level]} and {axis.size}"
            )


def _check_eqn(eqn: ir.Eqn, bound: set[ir.Var]) -> None:
    for atom in eqn.invars:
        _check_bound(atom, bound, eqn)
    mutable = [a for a in eqn.invars if a.aval.accumulates]
    if len(set(mutable)) < len(mutable):
        raise errors.TypecheckError(f"a mutable operand is given twice, under one name{_at(eqn)}")
    rule = rules.typecheck_rules.find(eqn.primitive) or rules.abstract_eval_rules[eqn.primitive]
    operands = [a.aval for a in eqn.invars]
    try:
        avals, effects = rule(operands, eqn.params)
    except trace.MISUSE as error:
        why = str(error).partition("\n")[0]
        raise errors.TypecheckError(
            f"`{eqn.primitive}` does not take operands of types {operands}: {why}{_at(eqn)}"
        ) from error
    given = [v.aval for v in eqn.outvars]
    if [a.strong() for a in avals] != [a.strong() for a in given]:
        raise errors.TypecheckError(f"expected results of types {avals}, got {given}{_at(eqn)}")
    if effects != eqn.effects:
        raise errors.TypecheckError(
            f"expected the effects {ir.effects_text(effects)}, got {ir.effects_text(eqn.effects)}{_at(eqn)}"
        )


def _check_bound(atom: ir.Atom, bound: set[ir.Var], eqn: ir.Eqn | None) -> None:
    if isinstance(atom, ir.Var) and atom not in bound:
        raise errors.TypecheckError(
            f"a variable of type {atom.aval} is used before it is bound{_at(eqn)}"
        )


def _at(eqn: ir.Eqn | None) -> str:
    return f"\n  in the equation {eqn}{errors.at_source(eqn.source)}" if eqn is not None else ""
