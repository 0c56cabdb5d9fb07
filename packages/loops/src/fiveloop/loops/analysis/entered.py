"""Bodies that a step enters: the branches that it chooses from and what it calls, each planned as a body of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.closed_call.primitive import closed_call_p
from fiveloop.loops.primitives.cond import cond_p
from fiveloop.loops.record import Decision
from fiveloop.state import AbstractRef

Planner = Callable[[Jaxpr, Mapping[ir.Var, str]], tuple[Jaxpr, list[Decision]]]
"""What changes a body whose operands have some names, and tells what it did."""


def is_entered(eqn: ir.Eqn) -> bool:
    """Whether an equation is a choice of branches or a call, whose bodies take its last operands one by one."""
    return eqn.primitive is cond_p or eqn.primitive is closed_call_p


def refs_in(eqn: ir.Eqn, body: Jaxpr) -> Iterator[tuple[ir.Var, ir.Var]]:
    """The Refs that an equation gives to one of its bodies, with the inputs that they are there."""
    operands = eqn.invars[len(eqn.invars) - len(body.invars) :]
    for a, v in zip(operands, body.invars, strict=True):
        if isinstance(a, ir.Var) and isinstance(a.aval, AbstractRef):
            yield a, v


def with_bodies(
    body: Jaxpr, names: Mapping[ir.Var, str], change: Planner
) -> tuple[Jaxpr, list[Decision]]:
    """The body with what it chooses or calls with a Ref of some name changed, too."""
    told: list[Decision] = []
    eqns = [_with_bodies(eqn, names, change, told) for eqn in body.eqns]
    if all(new is old for new, old in zip(eqns, body.eqns, strict=True)):
        return body, told
    return Jaxpr(body.invars, eqns, body.outvars, body.name), told


def _with_bodies(
    eqn: ir.Eqn, names: Mapping[ir.Var, str], change: Planner, told: list[Decision]
) -> ir.Eqn:
    if not is_entered(eqn) or names.keys().isdisjoint(
        a for a in eqn.invars if isinstance(a, ir.Var)
    ):
        return eqn
    changed = []
    bodies = ir.jaxprs_in(eqn.params)
    for inner in bodies:
        found, here = change(inner, {v: names[a] for a, v in refs_in(eqn, inner) if a in names})
        changed.append(found)
        told += here
    if all(new is old for new, old in zip(changed, bodies, strict=True)):
        return eqn
    rest = iter(changed)
    params = ir.with_jaxprs(eqn.params, lambda _: next(rest))
    return rules.new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
