"""Running results along an axis: sums, products, extremes, log-sum-exps, linear recurrences.

The derivative of each is a linear recurrence, which is closed under derivative and transpose; so they are
right where factors are zero, and of linear cost, to any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.primitives import broadcast, check, convert, costs, elementwise, shape, special


@dataclass(frozen=True)
class CumulativeParams:
    """The axis along which results run, and whether they run from its end."""

    axis: int
    reverse: bool = False


cumsum_p: ir.Primitive[CumulativeParams] = ir.Primitive("cumsum")
cumprod_p: ir.Primitive[CumulativeParams] = ir.Primitive("cumprod")
cummax_p: ir.Primitive[CumulativeParams] = ir.Primitive("cummax")
cummin_p: ir.Primitive[CumulativeParams] = ir.Primitive("cummin")
cumlogsumexp_p: ir.Primitive[CumulativeParams] = ir.Primitive("cumlogsumexp")
linear_recurrence_p: ir.Primitive[CumulativeParams] = ir.Primitive("linear_recurrence")


def cumsum(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The sums of all elements up to each position along `axis`; from the end if `reverse`.

    The result has the shape of `x`. Raises ValueError if `x` has no axis `axis`.

    >>> cumsum(np.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int64)
    """
    return _run(cumsum_p, convert.operand("cumsum", "x", x), axis, reverse)


def cumprod(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The products of all elements up to each position along `axis`; from the end if `reverse`.

    The result has the shape of `x`. Raises ValueError if `x` has no axis `axis`.

    >>> cumprod(np.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int64)
    """
    return _run(cumprod_p, convert.operand("cumprod", "x", x), axis, reverse)


def cummax(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The greatest element up to each position along `axis`; from the end if `reverse`.

    The first of equal elements gets the derivative. The result has the shape of `x`. Raises ValueError if `x` has no
    axis `axis`.

    >>> cummax(np.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int64)
    """
    return _run(cummax_p, convert.operand("cummax", "x", x), axis, reverse)


def cummin(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The least element up to each position along `axis`; from the end if `reverse`.

    The first of equal elements gets the derivative. The result has the shape of `x`. Raises ValueError if `x` has no
    axis `axis`.

    >>> cummin(np.array([2, 1, 3]))
    Array([2, 1, 1], dtype=int64)
    """
    return _run(cummin_p, convert.operand("cummin", "x", x), axis, reverse)


def cumlogsumexp(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The logarithms of the sums of exponentials up to each position along `axis`, without overflow.

    With `reverse` from the end. The result has the shape of `x`. Raises ValueError if `x` has no axis `axis`.

    >>> cumlogsumexp(np.array([1000.0, 1000.0]))
    Array([1000.        , 1000.69314718], dtype=float64)
    """
    (value,) = convert.promote("cumlogsumexp", x, inexact=True)
    return _run(cumlogsumexp_p, value, axis, reverse)


def linear_recurrence(a: ArrayLike, b: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """`h[i] = a[i] * h[i-1] + b[i]` along an axis, from zero; from the end if `reverse`."""
    x, y = convert.promote("linear_recurrence", a, b, inexact=True)
    at = check.canonical_axis("linear_recurrence", axis, x.ndim)
    backwards = check.known_bool("linear_recurrence", "reverse", reverse)
    return trace.bind1(linear_recurrence_p, x, y, params=CumulativeParams(at, backwards))


def _run(prim: ir.Primitive[CumulativeParams], x: Value, axis: int, reverse: bool) -> Value:
    at = check.canonical_axis(prim.name, axis, x.ndim)
    params = CumulativeParams(at, check.known_bool(prim.name, "reverse", reverse))
    return trace.bind1(prim, convert.counted(x), params=params)


def shifted(x: Value, p: CumulativeParams, filler: Any = 0) -> Value:
    """Each element moved one place on in the direction of running; `filler` comes first."""
    low, high = [0] * x.ndim, [0] * x.ndim
    low[p.axis], high[p.axis] = (-1, 1) if p.reverse else (1, -1)
    return shape.pad(x, arrays.Scalar(np.asarray(filler).astype(x.dtype)), low, high)


# the cells


def _abstract_eval(
    name: str, kinds: str, count: int, avals: ir.Avals, p: CumulativeParams
) -> list[ir.Aval]:
    xs = check.array_avals(name, avals, count)
    check.check_kind(name, xs[0], kinds)
    if any(x.shape != xs[0].shape or x.dtype != xs[0].dtype for x in xs):
        check.bad_type(f"{name}: expected operands of one type, got {' and '.join(map(str, xs))}")
    if not 0 <= p.axis < xs[0].ndim:
        check.bad_value(f"{name}: expected an axis of {xs[0]}, got {p.axis}")
    return [xs[0].update(weak_type=all(x.weak_type for x in xs))]


def _lower_prefix(kind: str, ctx: Any, xs: hlo.IRValues, p: CumulativeParams) -> list[hlo.IRValue]:
    """A loop on the CPU; a window reduction, which other platforms run in parallel, elsewhere."""
    b, (x,) = ctx.b, xs
    if 0 in x.shape:
        return [x]
    wide = hlo.convert(b, x, arrays.wide_for_sums(x.dtype))
    if ctx.platform != "cpu" and kind in hlo.COMBINERS:
        n, rank = x.shape[p.axis], len(x.shape)
        window, padding = [1] * rank, [(0, 0)] * rank
        window[p.axis], padding[p.axis] = n, (0, n - 1) if p.reverse else (n - 1, 0)
        return [hlo.convert(b, hlo.reduce_window(b, wide, kind, window, padding=padding), x.dtype)]
    combine = hlo.COMBINERS.get(kind, special.log_add_exp)
    start = hlo.identity(kind, wide.dtype) if kind in hlo.COMBINERS else -np.inf
    identity = hlo.constant(b, start, (), wide.dtype)
    rows = in_front(b, wide, p.axis)
    out = row_loop(b, [rows], identity, lambda c, row: combine(b, c, row[0]), p.reverse)
    return [hlo.convert(b, put_back(b, out, p.axis), x.dtype)]


Slopes = Callable[[Value, Value, Value, Value], tuple[Value, Value]]
"""From an element, the result before it, the result and whether the element comes first: the derivatives by the
result before and by the element."""


def _recurrent_jvp(prim: ir.Primitive[CumulativeParams], first: Any, slopes: Slopes) -> rules.Jvp:
    """`y_dot[i] = by_before[i] * y_dot[i-1] + by_x[i] * x_dot[i]`."""

    def tangent(t: Value, y: Value, x: Value, p: CumulativeParams) -> Value:
        starts = elementwise.equal(
            shape.iota(np.int32, x.shape, p.axis), x.shape[p.axis] - 1 if p.reverse else 0
        )
        by_before, by_x = slopes(x, shifted(y, p, first), y, starts)
        return linear_recurrence(by_before, elementwise.mul(by_x, t), p.axis, p.reverse)

    return broadcast.jvp_of_one(prim, tangent)


def _extreme_slopes(
    wins: Any, x: Value, before: Value, y: Value, starts: Value
) -> tuple[Value, Value]:
    new = convert.convert(elementwise.bitwise_or(wins(x, before), starts), y.dtype)
    return elementwise.sub(1, new), new


_greater_slopes = partial(_extreme_slopes, elementwise.greater)


def _product_slopes(x: Value, before: Value, y: Value, starts: Value) -> tuple[Value, Value]:
    """The first result depends on nothing before it, also where its element is infinite."""
    return elementwise.select(starts, 0, x), before


def _log_sum_exp_slopes(x: Value, before: Value, y: Value, starts: Value) -> tuple[Value, Value]:
    """The shares of the result before and of the element; where the sum is infinite, those of the greatest."""
    infinite, zero = elementwise.equal(elementwise.abs(y), np.inf), convert.convert(0, y.dtype)
    greatest = _greater_slopes(x, before, y, starts)
    apart = (elementwise.select(infinite, zero, elementwise.sub(z, y)) for z in (before, x))
    by_before, by_x = (
        elementwise.select(infinite, g, elementwise.exp(z))
        for g, z in zip(greatest, apart, strict=True)
    )
    return by_before, by_x


def _define(
    prim: ir.Primitive[CumulativeParams],
    lower: rules.Lower,
    kinds: str,
    jvp: rules.Jvp,
    transpose: rules.Transpose | rules.Refusal = rules.NOT_LINEAR,
    count: int = 1,
) -> None:
    rules.define(
        prim,
        abstract_eval=rules.pure(partial(_abstract_eval, prim.name, kinds, count)),
        cost=costs.reduction_cost,
        lower=lower,
        jvp=jvp,
        transpose=transpose,
        batch=broadcast.batch_in_front(prim, broadcast.along_next_axis),
    )


_define(
    cumsum_p,
    partial(_lower_prefix, "add"),
    "iufc",
    broadcast.linear_jvp(cumsum_p),
    broadcast.linear_transpose(lambda ct, aval, p: cumsum(ct, p.axis, not p.reverse)),
)
for _prim, _kind, _kinds, _first, _slopes in (
    (cumprod_p, "mul", "iufc", 1, _product_slopes),
    (cummax_p, "max", "iuf", -np.inf, _greater_slopes),
    (cummin_p, "min", "iuf", np.inf, partial(_extreme_slopes, elementwise.less)),
    (cumlogsumexp_p, "logsumexp", "f", -np.inf, _log_sum_exp_slopes),
):
    _define(_prim, partial(_lower_prefix, _kind), _kinds, _recurrent_jvp(_prim, _first, _slopes))


# linear_recurrence


def _recurrence_lower(ctx: Any, xs: hlo.IRValues, p: CumulativeParams) -> list[hlo.IRValue]:
    b = ctx.b
    if 0 in xs[0].shape:
        return [xs[1]]
    dtype = arrays.wide_for_sums(xs[0].dtype)
    rows = [in_front(b, hlo.convert(b, x, dtype), p.axis) for x in xs]

    def step(h: hlo.IRValue, row: hlo.IRValues) -> hlo.IRValue:
        return hlo.add(b, hlo.mul(b, row[0], h), row[1])

    out = row_loop(b, rows, hlo.constant(b, 0, (), dtype), step, p.reverse)
    return [hlo.convert(b, put_back(b, out, p.axis), xs[0].dtype)]


def _recurrence_jvp(primals: ad.Values, tangents: ad.Tangents, p: CumulativeParams) -> ad.Duals:
    (a, b), (a_dot, b_dot) = primals, tangents
    h = trace.bind1(linear_recurrence_p, a, b, params=p)
    parts = [] if isinstance(b_dot, ad.Zero) else [b_dot]
    if not isinstance(a_dot, ad.Zero):
        parts.append(elementwise.mul(a_dot, shifted(h, p)))
    driven = reduce(elementwise.add, parts)
    return [h], [trace.bind1(linear_recurrence_p, a, driven, params=p)]


def _recurrence_back(cts: ad.Tangents, operands: ad.Operands, p: CumulativeParams) -> ad.Cotangents:
    """`b_bar[i] = ct[i] + a[i+1] * b_bar[i+1]`: the recurrence backwards, its factors moved by one."""
    (ct,), (a, _) = cts, operands
    if not isinstance(a, Value):
        check.bad_type("linear_recurrence: it is linear in `b` only, so it has no transpose in `a`")
    assert isinstance(ct, Value), "unreachable: the only cotangent is not zero"
    back = replace(p, reverse=not p.reverse)
    return [None, trace.bind1(linear_recurrence_p, shifted(a, back), ct, params=back)]


_define(linear_recurrence_p, _recurrence_lower, "fc", _recurrence_jvp, _recurrence_back, count=2)

Step = Callable[[hlo.IRValue, hlo.IRValues], hlo.IRValue]
"""The next result, from the last one and a row of each array."""


def row_loop(
    b: hlo.Builder, xs: hlo.IRValues, init: hlo.IRValue, step: Step, reverse: bool
) -> hlo.IRValue:
    """All results of `carry = step(carry, rows)`, stacked over the last array; `init` is the carry before the first.

    On the CPU a loop takes 1 to 10 ns a row and compiles in a few dozen milliseconds, whatever its length; a tree of
    slices runs as fast on long vectors but takes seconds to compile, and a window reduction is slower.
    """
    n, row = xs[0].shape[0], xs[0].shape[1:]
    int32 = np.dtype(np.int32)
    zero, one = hlo.constant(b, 0, (), int32), hlo.constant(b, 1, (), int32)
    stop, last = hlo.constant(b, n, (), int32), hlo.constant(b, n - 1, (), int32)
    rest = [zero] * len(row)

    def body(carried: list[hlo.IRValue]) -> list[hlo.IRValue]:
        i, carry, out = carried
        place = hlo.sub(b, last, i) if reverse else i
        read = [hlo.dynamic_slice(b, x, [place, *rest], (1, *row)) for x in [*xs[:-1], out]]
        rows = [hlo.reshape(b, x, row) for x in read]
        new = step(carry, rows)
        written = hlo.reshape(b, new, (1, *row))
        return [hlo.add(b, i, one), new, hlo.dynamic_update_slice(b, out, written, [place, *rest])]

    start = [zero, hlo.broadcast_in_dim(b, init, row, ()), xs[-1]]
    return hlo.while_(b, start, lambda c: hlo.compare(b, c[0], stop, "LT"), body)[2]


def in_front(b: hlo.Builder, x: hlo.IRValue, axis: int) -> hlo.IRValue:
    """An axis moved to the front."""
    return hlo.transpose(b, x, [axis, *[k for k in range(len(x.shape)) if k != axis]])


def put_back(b: hlo.Builder, x: hlo.IRValue, axis: int) -> hlo.IRValue:
    """The front axis moved to where it came from."""
    return hlo.transpose(b, x, [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))])
