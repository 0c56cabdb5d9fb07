"""Several writes of a step to one element become one, and a read of an element just written or read becomes the value.

So derivatives and residuals have less to follow. Whether two places are the same or apart is told by `known_relation`,
as in discharge; where it is not known nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from fiveloop.core import Jaxpr, ir, prims, rules
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.analysis.accesses import RefAccess, index_rules, is_access, is_whole
from fiveloop.loops.names import OWN
from fiveloop.loops.primitives import for_loop
from fiveloop.loops.record import Decision, Planned, names_of
from fiveloop.state import AbstractRef, discharge, primitives

STEP = "fold"
OVERWRITTEN = "a write is left out: the same place is written again before it is read"
FORWARDED = "a read takes the value that was written there before"
ONCE = "a read takes the value that was read there before"
ADDED = "two additions to a place, or a write and an addition, become one"


def fold_writes(body: Jaxpr) -> tuple[Jaxpr, list[Decision]]:
    """The body with fewer reads and writes, and what was done."""
    return _folded(body, dict(zip(body.invars[1:], names_of(body.invars[1:]), strict=True)))


def _folded(body: Jaxpr, names: Mapping[ir.Var, str]) -> tuple[Jaxpr, list[Decision]]:
    """The same for a body, or for what it chooses or calls."""
    found = _Fold(names)
    for eqn in body.eqns:
        found.step(eqn)
    if found.told:
        outs = [ir.renamed(a, found.same) for a in body.outvars]
        eqns = [eqn for eqn in found.eqns if id(eqn) not in found.dropped]
        body = Jaxpr(body.invars, ir.prune(eqns, outs), outs, body.name)
    body, inner = accesses.with_bodies(body, names, _folded)
    return body, [*found.told, *inner]


def fold(eqn: ir.Eqn) -> Planned:
    """A loop with the writes of its step folded."""
    p = eqn.params
    body, told = fold_writes(p.body)
    loop = eqn if body is p.body else eqn.replace(params=replace(p, body=body))
    told = told if loop is not eqn else []
    return Planned(loop, told=[*told, *not_folded(loop)] if p.record.tells else told)


@dataclass(slots=True)
class _Write:
    """A write of this step that determines the contents of a place: all of them ("set"), or a sum with them ("add").

    `is_read` says that the place has been read since. A "read" determines nothing, but its value is known as well.
    """

    eqn: ir.Eqn
    value: ir.Atom
    kind: str
    is_read: bool = False


class _Fold:
    """The equations of a step, one after the other, and the writes to each Ref that nothing has hidden since."""

    def __init__(self, names: Mapping[ir.Var, str]) -> None:
        self.names = names
        self.eqns: list[ir.Eqn] = []
        self.dropped: set[int] = set()
        self.told: list[Decision] = []
        self.same: dict[ir.Var, ir.Atom] = {}  # what was written, in the place of what is read
        self._writes: dict[ir.Var, list[_Write]] = {}
        self._equal = ir.Equal()

    def step(self, eqn: ir.Eqn) -> None:
        """Take the next equation."""
        if not self.same.keys().isdisjoint(eqn.invars):
            eqn = ir.rename(eqn, self.same)
        refs = [a for a in ir.vars_in_order(eqn.invars) if isinstance(a.aval, AbstractRef)]
        if not refs:
            self._equal.note(eqn)
            self.eqns.append(eqn)
        elif eqn.primitive is primitives.get_p:
            if not self._forwards(eqn, refs[0], 1):
                read = _Write(eqn, eqn.outvars[0], "read", is_read=True)
                self._writes.setdefault(refs[0], []).append(read)
                self.eqns.append(eqn)
        elif eqn.primitive is primitives.swap_p:
            self._swap(eqn, refs[0])
        elif eqn.primitive is primitives.addupdate_p:
            self._add(eqn, refs[0])
        else:
            for ref in refs:
                self._writes[ref] = []
            self.eqns.append(eqn)

    def _swap(self, eqn: ir.Eqn, ref: ir.Var) -> None:
        if eqn.params.returns_old and self._forwards(eqn, ref, 2):
            params = replace(eqn.params, returns_old=False)
            eqn = rules.new_eqn(primitives.swap_p, eqn.invars, params, (), eqn.source)
        for write in self._writes.get(ref, []):
            if not write.is_read and self._relation(write, eqn, 2) == "same":
                self._drop(write, eqn, ref, OVERWRITTEN)
        # What gives the old element is a read as well, and stays.
        self._write(_Write(eqn, eqn.invars[1], "set", eqn.params.returns_old), ref)

    def _add(self, eqn: ir.Eqn, ref: ir.Var) -> None:
        """Add to a place: to what was written or added there in this step, if nothing has read it since."""
        before = self._last(eqn, ref, 2)
        merges = before is not None and not before.is_read
        once = eqn.params.indexer.names_each_once
        if before is None or not merges or not (before.kind == "add" or once):
            self._write(_Write(eqn, eqn.invars[1], "add"), ref)
            return
        total = rules.new_eqn(
            prims.add_p, [before.value, eqn.invars[1]], ir.NO_PARAMS, source=eqn.source
        )
        self.eqns.append(total)
        invars = [ref, total.outvars[0], *eqn.invars[2:]]
        params = before.eqn.params
        new = rules.new_eqn(before.eqn.primitive, invars, params, (), eqn.source)
        self._drop(before, eqn, ref, ADDED)
        self._write(_Write(new, total.outvars[0], before.kind), ref)

    def _write(self, write: _Write, ref: ir.Var) -> None:
        """Add a write; it hides earlier writes that may be to the same elements."""
        kept = [w for w in self._writes.get(ref, []) if self._relation(w, write.eqn, 2) == "apart"]
        self._writes[ref] = [*kept, write]
        self.eqns.append(write.eqn)

    def _forwards(self, eqn: ir.Eqn, ref: ir.Var, first: int) -> bool:
        """Whether a read is what has been written; `first` is the position of its index among its operands."""
        write = self._last(eqn, ref, first)
        (out,) = eqn.outvars
        if (
            write is not None
            and write.kind != "add"
            and eqn.params.indexer.names_each_once
            and not eqn.params.indexer.drops
            and write.value.aval is out.aval
        ):
            self.same[out] = write.value
            self._tell(eqn, ref, ONCE if write.kind == "read" else FORWARDED)
            return True
        for w in self._writes.get(ref, []):
            w.is_read = w.is_read or self._relation(w, eqn, first) != "apart"
        return False

    def _last(self, eqn: ir.Eqn, ref: ir.Var, first: int) -> _Write | None:
        """The write or read of the place of an equation, if no later write may be to the same elements."""
        for write in reversed(self._writes.get(ref, [])):
            match self._relation(write, eqn, first):
                case "same":
                    return write
                case "unknown" if write.kind != "read":
                    return None
        return None

    def _relation(self, write: _Write, eqn: ir.Eqn, first: int) -> str:
        ours = write.eqn.invars[1 if write.kind == "read" else 2 :]
        theirs = eqn.invars[first:]
        known = [[self._equal.known(a) for a in index] for index in (ours, theirs)]
        return discharge.known_relation(
            write.eqn.params.indexer, known[0], eqn.params.indexer, known[1]
        )

    def _drop(self, write: _Write, eqn: ir.Eqn, ref: ir.Var, why: str) -> None:
        self.dropped.add(id(write.eqn))
        self._tell(eqn, ref, why)

    def _tell(self, eqn: ir.Eqn, ref: ir.Var, why: str) -> None:
        name = self.names.get(ref, "a Ref made in the step")
        self.told.append(Decision(STEP, name, True, why, eqn.source))


STAYS = "a read after a write stays a read"


def not_folded(eqn: ir.Eqn) -> list[Decision]:
    """For each Ref, why the first read that may be of what the step has written is one; after `fold`."""
    p = eqn.params
    ends = for_loop.without_end(p.body)
    body = ends[0] if ends is not None else p.body
    search = _Search(integers.integers_of_step(body, p.nsteps))
    names = dict(zip(body.invars[1:], p.names, strict=True))
    for e in body.eqns:
        search.step(e)
    return [
        Decision(STEP, names[ref], False, f"{STAYS}: {why}", source)
        for ref, (why, source) in search.found.items()
        if ref in names and names[ref] not in OWN
    ]


class _Search:
    """The equations of a step one after the other, and the last write to each Ref."""

    def __init__(self, numbers: integers.Integers) -> None:
        self.numbers = numbers
        self.found: dict[ir.Var, tuple[str, ir.Source | None]] = {}
        self._writes: dict[ir.Var, ir.Eqn] = {}
        self._between: dict[ir.Var, ir.Eqn] = {}
        self._equal = ir.Equal()

    def step(self, eqn: ir.Eqn) -> None:
        """Take the next equation."""
        refs = [a for a in ir.vars_in_order(eqn.invars) if isinstance(a.aval, AbstractRef)]
        if not refs:
            self._equal.note(eqn)
        for ref in refs:
            if not is_access(eqn):
                self._between[ref] = eqn
                continue
            if eqn.outvars and ref in self._writes and ref not in self.found:
                why = self._why_not(ref, eqn)
                if why:
                    self.found[ref] = why, eqn.source
            if eqn.primitive is not primitives.get_p:
                self._writes[ref] = eqn
                self._between.pop(ref, None)

    def _why_not(self, ref: ir.Var, read: ir.Eqn) -> str | None:
        """Why a read that comes after a write is not what was written; None if they are apart."""
        write, between = self._writes[ref], self._between.get(ref)
        ours, theirs = write.params.indexer, read.params.indexer
        operands = [
            [self._equal.known(a) for a in index_rules[e.primitive](e)] for e in (write, read)
        ]
        relation = discharge.known_relation(ours, operands[0], theirs, operands[1])
        if relation == "apart" or self._are_apart(write, read):
            return None
        line = f" (line {write.source.line})" if write.source is not None else ""
        if relation == "unknown" and is_whole(ours, ref):
            return f"it reads a part of what is written as a whole{line}"
        if relation == "unknown":
            return f"whether it is of the place written before{line} is not known"
        if between is not None:
            return f"`{between.primitive}` may change it in between"
        if write.primitive is not primitives.swap_p:
            return f"what was there before the write{line} is not known"
        if not theirs.names_each_once:
            return "its index may name a place twice"
        return "the value is converted before it is written"

    def _are_apart(self, write: ir.Eqn, read: ir.Eqn) -> bool:
        """Whether the two are at different places of some axis in each step."""
        accesses = [RefAccess(0, e, False) for e in (write, read)]
        for axis in range(write.invars[0].aval.ndim):
            one, two = (a.place(axis, self.numbers) for a in accesses)
            if one is not None and two is not None and one.step == two.step and one != two:
                return True
        return False
