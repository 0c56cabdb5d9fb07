"""Arrays that a body reads whole and writes whole, and only indexes and updates in between, as Refs at indices.

`x = x.at[i].set(f(x[i - 1]))` is how arrays are updated where there are no Refs. Its derivative costs the whole
array in every step; that of a Ref which is read and written at the same places costs an element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from fiveloop.core import Jaxpr
from fiveloop.core.engine import used_vars, whole_indexer
from fiveloop.core.extend import Eqn, Source, Var
from fiveloop.loops.planning.array_access import Access, access
from fiveloop.loops.planning.record import Decision
from fiveloop.state import AbstractRef
from fiveloop.state.engine import get_p, swap_p

Uses = Mapping[Var, Sequence[Eqn]]


STEP = "promote"


def promote(body: Jaxpr, names: Sequence[str]) -> tuple[Jaxpr, list[Decision]]:
    """The body with Refs that it reads and writes whole read and written at indices, where that is the same.

    `names` are those of the body's operands after the counter.
    """
    told: list[Decision] = []
    for k, ref in enumerate(body.invars):
        if isinstance(ref.aval, AbstractRef) and all(isinstance(n, int) for n in ref.aval.shape):
            body, refusal = _with_indices(body, ref)
            if refusal is not None and ref.aval.shape:
                name = names[k - 1]
                told.append(Decision(STEP, name, not refusal.why, refusal.why or DONE, refusal.at))
    return body, told


DONE = "it is indexed and updated at indices alone, so it runs as a Ref"


class _Verdict(NamedTuple):
    """Why a carried array stays a value, and where; nothing if it does not."""

    why: str
    at: Source | None


def _with_indices(body: Jaxpr, ref: Var) -> tuple[Jaxpr, _Verdict | None]:
    """The body with one Ref read and written at indices, and why not; no verdict on one that is no carried array."""
    uses: dict[Var, list[Eqn]] = {}
    for eqn in body.eqns:
        for v in used_vars(eqn.invars):
            uses.setdefault(v, []).append(eqn)
    whole = uses.get(ref, [])
    if len(whole) != 2 or not _are_whole(whole[0], whole[1], ref):
        return body, None
    life = _Life(ref, whole[1], uses, {v: eqn for eqn in body.eqns for v in eqn.outvars})
    if not life.follow(whole[0].outvars[0]):
        return body, life.verdict
    if life.names & used_vars(body.outvars):
        return body, _Verdict("it stays a value: the body gives it as a result, too", None)
    eqns = in_order(body.eqns, life.before)
    if eqns is None:
        return body, _Verdict(
            "it stays a value: an old version is read for what comes after its update",
            whole[1].source,
        )
    life.replaced[id(whole[0])] = life.replaced[id(whole[1])] = []
    new = [e for eqn in eqns for e in life.replaced.get(id(eqn), [eqn])]
    return Jaxpr(body.invars, new, body.outvars, body.name), _Verdict("", whole[0].source)


def _are_whole(first: Eqn, last: Eqn, ref: Var) -> bool:
    """Whether a Ref is read whole, and then written whole."""
    if first.primitive is not get_p or last.primitive is not swap_p or last.params.returns_old:
        return False
    whole = whole_indexer(ref.aval.shape)
    is_first = first.params.indexer == last.params.indexer == whole and first.invars[0] is ref
    return is_first and last.invars[0] is ref


@dataclass(slots=True)
class _Life:
    """The life of an array in a body, from version to version: what takes the place of each equation on it."""

    ref: Var
    last: Eqn
    uses: Uses
    made: Mapping[Var, Eqn]
    names: set[Var] = field(default_factory=set)
    replaced: dict[int, list[Eqn]] = field(default_factory=dict)
    before: list[tuple[Eqn, Eqn]] = field(default_factory=list)
    verdict: _Verdict | None = None

    def follow(self, version: Var) -> bool:
        """Whether each version is only read at indices, and updated once, until the last is written whole.

        An array without an access that is known only at run time stays as it is: XLA knows how to deal with it.
        """
        is_dynamic = False
        found = self._version(version)
        while found is not None:
            is_dynamic = is_dynamic or any(a.is_dynamic for a in found)
            updates = [a for a in found if a.updated is not None]
            if not updates:
                if self.last.invars[1] not in self.names:
                    return self._stays("the next step does not get what becomes of it", self.last)
                return is_dynamic or self._stays("it is indexed at fixed places alone", self.last)
            if len(updates) > 1:
                return self._stays("one version of it is updated twice", updates[1].eqn)
            (update,) = updates
            self.before += [(a.eqn, update.eqn) for a in found if a is not update]
            assert update.updated is not None, "unreachable: it is an update"
            found = self._version(update.updated)
        return False

    def _stays(self, why: str, eqn: Eqn) -> bool:
        """False; and why it is."""
        self.verdict = _Verdict(f"it stays a value: {why}", eqn.source)
        return False

    def _version(self, version: Var) -> list[Access] | None:
        """All accesses to one version, under all of its names; None if something else is done with it."""
        names, found = [version], list[Access]()
        for name in names:
            self.names.add(name)
            for eqn in self.uses.get(name, ()):
                if eqn is self.last:
                    continue
                here = access(eqn, name, self.ref, self.made)
                if here is None or id(eqn) in self.replaced:  # under two of its names at once
                    self._stays(f"`{eqn.primitive}` uses it whole", eqn)
                    return None
                self.replaced[id(eqn)] = here.instead
                found.append(here)
                names += here.same
        is_written = any(self.last in self.uses.get(name, ()) for name in names)
        is_updated = any(a.updated is not None for a in found)
        if is_written == is_updated:
            self._stays("the next step does not get the last version of it", self.last)
            return None
        return found


def in_order(eqns: Sequence[Eqn], before: Sequence[tuple[Eqn, Eqn]]) -> list[Eqn] | None:
    """The equations with the first of each pair before the second, otherwise as they were; None if that cannot be.

    Equations with effects keep their order.
    """
    number = {id(eqn): k for k, eqn in enumerate(eqns)}
    made = {v: k for k, eqn in enumerate(eqns) for v in eqn.outvars}
    after: dict[int, set[int]] = {k: set() for k in range(len(eqns))}
    waits: dict[int, set[int]] = {k: set() for k in range(len(eqns))}
    ordered = [k for k, eqn in enumerate(eqns) if eqn.effects]
    edges = [(made[v], k) for k, eqn in enumerate(eqns) for v in used_vars(eqn.invars) if v in made]
    edges += pairwise(ordered)
    edges += [(number[id(first)], number[id(second)]) for first, second in before]
    for first, second in edges:
        after[first].add(second)
        waits[second].add(first)
    ready = [k for k, others in waits.items() if not others]
    out: list[Eqn] = []
    while ready:
        k = heappop(ready)
        out.append(eqns[k])
        for later in after[k]:
            waits[later].discard(k)
            if not waits[later]:
                heappush(ready, later)
    return out if len(out) == len(eqns) else None
