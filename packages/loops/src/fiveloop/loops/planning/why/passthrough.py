"""Why what a state holds is kept once more for the derivative."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fiveloop.core.extend import Source, Var
from fiveloop.loops.for_loop.accesses import RefAccess, accesses_of, is_within
from fiveloop.loops.for_loop.passthrough import Finder
from fiveloop.loops.for_loop.primitive import ForParams
from fiveloop.loops.planning.operands import is_whole
from fiveloop.loops.planning.record import Decision
from fiveloop.loops.planning.why.places import unknown_places
from fiveloop.state import AbstractRef

STEP = "passthrough"
KEPT = "is kept once more"


def kept_again(p: ForParams, kept: Collection[Var]) -> list[Decision]:
    """For each Ref that a step writes at indices, why a value of it that is kept of each step is not read from it."""
    names = p.names
    told: list[Decision] = []
    for name, ref in zip(names, p.body.invars[1:], strict=True):
        found = accesses_of(p.body, ref) if isinstance(ref.aval, AbstractRef) else None
        if not found or not any(a.mutates for a in found):
            continue
        for a in found:
            value = next((v for v, _ in a.values() if v in kept), None)
            if value is not None and not is_whole(a.eqn.params.indexer, ref):
                why, source = _why(Finder(p), ref, a, value, found)
                told.append(
                    Decision(STEP, name, False, f"{value.aval} of each step {KEPT}: {why}", source)
                )
                break
    return told


def _why(
    finder: Finder, ref: Var, kept: RefAccess, value: Var, found: Sequence[RefAccess]
) -> tuple[str, Source | None]:
    """Why a Ref is not known to hold, before or after the loop, what an access reads or writes; and where."""
    writes = [a for a in found if a.mutates]
    for a in [*writes, kept]:
        if not any(_moves(finder, a, axis) for axis in range(ref.aval.ndim)):
            verb = "written" if a.mutates else "read"
            why = unknown_places(a, finder.numbers, finder.p.nsteps)
            return f"it is {verb} {why}", a.eqn.source
    if not finder.is_small(ref, value):
        return "the array takes more room than what is kept", kept.eqn.source
    return "a place of it is written by several steps, or before and after that", kept.eqn.source


def _moves(finder: Finder, access: RefAccess, axis: int) -> bool:
    """Whether an access is, on an axis, at places that are affine and in range; a write in each step at another."""
    place = access.place(axis, finder.numbers)
    if place is None or (access.mutates and not place.step):
        return False
    return is_within(place, access.eqn.invars[0].aval.shape[axis], finder.p.nsteps)
