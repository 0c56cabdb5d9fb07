"""Reads of what an earlier step has written: a Ref that each step writes once, at places that move with the counter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fiveloop.core.engine import At, Lane, Span, is_constant, used_vars
from fiveloop.core.extend import Aval, Eqn, Var, size_of
from fiveloop.loops.for_loop.accesses import RefAccess, accesses_of, is_within
from fiveloop.loops.for_loop.affine import Affine, affine_numbers
from fiveloop.loops.for_loop.primitive import ForParams
from fiveloop.loops.planning.equal import Equal
from fiveloop.state import AbstractRef
from fiveloop.state.engine import addupdate_p, get_p, swap_p

MOST_STEPS = 4
"""How many steps later a value may be read."""
LARGEST = 16
"""Elements of what is carried; a row is read as fast as it is carried."""

Place = Affine | Var
"""Where an axis is accessed: at a place affine in the counter, or at one that no step changes."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A Ref that a step writes once: the write, where that is, and the reads by how many steps later they come."""

    ref: Var
    write: RefAccess
    places: Mapping[int, Place]
    reads: Mapping[int, int]
    steps: int

    @property
    def aval(self) -> Aval:
        """What is carried."""
        aval: Aval = self.write.eqn.invars[1].aval.strong()
        return aval


class ChainFinder:
    """Finds the chains of a loop: what is known of the integers in its body."""

    def __init__(self, p: ForParams) -> None:
        self.p = p
        self.numbers = affine_numbers(p.body, p.nsteps)
        self.equal = Equal()
        self.fixed = set(p.body.invars[1 : 1 + p.num_consts])
        self.fixed_eqns: list[Eqn] = []
        for eqn in p.body.eqns:
            if not eqn.effects and not eqn.primitive.creates_state:
                self.equal.note(eqn)
                if used_vars(eqn.invars) <= self.fixed:
                    self.fixed |= set(eqn.outvars)
                    self.fixed_eqns.append(eqn)

    def chain(self, ref: Var) -> Chain | None:
        """The reads of what earlier steps wrote to a Ref; None if there are none, or if that is not known."""
        found = accesses_of(self.p.body, ref) if isinstance(ref.aval, AbstractRef) else None
        users = [eqn for eqn in self.p.body.eqns if ref in used_vars(eqn.invars)]
        if not found or len(users) != len(found) or ref in self.p.body.outvars:
            return None
        writes = [a for a in found if a.mutates]
        if len(writes) != 1 or not self.is_simple(writes[0]):
            return None
        (write,) = writes
        places = self.places(write)
        if places is None:
            return None
        reads: dict[int, int] = {}
        for a in found:
            later = self.steps_later(write, places, a) if a is not write else None
            if later is not None and 1 <= later <= min(MOST_STEPS, self.p.nsteps - 1):
                reads[id(a.eqn)] = later
        return Chain(ref, write, places, reads, max(reads.values())) if reads else None

    def is_simple(self, write: RefAccess) -> bool:
        """Whether a write sets, or adds to, all of a few elements."""
        eqn = write.eqn
        if eqn.primitive not in (swap_p, addupdate_p):
            return False
        value, shape = eqn.invars[1].aval, eqn.params.indexer.result_shape
        fits = value.shape == shape and value.dtype == eqn.invars[0].aval.dtype
        return fits and is_constant(size_of(shape)) and size_of(shape) <= LARGEST

    def places(self, access: RefAccess) -> dict[int, Place] | None:
        """The place of an access on each axis that it does not take whole; None if one is not known."""
        indexer, shape = access.eqn.params.indexer, access.eqn.invars[0].aval.shape
        if any(indexer.paired) or indexer.new_axes:
            return None
        found: dict[int, Place] = {}
        for axis, (entry, size) in enumerate(zip(indexer.entries, shape, strict=True)):
            if isinstance(entry, Lane):
                if entry.lead != axis:
                    return None
                continue
            if isinstance(entry, Span) and entry == Span(0, size):
                continue
            place = access.place(axis, self.numbers)
            if place is not None:
                if not is_within(place, size, self.p.nsteps):
                    return None
                found[axis] = place
                continue
            operand = self.operand(access, axis)
            if operand not in self.fixed or indexer.drops:  # a write that is left out is not read
                return None
            found[axis] = operand
        return found

    def operand(self, access: RefAccess, axis: int) -> object:
        """The operand of an access on an axis, or the first that is equal to it; None without one of its own."""
        indexer = access.eqn.params.indexer
        entry = indexer.entries[axis]
        is_single = isinstance(entry, At) or (isinstance(entry, Span) and entry.size == 1)
        if not is_single or entry.start is not None:
            return None
        return self.equal.known(access.operands[indexer.dynamic_axes.index(axis)])

    def steps_later(
        self, write: RefAccess, places: Mapping[int, Place], read: RefAccess
    ) -> int | None:
        """How many steps after it is written an element is read; None if it is not, or if that is not known."""
        theirs = self.places(read)
        if read.eqn.primitive is not get_p or theirs is None or theirs.keys() != places.keys():
            return None
        indexers = write.eqn.params.indexer, read.eqn.params.indexer
        if indexers[0].lead != indexers[1].lead:
            return None
        found: set[int | None] = set()
        for axis, place in places.items():
            other = theirs[axis]
            if isinstance(place, Var) or isinstance(other, Var) or not place.step:
                found |= set() if place == other else {None}
            elif other.step != place.step:
                found.add(None)
            else:
                apart, rest = divmod(place.start - other.start, place.step)
                found.add(None if rest else -apart if self.p.reverse else apart)
        return found.pop() if len(found) == 1 else None
