"""Carried arrays that a body only indexes and updates at indices become Refs.

`x = x.at[i].set(f(x[i - 1]))` is how arrays are updated where there are no Refs. Its derivative costs the whole array
in every step; that of a Ref which is read and written at the same places costs an element. The same holds where a
branch or a call updates the array, `cond(p, lambda x: x.at[i].set(0), lambda x: x, x)`: it is given the Ref.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.ir import indexer
from fiveloop.loops import names, record
from fiveloop.loops.analysis import accesses, array_life
from fiveloop.loops.analysis.accesses import Access, Made, access, is_entered, with_bodies
from fiveloop.loops.analysis.array_life import DONE, NO_ORDER, Life, Verdict
from fiveloop.loops.primitives.for_loop import by_operand, for_p, is_state
from fiveloop.loops.record import Decision, names_of
from fiveloop.state import AbstractRef, primitives

Refs = Mapping[ir.Var, ir.Var]
"""The Ref that takes the place of each constant."""


CONSTANTS = "constants"


def promote_constants(body: Jaxpr, num_consts: int, num_refs: int) -> tuple[Jaxpr, list[bool]]:
    """The body with its indexed constants as Refs behind the other Refs, and which constants those are.

    body     : [i, *consts, *refs, *rest]                 -> [*outs]
    promoted : [i, *consts kept, *refs, *promoted, *rest] -> [*outs]
    """
    i, *binders = body.invars
    consts, rest = binders[:num_consts], binders[num_consts:]
    made = ir.makers(body)
    refs = {v: ir.Var(AbstractRef(v.aval), v.hint) for v in consts}
    indexed = {v for eqn in body.eqns for v in _indexed(eqn, refs, made)}
    mask = [v in indexed for v in consts]
    if not any(mask):
        return body, mask
    refs = {v: refs[v] for v in consts if v in indexed}
    eqns = [new for eqn in body.eqns for new in _rewritten(eqn, refs, made)]
    outs = [_read_whole(atom, refs, eqns) for atom in body.outvars]
    kept = [v for v in consts if v not in refs]
    invars = [i, *kept, *rest[:num_refs], *refs.values(), *rest[num_refs:]]
    return Jaxpr(invars, eqns, outs, body.name), mask


def decisions(body: Jaxpr, promoted: Sequence[bool]) -> list[record.Decision]:
    """What became of each constant that is an array, and why, with the line that reads it at an index or first uses it.

    body : [i, *consts, *rest] -> [*outs], before any constant is promoted
    """
    consts = body.invars[1 : 1 + len(promoted)]
    made = ir.makers(body)
    refs = {v: ir.Var(AbstractRef(v.aval)) for v in consts}
    told = []
    for v, name, done in zip(consts, record.names_of(consts), promoted, strict=True):
        users = [e for e in body.eqns if v in (_indexed(e, refs, made) if done else e.invars)]
        source = users[0].source if users else None
        if v.aval.shape and name != names.COMPUTED:
            reason = _READ_AT_INDICES
            if not done:
                why = _used_otherwise(v, refs[v], users, made)
                reason, source = f"it stays a value: {why.why}", why.at or source
            told.append(record.Decision(CONSTANTS, name, done, reason, source))
    return told


def _used_otherwise(v: ir.Var, ref: ir.Var, users: ir.Eqns, made: Made) -> array_life.Verdict:
    """Why a constant stays a value; the first of its users says where, if it has no line."""
    for eqn in users:
        if is_entered(eqn):
            found = array_life.access_or_why(eqn, v, ref, made)
            if isinstance(found, array_life.Verdict):
                return found
        elif (
            eqn.primitive in accesses.access_rules
            and eqn.invars[0] is v
            and access(eqn, v, ref, made) is None
        ):
            return array_life.Verdict("it is indexed in a way that a Ref is not", eqn.source)
    return array_life.Verdict(_NOT_INDEXED, None)


_READ_AT_INDICES = "it is read at indices, so it is a Ref that nothing writes"
_NOT_INDEXED = "no step reads it at a traced index"


def _indexed(eqn: ir.Eqn, refs: Refs, made: Made) -> ir.Vars:
    """The constants that an equation reads at indices, or in an inner loop that does not change them."""
    if eqn.primitive is for_p:
        read = ir.vars_in_order(eqn.invars[k] for k in _read_states(eqn))
        return [v for v in read if v in refs]
    if is_entered(eqn):
        entered = [
            (v, _entered(eqn, v, refs[v], made)) for v in ir.vars_in_order(eqn.invars) if v in refs
        ]
        return [v for v, found in entered if found is not None and found.is_dynamic]
    found = _access(eqn, refs, made)
    return [
        v
        for v in ir.vars_in_order(eqn.invars)
        if v in refs and found is not None and found.is_dynamic
    ]


def _access(eqn: ir.Eqn, refs: Refs, made: Made) -> Access | None:
    """The reading of a constant at indices."""
    array = eqn.invars[0] if eqn.invars and eqn.primitive is not for_p else None
    if (
        not isinstance(array, ir.Var)
        or array not in refs
        or not refs.keys().isdisjoint(eqn.invars[1:])
    ):
        return None
    found = access(eqn, array, refs[array], made)
    return found if found is not None and not found.updated else None


def _entered(eqn: ir.Eqn, array: ir.Var, ref: ir.Var, made: Made) -> Access | None:
    """The reading of a constant at indices by branches or a call that do nothing else with it."""
    found = array_life.access_or_why(eqn, array, ref, made)
    return found if isinstance(found, Access) and not found.updated and not found.same else None


def _read_states(eqn: ir.Eqn) -> list[int]:
    """The states of an inner loop that it only reads."""
    changed = ir.mutated_positions(eqn.params.body.effects)
    states = is_state(eqn.params, eqn.invars)
    return [k for k, state in enumerate(states) if state and k + 1 not in changed]


def _rewritten(eqn: ir.Eqn, refs: Refs, made: Made) -> list[ir.Eqn]:
    if refs.keys().isdisjoint(eqn.invars):
        return [eqn]
    if eqn.primitive is for_p:
        return _inner_loop(eqn, refs)
    if is_entered(eqn):
        for v in [v for v in ir.vars_in_order(eqn.invars) if v in refs]:
            entered = _entered(eqn, v, refs[v], made)
            eqn = entered.instead[0] if entered is not None else eqn
        return _with_whole_reads(eqn, refs)
    found = _access(eqn, refs, made)
    return _with_whole_reads(eqn, refs) if found is None else found.instead


def _inner_loop(eqn: ir.Eqn, refs: Refs) -> list[ir.Eqn]:
    """An inner loop takes the Ref itself where it only reads; the corresponding result is a read of the Ref.

    It takes a Ref once, and its contents in any further place: updates of one Ref under two names would be lost.
    """
    reads = {eqn.invars[k]: k for k in reversed(_read_states(eqn))}
    before: list[ir.Eqn] = []
    after: list[ir.Eqn] = []
    operands: list[ir.Atom] = []
    outs = list(eqn.outvars[: eqn.params.num_carry])
    finals = by_operand(eqn.params, eqn.invars, eqn.outvars)
    for k, (atom, result) in enumerate(zip(eqn.invars, finals, strict=True)):
        if isinstance(atom, ir.Var) and atom in refs and reads.get(atom) == k:
            assert result is not None, "unreachable: a state has a result"
            operands.append(refs[atom])
            after.append(accesses.read_whole(refs[atom], result, eqn.source))
            continue
        operands.append(_read_whole(atom, refs, before))
        outs += [result] if result is not None else []
    return [*before, rules.new_eqn(for_p, operands, eqn.params, outs, eqn.source), *after]


def _with_whole_reads(eqn: ir.Eqn, refs: Refs) -> list[ir.Eqn]:
    reads: list[ir.Eqn] = []
    operands = [_read_whole(atom, refs, reads) for atom in eqn.invars]
    return [*reads, eqn.replace(invars=operands)]


def _read_whole(atom: ir.Atom, refs: Refs, reads: list[ir.Eqn]) -> ir.Atom:
    """What an operand is where constants are Refs; what a Ref holds is read in `reads`."""
    if not isinstance(atom, ir.Var) or atom not in refs:
        return atom
    reads.append(accesses.read_whole(refs[atom], ir.Var(atom.aval.strong())))
    return reads[-1].outvars[0]


PROMOTE = "promote"
UNSIZED = "it stays a value: its size is not known"


def promote(body: Jaxpr) -> tuple[Jaxpr, list[Decision]]:
    """The body with Refs that it reads and writes whole read and written at indices, where that is the same."""
    return _promoted(body, dict(zip(body.invars[1:], names_of(body.invars[1:]), strict=True)))


def _promoted(body: Jaxpr, names: Mapping[ir.Var, str]) -> tuple[Jaxpr, list[Decision]]:
    """The same for a body, or for what it chooses or calls; only Refs with a name are looked at."""
    told: list[Decision] = []
    uses = ir.users(body)
    for ref, name in names.items():
        whole = uses.get(ref, [])
        if isinstance(ref.aval, AbstractRef) and ref.aval.shape and _are_whole(whole, ref):
            changed, verdict = _with_indices(body, ref, *whole)
            uses, body = uses if changed is body else ir.users(changed), changed
            told.append(_decision(name, verdict, names))
        elif [eqn.primitive for eqn in whole] == [
            primitives.get_p,
            primitives.swap_p,
        ] and not _is_sized(ref):
            told.append(Decision(PROMOTE, name, False, UNSIZED, whole[0].source))
    body, inner = with_bodies(body, names, _promoted)
    return body, [*told, *inner]


def _decision(name: str, verdict: Verdict, names: Mapping[ir.Var, str]) -> Decision:
    """What is told of a Ref."""
    why = verdict.why
    if isinstance(verdict.given_to, ir.Var) and verdict.given_to in names:
        why = f"it is written whole to `{names[verdict.given_to]}`"
    reason = f"it stays a value: {why}" if why else DONE
    return Decision(PROMOTE, name, not why, reason, verdict.at)


def _with_indices(body: Jaxpr, ref: ir.Var, first: ir.Eqn, last: ir.Eqn) -> tuple[Jaxpr, Verdict]:
    """The body with a Ref, that these equations read and write whole, read and written at indices; or why not."""
    life = Life(ref, body, last)
    verdict = life.follow(first.outvars) or _why_not(life, last)
    if verdict is not None:
        return body, verdict
    eqns = life.eqns([first, last])
    if eqns is None:
        return body, Verdict(NO_ORDER, (life.read_too_late() or last).source)
    return Jaxpr(body.invars, eqns, body.outvars, body.name), Verdict("", first.source)


def _why_not(life: Life, ends: ir.Eqn) -> Verdict | None:
    """Why an array whose accesses are all known stays a value.

    An array that is only accessed at known indices does: XLA handles it well.
    """
    if ends.invars[1] not in life.last:
        return _not_handed_on(life, ends)
    if not life.is_dynamic:
        return Verdict("it is indexed at fixed places alone", ends.source)
    if life.names & ir.used_vars(life.jaxpr.outvars):
        return Verdict("the body returns it for something else, too", None)
    return None


def _not_handed_on(life: Life, ends: ir.Eqn) -> Verdict:
    """Why what the body hands on to the next step is not the array after all its updates."""
    made = ir.makers(life.jaxpr)
    out = ends.invars[1]
    if out in life.names:
        update = made[life.last[0]]
        return Verdict("the body updates it here, and returns an older version", update.source)
    maker = ir.maker(out, made)
    if maker is None:
        return Verdict("the body returns another array in its place", ends.source)
    if maker.primitive is primitives.get_p:
        return Verdict("the body returns another part of the carry in its place", ends.source)
    return Verdict(
        f"the body returns the result of `{maker.primitive}` in its place, which is no update of it",
        maker.source,
    )


def _are_whole(uses: ir.Eqns, ref: ir.Var) -> bool:
    """Whether a Ref is read whole, and then written whole, and that is all."""
    if [eqn.primitive for eqn in uses] != [primitives.get_p, primitives.swap_p]:
        return False
    whole = indexer.whole_indexer(ref.aval.shape)
    places = all(eqn.params.indexer == whole and eqn.invars[0] is ref for eqn in uses)
    return places and not uses[1].params.returns_old and _is_sized(ref)


def _is_sized(ref: ir.Var) -> bool:
    """Whether the sizes of what a Ref holds are known."""
    return all(isinstance(n, int) for n in ref.aval.shape)
