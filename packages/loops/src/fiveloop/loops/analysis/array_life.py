"""The versions of an array in a body, through branches and calls, and the use of a Ref that replaces each use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from fiveloop.core import Jaxpr, ir, prims, rules, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.loops.analysis import accesses
from fiveloop.loops.primitives.cond import cond_p
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.loops.record import Decision
from fiveloop.state import AbstractRef, primitives


class Verdict(NamedTuple):
    """Why an array stays a value, and where; nothing if it does not. `given_to` is a Ref that it is written to."""

    why: str
    at: ir.Source | None
    given_to: ir.Atom | None = None


def access_or_why(
    eqn: ir.Eqn, array: ir.Var, ref: ir.Var, made: accesses.Made
) -> accesses.Access | Verdict:
    """What an equation, a branch or a call does with an array, on a Ref that holds it; or why there is no way."""
    if accesses.is_entered(eqn):
        return _enter(eqn, array, ref)
    if eqn.primitive is while_p and (k := _carried(eqn, array)) is not None:
        return _while(eqn, k, ref)
    found = accesses.access(eqn, array, ref, made)
    if found is not None:
        return found
    if eqn.primitive is primitives.swap_p:
        return Verdict("it is written whole to a Ref", eqn.source, eqn.invars[0])
    return Verdict(f"`{eqn.primitive}` uses it whole", eqn.source)


@dataclass(slots=True)
class Life:
    """The replacement of each equation on an array, version by version, in one body.

    `ends` is the equation that writes the last version whole, which stays; a branch or a call has no such equation.
    `names` are the names of all versions, `last` the names of the last version.
    If `going` says which lanes of a loop go on, only those are updated: the loop chooses so at the end of a step.
    """

    ref: ir.Var
    jaxpr: Jaxpr
    ends: ir.Eqn | None = None
    names: set[ir.Var] = field(default_factory=set)
    last: list[ir.Var] = field(default_factory=list)
    is_dynamic: bool = False
    is_updated: bool = False
    going: ir.Var | None = None
    _replaced: dict[int, list[ir.Eqn]] = field(default_factory=dict)
    _before: list[tuple[ir.Eqn, ir.Eqn]] = field(default_factory=list)

    def follow(self, version: ir.Vars) -> Verdict | None:
        """Go on until nothing updates it; a reason if it is not only read at indices, and updated once a version."""
        uses = ir.users(self.jaxpr)
        made = ir.makers(self.jaxpr)
        while version:
            found = self._version(version, uses, made)
            if isinstance(found, Verdict):
                return found
            updates = [a for a in found if a.updated]
            if self.going is not None and not all(mask(a, self.going) for a in updates):
                return Verdict("lanes that have ended are left out", updates[0].eqn.source)
            if len(updates) > 1:
                return Verdict(_updated_twice(updates), updates[1].eqn.source)
            self.is_dynamic |= any(a.is_dynamic for a in found)
            self.is_updated |= bool(updates)
            version = updates[0].updated if updates else ()
            self._before += [
                (a.eqn, updates[0].eqn) for a in found if updates and a is not updates[0]
            ]
        return None

    def _version(
        self, version: ir.Vars, uses: Mapping[ir.Var, ir.Eqns], made: accesses.Made
    ) -> list[accesses.Access] | Verdict:
        """All accesses to one version, under all of its names; a reason if something else is done with it."""
        self.last, found = list(version), list[accesses.Access]()
        for name in self.last:
            self.names.add(name)
            for eqn in uses.get(name, ()):
                if eqn is self.ends:
                    continue
                if self.going is not None and eqn.primitive is prims.select_p:
                    if chooses(eqn, self.going, made) and name in eqn.invars[1:]:
                        self._replaced[id(eqn)] = []
                        self.last += eqn.outvars if name is eqn.invars[1] else []
                        continue
                here = access_or_why(eqn, name, self.ref, made)
                if isinstance(here, Verdict):
                    return here
                if id(eqn) in self._replaced:
                    return Verdict(f"`{eqn.primitive}` is given it twice", eqn.source)
                self._replaced[id(eqn)] = here.instead
                found.append(here)
                self.last += here.same
        return found

    def eqns(self, gone: ir.Eqns = ()) -> list[ir.Eqn] | None:
        """The equations on the Ref, without those that are `gone`; None if there is no order for them."""
        eqns = in_order(self.jaxpr.eqns, self._before)
        if eqns is None:
            return None
        self._replaced.update((id(eqn), []) for eqn in gone)
        return [e for eqn in eqns for e in self._replaced.get(id(eqn), [eqn])]

    def read_too_late(self) -> ir.Eqn | None:
        """A read of an old version that needs what comes after its update; None if none does by itself."""
        made = ir.makers(self.jaxpr)
        late = (read for read, update in self._before if update in ir.making(read.invars, made))
        return next(late, None)


def _updated_twice(updates: Sequence[accesses.Access]) -> str:
    """The reason given for a version that two equations update."""
    first = updates[0].eqn.source
    other = f"another update, on line {first.line}" if first is not None else "another update"
    return f"this updates the same version of it as {other}: update the result of that one"


DONE = "it is only indexed and updated at indices, so it runs as a Ref"
NO_ORDER = "this reads the version before an update that it depends on: read the updated one"


def _enter(eqn: ir.Eqn, array: ir.Var, ref: ir.Var) -> accesses.Access | Verdict:
    """An access by the bodies of an equation, each of which gives its last version wherever one gives a version."""
    if eqn.primitive is cond_p and eqn.params.vmap == "group" and not eqn.effects:
        return Verdict('`cond(vmap="group")` takes no Refs', eqn.source)
    bodies = ir.jaxprs_in(eqn.params)
    keep = [a is not array for a in eqn.invars]
    first = len(keep) - len(bodies[0].invars)
    if not all(keep[:first]):
        return Verdict(f"`{eqn.primitive}` chooses by it", eqn.source)
    kept = keep[first:]
    lives = [Life(ir.Var(ref.aval), body) for body in bodies]
    for life in lives:
        verdict = life.follow(util.partition(kept, life.jaxpr.invars)[0])
        if verdict is not None:
            return verdict
    gives = [
        any(life.jaxpr.outvars[r] in life.names for life in lives) for r in range(len(eqn.outvars))
    ]
    why = _why_not(eqn, lives, gives)
    found = [_on_ref(life, kept, gives) for life in lives]
    changed = [body for body in found if body is not None]
    if why or len(changed) < len(found):
        late = next((read for life in lives if (read := life.read_too_late())), eqn)
        return Verdict(why, eqn.source) if why else Verdict(NO_ORDER, late.source)
    rest = iter(changed)
    params = ir.with_jaxprs(eqn.params, lambda _: next(rest))
    others, versions = util.partition(gives, eqn.outvars)
    new = rules.new_eqn(
        eqn.primitive, [*util.select_by(keep, eqn.invars), ref], params, others, eqn.source
    )
    is_dynamic = any(life.is_dynamic for life in lives)
    if any(life.is_updated for life in lives):
        # Whether a branch updates it is known at run time alone, too.
        return accesses.Access(eqn, [new], is_dynamic or len(lives) > 1, versions)
    return accesses.Access(eqn, [new], is_dynamic, same=versions)


def _why_not(eqn: ir.Eqn, lives: Sequence[Life], gives: Sequence[bool]) -> str:
    """Why the bodies do not leave one array behind, if they do not; `gives` are the results that are versions."""
    for life in lives:
        for out in util.select_by(gives, life.jaxpr.outvars):
            if out not in life.names:
                return f"a branch of `{eqn.primitive}` returns another array in its place"
            if out not in life.last:
                return f"a branch of `{eqn.primitive}` updates it, and returns a version from before that"
        if life.is_updated and not any(gives):
            return f"a branch of `{eqn.primitive}` updates it, and does not return it"
    return ""


def _on_ref(life: Life, kept: Sequence[bool], gives: Sequence[bool]) -> Jaxpr | None:
    """A body that takes a Ref behind its other inputs, and does not give what it holds.

    body    : [*ins]            -> [*outs]
    changed : [*ins kept, ref]  -> [*outs that are no versions]
    """
    eqns, body = life.eqns(), life.jaxpr
    if eqns is None:
        return None
    invars = [*util.select_by(kept, body.invars), life.ref]
    return Jaxpr(invars, eqns, util.partition(gives, body.outvars)[0], body.name)


def _carried(eqn: ir.Eqn, array: ir.Var) -> int | None:
    """The number of the carried value of a `while` that an array is; None if it is anything else, too."""
    p = eqn.params
    places = [k for k, a in enumerate(eqn.invars) if a is array]
    first = places[0] - p.num_consts
    return first if len(places) == 1 and 0 <= first < p.num_carry else None


def _while(eqn: ir.Eqn, k: int, ref: ir.Var) -> accesses.Access | Verdict:
    """An access by a `while` that carries the array as value `k`: it takes the Ref instead."""
    loop = _carried_in(ref, eqn, k)
    if loop is None:
        return Verdict("`while` uses it whole", eqn.source)
    return accesses.Access(eqn, [loop], True, [eqn.outvars[k]])


def _carried_in(ref: ir.Var, eqn: ir.Eqn, k: int) -> ir.Eqn | None:
    """A `while` that has its carried value `k` in a Ref, its last operand; None if its body does more than index it.

    p.cond, p.body : [*consts, *carry, *refs]
    cond, body     : [*consts, *carry but k, *refs, ref]
    """
    p: WhileParams = eqn.params
    at = p.num_consts + k
    array, out = p.body.invars[at], p.body.outvars[k]
    if (
        not p.promote
        or not array.aval.shape
        or not all(isinstance(n, int) for n in array.aval.shape)
    ):
        return None
    life = Life(ir.Var(AbstractRef(array.aval), array.hint), p.body, going=going_on(p))
    outvars = [*p.body.outvars[:k], *p.body.outvars[k + 1 :]]
    stays = life.follow([array]) is not None or out not in life.last
    if stays or not (life.is_dynamic and life.is_updated) or life.names & ir.used_vars(outvars):
        return None
    eqns, asked = life.eqns(), ir.Var(life.ref.aval)
    if eqns is None:
        return None
    ins, given = ([*j.invars[:at], *j.invars[at + 1 :]] for j in (p.body, p.cond))
    cond = Jaxpr([*given, asked], _asking(p.cond, at, asked), p.cond.outvars, p.cond.name)
    body = Jaxpr([*ins, life.ref], eqns, outvars, p.body.name)
    told = [Decision("promote", p.names[at], True, DONE)] if p.record.tells else []
    params = replace(p, cond=cond, body=body, record=p.record.with_decisions(told))
    invars = [*eqn.invars[:at], *eqn.invars[at + 1 :], ref]
    left = [*eqn.outvars[:k], *eqn.outvars[k + 1 :]]
    return rules.new_eqn(while_p, invars, params, left, eqn.source)


def promote_carried(eqn: ir.Eqn) -> list[ir.Eqn]:
    """A `while` with Refs for carried arrays that its body only indexes, and the equations that make and read them."""
    before: list[ir.Eqn] = []
    after: list[ir.Eqn] = []
    for k in reversed(range(eqn.params.num_carry)):
        at, out = eqn.params.num_consts + k, eqn.outvars[k]
        ref = ir.Var(AbstractRef(out.aval))
        loop = _carried_in(ref, eqn, k) if eqn.invars[at].aval is out.aval else None
        if loop is not None:
            held = primitives.NewRefParams()
            before.append(
                rules.new_eqn(primitives.new_ref_p, [eqn.invars[at]], held, [ref], eqn.source)
            )
            after.append(rules.new_eqn(primitives.freeze_p, [ref], ir.NO_PARAMS, [out], eqn.source))
            eqn = loop
    return [*before, eqn, *after]


def _asking(cond: Jaxpr, at: int, ref: ir.Var) -> ir.Eqns:
    """The equations of a condition on a Ref in the place of an input, which it reads whole if it does not index it."""
    array = cond.invars[at]
    life = Life(ref, cond)
    if life.follow([array]) is None and not life.is_updated and array not in cond.outvars:
        return life.eqns() or ()
    return [accesses.read_whole(ref, array), *cond.eqns]


def in_order(eqns: ir.Eqns, before: Sequence[tuple[ir.Eqn, ir.Eqn]]) -> list[ir.Eqn] | None:
    """The equations with the first of each pair before the second, otherwise as they were; None if that cannot be.

    Equations with effects keep their order.
    """
    number = {id(eqn): k for k, eqn in enumerate(eqns)}
    made = {v: k for k, eqn in enumerate(eqns) for v in eqn.outvars}
    after: dict[int, set[int]] = {k: set() for k in range(len(eqns))}
    waits: dict[int, set[int]] = {k: set() for k in range(len(eqns))}
    ordered = [k for k, eqn in enumerate(eqns) if eqn.effects]
    edges = [
        (made[v], k) for k, eqn in enumerate(eqns) for v in ir.used_vars(eqn.invars) if v in made
    ]
    edges += pairwise(ordered)
    edges += [(number[id(first)], number[id(second)]) for first, second in before]
    for first, second in edges:
        after[first].add(second)
        waits[second].add(first)
    ready = [k for k, others in waits.items() if not others]
    out: list[ir.Eqn] = []
    while ready:
        k = heappop(ready)
        out.append(eqns[k])
        for later in after[k]:
            waits[later].discard(k)
            if not waits[later]:
                heappush(ready, later)
    return out if len(out) == len(eqns) else None


def going_on(p: WhileParams) -> ir.Var | None:
    """The carried value that says which lanes go on, where a step leaves all else of the others as it was."""
    made = ir.makers(p.body)
    carry = p.body.invars[p.num_consts : p.first_ref]
    pairs = [pair for pair in zip(carry, p.body.outvars, strict=True) if pair[0] is not pair[1]]
    writes = [eqn for eqn in p.body.eqns if ir.mutated_positions(eqn.effects)]
    for going, out in pairs:
        test = ir.maker(out, made, prims.bitwise_and_p)
        if test is not None and going in test.invars:
            others = [pair for pair in pairs if pair[0] is not going]
            undone = all(_keeps(new, going, made) is old for old, new in others)
            if undone and all(_writes_back(eqn, going, made) for eqn in writes):
                return going
    return None


def _keeps(x: ir.Atom, going: ir.Var, made: accesses.Made) -> ir.Atom | None:
    """What a value is for lanes that have ended, if it is chosen by which lanes go on."""
    eqn = ir.maker(x, made)
    return eqn.invars[2] if eqn is not None and chooses(eqn, going, made) else None


def _writes_back(write: ir.Eqn, going: ir.Var, made: accesses.Made) -> bool:
    """Whether a write puts back what is there for lanes that have ended."""
    if write.primitive is not primitives.swap_p:
        return False
    kept = _keeps(write.invars[1], going, made)
    read = None if kept is None else ir.maker(kept, made, primitives.get_p)
    if read is None or list(read.invars) != [write.invars[0], *write.invars[2:]]:
        return False
    same: bool = read.params.indexer == write.params.indexer
    return same


def chooses(eqn: ir.Eqn, going: ir.Var, made: accesses.Made) -> bool:
    """Whether an equation chooses between its second and its third operand by which lanes go on."""
    if eqn.primitive is not prims.select_p:
        return False
    spread = ir.maker(eqn.invars[0], made, prims.broadcast_in_dim_p)
    if spread is not None:
        lanes = tuple(range(going.aval.ndim))
        return spread.invars[0] is going and spread.params.dims == lanes
    return eqn.invars[0] is going


def mask(update: accesses.Access, going: ir.Var) -> bool:
    """Let an update write what is there for each lane that has ended; False if it is no plain write, one lane a row."""
    *before, write = update.instead
    lanes = range(going.aval.ndim)
    ref, x, *index = write.invars
    if write.primitive is not primitives.swap_p or x.aval.shape[: len(lanes)] != going.aval.shape:
        return False
    rows = write.params.indexer.labels()[: len(lanes)]
    if rows != [("lead", k) for k in lanes] and rows != [("span", k) for k in lanes]:
        return False
    old, new = ir.Var(x.aval), ir.Var(x.aval)
    each = ir.Var(ir.ShapedArray(x.aval.shape, going.aval.dtype))
    spread = prims.BroadcastParams(x.aval.shape, tuple(lanes))
    update.instead[:] = [
        *before,
        accesses.read_at(ref, write.params.indexer, index, [old], write.source),
        rules.new_eqn(prims.broadcast_in_dim_p, [going], spread, [each], write.source),
        rules.new_eqn(prims.select_p, [each, x, old], None, [new], write.source),
        rules.new_eqn(primitives.swap_p, [ref, new, *index], write.params, (), write.source),
    ]
    return True
