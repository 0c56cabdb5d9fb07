"""The monoids by which a Ref accumulates: how two values are combined, and those of all lanes of a batch.

Of equal extremes the first counts: what was there before what comes, an earlier share before a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fiveloop.core import Scalar, Value
from fiveloop.core.engine import (
    add,
    at_source,
    bitwise_or,
    current_source,
    greater,
    integer_pow,
    less,
    mul,
    not_equal,
    static_slice,
)
from fiveloop.core.extend import (
    Aval,
    bitwise_and,
    broadcast_in_dim,
    concatenate,
    hlo,
    reduce_sum,
    reshape,
    select,
)

Combine = Callable[[Value, Value], Value]


@dataclass(frozen=True)
class Monoid:
    """How values are combined, `old` first.

    `takes` says which dtypes it is for, by their kinds. `repeated` combines a value with itself, so many times in all.
    """

    name: str
    symbol: str
    takes: str
    combine: Combine
    repeated: Callable[[Value, int], Value]

    def neutral(self, aval: Aval) -> Value:
        """What changes nothing, of a type."""
        return broadcast_in_dim(Scalar(hlo.identity(self.name, aval.dtype)), aval.shape, ())

    def nothing(self, aval: Aval) -> Value:
        """The same as a share: zero, added to minus zero, would change its sign; minus zero does not."""
        neutral = self.neutral(aval)
        return -neutral if self.name == "add" else neutral

    def over_lanes(self, x: Value) -> Value:
        """All that stands along the first axis combined, in order."""
        if self.name == "add":
            return reduce_sum(x, (0,))
        while (size := x.shape[0]) > 1:
            pairs = static_slice(x, (0,) * x.ndim, (size - size % 2, *x.shape[1:]))
            pairs = reshape(pairs, (size // 2, 2, *x.shape[1:]))
            folded = self.combine(*[_along_second(pairs, k) for k in (0, 1)])
            last = static_slice(x, (size - size % 2, *[0] * (x.ndim - 1)), x.shape)
            x = concatenate([folded, last]) if size % 2 else folded
        return reshape(x, x.shape[1:]) if x.shape[0] else self.neutral(x.aval.unbatched(0))


def _along_second(x: Value, k: int) -> Value:
    """The part of `x` at a position of its second axis."""
    start, limit = [0] * x.ndim, list(x.shape)
    start[1], limit[1] = k, k + 1
    return reshape(static_slice(x, start, limit), (x.shape[0], *x.shape[2:]))


def _scaled(x: Value, count: int) -> Value:
    return mul(x, Scalar(np.asarray(count).astype(x.dtype)))


def _once(x: Value, count: int) -> Value:
    """Of a monoid that is idempotent."""
    return x


def _extreme(beats: Combine) -> Combine:
    def combine(old: Value, new: Value) -> Value:
        wins = beats(new, old)
        if old.aval.differentiable:
            wins = bitwise_or(wins, not_equal(new, new))  # NaN wins
        return select(wins, new, old)

    return combine


MONOIDS = {
    m.name: m
    for m in (
        Monoid("add", "+=", "iufc", add, _scaled),
        Monoid("mul", "*=", "iufc", mul, integer_pow),
        Monoid("max", "max=", "iuf", _extreme(greater), _once),
        Monoid("min", "min=", "iuf", _extreme(less), _once),
        Monoid("and", "&=", "biu", bitwise_and, _once),
        Monoid("or", "|=", "biu", bitwise_or, _once),
    )
}
_KINDS = {"b": "bools", "iu": "integers", "f": "floats", "c": "complex numbers"}


def monoid_of(name: object, ref: Aval) -> Monoid:
    """A monoid by its name, if Refs of this type accumulate by it."""
    if name not in MONOIDS:
        raise ValueError(
            f"accumulate: expected a monoid among {', '.join(map(repr, MONOIDS))}, got {name!r}"
            f"{at_source(current_source())}"
        )
    monoid = MONOIDS[str(name)]
    kind = "f" if ref.differentiable and ref.dtype.kind != "c" else ref.dtype.kind
    if kind not in monoid.takes:
        taken = " or ".join([word for kinds, word in _KINDS.items() if kinds[0] in monoid.takes])
        raise TypeError(
            f"accumulate: expected a Ref of {taken} for the monoid {name!r}, got {ref}; "
            f"{_instead(kind, monoid.name)}{at_source(current_source())}"
        )
    return monoid


def _instead(kind: str, name: str) -> str:
    """What to use for a dtype that a monoid does not take."""
    if kind == "b":
        return "combine bools by 'and' or 'or', or count them in a Ref of integers"
    if kind == "c":
        return "complex numbers have no order: keep `abs(x)`, or real and imaginary parts, in Refs of their own"
    return f"compare first, and keep what the comparison gives in a Ref of bools: `accumulate(ref, i, x > 0, {name!r})`"
