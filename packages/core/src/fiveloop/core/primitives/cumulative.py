"""Running results along an axis: sums, products, extremes, log-sum-exps, linear recurrences.

The derivative of each is a linear recurrence, which is closed under derivative and transpose; so they are
right where factors are zero, and of linear cost, to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Scalar, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import (
    Tangent,
    broadcast_batch,
    linear_jvp,
    linear_transpose,
)
from fiveloop.core.primitives.check import (
    array_avals,
    bad_type,
    bad_value,
    canonical_axis,
    check_kind,
    known_bool,
)
from fiveloop.core.primitives.convert import Operand, convert, operand, promote
from fiveloop.core.primitives.costs import reduction_cost
from fiveloop.core.primitives.elementwise_arithmetic import abs, add, exp, mul, sub
from fiveloop.core.primitives.elementwise_logic import bitwise_or, equal, greater, less, select
from fiveloop.core.primitives.row_loop import in_front, put_back, row_loop
from fiveloop.core.primitives.shape import iota, pad
from fiveloop.core.promotion import wide_for_sums
from fiveloop.core.rule_types import UndefinedPrimal, Zero
from fiveloop.core.rules import NOT_LINEAR, Jvp, Lower, Transpose, define, pure
from fiveloop.core.trace.tracer import bind1


@dataclass(frozen=True)
class CumulativeParams:
    """The axis along which results run, and whether they run from its end."""

    axis: int
    reverse: bool = False


cumsum_p: Primitive[CumulativeParams] = Primitive("cumsum")
cumprod_p: Primitive[CumulativeParams] = Primitive("cumprod")
cummax_p: Primitive[CumulativeParams] = Primitive("cummax")
cummin_p: Primitive[CumulativeParams] = Primitive("cummin")
cumlogsumexp_p: Primitive[CumulativeParams] = Primitive("cumlogsumexp")
linear_recurrence_p: Primitive[CumulativeParams] = Primitive("linear_recurrence")


def cumsum(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The sums of all elements up to each place; from the end if `reverse`.

    Along `axis`, of which the result keeps the length; ValueError if `x` has no such axis.

    >>> cumsum(np.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int64)
    """
    return _run(cumsum_p, operand("cumsum", "x", x), axis, reverse)


def cumprod(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The products of all elements up to each place; from the end if `reverse`.

    Along `axis`, of which the result keeps the length; ValueError if `x` has no such axis.

    >>> cumprod(np.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int64)
    """
    return _run(cumprod_p, operand("cumprod", "x", x), axis, reverse)


def cummax(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The greatest element up to each place. The first of equals has the derivative.

    Along `axis`, of which the result keeps the length; ValueError if `x` has no such axis.

    >>> cummax(np.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int64)
    """
    return _run(cummax_p, operand("cummax", "x", x), axis, reverse)


def cummin(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The least element up to each place. The first of equals has the derivative.

    Along `axis`, of which the result keeps the length; ValueError if `x` has no such axis.

    >>> cummin(np.array([2, 1, 3]))
    Array([2, 1, 1], dtype=int64)
    """
    return _run(cummin_p, operand("cummin", "x", x), axis, reverse)


def cumlogsumexp(x: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """The logarithms of the sums of exponentials up to each place, without overflow.

    Along `axis`, of which the result keeps the length; ValueError if `x` has no such axis.

    >>> cumlogsumexp(np.array([1000.0, 1000.0]))
    Array([1000.        , 1000.69314718], dtype=float64)
    """
    (value,) = promote("cumlogsumexp", x, inexact=True)
    return _run(cumlogsumexp_p, value, axis, reverse)


def linear_recurrence(a: ArrayLike, b: ArrayLike, axis: int = 0, reverse: bool = False) -> Value:
    """`h[i] = a[i] * h[i-1] + b[i]` along an axis, from zero; from the end if `reverse`."""
    x, y = promote("linear_recurrence", a, b, inexact=True)
    at = canonical_axis("linear_recurrence", axis, x.ndim)
    backwards = known_bool("linear_recurrence", "reverse", reverse)
    return bind1(linear_recurrence_p, x, y, params=CumulativeParams(at, backwards))


def _run(prim: Primitive[CumulativeParams], x: Value, axis: int, reverse: bool) -> Value:
    if x.dtype == np.bool_:
        x = convert(x, np.int32)
    at = canonical_axis(prim.name, axis, x.ndim)
    params = CumulativeParams(at, known_bool(prim.name, "reverse", reverse))
    return bind1(prim, x, params=params)


def shifted(x: Value, p: CumulativeParams, filler: Any = 0) -> Value:
    """Each element moved one place on in the direction of running; `filler` comes first."""
    low, high = [0] * x.ndim, [0] * x.ndim
    low[p.axis], high[p.axis] = (-1, 1) if p.reverse else (1, -1)
    return pad(x, Scalar(np.asarray(filler).astype(x.dtype)), low, high)


# the cells


def _abstract_eval(
    name: str, kinds: str, count: int = 1
) -> Callable[[Sequence[Aval], CumulativeParams], list[Aval]]:
    def rule(avals: Sequence[Aval], p: CumulativeParams) -> list[Aval]:
        xs = array_avals(name, avals, count)
        check_kind(name, xs[0], kinds)
        if any(x.shape != xs[0].shape or x.dtype != xs[0].dtype for x in xs):
            bad_type(f"{name}: expected operands of one type, got {' and '.join(map(str, xs))}")
        if not 0 <= p.axis < xs[0].ndim:
            bad_value(f"{name}: expected an axis of {xs[0]}, got {p.axis}")
        return [xs[0].update(weak_type=all(x.weak_type for x in xs))]

    return rule


Write = Callable[[Builder, IRValue, IRValue], IRValue]


def _lower_prefix(kind: str, combine: Write) -> Lower:
    """A loop on the CPU; a window reduction, which other platforms run in parallel, elsewhere."""

    def rule(ctx: Any, xs: Sequence[IRValue], p: CumulativeParams) -> list[IRValue]:
        b, (x,) = ctx.b, xs
        if 0 in x.shape:
            return [x]
        wide = hlo.convert(b, x, wide_for_sums(x.dtype))
        if ctx.platform != "cpu" and kind != "logsumexp":
            return [hlo.convert(b, _by_window(b, wide, kind, p), x.dtype)]
        start = -np.inf if kind == "logsumexp" else hlo.identity(kind, wide.dtype)
        identity = hlo.constant(b, start, (), wide.dtype)
        rows = in_front(b, wide, p.axis)
        out = row_loop(b, [rows], identity, lambda c, row: combine(b, c, row[0]), p.reverse)
        return [hlo.convert(b, put_back(b, out, p.axis), x.dtype)]

    return rule


def _by_window(b: Builder, x: IRValue, kind: str, p: CumulativeParams) -> IRValue:
    n, rank = x.shape[p.axis], len(x.shape)
    window, padding = [1] * rank, [(0, 0)] * rank
    window[p.axis] = n
    padding[p.axis] = (0, n - 1) if p.reverse else (n - 1, 0)
    return hlo.reduce_window(b, x, kind, window, padding=padding)


def _log_add_exp(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """The greater plus log1p of the rest; of two equal infinities that one."""
    top, gap = hlo.max(b, x, y), hlo.neg(b, hlo.abs(b, hlo.sub(b, x, y)))
    spread = hlo.add(b, top, hlo.log1p(b, hlo.exp(b, gap)))
    return hlo.select(b, hlo.compare(b, x, y, "EQ"), _plus_log2(b, x), spread)


def _plus_log2(b: Builder, x: IRValue) -> IRValue:
    return hlo.add(b, x, hlo.constant(b, np.log(2.0), x.shape, x.dtype))


def _batch(prim: Primitive[CumulativeParams]) -> Any:
    def rule(
        size: int, operands: Sequence[Value], dims: Sequence[int | None], p: CumulativeParams
    ) -> tuple[list[Value], list[int | None]]:
        xs = broadcast_batch(operands, dims, size)
        return [bind1(prim, *xs, params=replace(p, axis=p.axis + 1))], [0]

    return rule


Slopes = Callable[[Value, Value, Value, Value], tuple[Value, Value]]
"""From an element, the result before it, the result and whether the element comes first: the derivatives by the
result before and by the element."""


def _recurrent_jvp(prim: Primitive[CumulativeParams], first: Any, slopes: Slopes) -> Jvp:
    """`y_dot[i] = by_before[i] * y_dot[i-1] + by_x[i] * x_dot[i]`."""

    def rule(
        primals: Sequence[Value], tangents: Sequence[Tangent], p: CumulativeParams
    ) -> tuple[list[Value], list[Tangent]]:
        (x,), (t,) = primals, tangents
        y = bind1(prim, x, params=p)
        if isinstance(t, Zero):
            return [y], [Zero(y.aval.tangent())]
        starts = equal(iota(np.int32, x.shape, p.axis), x.shape[p.axis] - 1 if p.reverse else 0)
        by_before, by_x = slopes(x, shifted(y, p, first), y, starts)
        return [y], [linear_recurrence(by_before, mul(by_x, t), p.axis, p.reverse)]

    return rule


def _prod_slopes(x: Value, before: Value, y: Value, starts: Value) -> tuple[Value, Value]:
    return x, before


def _extreme_slopes(wins: Any) -> Slopes:
    def slopes(x: Value, before: Value, y: Value, starts: Value) -> tuple[Value, Value]:
        new = convert(bitwise_or(wins(x, before), starts), y.dtype)
        return sub(1, new), new

    return slopes


_greater_slopes = _extreme_slopes(greater)


def _log_sum_exp_slopes(x: Value, before: Value, y: Value, starts: Value) -> tuple[Value, Value]:
    """The shares of the result before and of the element; where the sum is infinite, those of the greatest."""
    infinite, zero = equal(abs(y), np.inf), convert(0, y.dtype)
    greatest = _greater_slopes(x, before, y, starts)
    apart = (select(infinite, zero, sub(z, y)) for z in (before, x))
    by_before, by_x = (select(infinite, g, exp(z)) for g, z in zip(greatest, apart, strict=True))
    return by_before, by_x


def _define(
    prim: Primitive[CumulativeParams],
    lower: Lower,
    kinds: str,
    jvp: Jvp,
    transpose: Transpose | None = None,
    count: int = 1,
) -> None:
    define(
        prim,
        abstract_eval=pure(_abstract_eval(prim.name, kinds, count)),
        cost=reduction_cost,
        lower=lower,
        jvp=jvp,
        transpose=NOT_LINEAR if transpose is None else transpose,
        batch=_batch(prim),
    )


def _cumsum_back(ct: Value, aval: Aval, p: CumulativeParams) -> Value:
    return cumsum(ct, p.axis, not p.reverse)


_define(
    cumsum_p,
    _lower_prefix("add", hlo.add),
    "iufc",
    linear_jvp(cumsum_p),
    linear_transpose(_cumsum_back),
)
_define(
    cumprod_p, _lower_prefix("mul", hlo.mul), "iufc", _recurrent_jvp(cumprod_p, 1, _prod_slopes)
)
_define(
    cummax_p,
    _lower_prefix("max", hlo.max),
    "iuf",
    _recurrent_jvp(cummax_p, -np.inf, _greater_slopes),
)
_define(
    cummin_p,
    _lower_prefix("min", hlo.min),
    "iuf",
    _recurrent_jvp(cummin_p, np.inf, _extreme_slopes(less)),
)
_define(
    cumlogsumexp_p,
    _lower_prefix("logsumexp", _log_add_exp),
    "f",
    _recurrent_jvp(cumlogsumexp_p, -np.inf, _log_sum_exp_slopes),
)


# linear_recurrence


def _recurrence_lower(ctx: Any, xs: Sequence[IRValue], p: CumulativeParams) -> list[IRValue]:
    b = ctx.b
    if 0 in xs[0].shape:
        return [xs[1]]
    dtype = wide_for_sums(xs[0].dtype)
    rows = [in_front(b, hlo.convert(b, x, dtype), p.axis) for x in xs]

    def step(h: IRValue, row: Sequence[IRValue]) -> IRValue:
        return hlo.add(b, hlo.mul(b, row[0], h), row[1])

    out = row_loop(b, rows, hlo.constant(b, 0, (), dtype), step, p.reverse)
    return [hlo.convert(b, put_back(b, out, p.axis), xs[0].dtype)]


def _recurrence_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: CumulativeParams
) -> tuple[list[Value], list[Tangent]]:
    (a, b), (a_dot, b_dot) = primals, tangents
    h = bind1(linear_recurrence_p, a, b, params=p)
    if isinstance(a_dot, Zero) and isinstance(b_dot, Zero):
        return [h], [Zero(h.aval.tangent())]
    parts = [] if isinstance(b_dot, Zero) else [b_dot]
    if not isinstance(a_dot, Zero):
        parts.append(mul(a_dot, shifted(h, p)))
    driven = parts[0] if len(parts) == 1 else add(*parts)
    return [h], [bind1(linear_recurrence_p, a, driven, params=p)]


def _recurrence_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: CumulativeParams
) -> list[Tangent | None]:
    """`b_bar[i] = ct[i] + a[i+1] * b_bar[i+1]`: the recurrence backwards, its factors moved by one."""
    (ct,), (a, b) = cts, operands
    if not isinstance(a, Value):
        bad_type("linear_recurrence: it is linear in `b` only, so it has no transpose in `a`")
    if isinstance(ct, Zero) or not isinstance(b, UndefinedPrimal):
        return [None, Zero(b.aval) if isinstance(b, UndefinedPrimal) else None]
    back = replace(p, reverse=not p.reverse)
    return [None, bind1(linear_recurrence_p, shifted(a, back), ct, params=back)]


_define(
    linear_recurrence_p, _recurrence_lower, "fc", _recurrence_jvp, _recurrence_transpose, count=2
)
