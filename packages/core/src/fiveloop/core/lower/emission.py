"""The lowering of `order`, which keeps loops in place, for each platform and jaxlib version.

XLA:CPU may clone a read of an old array version past an update of it, and then copies the array in every
step. `order` stops that: the values read and the indices written pass through it. jaxlib before 0.12 drops
optimisation barriers before fusion, so there a scalar `if` does it, whose predicate XLA cannot fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from fiveloop.core.backend import hlo, native


class Emission(Enum):
    """One rung of the ladder of ways to write `order`; with `guards`, late reads are guarded, too: see `guarded`."""

    BARRIER = "barrier"
    SCALAR_IF = "scalar_if"
    PLAIN = "plain"
    GUARDED_BARRIER = "barrier, late reads guarded"
    GUARDED_IF = "scalar_if, late reads guarded"

    @property
    def guards(self) -> bool:
        """Whether a read of what a write has given is kept from being merged with that."""
        return self in (Emission.GUARDED_BARRIER, Emission.GUARDED_IF)

    @property
    def branches(self) -> bool:
        """Whether an `if` orders what a barrier would not."""
        return self in (Emission.SCALAR_IF, Emission.GUARDED_IF)


def ladder(platform: str) -> tuple[Emission, ...]:
    """The ways to try, best first."""
    if platform == "cpu" and native.jaxlib_version() < (0, 12):
        return (Emission.SCALAR_IF, Emission.GUARDED_IF, Emission.BARRIER)
    return (Emission.BARRIER, Emission.GUARDED_BARRIER, Emission.SCALAR_IF)


def emit_order(
    b: hlo.Builder, emission: Emission, operands: hlo.IRValues, fixed: Sequence[bool]
) -> list[hlo.IRValue]:
    """Write `order(index, *values)`; the index does not come back. `fixed` says which operands are constants."""
    index, *values = operands
    match emission:
        case Emission.PLAIN:
            return list(values)
        case Emission.BARRIER | Emission.GUARDED_BARRIER:
            return list(hlo.optimization_barrier(b, values))
        case Emission.SCALAR_IF | Emission.GUARDED_IF:
            return _scalar_if(b, index, values, fixed[1:])


def guarded(
    b: hlo.Builder,
    place: hlo.IRValue,
    read: Callable[[], list[hlo.IRValue]],
    results: Sequence[hlo.TypeSpec],
) -> list[hlo.IRValue]:
    """A read at a place, in an `if` that is always taken: the place with its lowest bit set is not zero.

    XLA may write an array a second time where it is read, to read from that; then it copies what is written to. It
    does not look into a branch.
    """
    if place.shape:
        start, one = ([k] * len(place.shape) for k in (0, 1))
        place = hlo.reshape(b, hlo.slice(b, place, start, one, one), ())
    odd = hlo.or_(b, place, _number(b, place, 1))
    true = hlo.compare(b, odd, _number(b, place, 0), "NE")

    def unreached() -> list[hlo.IRValue]:
        return [hlo.constant(b, np.asarray(7).astype(d), shape, d) for shape, d in results]

    return hlo.if_(b, true, read, unreached, results)


def opaque_branch(
    b: hlo.Builder,
    values: hlo.IRValues,
    run: Callable[[], list[hlo.IRValue]],
    results: Sequence[hlo.TypeSpec],
) -> list[hlo.IRValue] | None:
    """What `run` gives, in a branch that the bits of one of the values say is taken; None if none is a number."""
    numbers = [x for x in values if _is_number(x.dtype) and 0 not in x.shape]
    if not numbers:
        return None
    last = numbers[-1]
    return guarded(b, hlo.bitcast_convert(b, last, f"i{last.dtype.itemsize}"), run, results)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iuf" or dtype.name == "bfloat16"


def _scalar_if(
    b: hlo.Builder, index: hlo.IRValue, values: hlo.IRValues, fixed: Sequence[bool]
) -> list[hlo.IRValue]:
    """All values through one `if` that is always taken.

    A constant in a branch would make XLA turn the `if` into selects. So constants stay outside, and are selected
    by whether the index has come through unchanged, which it has.
    """
    moving = [index, *[v for v, f in zip(values, fixed, strict=True) if not f]]
    true = hlo.compare(b, index, hlo.constant(b, np.asarray(0), (), index.dtype), "GE")

    def unreached() -> list[hlo.IRValue]:
        return [_number(b, v, 7) for v in moving]

    counter, *passed = hlo.if_(
        b, true, lambda: moving, unreached, [(v.shape, v.dtype) for v in moving]
    )
    unchanged = hlo.compare(b, counter, index, "EQ")
    rest = iter(passed)
    return [
        hlo.select(b, unchanged, v, _number(b, v, 7)) if f else next(rest)
        for v, f in zip(values, fixed, strict=True)
    ]


def _number(b: hlo.Builder, like: hlo.IRValue, number: int) -> hlo.IRValue:
    return hlo.constant(b, np.asarray(number).astype(like.dtype), like.shape, like.dtype)
