"""Which monoids a Ref accumulates by, told by its dtype; `core.primitives.monoids` has their table."""

from __future__ import annotations

from fiveloop.core import errors, ir, prims, trace

_KINDS = {"b": "bools", "iu": "integers", "f": "floats", "c": "complex numbers"}


def monoid_of(name: object, ref: ir.Aval) -> prims.Monoid:
    """A monoid by its name, if Refs of this type accumulate by it."""
    if name not in prims.MONOIDS:
        raise ValueError(
            f"accumulate: expected a monoid among {', '.join(map(repr, prims.MONOIDS))}, got {name!r}"
            f"{errors.at_source(trace.current_source())}"
        )
    monoid = prims.MONOIDS[str(name)]
    kind = "f" if ref.differentiable and ref.dtype.kind != "c" else ref.dtype.kind
    if kind not in monoid.takes:
        taken = " or ".join([word for kinds, word in _KINDS.items() if kinds[0] in monoid.takes])
        raise TypeError(
            f"accumulate: expected a Ref of {taken} for the monoid {name!r}, got {ref}; "
            f"{_instead(kind, monoid.name)}{errors.at_source(trace.current_source())}"
        )
    return monoid


def _instead(kind: str, name: str) -> str:
    """What to use for a dtype that a monoid does not take."""
    if kind == "b":
        return "combine bools by 'and' or 'or', or count them in a Ref of integers"
    if kind == "c":
        return "complex numbers have no order: keep `abs(x)`, or real and imaginary parts, in Refs of their own"
    return f"compare first, and keep what the comparison gives in a Ref of bools: `accumulate(ref, i, x > 0, {name!r})`"
