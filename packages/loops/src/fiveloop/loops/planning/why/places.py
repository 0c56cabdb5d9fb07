"""Why it is not known at which places an access touches a Ref."""

from __future__ import annotations

from collections.abc import Callable

from fiveloop.core.engine import At, Span, is_constant
from fiveloop.core.extend import Var
from fiveloop.loops.for_loop.accesses import RefAccess, is_within
from fiveloop.loops.for_loop.affine import Affine


def unknown_places(
    access: RefAccess,
    numbers: dict[Var, Affine],
    nsteps: int,
    is_fixed: Callable[[int], bool] = lambda axis: False,
) -> str:
    """What keeps the places of an access from being `a * i + b` and in range, or the same in all steps (`is_fixed`)."""
    indexer, shape = access.eqn.params.indexer, access.eqn.invars[0].aval.shape
    for axis, (entry, size) in enumerate(zip(indexer.entries, shape, strict=True)):
        if entry == Span(0, size):
            continue
        if not is_constant(size):
            return "along an axis whose size is not known"
        place = access.place(axis, numbers)
        if place is not None and not is_within(place, size, nsteps):
            low, high = place.ends(nsteps)
            return f"from {low} to {high}, and places are from 0 to {size - 1}"
        is_one = isinstance(entry, At) or (isinstance(entry, Span) and entry.size == 1)
        if isinstance(entry, Span) and not is_one:
            return "a slice at a time"
        if place is None and is_one and not is_fixed(axis):
            return "at an index that is not `a * i + b` in the counter `i`"
        if place is not None and not place.step:
            return "at one place in all steps"
    return "at an array of indices"
