"""Identities that constrain order or memory: `barrier`, `order` for the steps of in-place loops, `to_memory`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ad, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import broadcast, check, convert
from fiveloop.core.primitives.take import static_slice

barrier_p: ir.Primitive[Any] = ir.Primitive("barrier")


def barrier(*xs: ArrayLike) -> list[Value]:
    """The same values, of which the compiler computes none anew or later than any of them is needed."""
    values = [convert.operand("barrier", f"xs[{k}]", x) for k, x in enumerate(xs)]
    return trace.bind(barrier_p, *values) if values else []


@dataclass(frozen=True)
class OrderParams:
    """How many of the last values are `light`; how `order` is lowered is the backend's."""

    light: int = 0


order_p: ir.Primitive[OrderParams] = ir.Primitive("order")


def order(index: ArrayLike, *xs: ArrayLike, light: int = 0) -> list[Value]:
    """The same values, such that all are computed before any use of one of them.

    `index` is the loop's counter, never negative; some platforms need an index that they cannot fold. The last `light`
    values may be computed again later, and need not pass where passing takes them through memory.
    """
    values = [convert.operand("order", f"xs[{k}]", x) for k, x in enumerate(xs)]
    counter = convert.operand("order", "index", index)
    return trace.bind(order_p, counter, *values, params=OrderParams(light)) if values else []


def _order_aval(avals: ir.Avals, p: OrderParams) -> list[ir.Aval]:
    index, *values = check.array_avals("order", avals)
    if index.shape or index.dtype != np.int32:
        check.bad_type(f"order: expected `index` to be an int32 scalar, got {index}")
    if not 0 <= p.light <= len(values):
        check.bad_type(f"order: expected `light` to be at most {len(values)}, got {p.light}")
    return list(values)


def _through(prim: ir.Primitive[Any], lead: ad.Values, xs: ad.Tangents, p: Any) -> list[ad.Tangent]:
    """The values among tangents or cotangents passed through, apart, so that they stay linear; zeros as they are."""
    given = [x for x in xs if not isinstance(x, ad.Zero)]
    passed = iter(trace.bind(prim, *lead, *given, params=p) if given else [])
    return [x if isinstance(x, ad.Zero) else next(passed) for x in xs]


rules.define(
    barrier_p,
    abstract_eval=rules.pure(lambda avals, p: list(check.array_avals("barrier", avals))),
    lower=lambda ctx, xs, p: hlo.optimization_barrier(ctx.b, xs),
    jvp=lambda primals, tangents, p: (
        trace.bind(barrier_p, *primals),
        _through(barrier_p, (), tangents, p),
    ),
    transpose=lambda cts, operands, p: broadcast.of_linear(
        operands, _through(barrier_p, (), cts, p)
    ),
    batch=broadcast.same_dims_batch(barrier_p),
)


def _order_transpose(cts: ad.Tangents, operands: ad.Operands, p: OrderParams) -> ad.Cotangents:
    index = operands[0]
    assert isinstance(index, Value), "unreachable: an index is an integer and so never linear"
    passed = _through(order_p, [index], cts, OrderParams())
    return [None, *broadcast.of_linear(operands[1:], passed)]


def _order_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: OrderParams) -> ad.Batched:
    index, *values = operands
    if dims[0] is not None:  # any lane's counter will do
        index = broadcast.reshape(
            static_slice(broadcast.move_axis(index, dims[0], 0), (0,), (1,)), ()
        )
    return trace.bind(order_p, index, *values, params=p), list(dims[1:])


rules.define(
    order_p,
    abstract_eval=rules.pure(_order_aval),
    lower=lambda ctx, xs, p: ctx.order(xs, p.light),
    jvp=lambda primals, tangents, p: (
        trace.bind(order_p, *primals, params=p),
        _through(order_p, primals[:1], tangents[1:], OrderParams()),
    ),
    transpose=_order_transpose,
    batch=_order_batch,
)

ONE_MEMORY = frozenset({"cpu"})
"""The platforms whose devices compute in the host's memory, so that nothing is ever moved there."""


@dataclass(frozen=True)
class MemoryParams:
    """The memory to move to, by XLA's name: "device", "pinned_host" or "unpinned_host"."""

    memory: str


to_memory_p: ir.Primitive[MemoryParams] = ir.Primitive("to_memory")


def to_memory(x: ArrayLike, memory: str) -> Value:
    """The same value in another memory; the value itself on a platform with a single memory."""
    value = convert.operand("to_memory", "x", x)
    return trace.bind1(to_memory_p, value, params=MemoryParams(memory))


rules.define(
    to_memory_p,
    abstract_eval=rules.pure(lambda avals, p: list(check.array_avals("to_memory", avals, 1))),
    lower=lambda ctx, xs, p: (
        list(xs) if ctx.platform in ONE_MEMORY else [ctx.to_memory(xs[0], p.memory)]
    ),
    impl=lambda values, p: list(values),
    # The value is moved, and its tangent stays where it is.
    jvp=lambda primals, tangents, p: (trace.bind(to_memory_p, *primals, params=p), list(tangents)),
    transpose=lambda cts, operands, p: list(cts),
    batch=broadcast.same_dims_batch(to_memory_p),
)
