"""Writes of a step that come to one write become one, and a read of what was just written is what was written.

So derivatives and residuals have less to follow. Two places are the same, or apart, as discharge has it
(`known_relation`); where that is not known nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fiveloop.core import Jaxpr
from fiveloop.core.engine import prune, vars_in_order
from fiveloop.core.extend import NO_PARAMS, Atom, Eqn, Var, add_p, new_eqn
from fiveloop.loops.planning.entered import with_bodies
from fiveloop.loops.planning.equal import Equal
from fiveloop.loops.planning.record import Decision, Planned
from fiveloop.state import AbstractRef
from fiveloop.state.engine import addupdate_p, get_p, known_relation, names_each_once, swap_p

STEP = "fold"
OVERWRITTEN = "a write is left out: the same place is written again before it is read"
FORWARDED = "a read is what was written there before"
ADDED = "what is added to a place is added to what was written or added there before"


def fold_writes(body: Jaxpr, names: Sequence[str]) -> tuple[Jaxpr, list[Decision]]:
    """The body with fewer reads and writes, and what was done; `names` are those of its operands after the counter."""
    return _folded(body, dict(zip(body.invars[1:], names, strict=True)))


def _folded(body: Jaxpr, names: Mapping[Var, str]) -> tuple[Jaxpr, list[Decision]]:
    """The same for a body, or for what it chooses or calls."""
    found = _Fold(names)
    for eqn in body.eqns:
        found.step(eqn)
    if found.told:
        outs = [found.renamed(a) for a in body.outvars]
        eqns = [eqn for eqn in found.eqns if id(eqn) not in found.dropped]
        body = Jaxpr(body.invars, prune(eqns, outs), outs, body.name)
    body, inner = with_bodies(body, names, _folded)
    return body, [*found.told, *inner]


def fold(eqn: Eqn) -> Planned:
    """A loop with the writes of its step folded."""
    p = eqn.params
    body, told = fold_writes(p.body, p.record.names_of(len(eqn.invars)))
    if body is p.body:
        return Planned(eqn)
    params = replace(p, body=body)
    loop = new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
    return Planned(loop, told=told)


@dataclass(slots=True)
class _Write:
    """A write of this step that still shows what a place holds: all of it ("set"), or what was added to it ("add").

    `is_read` says that what the place holds has been read since.
    """

    eqn: Eqn
    value: Atom
    kind: str
    is_read: bool = False


class _Fold:
    """The equations of a step, one after the other, and the writes to each Ref that nothing has hidden since."""

    def __init__(self, names: Mapping[Var, str]) -> None:
        self.names = names
        self.eqns: list[Eqn] = []
        self.dropped: set[int] = set()
        self.told: list[Decision] = []
        self._same: dict[Var, Atom] = {}
        self._writes: dict[Var, list[_Write]] = {}
        self._equal = Equal()

    def renamed(self, atom: Atom) -> Atom:
        """An operand, with what was written in the place of what is read."""
        return self._same.get(atom, atom) if isinstance(atom, Var) else atom

    def step(self, eqn: Eqn) -> None:
        """Take the next equation."""
        if any(a in self._same for a in eqn.invars if isinstance(a, Var)):
            eqn = eqn.replace(invars=tuple(map(self.renamed, eqn.invars)))
        refs = [a for a in vars_in_order(eqn.invars) if isinstance(a.aval, AbstractRef)]
        if not refs:
            self._equal.note(eqn)
            self.eqns.append(eqn)
        elif eqn.primitive is get_p:
            self._get(eqn, refs[0])
        elif eqn.primitive is swap_p:
            self._swap(eqn, refs[0])
        elif eqn.primitive is addupdate_p:
            self._add(eqn, refs[0])
        else:
            for ref in refs:
                self._writes[ref] = []
            self.eqns.append(eqn)

    def _get(self, eqn: Eqn, ref: Var) -> None:
        if not self._forwards(eqn, ref, 1):
            self.eqns.append(eqn)

    def _swap(self, eqn: Eqn, ref: Var) -> None:
        if eqn.params.returns_old and self._forwards(eqn, ref, 2):
            params = replace(eqn.params, returns_old=False)
            eqn = new_eqn(swap_p, eqn.invars, params, (), eqn.source)
        for write in self._writes.get(ref, []):
            if not write.is_read and self._relation(write, eqn, 2) == "same":
                self._drop(write, eqn, ref, OVERWRITTEN)
        # What gives the old element is a read as well, and stays.
        self._write(_Write(eqn, eqn.invars[1], "set", eqn.params.returns_old), ref)

    def _add(self, eqn: Eqn, ref: Var) -> None:
        """Add to a place: to what was written or added there in this step, if nothing has read it since."""
        before = self._last(eqn, ref, 2)
        merges = before is not None and not before.is_read
        if before is None or not merges or not (before.kind == "add" or _once(eqn)):
            self._write(_Write(eqn, eqn.invars[1], "add"), ref)
            return
        total = new_eqn(add_p, [before.value, eqn.invars[1]], NO_PARAMS, source=eqn.source)
        self.eqns.append(total)
        invars = [ref, total.outvars[0], *eqn.invars[2:]]
        params = before.eqn.params
        new = new_eqn(before.eqn.primitive, invars, params, (), eqn.source)
        self._drop(before, eqn, ref, ADDED)
        self._write(_Write(new, total.outvars[0], before.kind), ref)

    def _write(self, write: _Write, ref: Var) -> None:
        """Add a write; it hides all those that may be to the same elements."""
        kept = [w for w in self._writes.get(ref, []) if self._relation(w, write.eqn, 2) == "apart"]
        self._writes[ref] = [*kept, write]
        self.eqns.append(write.eqn)

    def _forwards(self, eqn: Eqn, ref: Var, first: int) -> bool:
        """Whether a read is what has been written; `first` is the position of its index among its operands."""
        write = self._last(eqn, ref, first)
        (out,) = eqn.outvars
        if (
            write is not None
            and write.kind == "set"
            and _once(eqn)
            and not eqn.params.indexer.drops
            and write.value.aval is out.aval
        ):
            self._same[out] = write.value
            self._tell(eqn, ref, FORWARDED)
            return True
        for w in self._writes.get(ref, []):
            w.is_read = w.is_read or self._relation(w, eqn, first) != "apart"
        return False

    def _last(self, eqn: Eqn, ref: Var, first: int) -> _Write | None:
        """The write to the place of an equation, if no later one may be to the same elements."""
        for write in reversed(self._writes.get(ref, [])):
            match self._relation(write, eqn, first):
                case "same":
                    return write
                case "unknown":
                    return None
        return None

    def _relation(self, write: _Write, eqn: Eqn, first: int) -> str:
        ours, theirs = write.eqn, eqn
        return known_relation(
            ours.params.indexer,
            [self._equal.known(a) for a in ours.invars[2:]],
            theirs.params.indexer,
            [self._equal.known(a) for a in theirs.invars[first:]],
        )

    def _drop(self, write: _Write, eqn: Eqn, ref: Var, why: str) -> None:
        self.dropped.add(id(write.eqn))
        self._tell(eqn, ref, why)

    def _tell(self, eqn: Eqn, ref: Var, why: str) -> None:
        name = self.names.get(ref, "a Ref made in the step")
        self.told.append(Decision(STEP, name, True, why, eqn.source))


def _once(eqn: Eqn) -> bool:
    """Whether the index of an equation names no element twice."""
    return names_each_once(eqn.params.indexer)
