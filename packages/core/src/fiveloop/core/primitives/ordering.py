"""Identities that bind the order of things: `barrier`, and `order` for the steps of in-place loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import NO_PARAMS, Primitive
from fiveloop.core.primitives.broadcast import move_axis, reshape
from fiveloop.core.primitives.check import array_avals, bad_type
from fiveloop.core.primitives.convert import operand
from fiveloop.core.primitives.index import static_slice
from fiveloop.core.rules import Accumulator, Operand, Tangent, UndefinedPrimal, Zero, define, pure
from fiveloop.core.trace.tracer import bind

barrier_p: Primitive[Any] = Primitive("barrier")


def barrier(*xs: ArrayLike) -> list[Value]:
    """The same values, of which the compiler computes none anew or later than any of them is needed."""
    values = [operand("barrier", f"xs[{k}]", x) for k, x in enumerate(xs)]
    return bind(barrier_p, *values) if values else []


@dataclass(frozen=True)
class OrderParams:
    """`order` has no parameters; how it is lowered is the backend's."""


order_p: Primitive[OrderParams] = Primitive("order")


def order(index: ArrayLike, *xs: ArrayLike) -> list[Value]:
    """The same values, such that all are computed before anything that uses one of them.

    `index` is the loop's counter, never negative; some platforms need one that they cannot fold.
    """
    values = [operand("order", f"xs[{k}]", x) for k, x in enumerate(xs)]
    counter = operand("order", "index", index)
    return bind(order_p, counter, *values, params=OrderParams()) if values else []


def _order_aval(avals: Sequence[Aval], p: OrderParams) -> list[Aval]:
    index, *values = array_avals("order", avals)
    if index.shape or index.dtype != np.int32:
        bad_type(f"order: expected `index` to be an int32 scalar, got {index}")
    return list(values)


def _identity_jvp(
    prim: Primitive[Any],
    leading: Sequence[Value],
    values: Sequence[Value],
    dots: Sequence[Tangent],
    p: Any,
) -> tuple[list[Value], list[Tangent]]:
    """Values and tangents pass apart, so that the tangents stay linear."""
    outs = bind(prim, *leading, *values, params=p)
    return outs, _through(prim, leading, dots, p)


def _through(
    prim: Primitive[Any], leading: Sequence[Value], xs: Sequence[Tangent], p: Any
) -> list[Tangent]:
    """The values among tangents or cotangents passed through; symbolic zeros as they are."""
    given = [x for x in xs if not isinstance(x, Zero)]
    passed = iter(bind(prim, *leading, *given, params=p) if given else [])
    return [x if isinstance(x, Zero) else next(passed) for x in xs]


def _linear_only(cts: Sequence[Tangent], operands: Sequence[Operand]) -> list[Tangent | None]:
    return [
        ct if isinstance(x, (UndefinedPrimal, Accumulator)) else None
        for ct, x in zip(cts, operands, strict=True)
    ]


def _barrier_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
) -> tuple[list[Value], list[Tangent]]:
    return _identity_jvp(barrier_p, (), primals, tangents, p)


def _barrier_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: Any
) -> list[Tangent | None]:
    return _linear_only(_through(barrier_p, (), cts, p), operands)


def _barrier_lower(ctx: Any, xs: Sequence[IRValue], p: Any) -> list[IRValue]:
    return hlo.optimization_barrier(ctx.b, xs)


define(
    barrier_p,
    abstract_eval=pure(lambda avals, p: list(array_avals("barrier", avals))),
    lower=_barrier_lower,
    jvp=_barrier_jvp,
    transpose=_barrier_transpose,
    batch=lambda size, operands, dims, p: (
        bind(barrier_p, *operands, params=NO_PARAMS),
        list(dims),
    ),
)


def _order_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: OrderParams
) -> tuple[list[Value], list[Tangent]]:
    return _identity_jvp(order_p, primals[:1], primals[1:], tangents[1:], p)


def _order_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: OrderParams
) -> list[Tangent | None]:
    index = operands[0]
    if not isinstance(index, Value):
        raise AssertionError("unreachable: an index is an integer and so never linear")
    return [None, *_linear_only(_through(order_p, [index], cts, p), operands[1:])]


def _order_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: OrderParams
) -> tuple[list[Value], list[int | None]]:
    index, *values = operands
    if dims[0] is not None:  # any lane's counter will do
        index = reshape(static_slice(move_axis(index, dims[0], 0), (0,), (1,)), ())
    return bind(order_p, index, *values, params=p), list(dims[1:])


define(
    order_p,
    abstract_eval=pure(_order_aval),
    lower=lambda ctx, xs, p: ctx.order(xs),
    jvp=_order_jvp,
    transpose=_order_transpose,
    batch=_order_batch,
)
