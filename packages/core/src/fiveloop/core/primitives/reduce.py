"""Reductions: products, extremes, logic and the places of extremes, beside `reduce_sum` in `broadcast`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.dims import is_more, size_of
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import (
    ReduceParams,
    along_next_axis,
    batch_in_front,
    bind_reduction,
    define_reduction,
    jvp_of_one,
    reduce_sum,
    reduced_aval,
    reshape,
    restore_axes,
    transpose,
)
from fiveloop.core.primitives.check import (
    array_avals,
    bad_type,
    bad_value,
    canonical_axes,
    canonical_axis,
    check_kind,
)
from fiveloop.core.primitives.convert import counted, operand
from fiveloop.core.primitives.costs import reduction_cost
from fiveloop.core.primitives.elementwise import mul, to_condition
from fiveloop.core.primitives.family import zero_jvp
from fiveloop.core.primitives.monoids import mean_of_winners
from fiveloop.core.primitives.running import CumulativeParams, cumprod, shifted
from fiveloop.core.rules import Lower, Tangent, Zero, define, pure
from fiveloop.core.trace.tracer import bind1

reduce_prod_p: Primitive[ReduceParams] = Primitive("reduce_prod")
reduce_max_p: Primitive[ReduceParams] = Primitive("reduce_max")
reduce_min_p: Primitive[ReduceParams] = Primitive("reduce_min")
reduce_and_p: Primitive[ReduceParams] = Primitive("reduce_and")
reduce_or_p: Primitive[ReduceParams] = Primitive("reduce_or")


def reduce_prod(x: ArrayLike, axes: Any = None) -> Value:
    """The product over `axes`, or over all; the axes disappear."""
    return bind_reduction(reduce_prod_p, counted(operand("reduce_prod", "x", x)), axes)


def reduce_max(x: ArrayLike, axes: Any = None) -> Value:
    """The greatest element over `axes`; NaN wins. Equal winners share its derivative equally."""
    return _reduce_some(reduce_max_p, x, axes)


def reduce_min(x: ArrayLike, axes: Any = None) -> Value:
    """The least element over `axes`; NaN wins. Equal winners share its derivative equally."""
    return _reduce_some(reduce_min_p, x, axes)


def reduce_and(x: ArrayLike, axes: Any = None) -> Value:
    """Whether all elements over `axes` are true, or differ from zero."""
    return bind_reduction(reduce_and_p, to_condition(x), axes)


def reduce_or(x: ArrayLike, axes: Any = None) -> Value:
    """Whether any element over `axes` is true, or differs from zero."""
    return bind_reduction(reduce_or_p, to_condition(x), axes)


def _reduce_some(prim: Primitive[ReduceParams], x: ArrayLike, axes: Any) -> Value:
    """A reduction that needs at least one element."""
    value = operand(prim.name, "x", x)
    over = canonical_axes(prim.name, axes, value.ndim, "axes")
    if any(value.shape[k] == 0 for k in over):
        bad_value(f"{prim.name}: expected at least one element along axes {over}, got {value.aval}")
    return bind_reduction(prim, value, over)


def _extreme_tangent(t: Value, out: Value, x: Value, p: ReduceParams) -> Value:
    """The mean of the tangents of the elements that are equal to the extreme."""
    found = restore_axes(out, x.shape, p.axes)
    return mean_of_winners(x, found, t, lambda z: reduce_sum(z, p.axes))


def _prod_tangent(t: Value, out: Value, x: Value, p: ReduceParams) -> Tangent:
    """Each tangent times the products before and after its element: right where elements are zero."""
    if not size_of([x.shape[k] for k in p.axes]):
        return Zero(out.aval.tangent())
    rows, t_rows = _reduced_in_front(x, p.axes), _reduced_in_front(t, p.axes)
    ahead, back = CumulativeParams(0), CumulativeParams(0, reverse=True)
    before = shifted(cumprod(rows), ahead, 1)
    after = shifted(cumprod(rows, reverse=True), back, 1)
    return reduce_sum(mul(t_rows, mul(before, after)), 0)


def _reduced_in_front(x: Value, axes: Sequence[int]) -> Value:
    """The axes that are combined as one axis, in front of the others."""
    kept = [k for k in range(x.ndim) if k not in axes]
    moved = transpose(x, [*axes, *kept])
    count = size_of([x.shape[k] for k in axes])
    return reshape(moved, (count, *[x.shape[k] for k in kept]))


define_reduction(reduce_prod_p, "mul", "iufc", jvp_of_one(reduce_prod_p, _prod_tangent))
define_reduction(reduce_max_p, "max", "biuf", jvp_of_one(reduce_max_p, _extreme_tangent))
define_reduction(reduce_min_p, "min", "biuf", jvp_of_one(reduce_min_p, _extreme_tangent))
define_reduction(reduce_and_p, "and", "b", zero_jvp(reduce_and_p))
define_reduction(reduce_or_p, "or", "b", zero_jvp(reduce_or_p))


# argmax, argmin


@dataclass(frozen=True)
class ArgParams:
    """The axis that is searched, and the dtype of the index."""

    axis: int
    index_dtype: np.dtype[Any]


argmax_p: Primitive[ArgParams] = Primitive("argmax")
argmin_p: Primitive[ArgParams] = Primitive("argmin")


def argmax(x: ArrayLike, axis: int | None = None, index_dtype: Any = np.int32) -> Value:
    """The index of the first greatest element along `axis`, or of all; the first NaN wins."""
    return _search(argmax_p, x, axis, index_dtype)


def argmin(x: ArrayLike, axis: int | None = None, index_dtype: Any = np.int32) -> Value:
    """The index of the first least element along `axis`, or of all; the first NaN wins."""
    return _search(argmin_p, x, axis, index_dtype)


def _search(prim: Primitive[ArgParams], x: ArrayLike, axis: int | None, index_dtype: Any) -> Value:
    value = operand(prim.name, "x", x)
    if axis is None:
        value, axis = reshape(value, -1), 0
    params = ArgParams(canonical_axis(prim.name, axis, value.ndim), np.dtype(index_dtype))
    return bind1(prim, value, params=params)


def _arg_aval(name: str) -> Callable[[Sequence[Aval], ArgParams], list[Aval]]:
    def rule(avals: Sequence[Aval], p: ArgParams) -> list[Aval]:
        (x,) = array_avals(name, avals, 1)
        check_kind(name, x, "biuf")
        out = reduced_aval(name, x, [p.axis])
        if p.index_dtype.kind not in "iu":
            bad_type(f"{name}: expected an integer `index_dtype`, got {p.index_dtype.name}")
        size = x.shape[p.axis]
        if size == 0:
            bad_value(f"{name}: expected at least one element along axis {p.axis}, got {x}")
        if is_more(size, int(np.iinfo(p.index_dtype).max) + 1):
            bad_value(
                f"{name}: {p.index_dtype.name} cannot count {size} elements; use a wider `index_dtype`"
            )
        return [ShapedArray(out.shape, p.index_dtype)]

    return rule


def _arg_lower(kind: str) -> Lower:
    """Carry the extreme and its index; a NaN that comes first stays, and the lesser index at a tie."""
    direction = "GT" if kind == "max" else "LT"

    def rule(ctx: Any, xs: Sequence[IRValue], p: ArgParams) -> list[IRValue]:
        b: Builder = ctx.b
        (values,) = xs

        def better(left: list[IRValue], right: list[IRValue]) -> list[IRValue]:
            (x, i), (y, j) = left, right
            wins = hlo.compare(b, x, y, direction)
            if x.dtype.kind not in "iub":
                wins = hlo.or_(b, wins, hlo.compare(b, x, x, "NE"))
            tied = hlo.and_(b, hlo.compare(b, x, y, "EQ"), hlo.compare(b, i, j, "LT"))
            return [hlo.select(b, wins, x, y), hlo.select(b, hlo.or_(b, wins, tied), i, j)]

        places = hlo.iota(b, values.shape, p.index_dtype, p.axis)
        worst = hlo.constant(b, hlo.identity(kind, values.dtype), (), values.dtype)
        after = hlo.constant(b, np.iinfo(p.index_dtype).max, (), p.index_dtype)
        return [hlo.reduce_generic(b, [values, places], [worst, after], [p.axis], better)[1]]

    return rule


for _prim, _kind in ((argmax_p, "max"), (argmin_p, "min")):
    define(
        _prim,
        abstract_eval=pure(_arg_aval(_prim.name)),
        cost=reduction_cost,
        lower=_arg_lower(_kind),
        jvp=zero_jvp(_prim),
        batch=batch_in_front(_prim, along_next_axis),
    )
