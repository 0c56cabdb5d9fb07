"""Slots of the states of a loop: which step reads or writes which, and which values are in the final states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import At, Indexer, Span, whole_indexer
from fiveloop.loops.analysis import accesses, integers
from fiveloop.loops.analysis.accesses import Place, RefAccess, accesses_of, is_within
from fiveloop.loops.analysis.integers import Affine, integers_of_step
from fiveloop.loops.primitives.for_loop import ForParams
from fiveloop.loops.record import Decision
from fiveloop.state import AbstractRef, primitives


def drop_dead_writes(
    body: Jaxpr, nsteps: int, unwanted: ir.Vars, *, reverse: bool = False
) -> Jaxpr:
    """The body without the writes to slots of an unwanted Ref that are not read after."""
    dead = {id(a.eqn) for ref in unwanted for a in _dead(_Slots(body, ref, nsteps), reverse)}
    if not dead:
        return body
    eqns: list[ir.Eqn] = []
    for eqn in body.eqns:
        kept = _as_read(eqn) if id(eqn) in dead else eqn
        eqns += [kept] if kept is not None else []
    return body.replace(eqns=eqns)


@ir.once_per(lambda body, nsteps, zero: (body, nsteps, tuple(zero)))
def sums_as_writes(body: Jaxpr, nsteps: int, zero: ir.Vars) -> Jaxpr:
    """The body in which a single accumulation into the step's own slot of a Ref, which starts as zero, is a write."""
    own: set[int] = set()
    for ref in zero:
        slots = _Slots(body, ref, nsteps)
        if [a.eqn.primitive for a in slots.accesses] == [primitives.addupdate_p] and slots.places:
            own.add(id(slots.accesses[0].eqn))
    return body.replace(eqns=[_as_write(e) if id(e) in own else e for e in body.eqns])


class _Slots:
    """The accesses of a Ref, and for each axis that tells slots apart the place of each access; none if one does not.

    Places are in range and move with one stride.
    """

    def __init__(self, body: Jaxpr, ref: ir.Var, nsteps: int) -> None:
        found = accesses.accesses_of(body, ref) or []
        users = ir.users(body).get(ref, ())
        is_all = len(users) == len(found) and ref not in body.outvars
        self.nsteps = nsteps
        self.accesses: list[accesses.RefAccess] = found if is_all else []
        self.places: list[list[integers.Affine]] = []
        numbers = integers.integers_of_step(body, nsteps) if self.accesses else {}
        for axis in range(ref.aval.ndim):
            places = [a.place(axis, numbers) for a in self.accesses]
            moving = [p for p in places if p is not None and p.step]
            steps = {p.step for p in moving}
            size = ref.aval.shape[axis]
            if len(moving) == len(places) and len(steps) == 1:
                if all(accesses.is_within(p, size, nsteps) for p in moving):
                    self.places.append(moving)

    def steps_between(self, k: int, later: int) -> list[int | None]:
        """On each axis how many steps on an access comes to the slot of another; None if it never does."""
        found: list[int | None] = []
        for places in self.places:
            apart, rest = divmod(places[k].start - places[later].start, places[k].step)
            found.append(None if rest or abs(apart) >= max(self.nsteps, 1) else apart)
        return found


def _dead(slots: _Slots, reverse: bool) -> list[accesses.RefAccess]:
    """The writes to slots that no later access reads for something that counts."""
    if not slots.places:
        return []
    reads = {k for k, a in enumerate(slots.accesses) if a.eqn.outvars}
    live = {k for k, a in enumerate(slots.accesses) if not a.mutates}
    while True:
        # What adds to a slot reads it; that counts if what it makes is read.
        count = reads | {
            k for k in live if slots.accesses[k].eqn.primitive is not primitives.swap_p
        }
        found = {
            k
            for k, a in enumerate(slots.accesses)
            if a.mutates and any(_is_later(slots, k, other, reverse) for other in count)
        }
        if found <= live:
            return [a for k, a in enumerate(slots.accesses) if a.mutates and k not in live]
        live |= found


def _is_later(slots: _Slots, k: int, other: int, reverse: bool) -> bool:
    """Whether an access may come to the slot of another one after that."""
    between = slots.steps_between(k, other)
    if None in between or len(set(between)) > 1:
        return False
    (steps,) = set(between)
    assert steps is not None, "unreachable: it is a number"
    return other > k if not steps else (steps > 0) != reverse


def _as_write(eqn: ir.Eqn) -> ir.Eqn:
    ref, x, *index = eqn.invars
    return accesses.write_at(ref, x, eqn.params.indexer, index, eqn.source)


def _as_read(eqn: ir.Eqn) -> ir.Eqn | None:
    """A write whose new element is dead: only the old one is read, if it is wanted."""
    if not eqn.outvars:
        return None
    ref, _, *index = eqn.invars
    return accesses.read_at(ref, eqn.params.indexer, index, eqn.outvars, eqn.source)


def slot_indexer(stack: ir.Aval, axis: int = 0) -> Indexer:
    """The index of a step's slot along an axis, whose number is an operand."""
    spans = [Span(0, n) for n in stack.shape]
    return Indexer((*spans[:axis], At(None), *spans[axis + 1 :]))


def slot_axis(indexer: object, stack: ir.Aval, steps: ir.Dim) -> int | None:
    """The axis of so many steps along which an index names a slot, if it does."""
    axes = [k for k, n in enumerate(stack.shape) if n == steps]
    return next((k for k in axes if indexer == slot_indexer(stack, k)), None)


@dataclass(frozen=True, slots=True)
class Part:
    """A value that has been joined with others: of `whole`, what begins at `start` on an axis."""

    whole: ir.Var
    axis: int
    start: int
    size: int

    def of(self, whole: Value) -> Value:
        """The part of a whole."""
        first, last = [0] * whole.ndim, list(whole.shape)
        first[self.axis], last[self.axis] = self.start, self.start + self.size
        return prims.static_slice(whole, first, last)


@ir.once_per_jaxpr
def parts_of_wholes(body: Jaxpr) -> dict[ir.Var, list[Part]]:
    """Of what each value of a body is a part; remembered on the body."""
    found: dict[ir.Var, list[Part]] = {}
    for eqn in body.eqns:
        if eqn.primitive is prims.concatenate_p:
            for v, part in _joined(eqn):
                found.setdefault(v, []).append(part)
    return found


def _joined(eqn: ir.Eqn) -> list[tuple[ir.Var, Part]]:
    axis, start, found = eqn.params.axis, 0, list[tuple[ir.Var, Part]]()
    for a in eqn.invars:
        size = a.aval.shape[axis]
        if not isinstance(size, int):
            break
        if isinstance(a, ir.Var):
            found.append((a, Part(eqn.outvars[0], axis, start, size)))
        start += size
    return found


def cut_from(body: Jaxpr, wholes: Collection[ir.Var], values: Collection[ir.Var]) -> set[ir.Var]:
    """Those of the wholes that some of the values are cut from, or are themselves."""
    roots: dict[ir.Var, ir.Var] = {v: v for v in wholes}
    for eqn in body.eqns:
        # With other operands they say where, which may change from step to step.
        is_cut = rules.is_view(eqn) and len(eqn.invars) == 1
        source = eqn.invars[0] if is_cut else None
        if isinstance(source, ir.Var) and source in roots:
            roots.update((v, roots[source]) for v in eqn.outvars if v not in roots)
    return {roots[v] for v in values if v in roots}


@dataclass(frozen=True, slots=True)
class Held:
    """Where a step's value is found: at an index of what a state holds, after the loop (`final`) or before it."""

    operand: int
    final: bool
    indexer: Indexer
    index: tuple[Place, ...]

    def read(self, array: Value, i: Value, consts: dict[ir.Var, Value]) -> Value:
        """The value of the step `i`, from a Ref of what the state holds."""
        index = [
            arrays.as_value(p.at(i)) if isinstance(p, Affine) else consts[p] for p in self.index
        ]
        return trace.bind1(
            primitives.get_p, array, *index, params=primitives.IndexParams(self.indexer)
        )

    @property
    def consts(self) -> set[ir.Var]:
        """The constants of the body that the index needs."""
        return {p for p in self.index if isinstance(p, ir.Var)}


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that a loop carries: the operand that it is at first, and what a step makes of it."""

    operand: int
    after: ir.Var


@dataclass(frozen=True, slots=True)
class Found:
    """Which values of a body are held by states, and which are carried."""

    held: dict[ir.Var, Held]
    carried: dict[ir.Var, Carried]


@ir.once_per(lambda p: (p.body, p.nsteps, p.reverse, p.num_consts))
def find_held(p: ForParams) -> Found:
    """The values of a loop's body that its states hold; remembered on the body."""
    return Finder(p).run()


class Finder:
    """Finds where values of a loop's body are held."""

    def __init__(self, p: ForParams) -> None:
        self.p = p
        self.body: Jaxpr = p.body
        self.numbers = integers_of_step(p.body, p.nsteps)
        self.consts = set(p.body.invars[1 : 1 + p.num_consts])

    def run(self) -> Found:
        """All values held in states, and all carried values."""
        found = Found({}, {})
        for operand, ref in enumerate(self.body.invars[1:]):
            accesses = accesses_of(self.body, ref) if isinstance(ref.aval, AbstractRef) else None
            if not accesses or not any(a.mutates for a in accesses):
                continue
            found.carried.update(_carried(operand, accesses))
            for axis in range(ref.aval.ndim):
                for v, held in self._held(operand, ref, axis, accesses):
                    found.held.setdefault(v, held)
        return found

    def _held(
        self, operand: int, ref: ir.Var, axis: int, accesses: Sequence[RefAccess]
    ) -> Iterator[tuple[ir.Var, Held]]:
        """The values whose places one axis of the index determines."""
        size = ref.aval.shape[axis]
        writes: list[tuple[int, Affine]] = []
        for a in accesses:
            if a.mutates:
                place = a.place(axis, self.numbers)
                if place is None or not place.step or not is_within(place, size, self.p.nsteps):
                    return
                writes.append((a.number, place))
        if len({place.step for _, place in writes}) != 1:
            return
        for a in accesses:
            place = a.place(axis, self.numbers)
            index = a.index(self.numbers, self.consts)
            if place is None or index is None or not is_within(place, size, self.p.nsteps):
                continue
            for v, is_after in a.values():
                final = self.is_final(place, a.number, is_after, writes)
                if final is not None and self.is_small(ref, v):
                    yield v, Held(operand, final, a.eqn.params.indexer, index)

    def is_final(
        self, place: Affine, number: int, is_after: bool, writes: Sequence[tuple[int, Affine]]
    ) -> bool | None:
        """Whether all writes to a place have happened at an equation (True), or none has (False); otherwise None."""
        happened = set[bool]()
        steps = range(self.p.nsteps)
        for other, written in writes:
            apart, rest = divmod(place.start - written.start, written.step)
            if place.step != written.step:
                if place.step or (not rest and apart in steps):
                    return None
            elif not rest and apart == 0:
                happened.add(other < number or (other == number and is_after))
            elif not rest and abs(apart) in steps:
                happened.add((apart < 0) != self.p.reverse)
        return None if len(happened) > 1 else happened != {False}

    def is_small(self, ref: ir.Var, v: ir.Var) -> bool:
        """Whether the state takes hardly more room than a slot for the value in each step."""
        stack = self.p.nsteps * prims.bytes_of([v.aval])
        return not ir.is_more(2 * prims.bytes_of([ref.aval]), 3 * stack)


def _carried(operand: int, accesses: Sequence[RefAccess]) -> Iterator[tuple[ir.Var, Carried]]:
    """What is read of a Ref as a whole before it is written as a whole, once."""
    whole = whole_indexer(accesses[0].eqn.invars[0].aval.shape)
    (first, *others) = [k for k, a in enumerate(accesses) if a.mutates]
    write = accesses[first].eqn
    is_plain = write.primitive is primitives.swap_p and not write.outvars
    is_write = is_plain and write.params.indexer == whole
    if others or not is_write or not isinstance(write.invars[1], ir.Var):
        return
    for a in accesses[:first]:
        if a.eqn.params.indexer == whole and a.eqn.outvars[0] is not write.invars[1]:
            yield a.eqn.outvars[0], Carried(operand, write.invars[1])


STEP = "passthrough"
KEPT = "is kept once more"


def kept_again(p: ForParams, kept: Collection[ir.Var]) -> list[Decision]:
    """For each Ref that a step writes at indices, why a value of it that is kept of each step is not read from it."""
    names = p.names
    told: list[Decision] = []
    for name, ref in zip(names, p.body.invars[1:], strict=True):
        found = accesses_of(p.body, ref) if isinstance(ref.aval, AbstractRef) else None
        if not found or not any(a.mutates for a in found):
            continue
        for a in found:
            value = next((v for v, _ in a.values() if v in kept), None)
            if value is not None and not accesses.is_whole(a.eqn.params.indexer, ref):
                why, source = _why(Finder(p), ref, a, value, found)
                told.append(
                    Decision(STEP, name, False, f"{value.aval} of each step {KEPT}: {why}", source)
                )
                break
    return told


def _why(
    finder: Finder, ref: ir.Var, kept: RefAccess, value: ir.Var, found: Sequence[RefAccess]
) -> tuple[str, ir.Source | None]:
    """Why a Ref is not known to hold, before or after the loop, what an access reads or writes; and where."""
    writes = [a for a in found if a.mutates]
    for a in [*writes, kept]:
        if not any(_moves(finder, a, axis) for axis in range(ref.aval.ndim)):
            verb = "written" if a.mutates else "read"
            why = accesses.unknown_places(a, finder.numbers, finder.p.nsteps)
            return f"it is {verb} {why}", a.eqn.source
    if not finder.is_small(ref, value):
        return "the array takes more memory than the saved values", kept.eqn.source
    return "a place of it is written by several steps, or before and after that", kept.eqn.source


def _moves(finder: Finder, access: RefAccess, axis: int) -> bool:
    """Whether an access is, on an axis, at places that are affine and in range; a write in each step at another."""
    place = access.place(axis, finder.numbers)
    if place is None or (access.mutates and not place.step):
        return False
    return is_within(place, access.eqn.invars[0].aval.shape[axis], finder.p.nsteps)
