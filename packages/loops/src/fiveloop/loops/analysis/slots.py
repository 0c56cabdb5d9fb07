"""States of which each step has slots of its own: on one axis, all accesses are at places affine in the counter.

Then it is known which steps come to a slot, and when. Going backward through a loop, the cotangent of each output slot
is read and set to zero; if no later access reads the slot, and nobody wants it in the end, the zero need not be
written. The cotangent of each input slot is added to zero; it may as well be written.
"""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, ir, rules, trace, transforms
from fiveloop.core.ir.indexer import At, Indexer, Span
from fiveloop.loops.analysis import accesses, integers
from fiveloop.state import primitives


def drop_dead_writes(
    body: Jaxpr, nsteps: int, unwanted: Sequence[ir.Var], *, reverse: bool = False
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


def sums_as_writes(body: Jaxpr, nsteps: int, zero: Sequence[ir.Var]) -> Jaxpr:
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
        users = [eqn for eqn in body.eqns if ref in ir.used_vars(eqn.invars)]
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
    params = primitives.SwapParams(eqn.params.indexer, returns_old=False)
    return rules.new_eqn(primitives.swap_p, eqn.invars, params, (), eqn.source)


def _as_read(eqn: ir.Eqn) -> ir.Eqn | None:
    """A write whose new element is dead: only the old one is read, if it is wanted."""
    if not eqn.outvars:
        return None
    ref, _, *index = eqn.invars
    return rules.new_eqn(
        primitives.get_p,
        [ref, *index],
        primitives.IndexParams(eqn.params.indexer),
        eqn.outvars,
        eqn.source,
    )


def zeros_eqn(aval: ir.Aval) -> ir.Eqn:
    """An equation that makes an array of zeros, to be filled."""
    made: Jaxpr = trace.stage_closed(lambda: [transforms.zeros_of(aval)], [])
    (eqn,) = made.eqns
    return eqn


def slot_indexer(stack: ir.Aval, axis: int = 0) -> Indexer:
    """The index of a step's slot along an axis, whose number is an operand."""
    spans = [Span(0, n) for n in stack.shape]
    return Indexer((*spans[:axis], At(None), *spans[axis + 1 :]))


def slot_axis(indexer: object, stack: ir.Aval, steps: ir.Dim) -> int | None:
    """The axis of so many steps along which an index names a slot, if it does."""
    axes = [k for k, n in enumerate(stack.shape) if n == steps]
    return next((k for k in axes if indexer == slot_indexer(stack, k)), None)


def write_slot(stack: ir.Var, i: ir.Var, x: ir.Var) -> ir.Eqn:
    """An equation that writes to slot `i` of a Ref."""
    params = primitives.SwapParams(slot_indexer(stack.aval), returns_old=False)
    return rules.new_eqn(primitives.swap_p, [stack, x, i], params, ())
