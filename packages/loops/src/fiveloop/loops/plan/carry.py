"""An element that one step writes and a later one reads is carried there as a value: scalar replacement.

`y[i + 1] = y[i] + x[i]` reads in each step what the step before has written. Carried, it stays in a register; a Ref
that is then only written needs no order of reads and writes, and is not there at all if nobody wants what it holds.

Callahan, Carr and Kennedy, "Improving register allocation for subscripted variables", PLDI 1990.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fiveloop.core import Jaxpr, Value
from fiveloop.core.engine import (
    At,
    Lane,
    ReshapeParams,
    Span,
    is_constant,
    prune,
    reshape_p,
    used_vars,
    whole_indexer,
)
from fiveloop.core.extend import (
    NO_PARAMS,
    Atom,
    Aval,
    Eqn,
    Source,
    Var,
    add_p,
    mutated_positions,
    new_eqn,
    reshape,
    size_of,
    stage_closed,
)
from fiveloop.loops.analysis.accesses import (
    FIRST_INDEX,
    RefAccess,
    accesses_of,
    is_whole,
    is_within,
    unknown_places,
)
from fiveloop.loops.analysis.early_end import without_end
from fiveloop.loops.analysis.integers import Affine, Equal, integers_of_step
from fiveloop.loops.names import OWN
from fiveloop.loops.plan.hoist import renamed
from fiveloop.loops.primitives.for_loop import ForParams, for_p
from fiveloop.loops.record import Decision, Planned
from fiveloop.state import AbstractRef, ReadEffect
from fiveloop.state.engine import IndexParams, SwapParams, accumulate_p, addupdate_p, get_p, swap_p

STEP = "carry"
CARRIED = "what a step writes there is carried to the step that reads it"


def carry(eqn: Eqn) -> Planned:
    """A loop that carries what its steps write to those that read it."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return Planned(eqn)
    finder = ChainFinder(p)
    refs = p.body.invars[1 + p.num_consts :]
    chains = [chain for ref in refs if (chain := finder.chain(ref)) is not None]
    if not chains:
        return Planned(eqn)
    told = [
        Decision(STEP, p.names[p.body.invars.index(c.ref) - 1], True, CARRIED, c.write.eqn.source)
        for c in chains
    ]
    before: list[Eqn] = []
    firsts = [[_first(eqn, finder, c, k + 1, before) for k in range(c.steps)] for c in chains]
    return Planned(_carrying(eqn, chains, firsts), before, told=told)


def _first(eqn: Eqn, finder: ChainFinder, chain: Chain, later: int, before: list[Eqn]) -> Atom:
    """What the first step would read that was written so many steps before; `before` gets what reads it."""
    p = eqn.params
    i = p.nsteps - 1 + later if p.reverse else -later
    places = [chain.places.get(axis) for axis in range(chain.ref.aval.ndim)]
    operands = [v for v in places if isinstance(v, Var)]

    def element(array: Value, *given: Value) -> list[Value]:
        left = iter(given)
        index: list[Any] = [_position(place, i, left) for place in places]
        return [reshape(array[tuple(index)], chain.aval.shape)]

    outside: dict[Var, Atom] = dict(zip(p.body.invars[1:], eqn.invars, strict=True))
    before += [renamed(e, outside) for e in prune(finder.fixed_eqns, operands)]
    array = eqn.invars[p.body.invars.index(chain.ref) - 1]
    read = stage_closed(element, [array.aval, *[v.aval for v in operands]])
    inside: dict[Var, Atom] = dict(
        zip(read.invars, [array, *[outside[v] for v in operands]], strict=True)
    )
    before += [renamed(e, inside) for e in read.eqns]
    (out,) = read.outvars
    return inside[out] if isinstance(out, Var) else out


def _position(place: Place | None, i: int, operands: Iterator[Value]) -> Any:
    """The index of an axis in step `i`."""
    if place is None:
        return slice(None)
    return place.step * i + place.start if isinstance(place, Affine) else next(operands)


def _carrying(eqn: Eqn, chains: Sequence[Chain], firsts: Sequence[Sequence[Atom]]) -> Eqn:
    """The loop with a Ref for each value that is carried.

    p.body : [i, *consts, *refs]            -> []
    body   : [i, *consts, *refs, *carried]  -> []
    """
    p = eqn.params
    carried = [[Var(AbstractRef(c.aval), "carried on") for _ in range(c.steps)] for c in chains]
    refs = [ref for each in carried for ref in each]
    operands = [x for each in firsts for x in each]
    eqns = _step(p.body, chains, carried)
    body = Jaxpr([*p.body.invars, *refs], eqns, p.body.outvars, p.body.name)
    outs = [*eqn.outvars, *[Var(x.aval.strong()) for x in operands]]
    return new_eqn(for_p, [*eqn.invars, *operands], replace(p, body=body), outs, eqn.source)


def _step(body: Jaxpr, chains: Sequence[Chain], carried: Sequence[Sequence[Var]]) -> list[Eqn]:
    """The equations of a step: what is carried is read first, and handed on after the write."""
    eqns: list[Eqn] = []
    writes: dict[int, tuple[Chain, Sequence[Var], list[Var]]] = {}
    reads: dict[int, Var] = {}
    for chain, refs in zip(chains, carried, strict=True):
        values = [Var(chain.aval) for _ in refs]
        whole = IndexParams(whole_indexer(chain.aval.shape))
        eqns += [new_eqn(get_p, [r], whole, [v]) for r, v in zip(refs, values, strict=True)]
        writes[id(chain.write.eqn)] = chain, refs, values
        reads.update({read: values[later - 1] for read, later in chain.reads.items()})
    same: dict[Atom, Atom] = {}
    for old in body.eqns:
        eqn = old.replace(invars=tuple(same.get(a, a) for a in old.invars))
        if id(old) in reads:
            eqns += _read(eqn, reads[id(old)], same)
        elif id(old) in writes:
            eqns += _write(eqn, *writes[id(old)])
        else:
            eqns.append(eqn)
    return eqns


def _read(eqn: Eqn, value: Var, same: dict[Atom, Atom]) -> list[Eqn]:
    """What takes the place of a read: the value carried, in the shape in which it was read."""
    (out,) = eqn.outvars
    if out.aval is value.aval:
        same[out] = value
        return []
    params = ReshapeParams(out.aval.shape)
    return [new_eqn(reshape_p, [value], params, [out], eqn.source)]


def _write(eqn: Eqn, chain: Chain, refs: Sequence[Var], values: Sequence[Var]) -> list[Eqn]:
    """A write, and what hands all values on by one step."""
    ref, new, *index = eqn.invars
    eqns = [eqn]
    if eqn.primitive is not swap_p:
        indexer = eqn.params.indexer
        old = new_eqn(get_p, [ref, *index], IndexParams(indexer), source=eqn.source)
        total = new_eqn(add_p, [*old.outvars, new], NO_PARAMS, [Var(chain.aval)], eqn.source)
        (new,) = total.outvars
        params = SwapParams(indexer, returns_old=False)
        eqns = [old, total, new_eqn(swap_p, [ref, new, *index], params, (), eqn.source)]
    whole = SwapParams(whole_indexer(chain.aval.shape), returns_old=False)
    handed = zip(refs, [new, *values], strict=False)
    return [*eqns, *[new_eqn(swap_p, [r, x], whole, ()) for r, x in handed]]


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
        self.numbers = integers_of_step(p.body, p.nsteps)
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
