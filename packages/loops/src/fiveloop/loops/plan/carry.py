"""Scalar replacement: an element that one step writes and a later one reads is carried as a value.

`y[i + 1] = y[i] + x[i]` reads in each step the element that the previous step has written. Carried, the element stays
in a register. A Ref that is only written then needs no order of reads and writes, and disappears if its contents are
not used.

Callahan, Carr and Kennedy, "Improving register allocation for subscripted variables", PLDI 1990.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fiveloop.core import Jaxpr, Value, ir, prims, rules, trace
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.index import access, parse
from fiveloop.core.ir.indexer import Span, is_one
from fiveloop.loops import names, record
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.primitives.for_loop import ForParams, for_p, without_end
from fiveloop.state import AbstractRef, ReadEffect, primitives

STEP = "carry"
CARRIED = "the element that a step writes is carried to the step that reads it"
NOT_CARRIED = "it is not carried from step to step"
SOME_READ = "another read of it stays a read"
Why = tuple[str, ir.Source | None]


def carry(eqn: ir.Eqn) -> record.Planned:
    """A loop that carries written elements to the steps that read them; loops that may end early stay as they are."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2:
        return record.Planned(eqn)
    ends = without_end(p.body)
    if ends is not None or p.starts_late:
        step = replace(p, body=ends[0]) if ends is not None else p
        told = _told(eqn, ChainFinder(step), True) if p.record.tells else []
        return record.Planned(eqn, told=told)
    finder = ChainFinder(p)
    told = _told(eqn, finder, False) if p.record.tells else []
    chains = [chain for ref in finder.refs if (chain := finder.find(ref).chain) is not None]
    if not chains:
        return record.Planned(eqn, told=told)
    before: list[ir.Eqn] = []
    firsts = [[_first(eqn, finder, c, k + 1, before) for k in range(c.steps)] for c in chains]
    return record.Planned(_carrying(eqn, chains, firsts), before, told=told)


def _told(eqn: ir.Eqn, finder: ChainFinder, may_end: bool) -> list[record.Decision]:
    """Which elements of each Ref are carried; why a later step reads an element again that a step wrote."""
    p, done, others = eqn.params, list[record.Decision](), list[record.Decision]()
    for name, ref in zip(p.names[p.num_consts :], finder.refs, strict=True):
        found = finder.find(ref)
        chain, why = found.chain, found.why
        if may_end and (chain or why):
            chain, why = None, ("the loop may end early", eqn.source)
        if chain is not None:
            done.append(record.Decision(STEP, name, True, CARRIED, chain.write.eqn.source))
        if why is not None and name not in names.OWN and not p.record.called.kind:
            what = SOME_READ if chain is not None else NOT_CARRIED
            others.append(record.Decision(STEP, name, False, f"{what}: {why[0]}", why[1]))
    return [*done, *others]


def _first(
    eqn: ir.Eqn, finder: ChainFinder, chain: Chain, later: int, before: list[ir.Eqn]
) -> ir.Atom:
    """What the first step would read that was written so many steps before; `before` gets what reads it."""
    p = eqn.params
    i = p.nsteps - 1 + later if p.reverse else -later
    places = [chain.places.get(axis) for axis in range(chain.ref.aval.ndim)]
    operands = [v for v in places if isinstance(v, ir.Var)]

    def element(array: Value, *given: Value) -> list[Value]:
        left = iter(given)
        index = tuple([_position(place, i, left) for place in places])
        is_ref = array.aval.accumulates
        x = array[index] if is_ref else access.take(array, *parse.normalize(array.shape, index))
        return [prims.reshape(x, chain.aval.shape)]

    outside: dict[ir.Var, ir.Atom] = dict(zip(p.body.invars[1:], eqn.invars, strict=True))
    before += ir.copied_eqns(ir.prune(finder.fixed_eqns, operands), outside)
    array = eqn.invars[p.body.invars.index(chain.ref) - 1]
    read = trace.stage_closed(element, [array.aval, *[v.aval for v in operands]])
    eqns, (out,) = ir.inlined(read, [array, *[outside[v] for v in operands]])
    before += eqns
    return out


def _position(place: accesses.Place | None, i: int, operands: Iterator[Value]) -> Any:
    """The index of an axis in step `i`."""
    if place is None:
        return slice(None)
    return place.step * i + place.start if isinstance(place, integers.Affine) else next(operands)


def _carrying(eqn: ir.Eqn, chains: Sequence[Chain], firsts: Sequence[ir.Atoms]) -> ir.Eqn:
    """The loop with a Ref for each value that is carried.

    p.body : [i, *consts, *refs]            -> []
    body   : [i, *consts, *refs, *carried]  -> []
    """
    p = eqn.params
    carried = [[ir.Var(AbstractRef(c.aval), "carried on") for _ in range(c.steps)] for c in chains]
    refs = [ref for each in carried for ref in each]
    operands = [x for each in firsts for x in each]
    eqns = _step(p.body, chains, carried)
    body = Jaxpr([*p.body.invars, *refs], eqns, p.body.outvars, p.body.name)
    outs = [*eqn.outvars, *[ir.Var(x.aval.strong()) for x in operands]]
    return rules.new_eqn(for_p, [*eqn.invars, *operands], replace(p, body=body), outs, eqn.source)


def _step(body: Jaxpr, chains: Sequence[Chain], carried: Sequence[ir.Vars]) -> list[ir.Eqn]:
    """The equations of a step: what is carried is read first, and handed on after the write."""
    eqns: list[ir.Eqn] = []
    writes: dict[int, tuple[Chain, ir.Vars, list[ir.Var]]] = {}
    reads: dict[int, ir.Var] = {}
    for chain, refs in zip(chains, carried, strict=True):
        values = [ir.Var(chain.aval) for _ in refs]
        eqns += [accesses.read_whole(r, v) for r, v in zip(refs, values, strict=True)]
        writes[id(chain.write.eqn)] = chain, refs, values
        reads.update({read: values[later - 1] for read, later in chain.reads.items()})
    same: dict[ir.Var, ir.Atom] = {}
    for old in body.eqns:
        eqn = ir.rename(old, same)
        if id(old) in reads:
            eqns += _read(eqn, reads[id(old)], same)
        elif id(old) in writes:
            eqns += _write(eqn, *writes[id(old)])
        else:
            eqns.append(eqn)
    return eqns


def _read(eqn: ir.Eqn, value: ir.Var, same: dict[ir.Var, ir.Atom]) -> list[ir.Eqn]:
    """What takes the place of a read: the value carried, in the shape in which it was read."""
    (out,) = eqn.outvars
    if out.aval is value.aval:
        same[out] = value
        return []
    params = prims.ReshapeParams(out.aval.shape)
    return [rules.new_eqn(prims.reshape_p, [value], params, [out], eqn.source)]


def _write(eqn: ir.Eqn, chain: Chain, refs: ir.Vars, values: ir.Vars) -> list[ir.Eqn]:
    """A write, and the shift of carried values by one step."""
    ref, new, *index = eqn.invars
    eqns = [eqn]
    if eqn.primitive is not primitives.swap_p:
        indexer = eqn.params.indexer
        old = accesses.read_at(ref, indexer, index, source=eqn.source)
        total = rules.new_eqn(
            prims.add_p, [*old.outvars, new], ir.NO_PARAMS, [ir.Var(chain.aval)], eqn.source
        )
        (new,) = total.outvars
        eqns = [old, total, accesses.write_at(ref, new, indexer, index, eqn.source)]
    handed = zip(refs, [new, *values], strict=False)
    return [*eqns, *[accesses.write_whole(r, x) for r, x in handed]]


MOST_STEPS = 4
"""How many steps later a value may be read."""
FEWEST = 16
"""How many steps a loop has at least that carries values of a Ref and reads others of it: to begin takes longer."""
LARGEST = 16
"""Elements of what is carried; a row is read as fast as it is carried."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A Ref that a step writes once: the write, where that is, and the reads by how many steps later they come."""

    ref: ir.Var
    write: accesses.RefAccess
    places: Mapping[int, accesses.Place]
    reads: Mapping[int, int]
    steps: int

    @property
    def aval(self) -> ir.Aval:
        """What is carried."""
        aval: ir.Aval = self.write.eqn.invars[1].aval.strong()
        return aval


class Found(NamedTuple):
    """The chain of a Ref, if it has one, and why a read of it is none of a chain, if that is worth a word."""

    chain: Chain | None = None
    why: Why | None = None


class ChainFinder:
    """Finds the chains of a loop: what is known of the integers in its body."""

    def __init__(self, p: ForParams) -> None:
        self.p = p
        self.refs = p.body.invars[1 + p.num_consts :]
        self.numbers = integers.integers_of_step(p.body, p.nsteps)
        self.equal = ir.Equal()
        self.fixed = set(p.body.invars[1 : 1 + p.num_consts])
        self.fixed_eqns: list[ir.Eqn] = []
        for eqn in p.body.eqns:
            if not eqn.effects and not eqn.primitive.creates_state:
                self.equal.note(eqn)
                if ir.used_vars(eqn.invars) <= self.fixed:
                    self.fixed |= set(eqn.outvars)
                    self.fixed_eqns.append(eqn)

    def find(self, ref: ir.Var) -> Found:
        """The reads of elements that earlier steps wrote; none for a Ref that is not both read and written."""
        users = ir.users(self.p.body).get(ref, ())
        is_used = any(_reads(e, ref) for e in users) and any(
            ref in ir.changed_refs(e) for e in users
        )
        if not isinstance(ref.aval, AbstractRef) or not ref.aval.shape or not is_used:
            return Found()
        found = accesses.accesses_of(self.p.body, ref)
        if found is None or len(found) != len(users):
            inside = next(e for e in users if not accesses.is_access(e))
            kind = "an inner loop" if inside.primitive is for_p else f"`{inside.primitive}`"
            return Found(why=(f"{kind} reads or writes it", inside.source))
        whole = [a for a in found if accesses.is_whole(a.eqn.params.indexer, ref)]
        if len(whole) == len(found):
            return Found()  # it is carried as it is
        why = None
        if whole:
            verb = "written" if whole[0].mutates else "read"
            why = f"it is {verb} whole, too", whole[0].eqn.source
        write, *others = [a for a in found if a.mutates]
        if others:
            return Found(why=why or ("a step writes it more than once", others[0].eqn.source))
        return self._of_write(
            ref, write, [a for a in found if a.eqn.primitive is primitives.get_p], why
        )

    def _of_write(
        self,
        ref: ir.Var,
        write: accesses.RefAccess,
        others: Sequence[accesses.RefAccess],
        why: Why | None,
    ) -> Found:
        """The same for a Ref that is written once, and read by others; `why` is known of one of these."""
        places = self.places(write)
        if places is None:
            return Found(why=why or (f"it is written {self._unknown(write)}", write.eqn.source))
        reads: dict[int, int] = {}
        for a in others:
            later = self._steps_later(write, places, a)
            if isinstance(later, int):
                reads[id(a.eqn)] = later
            elif later is not None:
                why = why or (later, a.eqn.source)
        left = [a for a in others if id(a.eqn) not in reads]
        if reads and left and self.p.nsteps < FEWEST:
            return Found(
                why=why or ("the loop has few steps, and reads more of it", left[0].eqn.source)
            )
        chain = Chain(ref, write, places, reads, max(reads.values())) if reads else None
        return Found(chain, why)

    def places(self, access: accesses.RefAccess) -> dict[int, accesses.Place] | None:
        """The place of an access on each axis that it does not take whole; None if one is not known."""
        indexer, shape = access.eqn.params.indexer, access.eqn.invars[0].aval.shape
        if indexer.lead or indexer.new_axes:
            return None
        found: dict[int, accesses.Place] = {}
        for axis, (entry, size) in enumerate(zip(indexer.entries, shape, strict=True)):
            if isinstance(entry, Span) and entry == Span(0, size):
                continue
            place = access.place(axis, self.numbers)
            if place is not None:
                if not accesses.is_within(place, size, self.p.nsteps):
                    return None
                found[axis] = place
                continue
            operand = self.operand(access, axis)
            if operand not in self.fixed or indexer.drops:  # a write that is left out is not read
                return None
            found[axis] = operand
        return found

    def operand(self, access: accesses.RefAccess, axis: int) -> object:
        """The operand of an access on an axis, or the first that is equal to it; None without one of its own."""
        indexer = access.eqn.params.indexer
        entry = indexer.entries[axis]
        if not is_one(entry) or entry.start is not None:
            return None
        return self.equal.known(access.operands[indexer.dynamic_axes.index(axis)])

    def _steps_later(
        self,
        write: accesses.RefAccess,
        places: Mapping[int, accesses.Place],
        read: accesses.RefAccess,
    ) -> int | str | None:
        """How many steps after its write an element is read, or why it is not carried; None if it is another one."""
        theirs = self.places(read)
        if theirs is None:
            return f"it is read {self._unknown(read)}"
        if theirs.keys() != places.keys():
            return "it is read along other axes than it is written"
        later = set[int]()
        for axis, place in places.items():
            other = theirs[axis]
            if isinstance(place, integers.Affine) and isinstance(other, integers.Affine):
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
        if not later:
            return "it is read and written at one place in all steps"
        if len(later) != 1 or not 1 <= (steps := later.pop()) < self.p.nsteps:
            return None
        return self._why_not(write, read, steps) or steps

    def _why_not(self, write: accesses.RefAccess, read: accesses.RefAccess, steps: int) -> str:
        """Why what is read so many steps later is not carried there; nothing if it is."""
        if steps > MOST_STEPS:
            return f"it is read {steps} steps later, and is carried over at most {MOST_STEPS} steps"
        eqn, value = write.eqn, write.eqn.invars[1].aval
        if eqn.primitive is primitives.accumulate_p:
            return f"`{eqn.params.monoid}` accumulates there"
        size = ir.size_of(value.shape)
        if not ir.is_constant(size):
            return "the size of what is written is not known"
        if size > LARGEST:
            return f"{size:,} elements are read as fast as they are carried"
        fits = value.shape == eqn.params.indexer.result_shape
        fits = fits and value.dtype == eqn.invars[0].aval.dtype
        return "" if fits else "the value is converted before it is written"

    def _unknown(self, access: accesses.RefAccess) -> str:
        """Why the places of an access are not known."""

        def is_fixed(axis: int) -> bool:
            return self.operand(access, axis) in self.fixed

        return accesses.unknown_places(access, self.numbers, self.p.nsteps, is_fixed)


def _strides(written: int, read: int) -> str:
    if not written or not read:
        verb = "read" if written else "written"
        return f"it is {verb} at one place in all steps"
    return f"the places read move by {read} a step, those written by {written}"


def _reads(eqn: ir.Eqn, ref: ir.Var) -> bool:
    places = {k for k, a in enumerate(eqn.invars) if a is ref}
    return any(isinstance(e, ReadEffect) and e.position in places for e in eqn.effects)
