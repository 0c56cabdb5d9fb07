"""Rewriting: equations in other variables, and equations in the place of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

from fiveloop.core.ir.jaxpr import Atom, Eqn, Jaxpr, Var


def renamed(atom: Atom, names: Mapping[Var, Atom]) -> Atom:
    """What stands for an atom; itself if nothing does."""
    return names.get(atom, atom) if isinstance(atom, Var) else atom


def rename(eqn: Eqn, names: Mapping[Var, Atom]) -> Eqn:
    """An equation with other operands in the place of those that have a name in `names`."""
    return eqn.replace(invars=tuple([renamed(a, names) for a in eqn.invars]))


def copied_eqns(eqns: Iterable[Eqn], names: MutableMapping[Var, Atom]) -> list[Eqn]:
    """Equations in the variables that `names` gives, with results of their own, which are added to `names`."""
    made: list[Eqn] = []
    for eqn in eqns:
        outs = tuple([Var(v.aval) for v in eqn.outvars])
        made.append(rename(eqn, names).replace(outvars=outs))
        names.update(zip(eqn.outvars, outs, strict=True))
    return made


def inlined(jaxpr: Jaxpr, operands: Sequence[Atom]) -> tuple[list[Eqn], list[Atom]]:
    """The equations of a jaxpr on other operands, in variables of their own, and their results.

    >>> called = make_jaxpr(lambda x: x * 2.0)(1.0)
    >>> outer = make_jaxpr(lambda x: x + 1.0)(1.0)
    >>> eqns, outs = inlined(called, outer.outvars)
    >>> print(outer.replace(eqns=[*outer.eqns, *eqns], outvars=outs))
    { lambda a:f32*[] ; let
        b:f32*[] = add a 1.0*
        c:f32*[] = mul b 2.0*
      in (c,) }
    """
    names: dict[Var, Atom] = dict(zip(jaxpr.invars, operands, strict=True))
    eqns = copied_eqns(jaxpr.eqns, names)
    return eqns, [renamed(a, names) for a in jaxpr.outvars]


def replaced(
    jaxpr: Jaxpr, change: Callable[[Eqn], tuple[Sequence[Eqn], Sequence[Atom]] | None]
) -> Jaxpr:
    """The jaxpr with other equations, and what they give, in the place of those that `change` has an answer for.

    >>> square = lambda eqn: inlined(make_jaxpr(lambda x: x * x)(1.0), eqn.invars[:1])
    >>> print(replaced(make_jaxpr(lambda x: (x + 1.0) - 2.0)(1.0), square))
    { lambda a:f32*[] ; let
        b:f32*[] = mul a a
        c:f32*[] = mul b b
      in (c,) }
    """
    names: dict[Var, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        here = rename(eqn, names)
        made, outs = change(here) or ([here], eqn.outvars)
        eqns += made
        names.update(zip(eqn.outvars, outs, strict=True))
    return jaxpr.replace(eqns=eqns, outvars=[renamed(a, names) for a in jaxpr.outvars])
