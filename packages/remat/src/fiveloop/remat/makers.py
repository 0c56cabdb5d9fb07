"""The equation that makes a value, at any depth: in a call, in a branch, or in the steps of a loop."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.engine import bodies_rules, used_vars
from fiveloop.core.extend import Atom, Eqn, mutated_positions


def made_by(eqn: Eqn, position: int) -> Eqn:
    """The equation that makes a result of an equation: within what that holds, if it is made there.

    Of a loop's array of all steps that is what makes the value of one step.
    """
    bodies = bodies_rules.find(eqn.primitive)
    for body in bodies(eqn.params) if bodies else ():
        operands = zip(reversed(body.jaxpr.invars), reversed(eqn.invars), strict=False)
        states = [v for v, a in operands if v.aval.accumulates and not a.aval.accumulates]
        results = [*body.jaxpr.outvars, *reversed(states)]
        if len(results) == len(eqn.outvars):
            made = _maker(body.jaxpr, results[position])
            if made is not None:
                return made
    return eqn


def _maker(jaxpr: Jaxpr, atom: Atom) -> Eqn | None:
    """What makes a value, or what a Ref is given last; None if it comes from outside, or is a constant."""
    for eqn in reversed(jaxpr.eqns):
        if atom in eqn.outvars:
            return made_by(eqn, eqn.outvars.index(atom)) if used_vars(eqn.invars) else None
        if atom in [eqn.invars[k] for k in mutated_positions(eqn.effects)]:
            return _given(jaxpr, eqn, atom)
    return None


def _given(jaxpr: Jaxpr, eqn: Eqn, ref: Atom) -> Eqn | None:
    """What makes the value that an equation gives to a Ref."""
    bodies = bodies_rules.find(eqn.primitive)
    if bodies is None:
        return _maker(jaxpr, eqn.invars[1])
    after = len(eqn.invars) - eqn.invars.index(ref)
    found = (_maker(b.jaxpr, b.jaxpr.invars[-after]) for b in bodies(eqn.params))
    return next((made for made in found if made is not None), None)
