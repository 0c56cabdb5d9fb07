"""Why an array of which each step reads its slot is made before the loop."""

from __future__ import annotations

from fiveloop.core.extend import Eqn, jaxprs_in
from fiveloop.loops.planning.around import Around
from fiveloop.loops.planning.factors import Stacks
from fiveloop.loops.planning.fuse import CHEAP, Slot, reads_of_slots
from fiveloop.loops.planning.record import Decision

STEP = "fuse"
SHARED = "something else uses it, too"


def not_fused(eqn: Eqn, around: Around) -> list[Decision]:
    """Which arrays that are made element by element, and read a slot a step, are made before the loop, and why."""
    p = eqn.params
    if p.num_carry or p.nsteps < 2 or p.record.called.kind:
        return []
    names = p.names
    told: list[Decision] = []
    for read in reads_of_slots(eqn, around):
        maker = around.made.get(read.operand)
        if maker is not None and _is_by_element(maker):
            slot = Slot(Stacks(eqn, around), read.operand, read.axis)
            why = slot.why_not if around.is_spare(read.operand, read.result) else SHARED
            reason = f"it is made before the loop: {why or 'its slot would be of another type'}"
            told.append(Decision(STEP, names[read.place], False, reason, maker.source))
    return told


def _is_by_element(eqn: Eqn) -> bool:
    """Whether an equation makes each element of elements alone."""
    shape = eqn.outvars[0].aval.shape
    is_plain = not eqn.effects and not jaxprs_in(eqn.params) and len(eqn.outvars) == 1
    by_element = all(a.aval.shape in ((), shape) for a in eqn.invars)
    has_arrays = any(a.aval.shape == shape for a in eqn.invars)
    return is_plain and (eqn.primitive.name in CHEAP or (by_element and has_arrays))
