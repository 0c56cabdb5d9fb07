"""Combining elements along axes: sums, extrema, statistics, and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays, ir, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op

Axis = int | Sequence[int] | None


@fused
def sum(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Value:
    """The sum over axes, or over all; of the elements where `where` is true, if given.

    Bools and narrow integers are summed as 32-bit integers. `keepdims` keeps the axes with size 1; `initial` is added.

    >>> fnp.sum(np.array([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int64)
    """
    out = op.sum(op.masked("sum", x, where, 0), axis, dtype=dtype, keepdims=keepdims)
    return out if initial is None else prims.add(out, prims.operand("sum", "initial", initial))


@fused
def prod(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Value:
    """The product over axes, or over all; of the elements where `where` is true, if given.

    The result is multiplied by `initial`.

    >>> fnp.prod(np.array([2, 3, 4]))
    Array(24, dtype=int64)
    """
    out = op.prod(op.masked("prod", x, where, 1), axis, dtype=dtype, keepdims=keepdims)
    return out if initial is None else prims.mul(out, prims.operand("prod", "initial", initial))


@fused
def mean(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The mean over axes, or over all; of the elements where `where` is true, if given.

    Integers and bools become float32.

    >>> fnp.mean(np.array([[1, 2], [3, 5]]), axis=1)
    Array([1.5, 4. ], dtype=float32)
    """
    return op.mean(x, axis, dtype=dtype, keepdims=keepdims, where=where)


@fused
def var(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The variance over axes, or over all: squares of distances from the mean over (count - `ddof`).

    Of the elements where `where` is true, if given.

    >>> fnp.var(np.array([1.0, 3.0]))
    Array(1., dtype=float64)
    """
    return me.var(x, axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where)


@fused
def std(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The standard deviation over axes, or over all: the root of the variance.

    >>> fnp.std(np.array([1.0, 5.0]))
    Array(2., dtype=float64)
    """
    return me.std(x, axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where)


@fused
def max(
    x: ArrayLike,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Value:
    """The greatest element over axes, or over all; NaN if there is one. Ties share the derivative.

    `initial` is compared, too: it is the result if `where` is false everywhere, or `x` is empty.

    >>> fnp.max(np.array([[1, 5], [7, 2]]), axis=0)
    Array([7, 5], dtype=int64)
    """
    return _extremum("max", op.max, complex_order.maximum, x, axis, keepdims, initial, where)


@fused
def min(
    x: ArrayLike,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Value:
    """The least element over axes, or over all; NaN if there is one. Ties share the derivative.

    `initial` is compared, too: it is the result if `where` is false everywhere, or `x` is empty.

    >>> fnp.min(np.array([[1, 5], [7, 2]]), axis=0)
    Array([1, 2], dtype=int64)
    """
    return _extremum("min", op.min, complex_order.minimum, x, axis, keepdims, initial, where)


def _extremum(
    fun: str,
    find: Any,
    both: Any,
    x: ArrayLike,
    axis: Axis,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> Value:
    """The extreme of `initial`, if given, and of the elements where `where` is true, if given."""
    if initial is None:
        if where is None:
            return find(x, axis, keepdims=keepdims)  # type: ignore[no-any-return]  # op.max or op.min
        prims.bad_value(
            f"{fun}: expected `initial` beside `where`, got None; it is the result if `where` is false everywhere"
        )
    value, first = prims.promote(fun, x, prims.operand(fun, "initial", initial))
    value = op.masked(fun, value, where, first)
    axes = prims.canonical_axes(fun, axis, value.ndim)
    if 0 not in [value.shape[k] for k in axes]:
        return both(find(value, axes, keepdims=keepdims), first)  # type: ignore[no-any-return]  # of `complex_order`
    return prims.broadcast_to(first, op.any(prims.is_nan(value), axes, keepdims=keepdims).shape)


@fused
def ptp(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The greatest element minus the least.

    >>> fnp.ptp(np.array([4, 1, 9]))
    Array(8, dtype=int64)
    """
    return prims.sub(op.max(x, axis, keepdims=keepdims), op.min(x, axis, keepdims=keepdims))


@fused
def all(
    x: ArrayLike, axis: Axis = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Value:
    """Whether all elements over axes are true, of those where `where` is true; a number is true if it is not zero.

    >>> fnp.all(np.array([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    held = prims.to_condition(prims.operand("all", "x", x))
    return op.all(op.masked("all", held, where, True), axis, keepdims=keepdims)


@fused
def any(
    x: ArrayLike, axis: Axis = None, *, keepdims: bool = False, where: ArrayLike | None = None
) -> Value:
    """Whether any element over axes is true, of those where `where` is true; a number is true if it is not zero.

    >>> fnp.any(np.array([[0, 0], [0, 3]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    held = prims.to_condition(prims.operand("any", "x", x))
    return op.any(op.masked("any", held, where, False), axis, keepdims=keepdims)


@fused
def count_nonzero(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """How many elements over axes are not zero, as int32.

    >>> fnp.count_nonzero(np.array([0, 3, 4]))
    Array(2, dtype=int32)
    """
    held = prims.to_condition(prims.operand("count_nonzero", "x", x))
    return op.sum(held, axis, dtype=np.int32, keepdims=keepdims)


@fused
def argmax(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the greatest element along an axis, the first of ties, as int32; of all if `axis` is None.

    >>> fnp.argmax(np.array([1, 9, 9]))
    Array(1, dtype=int32)
    """
    return op.argmax_method(x, axis, keepdims=keepdims)


@fused
def argmin(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the least element along an axis, the first of ties, as int32; of all if `axis` is None.

    >>> fnp.argmin(np.array([4, 1, 1]))
    Array(1, dtype=int32)
    """
    return op.argmin_method(x, axis, keepdims=keepdims)


@fused
def average(x: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None) -> Value:
    """The mean with weights, which have the shape of `x`, or of the one axis that is averaged.

    >>> fnp.average(np.array([1.0, 4.0]), weights=np.array([2.0, 1.0]))
    Array(2., dtype=float64)
    """
    if weights is None:
        return op.mean(x, axis)
    value, w = prims.promote("average", x, weights, inexact=True)
    kind, axes = value.dtype, prims.canonical_axes("average", axis, value.ndim)
    value, w = (prims.convert(z, arrays.wide_for_sums(kind)) for z in (value, w))
    if w.ndim == 1 and len(axes) == 1 and value.ndim > 1:
        w = prims.broadcast_in_dim(w, value.shape, axes)
    return prims.convert(prims.div(op.sum(prims.mul(value, w), axes), op.sum(w, axes)), kind)


@fused
def median(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The middle element over axes, or of all; for an even number the mean of the two middle ones.

    >>> fnp.median(np.array([3.0, 1.0, 2.0, 10.0]))
    Array(2.5, dtype=float64)
    """
    return _quantile("median", x, 0.5, axis, keepdims, "linear")


@fused
def quantile(
    x: ArrayLike,
    q: float,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    method: Literal["linear", "lower", "higher", "nearest"] = "linear",
) -> Value:
    """The value below which a fraction `q`, in [0, 1], of the elements over axes lies.

    Between two elements it is interpolated, unless `method` says otherwise.

    >>> fnp.quantile(np.array([0.0, 1.0, 2.0, 3.0]), 0.25)
    Array(0.75, dtype=float64)
    """
    return _quantile("quantile", x, q, axis, keepdims, method)


def _quantile(fun: str, x: ArrayLike, q: float, axis: Axis, keepdims: bool, method: str) -> Value:
    """What `quantile` and those like it give; errors name the one that was called."""
    whole = 100 if fun == "percentile" else 1
    if not isinstance(q, (int, float, np.number)):
        prims.bad_type(f"{fun}: expected `q` to be a number known while tracing, got {q!r}")
    if not 0 <= q <= whole:
        prims.bad_value(f"{fun}: expected `q` in [0, {whole}], got {q}")
    q = q / whole
    (value,) = prims.promote(fun, x, inexact=True)
    shape = value.shape
    axes = prims.canonical_axes(fun, axis, value.ndim)
    if len(axes) != 1:  # they become one
        kept = [k for k in range(len(shape)) if k not in axes]
        count = ir.size_of([shape[k] for k in axes])
        value = prims.transpose(value, [*axes, *kept]).reshape(count, *[shape[k] for k in kept])
    at = axes[0] if len(axes) == 1 else 0
    ordered = prims.move_axis(prims.sort(value, at), at, 0)
    if not ordered.shape[0]:
        empty = prims.full(ordered.shape[1:], math.nan, value.dtype)
        return op.keep_axes(empty, shape, axes) if keepdims else empty
    place = q * (ordered.shape[0] - 1)
    low, high = math.floor(place), math.ceil(place)
    ends = {"lower": low, "higher": high, "nearest": round(place)}
    if method in ends or (method == "linear" and low == high):
        out = ordered[ends.get(method, low)]
    elif method == "linear":
        part = place - low
        out = prims.add(prims.mul(ordered[low], 1 - part), prims.mul(ordered[high], part))
    else:
        prims.bad_value(
            f"{fun}: expected `method` to be linear or one of {list(ends)}, got {method!r}"
        )
    bad = op.any(prims.is_nan(value), at)
    out = prims.select(bad, math.nan, out)
    return op.keep_axes(out, shape, axes) if keepdims else out


@fused
def percentile(x: ArrayLike, q: float, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The value below which `q` percent of the elements over axes lie.

    >>> fnp.percentile(np.array([0.0, 1.0, 2.0]), 50)
    Array(1., dtype=float64)
    """
    return _quantile("percentile", x, q, axis, keepdims, "linear")


@fused
def nansum(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The sum over axes of the elements that are not NaN.

    >>> fnp.nansum(np.array([1.0, np.nan]))
    Array(1., dtype=float64)
    """
    value = prims.operand("nansum", "x", x)
    return sum(value, axis, keepdims=keepdims, where=prims.equal(value, value))


@fused
def nanmean(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The mean over axes of the elements that are not NaN.

    >>> fnp.nanmean(np.array([1.0, np.nan, 3.0]))
    Array(2., dtype=float64)
    """
    value = prims.operand("nanmean", "x", x)
    return mean(value, axis, keepdims=keepdims, where=prims.equal(value, value))


@fused
def nanmax(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The greatest element over axes that is not NaN.

    >>> fnp.nanmax(np.array([1.0, np.nan]))
    Array(1., dtype=float64)
    """
    return _nan_extremum("nanmax", op.max, -math.inf, x, axis, keepdims)


@fused
def nanmin(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Value:
    """The least element over axes that is not NaN.

    >>> fnp.nanmin(np.array([1.0, np.nan]))
    Array(1., dtype=float64)
    """
    return _nan_extremum("nanmin", op.min, math.inf, x, axis, keepdims)


def _nan_extremum(
    fun: str, find: Any, worst: float, x: ArrayLike, axis: Axis, keepdims: bool
) -> Value:
    value = prims.operand(fun, "x", x)
    kind = arrays.dtype_kind(value.dtype)
    if kind not in "fc":
        return find(value, axis, keepdims=keepdims)  # type: ignore[no-any-return]  # op.max or op.min
    missing = prims.is_nan(value)
    neutral = complex(worst, worst) if kind == "c" else worst
    out = find(prims.select(missing, neutral, value), axis, keepdims=keepdims)
    return prims.select(op.all(missing, axis, keepdims=keepdims), math.nan, out)


@fused
def cumsum(
    x: ArrayLike, axis: int | None = None, dtype: Any = None, *, reverse: bool = False
) -> Value:
    """The sums of all elements up to each position along `axis`; of the flattened array if that is None.

    >>> fnp.cumsum(np.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int64)
    """
    return me.cumsum(x, axis, dtype=dtype, reverse=reverse)


@fused
def cumprod(
    x: ArrayLike, axis: int | None = None, dtype: Any = None, *, reverse: bool = False
) -> Value:
    """The products of all elements up to each position along `axis`; of the flattened array if that is None.

    >>> fnp.cumprod(np.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int64)
    """
    return me.cumprod(x, axis, dtype=dtype, reverse=reverse)


@fused
def cumulative_sum(
    x: ArrayLike, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Value:
    """The sums of all elements up to each position along an axis, after a 0 if `include_initial`.

    ValueError if an array of several axes comes without `axis`.

    >>> fnp.cumulative_sum(np.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int64)
    """
    return _cumulative("cumulative_sum", me.cumsum, x, axis, dtype, 0 if include_initial else None)


@fused
def cumulative_prod(
    x: ArrayLike, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Value:
    """The products of all elements up to each position along an axis, after a 1 if `include_initial`.

    ValueError if an array of several axes comes without `axis`.

    >>> fnp.cumulative_prod(np.array([1, 2, 3]), include_initial=True)
    Array([1, 1, 2, 6], dtype=int64)
    """
    return _cumulative(
        "cumulative_prod", me.cumprod, x, axis, dtype, 1 if include_initial else None
    )


def _cumulative(
    fun: str, run: Any, x: ArrayLike, axis: int | None, dtype: Any, first: int | None
) -> Value:
    value = prims.operand(fun, "x", x)
    if axis is None and value.ndim > 1:
        prims.bad_value(
            f"{fun}: expected `axis` for an array of several axes, got None for {value.aval}"
        )
    out: Value = run(value, axis, dtype=dtype)
    if first is None:
        return out
    before = [int(k == prims.canonical_axis(fun, axis or 0, out.ndim)) for k in range(out.ndim)]
    return prims.pad(out, prims.convert(first, out.dtype), before, [0] * out.ndim)


@fused
def cummax(x: ArrayLike, axis: int | None = None, *, reverse: bool = False) -> Value:
    """The greatest element up to each position along `axis`; of the flattened array if that is None.

    >>> fnp.cummax(np.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int64)
    """
    value, at = me.along("cummax", x, axis)
    return prims.cummax(value, at, reverse)


@fused
def cummin(x: ArrayLike, axis: int | None = None, *, reverse: bool = False) -> Value:
    """The least element up to each position along `axis`; of the flattened array if that is None.

    >>> fnp.cummin(np.array([2, 3, 1]))
    Array([2, 2, 1], dtype=int64)
    """
    value, at = me.along("cummin", x, axis)
    return prims.cummin(value, at, reverse)


@fused
def diff(
    x: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Value:
    """Each element minus the one before it along an axis; `n` times in succession.

    `prepend` and `append` are arrays, or numbers, which are joined to the ends of `x` first.

    >>> fnp.diff(np.array([1, 4, 9]))
    Array([3, 5], dtype=int64)
    """
    value, n = prims.operand("diff", "x", x), prims.known_int("diff", "n", n)
    if n < 0:
        prims.bad_value(f"diff: expected `n` not to be negative, got {n}")
    at = prims.canonical_axis("diff", axis, value.ndim)
    lead, one = (slice(None),) * at, (*value.shape[:at], 1, *value.shape[at + 1 :])
    whole = {"prepend": prepend, "x": value, "append": append}
    parts = [prims.operand("diff", name, z) for name, z in whole.items() if z is not None]
    if n and len(parts) > 1:
        parts = [z if z.ndim else prims.broadcast_to(z, one) for z in parts]
        value = prims.concatenate(parts, at)
    for _ in range(n):
        late, early = value[(*lead, slice(1, None))], value[(*lead, slice(None, -1))]
        value = prims.not_equal(late, early) if value.dtype == np.bool_ else prims.sub(late, early)
    return value


@fused
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The integral of `y` along an axis by the trapezoidal rule, at the points `x` or every `dx`.

    >>> fnp.trapezoid(np.array([0.0, 1.0, 2.0]))
    Array(2., dtype=float64)
    """
    (value,) = prims.promote("trapezoid", y, inexact=True)
    lead = (slice(None),) * prims.canonical_axis("trapezoid", axis, value.ndim)
    pairs = prims.add(value[(*lead, slice(1, None))], value[(*lead, slice(None, -1))])
    width: ArrayLike = dx
    if x is not None:
        points = prims.operand("trapezoid", "x", x)
        width = diff(points, axis=axis if points.ndim == value.ndim else 0)
        if points.ndim == 1:
            width = prims.broadcast_in_dim(width, pairs.shape, (len(lead),))
    return prims.mul(op.sum(prims.mul(pairs, width), axis), 0.5)
