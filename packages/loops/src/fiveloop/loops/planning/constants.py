"""Constants of a body that are read at indices become Refs that nothing writes.

A constant's cotangent is an array as large as it in every step; a Ref's is one element for each element read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fiveloop.core import Jaxpr
from fiveloop.core.engine import vars_in_order, whole_indexer
from fiveloop.core.extend import Atom, Eqn, Var, mutated_positions, new_eqn
from fiveloop.loops.for_loop.primitive import for_p, is_state
from fiveloop.loops.planning.array_access import INDEXED, Access, Made, access
from fiveloop.loops.planning.array_life import Verdict, access_or_why
from fiveloop.loops.planning.entered import is_entered
from fiveloop.loops.planning.names import COMPUTED
from fiveloop.loops.planning.record import Decision
from fiveloop.state import AbstractRef
from fiveloop.state.engine import IndexParams, get_p

Refs = Mapping[Var, Var]
"""The Ref that takes the place of each constant."""


STEP = "constants"


def promote_constants(body: Jaxpr, num_consts: int, num_refs: int) -> tuple[Jaxpr, list[bool]]:
    """The body with its indexed constants as Refs behind the other Refs, and which constants those are.

    body     : [i, *consts, *refs, *rest]                 -> [*outs]
    promoted : [i, *consts kept, *refs, *promoted, *rest] -> [*outs]
    """
    i, *binders = body.invars
    consts, rest = binders[:num_consts], binders[num_consts:]
    made = {v: eqn for eqn in body.eqns for v in eqn.outvars}
    refs = {v: Var(AbstractRef(v.aval)) for v in consts}
    indexed = {v for eqn in body.eqns for v in _indexed(eqn, refs, made)}
    mask = [v in indexed for v in consts]
    if not any(mask):
        return body, mask
    refs = {v: refs[v] for v in consts if v in indexed}
    eqns = [new for eqn in body.eqns for new in _rewritten(eqn, refs, made)]
    outs: list[Atom] = []
    for atom in body.outvars:
        eqn, atom = _read_whole(atom, refs)
        eqns += eqn
        outs.append(atom)
    kept = [v for v in consts if v not in refs]
    invars = [i, *kept, *rest[:num_refs], *refs.values(), *rest[num_refs:]]
    return Jaxpr(invars, eqns, outs, body.name), mask


def decisions(body: Jaxpr, names: Sequence[str], promoted: Sequence[bool]) -> list[Decision]:
    """What became of each constant that is an array, and why, with the line that reads it at an index or first uses it.

    body : [i, *consts, *rest] -> [*outs], before any constant is promoted
    """
    consts = body.invars[1 : 1 + len(promoted)]
    made = {v: eqn for eqn in body.eqns for v in eqn.outvars}
    refs = {v: Var(AbstractRef(v.aval)) for v in consts}
    told = []
    for v, name, done in zip(consts, names, promoted, strict=True):
        users = [e for e in body.eqns if v in (_indexed(e, refs, made) if done else e.invars)]
        source = users[0].source if users else None
        if v.aval.shape and name != COMPUTED:
            reason = _READ_AT_INDICES
            if not done:
                why = _used_otherwise(v, refs[v], users, made)
                reason, source = f"it stays a value: {why.why}", why.at or source
            told.append(Decision(STEP, name, done, reason, source))
    return told


def _used_otherwise(v: Var, ref: Var, users: Sequence[Eqn], made: Made) -> Verdict:
    """Why a constant stays a value; the first of its users says where, if it has no line."""
    for eqn in users:
        if is_entered(eqn):
            found = access_or_why(eqn, v, ref, made)
            if isinstance(found, Verdict):
                return found
        elif eqn.primitive in INDEXED and eqn.invars[0] is v and access(eqn, v, ref, made) is None:
            return Verdict("it is indexed in a way that a Ref is not", eqn.source)
    return Verdict(_NOT_INDEXED, None)


_READ_AT_INDICES = "it is read at indices, so it is a Ref that nothing writes"
_NOT_INDEXED = "no step reads it at a traced index"


def _indexed(eqn: Eqn, refs: Refs, made: Made) -> Sequence[Var]:
    """The constants that an equation reads at indices, or in an inner loop that does not change them."""
    if eqn.primitive is for_p:
        read = vars_in_order(eqn.invars[k] for k in _read_states(eqn))
        return [v for v in read if v in refs]
    if is_entered(eqn):
        entered = [
            (v, _entered(eqn, v, refs[v], made)) for v in vars_in_order(eqn.invars) if v in refs
        ]
        return [v for v, found in entered if found is not None and found.is_dynamic]
    found = _access(eqn, refs, made)
    return [
        v for v in vars_in_order(eqn.invars) if v in refs and found is not None and found.is_dynamic
    ]


def _access(eqn: Eqn, refs: Refs, made: Made) -> Access | None:
    """The reading of a constant at indices."""
    array = eqn.invars[0] if eqn.invars and eqn.primitive is not for_p else None
    if (
        not isinstance(array, Var)
        or array not in refs
        or not refs.keys().isdisjoint(eqn.invars[1:])
    ):
        return None
    found = access(eqn, array, refs[array], made)
    return found if found is not None and not found.updated else None


def _entered(eqn: Eqn, array: Var, ref: Var, made: Made) -> Access | None:
    """The reading of a constant at indices by branches or a call that do nothing else with it."""
    found = access_or_why(eqn, array, ref, made)
    return found if isinstance(found, Access) and not found.updated and not found.same else None


def _read_states(eqn: Eqn) -> list[int]:
    """The states of an inner loop that it only reads."""
    changed = mutated_positions(eqn.params.body.effects)
    states = is_state(eqn.params, [a.aval for a in eqn.invars])
    return [k for k, state in enumerate(states) if state and k + 1 not in changed]


def _rewritten(eqn: Eqn, refs: Refs, made: Made) -> list[Eqn]:
    if not any(a in refs for a in eqn.invars if isinstance(a, Var)):
        return [eqn]
    if eqn.primitive is for_p:
        return _inner_loop(eqn, refs)
    if is_entered(eqn):
        for v in dict.fromkeys(a for a in eqn.invars if isinstance(a, Var) and a in refs):
            entered = _entered(eqn, v, refs[v], made)
            eqn = entered.instead[0] if entered is not None else eqn
        return _with_whole_reads(eqn, refs)
    found = _access(eqn, refs, made)
    return _with_whole_reads(eqn, refs) if found is None else found.instead


def _inner_loop(eqn: Eqn, refs: Refs) -> list[Eqn]:
    """An inner loop takes the Ref itself where it only reads; its result there is what the Ref holds.

    It takes a Ref once: in another place it takes what the Ref holds, for what is gathered in two Refs that are one
    would be lost.
    """
    reads = {eqn.invars[k]: k for k in reversed(_read_states(eqn))}
    before: list[Eqn] = []
    after: list[Eqn] = []
    operands: list[Atom] = []
    outs: list[Var] = []
    results = iter(eqn.outvars)
    states = is_state(eqn.params, [a.aval for a in eqn.invars])
    for _ in range(eqn.params.num_carry):
        outs.append(next(results))
    for k, (atom, state) in enumerate(zip(eqn.invars, states, strict=True)):
        result = next(results) if state else None
        if isinstance(atom, Var) and atom in refs and reads.get(atom) == k:
            assert result is not None, "unreachable: a state has a result"
            operands.append(refs[atom])
            after.append(_whole(refs[atom], result, eqn))
            continue
        eqns, operand = _read_whole(atom, refs)
        before += eqns
        operands.append(operand)
        outs += [result] if result is not None else []
    return [*before, new_eqn(for_p, operands, eqn.params, outs, eqn.source), *after]


def _with_whole_reads(eqn: Eqn, refs: Refs) -> list[Eqn]:
    reads: list[Eqn] = []
    operands: list[Atom] = []
    for atom in eqn.invars:
        eqns, operand = _read_whole(atom, refs)
        reads += eqns
        operands.append(operand)
    return [*reads, eqn.replace(invars=tuple(operands))]


def _read_whole(atom: Atom, refs: Refs) -> tuple[list[Eqn], Atom]:
    if not isinstance(atom, Var) or atom not in refs:
        return [], atom
    out = Var(atom.aval.strong())
    return [_whole(refs[atom], out, None)], out


def _whole(ref: Var, out: Var, eqn: Eqn | None) -> Eqn:
    source = eqn.source if eqn is not None else None
    return new_eqn(get_p, [ref], IndexParams(whole_indexer(ref.aval.shape)), [out], source)
