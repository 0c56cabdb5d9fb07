"""Sorting: several arrays together, by the first `num_keys` of them, and the greatest elements alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import broadcast, check, convert, costs, shape, take


@dataclass(frozen=True)
class SortParams:
    """The axis, how many operands are keys, and whether equal elements keep their order."""

    axis: int
    num_keys: int = 1
    stable: bool = True


sort_p: ir.Primitive[SortParams] = ir.Primitive("sort")


def sort_together(
    xs: Sequence[ArrayLike], axis: int = -1, *, num_keys: int = 1, stable: bool = True
) -> list[Value]:
    """Arrays of one shape in the ascending order of the first `num_keys` of them; NaN comes last."""
    values = [convert.operand("sort", f"xs[{k}]", x) for k, x in enumerate(xs)]
    if not values:
        check.bad_value("sort: expected at least one array, got none")
    at = check.canonical_axis("sort", axis, values[0].ndim)
    return trace.bind(sort_p, *values, params=SortParams(at, num_keys, stable))


def sort(x: ArrayLike, axis: int = -1, *, stable: bool = True) -> Value:
    """The elements in ascending order along an axis; NaN comes last."""
    return sort_together([x], axis, stable=stable)[0]


def argsort(
    x: ArrayLike, axis: int = -1, *, stable: bool = True, index_dtype: Any = np.int32
) -> Value:
    """The indices that would sort `x` along an axis."""
    value = convert.operand("argsort", "x", x)
    at = check.canonical_axis("argsort", axis, value.ndim)
    return sort_together([value, shape.iota(index_dtype, value.shape, at)], at, stable=stable)[1]


def _sort_aval(avals: ir.Avals, p: SortParams) -> list[ir.Aval]:
    xs = check.array_avals("sort", avals)
    if any(x.shape != xs[0].shape for x in xs):
        check.bad_value(f"sort: expected arrays of one shape, got {' and '.join(map(str, xs))}")
    if not 0 <= p.axis < xs[0].ndim:
        check.bad_value(f"sort: expected an axis of {xs[0]}, got {p.axis}")
    if not 1 <= p.num_keys <= len(xs):
        check.bad_value(f"sort: expected num_keys between 1 and {len(xs)}, got {p.num_keys}")
    return list(xs)


def _sort_lower(ctx: Any, xs: hlo.IRValues, p: SortParams) -> list[hlo.IRValue]:
    return hlo.sort(ctx.b, ctx.late(xs), p.axis, num_keys=p.num_keys, stable=p.stable)


def _sort_jvp(primals: ad.Values, tangents: ad.Tangents, p: SortParams) -> ad.Duals:
    """Sort the places along with the elements, and take the tangents from there."""
    places = shape.iota(np.int32, primals[0].shape, p.axis)
    *outs, order = trace.bind(sort_p, *primals, places, params=p)
    taken = lambda t: (
        t if isinstance(t, ad.Zero) else take.take_along(t, order, p.axis, unique=True)
    )
    return outs, [*map(taken, tangents)]


rules.define(
    sort_p,
    abstract_eval=rules.pure(_sort_aval),
    cost=costs.sort_cost,
    lower=_sort_lower,
    jvp=_sort_jvp,
    batch=broadcast.batch_in_front(sort_p, broadcast.along_next_axis),
)


@dataclass(frozen=True)
class TopKParams:
    """How many elements of the last axis are taken."""

    k: int


top_k_p: ir.Primitive[TopKParams] = ir.Primitive("top_k")


def top_k(x: ArrayLike, k: int) -> list[Value]:
    """The `k` greatest elements along the last axis, in descending order, and their places; the first of equals.

    NaN is the greatest of all, and 0.0 is greater than -0.0.
    """
    return trace.bind(top_k_p, convert.operand("top_k", "x", x), params=TopKParams(k))


def _top_k_aval(avals: ir.Avals, p: TopKParams) -> list[ir.Aval]:
    (x,) = check.array_avals("top_k", avals, 1)
    check.check_kind("top_k", x, "iuf")
    if not x.ndim or not 0 < p.k <= x.shape[-1]:
        check.bad_value(f"top_k: expected a last axis of at least {p.k} elements, got {x}")
    out = x.update(shape=(*x.shape[:-1], p.k))
    return [out, ir.ShapedArray(out.shape, np.dtype(np.int32))]


def _top_k_jvp(primals: ad.Values, tangents: ad.Tangents, p: TopKParams) -> ad.Duals:
    """The tangents from the places of the elements that are taken."""
    (x,), (t,) = primals, tangents
    assert isinstance(t, Value), "unreachable: the only tangent is not zero"
    out, places = top_k(x, p.k)
    dot = take.take_along(t, places, x.ndim - 1, unique=True)
    return [out, places], [dot, ad.Zero(places.aval.tangent())]


rules.define(
    top_k_p,
    abstract_eval=rules.pure(_top_k_aval),
    cost=costs.sort_cost,
    lower=lambda ctx, xs, p: hlo.top_k(ctx.b, xs[0], p.k),
    jvp=_top_k_jvp,
    batch=broadcast.batch_in_front(top_k_p, lambda p, size: p),
)
