"""Monoids: how values are combined, and the derivative where an index repeats.

One table serves arrays (`x.at[i].max(v)`), scatters, Refs that accumulate and sums over lanes. Their StableHLO and
their identities stand beside it, in `hlo.COMBINERS` and `hlo.identity`, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import arrays, ir
from fiveloop.core.arrays import Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import convert, elementwise, shape, sort, special, take
from fiveloop.core.primitives.broadcast import broadcast_in_dim, reduce_sum, reshape

Combine = Callable[[Value, Value], Value]


@dataclass(frozen=True)
class Monoid:
    """How values are combined, `old` first.

    `takes` says which dtypes a Ref that accumulates by it may hold, by their kinds. Of equal extremes `combine` gives
    the derivative to the first; `combine_evenly` shares it. `repeated` combines a value with itself, so many times in
    all.
    """

    name: str
    symbol: str
    takes: str
    combine: Combine
    combine_evenly: Combine
    repeated: Callable[[Value, int], Value]

    def neutral(self, aval: ir.Aval) -> Value:
        """What changes nothing, of a type."""
        return broadcast_in_dim(arrays.Scalar(hlo.identity(self.name, aval.dtype)), aval.shape, ())

    def nothing(self, aval: ir.Aval) -> Value:
        """The same as a share: zero, added to minus zero, would change its sign; minus zero does not."""
        neutral = self.neutral(aval)
        return elementwise.neg(neutral) if self.name == "add" else neutral

    def over_lanes(self, x: Value) -> Value:
        """All that stands along the first axis combined, in order."""
        if self.name == "add":
            return reduce_sum(x, (0,))
        while (size := x.shape[0]) > 1:
            pairs = take.static_slice(x, (0,) * x.ndim, (size - size % 2, *x.shape[1:]))
            pairs = reshape(pairs, (size // 2, 2, *x.shape[1:]))
            folded = self.combine(*[_along_second(pairs, k) for k in (0, 1)])
            last = take.static_slice(x, (size - size % 2, *[0] * (x.ndim - 1)), x.shape)
            x = shape.concatenate([folded, last]) if size % 2 else folded
        return reshape(x, x.shape[1:]) if x.shape[0] else self.neutral(x.aval.unbatched(0))


def _along_second(x: Value, k: int) -> Value:
    """The part of `x` at a position of its second axis."""
    start, limit = [0] * x.ndim, list(x.shape)
    start[1], limit[1] = k, k + 1
    return reshape(take.static_slice(x, start, limit), (x.shape[0], *x.shape[2:]))


def _scaled(x: Value, count: int) -> Value:
    return elementwise.mul(x, arrays.Scalar(np.asarray(count).astype(x.dtype)))


def _once(x: Value, count: int) -> Value:
    """Of a monoid that is idempotent."""
    return x


def _first_of_equals(beats: Combine, old: Value, new: Value) -> Value:
    """An extreme that is `old` at a tie; NaN wins."""
    wins = beats(new, old)
    if old.aval.differentiable:
        wins = elementwise.bitwise_or(wins, elementwise.not_equal(new, new))
    return elementwise.select(wins, new, old)


_greater = partial(_first_of_equals, elementwise.greater)
_lesser = partial(_first_of_equals, elementwise.less)
MONOIDS = {
    m.name: m
    for m in (
        Monoid("add", "+=", "iufc", elementwise.add, elementwise.add, _scaled),
        Monoid("mul", "*=", "iufc", elementwise.mul, elementwise.mul, special.integer_pow),
        Monoid("max", "max=", "iuf", _greater, elementwise.maximum, _once),
        Monoid("min", "min=", "iuf", _lesser, elementwise.minimum, _once),
        Monoid("and", "&=", "biu", elementwise.bitwise_and, elementwise.bitwise_and, _once),
        Monoid("or", "|=", "biu", elementwise.bitwise_or, elementwise.bitwise_or, _once),
    )
}


# derivatives


def mean_of_winners(x: Value, out: Value, t: Value, total: Callable[[Value], Value]) -> Value:
    """The tangent of an extreme `out` of many elements: the mean of the tangents of elements equal to it.

    `total` sums over the compared elements.
    """
    wins = elementwise.equal(x, out)
    count = total(convert.convert(wins, t.dtype))
    return elementwise.div(total(elementwise.select(wins, t, convert.convert(0, t.dtype))), count)


def factor_of_share(old: Value, shares: Value, places: Value | None) -> Value:
    """The factor of a share's tangent in a product: all other factors at its place, without division.

    `places` numbers the elements that shares go to; None says that no two shares go to the same element.
    """
    return old if places is None else elementwise.mul(old, product_of_others(shares, places))


def changed_by(old: Value, new: Value) -> Value:
    """Whether an extreme has changed; NaN that stays NaN has not."""
    return elementwise.bitwise_and(elementwise.not_equal(new, old), elementwise.equal(old, old))


def winning_shares(changed: Value, new: Value, shares: Value, places: Value | None) -> Value:
    """Which shares have made an extreme change, to `new`: at each place the first of equals."""
    best = elementwise.bitwise_or(elementwise.equal(shares, new), elementwise.is_nan(shares))
    wins = elementwise.bitwise_and(changed, best)
    return wins if places is None else is_first(wins, places)


# Elements that go to one place: what each must know of the others. They are sorted by their places, and combined in
# steps of one, two, four ... neighbours: many elements cost little more than one. All is made of products and
# choices, so that it is right at zeros and in every order of derivative.


def product_of_others(x: Value, places: Value) -> Value:
    """For each element of `x`, the product of all other elements at its place (of `places`, of the same shape)."""

    def run(y: Value, keys: Value) -> Value:
        before, after = (_before(y, keys, elementwise.mul, 1, way) for way in (1, -1))
        return elementwise.mul(before, after)

    return _in_order(x, places, run)


def is_first(flags: Value, places: Value) -> Value:
    """Which of the elements that `flags` marks is the first at its place."""

    def run(y: Value, keys: Value) -> Value:
        earlier = _before(y, keys, elementwise.bitwise_or, False, 1)
        return elementwise.bitwise_and(y, elementwise.bitwise_not(earlier))

    return _in_order(flags, places, run)


def _in_order(x: Value, places: Value, run: Callable[[Value, Value], Value]) -> Value:
    """Run a function of elements and their places on both sorted by place; equal places keep their order."""
    count = ir.size_of(x.shape)
    if not count:
        return x
    numbers = shape.iota(np.int32, count)
    keys, order = sort.sort_together([reshape(places, (count,)), numbers], num_keys=1)
    back = sort.sort_together([order, numbers], num_keys=1)[1]
    out = run(_taken(reshape(x, (count,)), order), keys)
    return reshape(_taken(out, back), x.shape)


def _taken(x: Value, order: Value) -> Value:
    """The elements of a vector in another order."""
    return take.take_along(x, order, 0, unique=True)


def _before(x: Value, keys: Value, combine: Combine, neutral: Any, way: int) -> Value:
    """For each element those before it (or after it, if `way` is -1) that have its key, combined."""
    count, done = ir.size_of(x.shape), 1
    if count == 1:
        return broadcast_in_dim(arrays.Scalar(np.asarray(neutral).astype(x.dtype)), x.shape, ())
    out = _neighbour(x, keys, neutral, way)
    while done < count - 1:
        out = combine(_neighbour(out, keys, neutral, way * done), out)
        done *= 2
    return out


def _neighbour(x: Value, keys: Value, neutral: Any, distance: int) -> Value:
    """The element so far before each, if it has the same key."""
    nothing = arrays.Scalar(np.asarray(neutral).astype(x.dtype))
    no_key = arrays.Scalar(np.asarray(-1).astype(keys.dtype))
    same = elementwise.equal(shape.pad(keys, no_key, (distance,), (-distance,)), keys)
    shifted = shape.pad(x, nothing, (distance,), (-distance,))
    return elementwise.select(same, shifted, broadcast_in_dim(nothing, x.shape, ()))
