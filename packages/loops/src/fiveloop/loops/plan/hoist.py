"""Values that are the same in every step are computed once, before the loop: the rewriting of a loop in the pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from fiveloop.core import Jaxpr, ir, prims, rules, transforms
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops import names, record
from fiveloop.loops.primitives.for_loop import for_p, until_set, without_end
from fiveloop.state import AbstractRef, primitives

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

    eqns: list[ir.Eqn]
    results: list[ir.Var]
    rest: list[ir.Eqn]
    told: list[record.Decision]


def invariant_part(
    body: Jaxpr,
    num_consts: int,
    num_refs: int | None = None,
    stays: Callable[[ir.Eqn], bool] = lambda eqn: False,
) -> Invariant:
    """What is worth computing once, of the constants and of what Refs hold that no step changes: the first ones.

    Equations that have to stay are done in each step.

    body : [i, *consts, *refs, *rest] -> [*outs]
    """
    _, *binders = body.invars
    fixed = binders[:num_consts]
    refs = set(binders[num_consts:][:num_refs]) - ir.mutated(body)
    movable = _movable(body, fixed, refs, stays)
    results: list[ir.Var] = []
    told: list[record.Decision] = []
    taken: set[int] = set()
    for v, users in _frontier(body, movable).items():
        chain = ir.making([v], movable)
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
    rest = ir.prune([eqn for eqn in body.eqns if id(eqn) not in gone], body.outvars)
    used = ir.used_by(rest, body.outvars)
    results = [v for eqn in eqns if id(eqn) in gone for v in eqn.outvars if v in used]
    for v in results:
        v.hint = names.COMPUTED
    return Invariant(eqns, results, rest, told)


def _movable(
    body: Jaxpr,
    fixed: Collection[ir.Var],
    refs: Collection[ir.Var],
    stays: Callable[[ir.Eqn], bool],
) -> dict[ir.Var, ir.Eqn]:
    """The equations that give the same in all steps and do nothing else, by their results."""
    same, found = set(fixed), dict[ir.Var, ir.Eqn]()
    for eqn in body.eqns:
        operands = ir.used_vars(eqn.invars)
        if eqn.primitive is primitives.get_p and eqn.invars[0] in refs:
            operands.discard(eqn.invars[0])
        elif eqn.effects or eqn.primitive.creates_state:
            continue
        if operands <= same and not stays(eqn):
            same |= set(eqn.outvars)
            found.update(dict.fromkeys(eqn.outvars, eqn))
    return found


def _frontier(body: Jaxpr, movable: Mapping[ir.Var, ir.Eqn]) -> dict[ir.Var, list[ir.Eqn]]:
    """The values made by equations that can move and used by those that cannot, with these."""
    inside, outs, uses = set(movable.values()), set(body.outvars), ir.users(body)
    found = {v: [eqn for eqn in uses.get(v, ()) if eqn not in inside] for v in movable}
    return {v: left for v, left in found.items() if left or v in outs}


def _why_not(v: ir.Var, chain: ir.Eqns, users: ir.Eqns, refs: Collection[ir.Var]) -> str | None:
    """Why a value stays in the body, if it does; None if it is not worth a word."""
    costs = [transforms.equation_cost(eqn) for eqn in chain]
    work, size = sum(c.flops for c in costs), ir.size_of(v.aval.shape)
    if not ir.is_constant(work) or not ir.is_constant(size):
        return "its size is not known"
    if work < LEAST_WORK:
        return None
    is_dear = work >= DEAR * size
    if not is_dear and not any(
        e.primitive is prims.dot_general_p or ir.jaxprs_in(e.params) for e in users
    ):
        return "it is cheap, and is computed where it is used"
    made = {out for eqn in chain for out in eqn.outvars}
    given = {a for a in ir.used_by(chain) if a not in made and a not in refs}
    read = [eqn.outvars[0] for eqn in chain if eqn.primitive is primitives.get_p]
    most = MOST_GROWTH * prims.bytes_of(a.aval for a in [*given, *read])
    if ir.is_more(prims.bytes_of([v.aval]), max(most, SMALL) if is_dear else most):
        return "it would take more memory than its operands"
    return ""


def _decision(v: ir.Var, chain: ir.Eqns, why: str) -> record.Decision:
    made = chain[0]
    subject = f"{v.aval} of `{made.primitive}`"
    more = "operation" if len(chain) == 2 else f"{len(chain) - 1} operations"
    count = f", with the {more} before it" if len(chain) > 1 else ""
    reason = f"it stays in the loop: {why}" if why else f"it is computed once{count}"
    return record.Decision(STEP, subject, not why, reason, made.source)


def hoist(eqn: ir.Eqn) -> record.Planned:
    """A loop, and before it what none of its steps changes, those of a loop that may end early included."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return record.Planned(eqn)
    ends = without_end(p.body)
    if ends is None:
        return _hoist(eqn)
    step, flag = ends
    done = _hoist(eqn.replace(params=replace(p, body=step)))
    if not done.before:
        return record.Planned(eqn, told=done.told)
    new = done.loop.params
    params = replace(new, body=until_set(new.body, flag + new.num_consts - p.num_consts))
    loop = rules.new_eqn(for_p, done.loop.invars, params, eqn.outvars, eqn.source)
    return replace(done, loop=loop)


def _hoist(eqn: ir.Eqn) -> record.Planned:
    p = eqn.params
    binders = p.body.invars[1:]
    found = invariant_part(p.body, p.num_consts)
    if not found.results:
        return record.Planned(eqn, told=found.told)
    outside: dict[ir.Var, ir.Atom] = dict(zip(binders, eqn.invars, strict=True))
    before = _as_refs(found.eqns, outside)
    before += ir.copied_eqns(found.eqns, outside)
    first, num = p.num_consts, len(found.results)
    invars = [p.body.invars[0], *binders[:first], *found.results, *binders[first:]]
    body = Jaxpr(invars, found.rest, p.body.outvars, p.body.name)
    params = replace(p, body=body, num_consts=first + num)
    operands = [*eqn.invars[:first], *[outside[v] for v in found.results], *eqn.invars[first:]]
    loop = rules.new_eqn(for_p, operands, params, eqn.outvars, eqn.source)
    return record.Planned(loop, before, told=found.told)


def _as_refs(eqns: ir.Eqns, outside: dict[ir.Var, ir.Atom]) -> list[ir.Eqn]:
    """Refs outside of the loop for the states that some equations read; they stand for these from now on."""
    made: list[ir.Eqn] = []
    for ref in dict.fromkeys(e.invars[0] for e in eqns if e.primitive is primitives.get_p):
        assert isinstance(ref, ir.Var), "unreachable: a Ref is a variable"
        if not isinstance(outside[ref].aval, AbstractRef):
            made.append(
                rules.new_eqn(primitives.new_ref_p, [outside[ref]], primitives.NewRefParams())
            )
            outside[ref] = made[-1].outvars[0]
    return made
