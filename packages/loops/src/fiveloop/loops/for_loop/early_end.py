"""Which loops may end early: those whose steps do nothing once a flag is set."""

from __future__ import annotations

from fiveloop.core import Eqn, Jaxpr, Var, convert_p
from fiveloop.loops.cond.primitive import cond_p
from fiveloop.state import get_p


def end_flag(body: Jaxpr) -> Var | None:
    """The Ref of a body, a bool scalar, that keeps a step from doing anything while it holds True; None without one.

    It is there if a body is a `cond` on what a Ref holds whose second branch is empty.
    """
    if body.outvars or not body.eqns or body.eqns[-1].primitive is not cond_p:
        return None
    *before, choice = body.eqns
    branches = choice.params.branches
    if len(branches) != 2 or branches[1].eqns:
        return None
    made: dict[object, Eqn] = {v: eqn for eqn in before for v in eqn.outvars}
    number = made.get(choice.invars[0])
    if number is None or number.primitive is not convert_p:
        return None
    read = made.get(number.invars[0])
    if read is None or read.primitive is not get_p:
        return None
    flag = read.invars[0]
    if not isinstance(flag, Var) or flag.aval.shape or flag.aval.dtype.kind != "b":
        return None
    return None if any(eqn.effects for eqn in before if eqn is not read) else flag
