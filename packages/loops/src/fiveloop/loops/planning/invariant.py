"""What no iteration changes, reads of Refs that no step writes included: what of it is worth computing once.

That is done when a loop is traced, before any derivative: then the derivative of what is hoisted is taken once, too.
And in the pass, for what transforms have left in a body. An equation with an effect stays, and so does what costs less
than it takes to keep: what is cheap and grows (a broadcast), or what XLA works out where it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fiveloop.core import Jaxpr
from fiveloop.core.engine import (
    bytes_of,
    dot_general_p,
    equation_cost,
    is_constant,
    is_more,
    prune,
    used_vars,
    vars_in_order,
)
from fiveloop.core.extend import Eqn, Var, jaxprs_in, size_of
from fiveloop.loops.planning.record import Decision
from fiveloop.state.engine import get_p

STEP = "hoist"
LEAST_WORK = 16
"""Operations that a step saves, below which nothing is moved."""
DEAR = 8
"""Operations for each element of a result, from which on it is dear."""
MOST_GROWTH = 2
"""How much larger than what it is made from a result may be."""
SMALL = 1 << 20
"""Bytes that a result which is dear may take, whatever it is made from."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """What can go before a loop: equations in the body's variables, what the body uses of them, the rest of it."""

    eqns: list[Eqn]
    results: list[Var]
    rest: list[Eqn]
    told: list[Decision]


def invariant_part(body: Jaxpr, fixed: Collection[Var], refs: Collection[Var]) -> Invariant:
    """What is worth computing once, where no step changes `fixed` values and what `refs` hold."""
    movable = _movable(body, fixed, refs)
    results: list[Var] = []
    told: list[Decision] = []
    taken: set[int] = set()
    for v, users in _frontier(body, movable).items():
        chain = _chain(v, movable)
        why = _why_not(v, chain, users, refs)
        if why is None:
            continue
        told.append(_decision(v, chain, why))
        if not why:
            results.append(v)
            taken |= {id(eqn) for eqn in chain}
            for out in (out for eqn in chain for out in eqn.outvars):
                movable.pop(out, None)
    if not results:
        return Invariant([], [], list(body.eqns), told)
    eqns = [eqn for eqn in body.eqns if id(eqn) in taken]
    # What is cheap is computed in the body again where it is used there, too.
    gone = {id(eqn) for eqn in eqns if not set(results).isdisjoint(eqn.outvars)}
    rest = prune([eqn for eqn in body.eqns if id(eqn) not in gone], body.outvars)
    used = used_vars(a for e in rest for a in e.invars) | used_vars(body.outvars)
    results = [v for eqn in eqns if id(eqn) in gone for v in eqn.outvars if v in used]
    return Invariant(eqns, results, rest, told)


def _movable(body: Jaxpr, fixed: Collection[Var], refs: Collection[Var]) -> dict[Var, Eqn]:
    """The equations that give the same in all steps and do nothing else, by their results."""
    same, found = set(fixed), dict[Var, Eqn]()
    for eqn in body.eqns:
        operands = used_vars(eqn.invars)
        if eqn.primitive is get_p and eqn.invars[0] in refs:
            operands.discard(eqn.invars[0])
        elif eqn.effects or eqn.primitive.creates_state:
            continue
        if operands <= same:
            same |= set(eqn.outvars)
            found.update(dict.fromkeys(eqn.outvars, eqn))
    return found


def _frontier(body: Jaxpr, movable: Mapping[Var, Eqn]) -> dict[Var, list[Eqn]]:
    """The values made by equations that can move and used by those that cannot, with these."""
    found: dict[Var, list[Eqn]] = {}
    inside = {id(eqn) for eqn in movable.values()}
    for eqn in body.eqns:
        if id(eqn) not in inside:
            for v in used_vars(eqn.invars):
                if v in movable:
                    found.setdefault(v, []).append(eqn)
    for v in used_vars(body.outvars):
        if v in movable:
            found.setdefault(v, [])
    order = {v: k for k, v in enumerate(movable)}
    return dict(sorted(found.items(), key=lambda item: order[item[0]]))


def _chain(v: Var, movable: Mapping[Var, Eqn]) -> list[Eqn]:
    """The equations that a value is made by, the last first, all that these need included."""
    found: dict[int, Eqn] = {}
    waiting = [v]
    while waiting:
        eqn = movable.get(waiting.pop())
        if eqn is not None and id(eqn) not in found:
            found[id(eqn)] = eqn
            waiting += vars_in_order(eqn.invars)
    return list(found.values())


def _why_not(
    v: Var, chain: Sequence[Eqn], users: Sequence[Eqn], refs: Collection[Var]
) -> str | None:
    """Why a value stays in the body, if it does; None if it is not worth a word."""
    costs = [equation_cost(eqn) for eqn in chain]
    work, size = sum(c.flops for c in costs), size_of(v.aval.shape)
    if not is_constant(work) or not is_constant(size):
        return "its size is not known"
    if work < LEAST_WORK:
        return None
    is_dear = work >= DEAR * size
    if not is_dear and not any(e.primitive is dot_general_p or jaxprs_in(e.params) for e in users):
        return "it is cheap, and is worked out where it is used"
    made = {out for eqn in chain for out in eqn.outvars}
    given = {a for eqn in chain for a in used_vars(eqn.invars) if a not in made and a not in refs}
    read = [eqn.outvars[0] for eqn in chain if eqn.primitive is get_p]
    most = MOST_GROWTH * bytes_of(a.aval for a in [*given, *read])
    if is_more(bytes_of([v.aval]), max(most, SMALL) if is_dear else most):
        return "it would take more room than what it is made from"
    return ""


def _decision(v: Var, chain: Sequence[Eqn], why: str) -> Decision:
    made = chain[0]
    subject = f"{v.aval} of `{made.primitive}`"
    more = "operation" if len(chain) == 2 else f"{len(chain) - 1} operations"
    count = f", with the {more} before it" if len(chain) > 1 else ""
    reason = f"it stays in the loop: {why}" if why else f"it is computed once{count}"
    return Decision(STEP, subject, not why, reason, made.source)
