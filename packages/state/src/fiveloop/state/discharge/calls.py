"""Calls that take Refs, as the equations that they call: only so are their reads and writes seen one by one."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr
from fiveloop.core.extend import Atom, Eqn, Var, closed_call_p
from fiveloop.state.avals import AbstractRef


def with_calls_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with what it calls with Refs in the place of the calls; itself if there are none.

    A call gives back all that its Refs hold, and XLA copies that where something else of the step reads it. So the body
    of a loop, and a branch, have none.
    """
    return jaxpr.remember("calls inlined", lambda: _inlined(jaxpr))


def _inlined(jaxpr: Jaxpr) -> Jaxpr:
    if not any(map(_takes_refs, jaxpr.eqns)):
        return jaxpr
    env: dict[Var, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        given = [_renamed(a, env) for a in eqn.invars]
        if _takes_refs(eqn):
            outs = _call(eqn.params.jaxpr, given, eqns)
            env.update(zip(eqn.outvars, outs, strict=True))
        else:
            eqns.append(eqn.replace(invars=tuple(given)))
    return Jaxpr(jaxpr.invars, eqns, [_renamed(a, env) for a in jaxpr.outvars], jaxpr.name)


def _takes_refs(eqn: Eqn) -> bool:
    return eqn.primitive is closed_call_p and any(
        isinstance(a.aval, AbstractRef) for a in eqn.invars
    )


def _call(jaxpr: Jaxpr, given: Sequence[Atom], eqns: list[Eqn]) -> list[Atom]:
    """Append what is called, in variables of its own; its results."""
    jaxpr = with_calls_inlined(jaxpr)
    env: dict[Var, Atom] = dict(zip(jaxpr.invars, given, strict=True))
    for eqn in jaxpr.eqns:
        outs = tuple(Var(v.aval) for v in eqn.outvars)
        eqns.append(eqn.replace(invars=tuple(_renamed(a, env) for a in eqn.invars), outvars=outs))
        env.update(zip(eqn.outvars, outs, strict=True))
    return [_renamed(a, env) for a in jaxpr.outvars]


def _renamed(atom: Atom, env: dict[Var, Atom]) -> Atom:
    return env.get(atom, atom) if isinstance(atom, Var) else atom
