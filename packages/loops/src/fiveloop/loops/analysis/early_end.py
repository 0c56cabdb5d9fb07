"""Loops that may end early: their steps do nothing once a flag is set."""

from __future__ import annotations

from fiveloop.core import Jaxpr, Value, ir, prims, trace, transforms
from fiveloop.loops.primitives import cond, for_loop
from fiveloop.state import AbstractRef, predicate, primitives


def end_flag(body: Jaxpr) -> ir.Var | None:
    """The Ref of a body, a bool scalar, that keeps a step from doing anything while it holds True; None without one.

    It is there if a body is a `cond` on what a Ref holds whose second branch is empty.
    """
    if body.outvars or not body.eqns or body.eqns[-1].primitive is not cond.cond_p:
        return None
    *before, choice = body.eqns
    branches = choice.params.branches
    if len(branches) != 2 or branches[1].eqns:
        return None
    made: dict[object, ir.Eqn] = {v: eqn for eqn in before for v in eqn.outvars}
    number = made.get(choice.invars[0])
    if number is None or number.primitive is not prims.convert_p:
        return None
    read = made.get(number.invars[0])
    if read is None or read.primitive is not primitives.get_p:
        return None
    flag = read.invars[0]
    if not isinstance(flag, ir.Var) or flag.aval.shape or flag.aval.dtype.kind != "b":
        return None
    return None if any(eqn.effects for eqn in before if eqn is not read) else flag


def without_end(body: Jaxpr) -> tuple[Jaxpr, int] | None:
    """The step that a body takes as long as a flag is not set, and the flag's position; None for any other body.

    body, step : [i, *consts, *refs] -> []
    """
    return body.remember("without end", lambda: _without_end(body))


def _without_end(body: Jaxpr) -> tuple[Jaxpr, int] | None:
    flag = end_flag(body)
    if flag is None:
        return None
    _, *operands = body.eqns[-1].invars
    step = body.eqns[-1].params.branches[0]
    inputs = dict(zip(operands, step.invars, strict=True))
    if len(inputs) < len(operands) or not inputs.keys() <= set(body.invars):
        return None  # one of them is computed in each step, or there twice
    invars = [inputs.get(v) or ir.Var(v.aval) for v in body.invars]
    for v, binder in zip(invars, body.invars, strict=True):
        v.hint = binder.hint
    return Jaxpr(invars, step.eqns, (), body.name), body.invars.index(flag)


def until_set(step: Jaxpr, flag: int) -> Jaxpr:
    """The step as a branch that is taken as long as the Ref at the position `flag` holds False.

    step, until_set : [i, *consts, *refs] -> []
    """
    skip = trace.stage_closed(lambda *args: [], step.in_avals, "ended")

    def run(*args: Value) -> list[Value]:
        has_ended = prims.convert(args[flag][...], for_loop.INDEX.dtype)
        return trace.bind(cond.cond_p, has_ended, *args, params=cond.CondParams((step, skip)))

    return trace.stage_closed(run, step.in_avals, step.name, step.hints)


def until_all_are_set(step: Jaxpr, flags: int) -> Jaxpr:
    """The step of a batch until the flags of all lanes, in the Ref at the position `flags`, are set.

    step  : [i, *consts, *refs]       -> []
    given : [i, *consts, *refs, flag] -> []
    """

    def run(*args: Value) -> list[Value]:
        *given, flag = args
        transforms.eval_jaxpr(step, given)
        flag[...] = prims.reduce_and(given[flags][...])
        return []

    avals = [*step.in_avals, AbstractRef(predicate.PREDICATE)]
    until = trace.stage_closed(run, avals, step.name, [*step.hints, "all ended"])
    return until_set(until, len(step.in_avals))
