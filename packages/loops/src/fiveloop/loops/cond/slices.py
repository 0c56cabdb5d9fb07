"""Branches whose writes are moved behind the cond.

A branch that returned the whole contents of a Ref would make XLA copy them, in a loop in every step. So a branch reads
from the contents, and returns the elements and the index of each write; the writes of the branches share slots, as
residuals do. Where a branch replaces all of a Ref, or loops over writes to it, it returns the contents. A branch within
a branch takes the pending writes around it, and reads from them the elements that they write.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir.indexer import Indexer
from fiveloop.loops.primitives.cond import CondParams
from fiveloop.state import AbstractRef, discharge


@dataclass(frozen=True)
class Slot:
    """What writes have in common: the Ref, the form of the index, and the types of what goes where."""

    ref: int
    indexer: Indexer
    kind: str
    value: ir.Aval
    index: tuple[ir.Aval, ...]


@dataclass(frozen=True)
class Waiting:
    """A write that waits around the branches: its Ref, and the inputs that give its place and value."""

    ref: int
    indexer: Indexer
    kind: str
    index: tuple[int, ...]
    starts: tuple[int, ...]
    value: int

    def write(self, args: ad.Values) -> discharge.Write:
        """The write on the inputs of a branch."""
        index, starts = (tuple(args[k] for k in ks) for ks in (self.index, self.starts))
        place = discharge.Place(self.indexer, index, args[self.ref].shape, starts)
        return discharge.Write(place, args[self.value], self.kind)


def waiting_writes(
    ctx: discharge.DischargeContext, operands: discharge.Operands
) -> tuple[tuple[Waiting, ...], list[Value]]:
    """The writes that wait around a choice, and the inputs that its branches take for these."""
    place = {id(x): k for k, x in enumerate(operands) if isinstance(x, Value)}
    extra: list[Value] = []

    def part(x: Value) -> int:
        if id(x) not in place:
            place[id(x)] = len(operands) + len(extra)
            extra.append(x)
        return place[id(x)]

    found = [
        Waiting(
            k,
            w.place.indexer,
            w.kind,
            tuple(map(part, w.place.index)),
            tuple(map(part, w.place.starts)),
            part(w.value),
        )
        for k, x in enumerate(operands)
        if isinstance(x, discharge.Cell) and isinstance(ctx, discharge.DeferredWrites)
        for w in ctx.waiting(x)
    ]
    return tuple(found), extra


@dataclass(frozen=True, slots=True)
class BranchWrites:
    """A branch and what it writes; `given` are the inputs that an index consists of, or None.

    jaxpr : [*ins, Refs as their contents] -> [*outs, *new contents, *(elements, *positions) of each write]
    """

    jaxpr: Jaxpr
    slots: list[Slot]
    given: list[tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class SharedWrites:
    """All branches, and the slots that their writes share, in the order in which they are carried out.

    branch : [*ins, Refs as their contents] -> [*outs, *new contents, *(elements, *positions) of each slot]

    `given` has for a slot the inputs that its index consists of in all branches; then the branches do not
    give positions. `users` are the branches that write there.
    """

    branches: tuple[Jaxpr, ...]
    whole: list[int]
    slots: list[Slot]
    given: list[tuple[int, ...] | None]
    users: list[list[int]]


@dataclass(frozen=True)
class Inputs:
    """What branches take: `which` inputs are Refs to discharge, `changed` those that any branch changes.

    The inputs of the types `extra`, behind the others, are for the writes that wait around the branches.
    """

    which: util.Mask
    changed: util.Mask
    waiting: tuple[Waiting, ...] = ()
    extra: tuple[ir.Aval, ...] = ()


@ir.once_per(lambda p, inputs: (p.branches[0], p, inputs))
def share_writes(p: CondParams, inputs: Inputs) -> SharedWrites:
    """The branches over contents."""
    whole: list[int] = []
    while True:
        found = [_trace(branch, inputs, whole) for branch in p.branches]
        late = [x for x in found if isinstance(x, int)]
        if not late:
            break
        whole = sorted({*whole, *late})
    traced = [x for x in found if not isinstance(x, int)]
    slots, places = _align([t.slots for t in traced])
    users = [[k for k, mine in enumerate(places) if s in mine] for s in range(len(slots))]
    given = []
    for s, takers in enumerate(users):
        sources = {traced[k].given[places[k][s]] for k in takers}
        given.append(sources.pop() if len(sources) == 1 else None)
    num_outs = len(p.branches[0].outvars) + len(whole)
    branches = tuple(
        _fill(t, num_outs, slots, mine, given) for t, mine in zip(traced, places, strict=True)
    )
    return SharedWrites(branches, whole, slots, given, users)


def _trace(branch: Jaxpr, inputs: Inputs, whole: Sequence[int]) -> BranchWrites | int:
    """A branch that leaves its writes waiting; or the position of a Ref whose writes cannot wait."""
    slots: list[Slot] = []
    given: list[tuple[int, ...] | None] = []
    inlined = discharge.with_calls_inlined(branch)
    which = inputs.which

    def run(*args: Value) -> list[Value]:
        ctx = discharge.DeferredWrites()
        operands: list[Value | discharge.Cell] = [
            _cell(ctx, k, x, inputs.changed[k], whole) if w else x
            for k, (x, w) in enumerate(zip(args, which, strict=False))
        ]
        around = [waiting.write(args) for waiting in inputs.waiting]
        for waiting, write in zip(inputs.waiting, around, strict=True):
            operands[waiting.ref].writes.append(write)  # type: ignore[union-attr]  # it is a Cell
        try:
            outs = transforms.interpret(inlined, operands, partial(discharge.discharge_eqn, ctx))
        except discharge.CannotDefer as error:
            raise _Whole(next(k for k, x in enumerate(operands) if x is error.cell)) from None
        for k in whole:
            outs.append(ctx.contents(operands[k]))  # type: ignore[arg-type]  # it is a Cell
        for k, cell in enumerate(operands):
            for w in cell.writes if isinstance(cell, discharge.Cell) and k not in whole else ():
                if any(w is write for write in around):
                    continue
                # What is outside must be told again from what counts from the end.
                place = w.place
                positions = place.index if place.indexer.drops else discharge.positions(place)
                avals = tuple(x.aval for x in positions)
                slots.append(Slot(k, w.place.indexer, w.kind, w.value.aval.strong(), avals))
                given.append(_inputs(w.place.index, args, which))
                outs += [w.value, *positions]
        return outs

    avals = [
        a.inner if w and isinstance(a, AbstractRef) else a
        for a, w in zip(branch.in_avals, which, strict=True)
    ]
    try:
        jaxpr = trace.stage_closed(run, [*avals, *inputs.extra], branch.name)
    except _Whole as error:
        return error.position
    return BranchWrites(jaxpr, slots, given)


class _Whole(Exception):
    """A Ref must be given back whole: the position of the input."""

    def __init__(self, position: int) -> None:
        super().__init__(f"input {position} is given back whole")
        self.position = position


def _cell(
    ctx: discharge.DeferredWrites, k: int, contents: Value, changes: bool, whole: Sequence[int]
) -> discharge.Cell:
    return ctx.new_cell(contents, changes) if k in whole else ctx.deferred(contents, changes)


def _inputs(index: ad.Values, args: ad.Values, which: util.Mask) -> tuple[int, ...] | None:
    """The inputs that an index consists of, if it does; what a Ref holds changes, and is none."""
    position = {id(x): k for k, x in enumerate(args) if not any(which[k : k + 1])}
    found = [position.get(id(x), -1) for x in index]
    return tuple(found) if -1 not in found else None


def _align(sequences: Sequence[Sequence[Slot]]) -> tuple[list[Slot], list[dict[int, int]]]:
    """Slots such that each sequence is found among them in order; and for each, its writes by slot."""
    slots: list[Slot] = []
    for sequence in sequences:
        start = 0
        for slot in sequence:
            if slot in slots[start:]:
                start = slots.index(slot, start) + 1
            else:
                slots.insert(start, slot)
                start += 1
    places = []
    for sequence in sequences:
        start, mine = 0, {}
        for k, slot in enumerate(sequence):
            at = slots.index(slot, start)
            mine[at], start = k, at + 1
        places.append(mine)
    return slots, places


def _fill(
    traced: BranchWrites,
    num_outs: int,
    slots: Sequence[Slot],
    mine: dict[int, int],
    given: Sequence[tuple[int, ...] | None],
) -> Jaxpr:
    """A branch that fills all slots: slots that it does not write get values that are not used or change nothing."""

    def run(*args: Value) -> list[Value]:
        results = transforms.eval_jaxpr(traced.jaxpr, args)
        outs, rest = results[:num_outs], iter(results[num_outs:])
        writes = [[next(rest) for _ in (s.value, *s.index)] for s in traced.slots]
        for at, slot in enumerate(slots):
            write = writes[mine[at]] if at in mine else _nothing(slot)
            outs += write if given[at] is None else write[:1]
        return outs

    return trace.stage_closed(run, traced.jaxpr.in_avals, traced.jaxpr.name)


def _nothing(slot: Slot) -> list[Value]:
    """An element and a place, for a branch that writes nothing there."""
    value = (
        transforms.zeros_of(slot.value)
        if slot.kind == "set"
        else prims.MONOIDS[slot.kind].neutral(slot.value)
    )
    return [value, *map(transforms.zeros_of, slot.index)]
