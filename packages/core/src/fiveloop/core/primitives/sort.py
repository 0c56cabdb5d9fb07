"""Sorting: several arrays together, by the first `num_keys` of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import along_next_axis, batch_in_front, reshape
from fiveloop.core.primitives.check import array_avals, bad_value, canonical_axis
from fiveloop.core.primitives.convert import operand
from fiveloop.core.primitives.costs import sort_cost
from fiveloop.core.primitives.gather import GatherParams, WindowDims, gather
from fiveloop.core.primitives.shape import iota
from fiveloop.core.rules import Tangent, Zero, define, pure
from fiveloop.core.trace.tracer import bind


@dataclass(frozen=True)
class SortParams:
    """The axis, how many operands are keys, and whether equal elements keep their order."""

    axis: int
    num_keys: int = 1
    stable: bool = True


sort_p: Primitive[SortParams] = Primitive("sort")


def sort_together(
    xs: Sequence[ArrayLike], axis: int = -1, *, num_keys: int = 1, stable: bool = True
) -> list[Value]:
    """Arrays of one shape in the ascending order of the first `num_keys` of them; NaN comes last."""
    values = [operand("sort", f"xs[{k}]", x) for k, x in enumerate(xs)]
    if not values:
        bad_value("sort: expected at least one array, got none")
    at = canonical_axis("sort", axis, values[0].ndim)
    return bind(sort_p, *values, params=SortParams(at, num_keys, stable))


def sort(x: ArrayLike, axis: int = -1, *, stable: bool = True) -> Value:
    """The elements in ascending order along an axis; NaN comes last."""
    return sort_together([x], axis, stable=stable)[0]


def argsort(
    x: ArrayLike, axis: int = -1, *, stable: bool = True, index_dtype: Any = np.int32
) -> Value:
    """The indices that would sort `x` along an axis."""
    value = operand("argsort", "x", x)
    at = canonical_axis("argsort", axis, value.ndim)
    return sort_together([value, iota(index_dtype, value.shape, at)], at, stable=stable)[1]


def take_along(x: Value, indices: Value, axis: int) -> Value:
    """`x[..., indices[..., i, ...], ...]` along an axis, for indices of the shape of `x`, in bounds."""
    others = tuple(k for k in range(x.ndim) if k != axis)
    dims = WindowDims(
        collapsed=(axis,), operand_batch=others, indices_batch=others, index_map=(axis,)
    )
    params = GatherParams(dims, (1,) * x.ndim, unique_indices=True, in_bounds=True)
    return gather(x, reshape(indices, (*indices.shape, 1)), params)


def _sort_aval(avals: Sequence[Aval], p: SortParams) -> list[Aval]:
    xs = array_avals("sort", avals)
    if any(x.shape != xs[0].shape for x in xs):
        bad_value(f"sort: expected arrays of one shape, got {' and '.join(map(str, xs))}")
    if not 0 <= p.axis < xs[0].ndim:
        bad_value(f"sort: expected an axis of {xs[0]}, got {p.axis}")
    if not 1 <= p.num_keys <= len(xs):
        bad_value(f"sort: expected num_keys between 1 and {len(xs)}, got {p.num_keys}")
    return list(xs)


def _sort_lower(ctx: Any, xs: Sequence[IRValue], p: SortParams) -> list[IRValue]:
    return hlo.sort(ctx.b, xs, p.axis, num_keys=p.num_keys, stable=p.stable)


def _sort_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: SortParams
) -> tuple[list[Value], list[Tangent]]:
    """Sort the places along with the elements, and take the tangents from there."""
    places = iota(np.int32, primals[0].shape, p.axis)
    *outs, order = bind(sort_p, *primals, places, params=p)
    dots: list[Tangent] = [
        Zero(out.aval.tangent()) if isinstance(t, Zero) else take_along(t, order, p.axis)
        for out, t in zip(outs, tangents, strict=True)
    ]
    return outs, dots


define(
    sort_p,
    abstract_eval=pure(_sort_aval),
    cost=sort_cost,
    lower=_sort_lower,
    jvp=_sort_jvp,
    batch=batch_in_front(sort_p, along_next_axis),
)
