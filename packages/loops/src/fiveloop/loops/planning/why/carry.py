"""Why what a step writes to a Ref is not carried to a later step that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fiveloop.core.engine import is_constant, used_vars
from fiveloop.core.extend import Eqn, Source, Var, mutated_positions, size_of
from fiveloop.loops.for_loop.accesses import FIRST_INDEX, RefAccess, accesses_of
from fiveloop.loops.for_loop.affine import Affine
from fiveloop.loops.for_loop.early_end import without_end
from fiveloop.loops.for_loop.primitive import for_p
from fiveloop.loops.planning.chains import LARGEST, MOST_STEPS, ChainFinder, Place
from fiveloop.loops.planning.names import OWN
from fiveloop.loops.planning.operands import is_whole
from fiveloop.loops.planning.record import Decision
from fiveloop.loops.planning.why.places import unknown_places
from fiveloop.state import AbstractRef, ReadEffect
from fiveloop.state.engine import accumulate_p, get_p

STEP = "carry"
NOT_CARRIED = "it is not carried from step to step"
SOME_READ = "another read of it stays a read"
Why = tuple[str, Source | None]


def not_carried(eqn: Eqn) -> list[Decision]:
    """For each Ref that steps write and read at indices, why a later step reads again what one has written."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2 or p.record.called.kind:
        return []
    ends = without_end(p.body)
    body = ends[0] if ends is not None else p.body
    search = _Search(ChainFinder(replace(p, body=body)))
    names = p.names
    told: list[Decision] = []
    for name, ref in zip(names[p.num_consts :], body.invars[1 + p.num_consts :], strict=True):
        why = search.why(ref)
        is_chain = search.finder.chain(ref) is not None
        if ends is not None and (why or is_chain):
            why, is_chain = ("the loop may end early", eqn.source), False
        if why is not None and name not in OWN:
            what = SOME_READ if is_chain else NOT_CARRIED
            told.append(Decision(STEP, name, False, f"{what}: {why[0]}", why[1]))
    return told


class _Search:
    """The search for what keeps a Ref from being a chain, in the order of `ChainFinder.chain`."""

    def __init__(self, finder: ChainFinder) -> None:
        self.finder = finder
        self.p = finder.p
        self.numbers = finder.numbers

    def why(self, ref: Var) -> Why | None:
        """Why a Ref that is written and read is read again, and where; None if no step reads what one before wrote."""
        users = [e for e in self.p.body.eqns if ref in used_vars(e.invars)]
        reads, writes = [e for e in users if _reads(e, ref)], [e for e in users if _writes(e, ref)]
        if not isinstance(ref.aval, AbstractRef) or not reads or not writes:
            return None
        found = accesses_of(self.p.body, ref)
        if found is None or len(found) != len(users):
            inside = next(e for e in users if e.primitive not in FIRST_INDEX)
            kind = "an inner loop" if inside.primitive is for_p else f"`{inside.primitive}`"
            return (f"{kind} reads or writes it", inside.source) if ref.aval.shape else None
        if all(is_whole(a.eqn.params.indexer, ref) for a in found):
            return None  # it is carried as it is
        return self._of_accesses(ref, found)

    def _of_accesses(self, ref: Var, found: Sequence[RefAccess]) -> Why | None:
        for a in found:
            if is_whole(a.eqn.params.indexer, ref):
                verb = "written" if a.mutates else "read"
                return f"it is {verb} whole, too", a.eqn.source
        first, *others = [a for a in found if a.mutates]
        if others:
            return "a step writes it more than once", others[0].eqn.source
        places = self.finder.places(first)
        if places is None:
            return f"it is written {self._unknown(first)}", first.eqn.source
        for a in found:
            if a is not first and a.eqn.primitive is get_p:
                why = self._of_read(first, places, a)
                if why:
                    return why, a.eqn.source
        return None

    def _of_read(
        self, write: RefAccess, places: Mapping[int, Place], read: RefAccess
    ) -> str | None:
        """Why a read, of which something is known, is not of what a write wrote some steps ago, or not carried."""
        theirs = self.finder.places(read)
        if theirs is None:
            return f"it is read {self._unknown(read)}"
        if theirs.keys() != places.keys():
            return "it is read along other axes than it is written"
        later = set[int]()
        for axis, place in places.items():
            other = theirs[axis]
            if isinstance(place, Affine) and isinstance(other, Affine):
                if place.step != other.step:
                    return _strides(place.step, other.step)
                if not place.step and place != other:
                    return None  # apart
                if place.step:
                    apart, rest = divmod(place.start - other.start, place.step)
                    if rest:
                        return None
                    later.add(-apart if self.p.reverse else apart)
            elif place != other:
                return f"it is not known to be read and written at the same index of axis {axis}"
        return self._of_distance(write, read, later)

    def _of_distance(self, write: RefAccess, read: RefAccess, later: set[int]) -> str | None:
        """Why what is read so many steps later is not carried there."""
        if not later:
            return "it is read and written at one place in all steps"
        if len(later) != 1 or not 1 <= (steps := later.pop()) < self.p.nsteps:
            return None
        if steps > MOST_STEPS:
            return f"it is read {steps} steps later, and is carried over {MOST_STEPS} at most"
        value = write.eqn.invars[1].aval
        if write.eqn.primitive is accumulate_p:
            return f"`{write.eqn.params.monoid}` accumulates there"
        if not is_constant(size_of(value.shape)):
            return "the size of what is written is not known"
        if size_of(value.shape) > LARGEST:
            return f"{size_of(value.shape):,} elements are read as fast as they are carried"
        if (
            self.finder.steps_later(write, places=self.finder.places(write) or {}, read=read)
            is None
        ):
            return "it is read in another order of axes than it is written"
        return None if self.finder.is_simple(write) else "what is written is converted on the way"

    def _unknown(self, access: RefAccess) -> str:
        """Why the places of an access are not known."""

        def is_fixed(axis: int) -> bool:
            return self.finder.operand(access, axis) in self.finder.fixed

        return unknown_places(access, self.numbers, self.p.nsteps, is_fixed)


def _strides(written: int, read: int) -> str:
    if not written or not read:
        verb = "read" if written else "written"
        return f"it is {verb} at one place in all steps"
    return f"the places read move by {read} a step, those written by {written}"


def _reads(eqn: Eqn, ref: Var) -> bool:
    places = {k for k, a in enumerate(eqn.invars) if a is ref}
    return any(isinstance(e, ReadEffect) and e.position in places for e in eqn.effects)


def _writes(eqn: Eqn, ref: Var) -> bool:
    return any(eqn.invars[k] is ref for k in mutated_positions(eqn.effects))
