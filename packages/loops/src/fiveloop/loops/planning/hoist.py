"""What no iteration changes is computed once, before the loop: the rewriting of a loop in the pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr
from fiveloop.core.extend import Atom, Eqn, Var, mutated_positions, new_eqn
from fiveloop.loops.for_loop.early_end import until_set, without_end
from fiveloop.loops.for_loop.primitive import for_p
from fiveloop.loops.planning.invariant import invariant_part
from fiveloop.loops.planning.record import Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import NewRefParams, get_p, new_ref_p


def hoist(eqn: Eqn) -> Planned:
    """A loop, and before it what none of its steps changes, those of a loop that may end early included."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return Planned(eqn)
    ends = without_end(p.body)
    if ends is None:
        return _hoist(eqn)
    step, flag = ends
    done = _hoist(eqn.replace(params=replace(p, body=step)))
    if not done.before:
        return Planned(eqn, told=done.told)
    new = done.loop.params
    params = replace(new, body=until_set(new.body, flag + new.num_consts - p.num_consts))
    loop = new_eqn(for_p, done.loop.invars, params, eqn.outvars, eqn.source)
    return replace(done, loop=loop)


def _hoist(eqn: Eqn) -> Planned:
    p = eqn.params
    binders, changed = p.body.invars[1:], mutated_positions(p.body.effects)
    refs = [v for k, v in enumerate(binders) if k >= p.num_consts and k + 1 not in changed]
    found = invariant_part(p.body, binders[: p.num_consts], refs)
    if not found.results:
        return Planned(eqn, told=found.told)
    outside: dict[Var, Atom] = dict(zip(binders, eqn.invars, strict=True))
    before = _as_refs(found.eqns, outside)
    before += [renamed(e, outside) for e in found.eqns]
    first, num = p.num_consts, len(found.results)
    invars = [p.body.invars[0], *binders[:first], *found.results, *binders[first:]]
    body = Jaxpr(invars, found.rest, p.body.outvars, p.body.name)
    params = replace(p, body=body, num_consts=first + num)
    operands = [*eqn.invars[:first], *[outside[v] for v in found.results], *eqn.invars[first:]]
    loop = new_eqn(for_p, operands, params, eqn.outvars, eqn.source)
    return Planned(loop, before, told=found.told)


def _as_refs(eqns: Sequence[Eqn], outside: dict[Var, Atom]) -> list[Eqn]:
    """Refs outside of the loop for the states that some equations read; they stand for these from now on."""
    made: list[Eqn] = []
    for ref in dict.fromkeys(e.invars[0] for e in eqns if e.primitive is get_p):
        assert isinstance(ref, Var), "unreachable: a Ref is a variable"
        if not isinstance(outside[ref].aval, AbstractRef):
            made.append(new_eqn(new_ref_p, [outside[ref]], NewRefParams()))
            outside[ref] = made[-1].outvars[0]
    return made


def renamed(eqn: Eqn, outside: dict[Var, Atom]) -> Eqn:
    """An equation in the variables outside of the loop, where its results get theirs."""
    outs = [Var(v.aval) for v in eqn.outvars]
    invars = tuple(outside[a] if isinstance(a, Var) else a for a in eqn.invars)
    outside.update(zip(eqn.outvars, outs, strict=True))
    return eqn.replace(invars=invars, outvars=tuple(outs))
