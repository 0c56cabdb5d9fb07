"""Why a read of what a step has just written to a Ref is a read all the same."""

from __future__ import annotations

from fiveloop.core.engine import vars_in_order
from fiveloop.core.extend import Eqn, Source, Var
from fiveloop.loops.for_loop.accesses import FIRST_INDEX, RefAccess
from fiveloop.loops.for_loop.affine import Affine, affine_numbers
from fiveloop.loops.for_loop.early_end import without_end
from fiveloop.loops.planning.equal import Equal
from fiveloop.loops.planning.names import OWN
from fiveloop.loops.planning.operands import is_whole
from fiveloop.loops.planning.record import Decision
from fiveloop.state import AbstractRef
from fiveloop.state.engine import get_p, known_relation, names_each_once, swap_p

STEP = "fold"
STAYS = "a read after a write stays a read"


def not_folded(eqn: Eqn) -> list[Decision]:
    """For each Ref, why the first read that may be of what the step has written is one; after `fold`."""
    p = eqn.params
    ends = without_end(p.body)
    body = ends[0] if ends is not None else p.body
    search = _Search(affine_numbers(body, p.nsteps))
    names = dict(zip(body.invars[1:], p.record.names_of(len(eqn.invars)), strict=True))
    for e in body.eqns:
        search.step(e)
    return [
        Decision(STEP, names[ref], False, f"{STAYS}: {why}", source)
        for ref, (why, source) in search.found.items()
        if ref in names and names[ref] not in OWN
    ]


class _Search:
    """The equations of a step one after the other, and the last write to each Ref."""

    def __init__(self, numbers: dict[Var, Affine]) -> None:
        self.numbers = numbers
        self.found: dict[Var, tuple[str, Source | None]] = {}
        self._writes: dict[Var, Eqn] = {}
        self._between: dict[Var, Eqn] = {}
        self._equal = Equal()

    def step(self, eqn: Eqn) -> None:
        """Take the next equation."""
        refs = [a for a in vars_in_order(eqn.invars) if isinstance(a.aval, AbstractRef)]
        if not refs:
            self._equal.note(eqn)
        for ref in refs:
            if eqn.primitive not in FIRST_INDEX:
                self._between[ref] = eqn
                continue
            if eqn.outvars and ref in self._writes and ref not in self.found:
                why = self._why_not(ref, eqn)
                if why:
                    self.found[ref] = why, eqn.source
            if eqn.primitive is not get_p:
                self._writes[ref] = eqn
                self._between.pop(ref, None)

    def _why_not(self, ref: Var, read: Eqn) -> str | None:
        """Why a read that comes after a write is not what was written; None if they are apart."""
        write, between = self._writes[ref], self._between.get(ref)
        ours, theirs = write.params.indexer, read.params.indexer
        operands = [
            [self._equal.known(a) for a in e.invars[FIRST_INDEX[e.primitive] :]]
            for e in (write, read)
        ]
        relation = known_relation(ours, operands[0], theirs, operands[1])
        if relation == "apart" or self._are_apart(write, read):
            return None
        line = f" (line {write.source.line})" if write.source is not None else ""
        if relation == "unknown" and is_whole(ours, ref):
            return f"it reads a part of what is written as a whole{line}"
        if relation == "unknown":
            return f"whether it is of the place written before{line} is not known"
        if between is not None:
            return f"`{between.primitive}` may change it in between"
        if write.primitive is not swap_p:
            return f"what was there before the write{line} is not known"
        if not names_each_once(theirs):
            return "its index may name a place twice"
        return "what is written is converted on the way"

    def _are_apart(self, write: Eqn, read: Eqn) -> bool:
        """Whether the two are at different places of some axis in each step."""
        accesses = [RefAccess(0, e, False) for e in (write, read)]
        for axis in range(write.invars[0].aval.ndim):
            one, two = (a.place(axis, self.numbers) for a in accesses)
            if one is not None and two is not None and one.step == two.step and one != two:
                return True
        return False
