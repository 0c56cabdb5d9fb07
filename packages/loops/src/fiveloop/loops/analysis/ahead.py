"""Prefetching: slices of constants at the counter, which a loop can fetch from another memory one step ahead."""

from __future__ import annotations

from collections.abc import Collection

from fiveloop.core import Jaxpr, ir, prims, rules
from fiveloop.core.dataclass import dataclass

DEVICE = "device"


@dataclass(frozen=True)
class Ahead:
    """A body in two parts.

    fetch : [i, *consts]                      -> [*fetched]
    body  : [i, *consts, *carry, *fetched]    -> [*carry]
    """

    fetch: Jaxpr
    body: Jaxpr


def fetched_ahead(body: Jaxpr, num_consts: int) -> Ahead | None:
    """The body without its moves to the device of what the counter and constants alone decide; None if it has none.

    While a step computes, what the next step needs is on its way.

    body : [i, *consts, *carry] -> [*carry]
    """
    known = body.invars[: 1 + num_consts]
    eqns = [e for eqn in body.eqns for e in _moves_before_call(eqn)]
    fetched = _moved(eqns, known)
    if not fetched:
        return None
    fetch = body.replace(invars=known, eqns=ir.prune(eqns, fetched), outvars=fetched)
    return Ahead(fetch, _without(body.replace(eqns=eqns), fetched))


def _moved(eqns: Collection[ir.Eqn], known: Collection[ir.Var]) -> list[ir.Var]:
    """The values that are moved to the device and depend on nothing but what is known."""
    found = ir.invariant(eqns, known)
    moves = [e for e in eqns if e.primitive is prims.to_memory_p and e.params.memory == DEVICE]
    return [v for e in moves for v in e.outvars if v in found]


def _without(jaxpr: Jaxpr, fetched: Collection[ir.Var]) -> Jaxpr:
    """The jaxpr that is given some of its values: [*ins, *fetched] -> [*outs]."""
    rest = [eqn for eqn in jaxpr.eqns if set(fetched).isdisjoint(eqn.outvars)]
    eqns = ir.prune(rest, jaxpr.outvars)
    return jaxpr.replace(invars=[*jaxpr.invars, *fetched], eqns=eqns)


def _moves_before_call(eqn: ir.Eqn) -> list[ir.Eqn]:
    """An equation; the moves within a call, of what the call is given, come before the call."""
    bodies = rules.bodies_of(eqn)
    if len(bodies) != 1 or not bodies[0].plain or bodies[0].role == "loop":
        return [eqn]
    called = bodies[0].jaxpr
    called = called.replace(eqns=[e for inner in called.eqns for e in _moves_before_call(inner)])
    fetched = _moved(called.eqns, called.invars)
    if not fetched:
        return [eqn]
    outside: dict[ir.Var, ir.Atom] = dict(zip(called.invars, eqn.invars, strict=True))
    before = ir.copied_eqns(ir.prune(called.eqns, fetched), outside)
    rest = _without(called, fetched)
    used = ir.used_by(rest.eqns, rest.outvars)
    left = [v for v in rest.invars if v in used]
    params = ir.with_jaxprs(eqn.params, lambda _: rest.replace(invars=left))
    operands = [outside[v] for v in left]
    return [*before, rules.new_eqn(eqn.primitive, operands, params, eqn.outvars, eqn.source)]
