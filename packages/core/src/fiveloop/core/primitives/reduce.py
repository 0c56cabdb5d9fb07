"""Reductions: products, extremes, logic, and the indices of extremes; `reduce_sum` is in `broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import broadcast, check, costs, elementwise, monoids, running
from fiveloop.core.primitives.convert import counted, operand

reduce_prod_p: ir.Primitive[broadcast.ReduceParams] = ir.Primitive("reduce_prod")
reduce_max_p: ir.Primitive[broadcast.ReduceParams] = ir.Primitive("reduce_max")
reduce_min_p: ir.Primitive[broadcast.ReduceParams] = ir.Primitive("reduce_min")
reduce_and_p: ir.Primitive[broadcast.ReduceParams] = ir.Primitive("reduce_and")
reduce_or_p: ir.Primitive[broadcast.ReduceParams] = ir.Primitive("reduce_or")


def reduce_prod(x: ArrayLike, axes: Any = None) -> Value:
    """The product over `axes`, or over all; the axes disappear."""
    return broadcast.bind_reduction(reduce_prod_p, counted(operand("reduce_prod", "x", x)), axes)


def reduce_max(x: ArrayLike, axes: Any = None) -> Value:
    """The greatest element over `axes`; NaN wins. Equal winners share its derivative equally."""
    return _reduce_some(reduce_max_p, x, axes)


def reduce_min(x: ArrayLike, axes: Any = None) -> Value:
    """The least element over `axes`; NaN wins. Equal winners share its derivative equally."""
    return _reduce_some(reduce_min_p, x, axes)


def reduce_and(x: ArrayLike, axes: Any = None) -> Value:
    """Whether all elements over `axes` are true, or differ from zero."""
    return broadcast.bind_reduction(reduce_and_p, elementwise.to_condition(x), axes)


def reduce_or(x: ArrayLike, axes: Any = None) -> Value:
    """Whether any element over `axes` is true, or differs from zero."""
    return broadcast.bind_reduction(reduce_or_p, elementwise.to_condition(x), axes)


def _reduce_some(prim: ir.Primitive[broadcast.ReduceParams], x: ArrayLike, axes: Any) -> Value:
    """A reduction that needs at least one element."""
    value = operand(prim.name, "x", x)
    over = check.canonical_axes(prim.name, axes, value.ndim, "axes")
    if any(value.shape[k] == 0 for k in over):
        check.bad_value(
            f"{prim.name}: expected at least one element along axes {over}, got {value.aval}"
        )
    return broadcast.bind_reduction(prim, value, over)


def _extreme_tangent(t: Value, out: Value, x: Value, p: broadcast.ReduceParams) -> Value:
    """The mean of the tangents of the elements that are equal to the extreme."""
    found = broadcast.restore_axes(out, x.shape, p.axes)
    return monoids.mean_of_winners(x, found, t, lambda z: broadcast.reduce_sum(z, p.axes))


def _prod_tangent(t: Value, out: Value, x: Value, p: broadcast.ReduceParams) -> ad.Tangent:
    """Each tangent times the products before and after its element: right where elements are zero."""
    if not ir.size_of([x.shape[k] for k in p.axes]):
        return ad.Zero(out.aval.tangent())
    rows, t_rows = _reduced_in_front(x, p.axes), _reduced_in_front(t, p.axes)
    ahead, back = running.CumulativeParams(0), running.CumulativeParams(0, reverse=True)
    before = running.shifted(running.cumprod(rows), ahead, 1)
    after = running.shifted(running.cumprod(rows, reverse=True), back, 1)
    return broadcast.reduce_sum(elementwise.mul(t_rows, elementwise.mul(before, after)), 0)


def _reduced_in_front(x: Value, axes: Sequence[int]) -> Value:
    """The axes that are combined as one axis, in front of the others."""
    kept = [k for k in range(x.ndim) if k not in axes]
    moved = broadcast.transpose(x, [*axes, *kept])
    count = ir.size_of([x.shape[k] for k in axes])
    return broadcast.reshape(moved, (count, *[x.shape[k] for k in kept]))


for _of, _monoid, _kinds, _tangent in (
    (reduce_prod_p, "mul", "iufc", _prod_tangent),
    (reduce_max_p, "max", "biuf", _extreme_tangent),
    (reduce_min_p, "min", "biuf", _extreme_tangent),
):
    broadcast.define_reduction(_of, _monoid, _kinds, broadcast.jvp_of_one(_of, _tangent))
broadcast.define_reduction(reduce_and_p, "and", "b", broadcast.zero_jvp(reduce_and_p))
broadcast.define_reduction(reduce_or_p, "or", "b", broadcast.zero_jvp(reduce_or_p))


# argmax, argmin


@dataclass(frozen=True)
class ArgParams:
    """The axis that is searched, and the dtype of the index."""

    axis: int
    index_dtype: np.dtype[Any]


argmax_p: ir.Primitive[ArgParams] = ir.Primitive("argmax")
argmin_p: ir.Primitive[ArgParams] = ir.Primitive("argmin")


def argmax(x: ArrayLike, axis: int | None = None, index_dtype: Any = np.int32) -> Value:
    """The index of the first greatest element along `axis`, or of all; the first NaN wins."""
    return _search(argmax_p, x, axis, index_dtype)


def argmin(x: ArrayLike, axis: int | None = None, index_dtype: Any = np.int32) -> Value:
    """The index of the first least element along `axis`, or of all; the first NaN wins."""
    return _search(argmin_p, x, axis, index_dtype)


def _search(prim: ir.Primitive[Any], x: ArrayLike, axis: int | None, index_dtype: Any) -> Value:
    value = operand(prim.name, "x", x)
    if axis is None:
        value, axis = broadcast.reshape(value, -1), 0
    params = ArgParams(check.canonical_axis(prim.name, axis, value.ndim), np.dtype(index_dtype))
    return trace.bind1(prim, value, params=params)


def _arg_aval(name: str, avals: ir.Avals, p: ArgParams) -> list[ir.Aval]:
    (x,) = check.array_avals(name, avals, 1)
    check.check_kind(name, x, "biuf")
    out = broadcast.reduced_aval(name, x, [p.axis])
    if p.index_dtype.kind not in "iu":
        check.bad_type(f"{name}: expected an integer `index_dtype`, got {p.index_dtype.name}")
    size = x.shape[p.axis]
    if size == 0:
        check.bad_value(f"{name}: expected at least one element along axis {p.axis}, got {x}")
    if ir.is_more(size, int(np.iinfo(p.index_dtype).max) + 1):
        check.bad_value(
            f"{name}: {p.index_dtype.name} cannot count {size} elements; use a wider `index_dtype`"
        )
    return [ir.ShapedArray(out.shape, p.index_dtype)]


MANY = 128
"""Elements from which on indices of extremes are found by `_in_one_number`; XLA may run less in the calling thread."""


def _arg_lower(kind: str, ctx: Any, xs: hlo.IRValues, p: ArgParams) -> list[hlo.IRValue]:
    (x,) = xs
    size = ir.size_of(x.shape)
    fits = x.dtype.itemsize <= 4 and x.dtype.kind != "u"
    is_many = ir.is_constant(size) and size >= MANY
    return [(_in_one_number if fits and is_many else _in_two_numbers)(ctx.b, x, p, kind)]


def _in_two_numbers(b: hlo.Builder, x: hlo.IRValue, p: ArgParams, kind: str) -> hlo.IRValue:
    """Carry the extreme and its index; a NaN that comes first stays, and the lesser index at a tie."""
    direction = "GT" if kind == "max" else "LT"

    def better(left: list[hlo.IRValue], right: list[hlo.IRValue]) -> list[hlo.IRValue]:
        (x, i), (y, j) = left, right
        wins = hlo.compare(b, x, y, direction)
        if x.dtype.kind not in "iub":
            wins = hlo.or_(b, wins, hlo.compare(b, x, x, "NE"))
        tied = hlo.and_(b, hlo.compare(b, x, y, "EQ"), hlo.compare(b, i, j, "LT"))
        return [hlo.select(b, wins, x, y), hlo.select(b, hlo.or_(b, wins, tied), i, j)]

    places = hlo.iota(b, x.shape, p.index_dtype, p.axis)
    worst = hlo.constant(b, hlo.identity(kind, x.dtype), (), x.dtype)
    after = hlo.constant(b, np.iinfo(p.index_dtype).max, (), p.index_dtype)
    return hlo.reduce_generic(b, [x, places], [worst, after], [p.axis], better)[1]


def _in_one_number(b: hlo.Builder, x: hlo.IRValue, p: ArgParams, kind: str) -> hlo.IRValue:
    """The least 64-bit integer of a rank above and the index below: XLA makes vector instructions of that."""
    place = hlo.convert(b, hlo.not_(b, _rank(b, x, kind)), np.int64)
    high = hlo.shift_left(b, place, hlo.constant(b, 32, x.shape, np.int64))
    # Indices that were computed, XLA would take out of a loop, and compile a kernel for them.
    each = hlo.or_(b, high, hlo.iota(b, x.shape, np.int64, p.axis))
    found = hlo.reduce(b, each, [p.axis], "min")
    low = hlo.constant(b, 0xFFFFFFFF, found.shape, np.int64)
    return hlo.convert(b, hlo.and_(b, found, low), p.index_dtype)


def _rank(b: hlo.Builder, x: hlo.IRValue, kind: str) -> hlo.IRValue:
    """A 32-bit integer for each element, greater for the better of two, and greatest for NaN."""
    if x.dtype.kind in "ib":
        number = hlo.convert(b, x, np.int32)
        return number if kind == "max" else hlo.not_(b, number)

    def constant(value: int) -> hlo.IRValue:
        return hlo.constant(b, value, x.shape, np.int32)

    wide = hlo.convert(b, x, np.float32)
    bits = hlo.bitcast_convert(b, wide, np.int32)
    # Of negative numbers, the greater has the lesser bits behind the sign.
    is_negative = hlo.shift_right_arithmetic(b, bits, constant(31))
    ordered = hlo.xor(b, bits, hlo.and_(b, is_negative, constant(0x7FFFFFFF)))
    zero = hlo.constant(b, 0, x.shape, np.float32)
    # Both zeros are equal.
    ordered = hlo.select(b, hlo.compare(b, wide, zero, "EQ"), constant(0), ordered)
    better = ordered if kind == "max" else hlo.not_(b, ordered)
    return hlo.select(b, hlo.compare(b, wide, wide, "NE"), constant(0x7FFFFFFF), better)


for _prim, _kind in ((argmax_p, "max"), (argmin_p, "min")):
    rules.define(
        _prim,
        abstract_eval=rules.pure(partial(_arg_aval, _prim.name)),
        cost=costs.reduction_cost,
        lower=partial(_arg_lower, _kind),
        jvp=broadcast.zero_jvp(_prim),
        batch=broadcast.batch_in_front(_prim, broadcast.along_next_axis),
    )
