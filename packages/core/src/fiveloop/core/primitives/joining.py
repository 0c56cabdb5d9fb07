"""Joining arrays along an axis, and cutting them apart: each is the transpose of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.dims import Dim, same_dim
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import (
    Tangent,
    broadcast_batch,
    expand_dims,
    instantiate,
)
from fiveloop.core.primitives.check import array_avals, bad_type, bad_value, canonical_axis
from fiveloop.core.primitives.convert import Operand, operand, promote
from fiveloop.core.primitives.costs import moving_cost
from fiveloop.core.rule_types import UndefinedPrimal, Zero
from fiveloop.core.rules import define, pure
from fiveloop.core.trace.tracer import bind, bind1

# concatenate


@dataclass(frozen=True)
class ConcatenateParams:
    """The axis along which operands are joined."""

    axis: int


concatenate_p: Primitive[ConcatenateParams] = Primitive("concatenate")


def concatenate(xs: Sequence[ArrayLike], axis: int = 0) -> Value:
    """Arrays joined end to end along one axis, brought to one dtype.

    ValueError if there is none, or if their ranks or other axes differ.

    >>> print(concatenate([np.arange(3), np.array([0.5])]))
    [0.  1.  2.  0.5]
    >>> concatenate([np.ones((2, 3)), np.ones((2, 1))], axis=1).shape
    (2, 4)
    """
    if not hasattr(xs, "__len__"):
        bad_type(f"concatenate: expected a sequence of arrays, got {xs!r}")
    if not len(xs):
        bad_value("concatenate: expected at least one array, got none")
    values = promote("concatenate", *xs)
    joined = canonical_axis("concatenate", axis, values[0].ndim)
    if len(values) == 1:
        return values[0]
    return bind1(concatenate_p, *values, params=ConcatenateParams(joined))


def stack(xs: Sequence[ArrayLike], axis: int = 0) -> Value:
    """Arrays of one shape joined along a new axis."""
    if not len(xs):
        bad_value("stack: expected at least one array, got none")
    values = promote("stack", *xs)
    at = canonical_axis("stack", axis, values[0].ndim + 1)
    for x in values[1:]:
        if x.ndim != values[0].ndim or not all(map(same_dim, x.shape, values[0].shape)):
            bad_value(f"stack: expected arrays of one shape, got {values[0].aval} and {x.aval}")
    return concatenate([expand_dims(x, at) for x in values], at)


def _concatenate_aval(avals: Sequence[Aval], p: ConcatenateParams) -> list[Aval]:
    xs = array_avals("concatenate", avals)
    first = xs[0]
    if not 0 <= p.axis < first.ndim:
        bad_value(f"concatenate: expected arrays with an axis {p.axis}, got {first}")
    for x in xs[1:]:
        if x.dtype != first.dtype:
            bad_type(f"concatenate: expected arrays of one dtype, got {first} and {x}")
        if x.ndim != first.ndim or any(
            k != p.axis and not same_dim(a, b)
            for k, (a, b) in enumerate(zip(x.shape, first.shape, strict=True))
        ):
            bad_value(
                f"concatenate: expected arrays of one shape save along axis {p.axis}, got {first} and {x}"
            )
    total = sum((x.shape[p.axis] for x in xs[1:]), first.shape[p.axis])
    shape = (*first.shape[: p.axis], total, *first.shape[p.axis + 1 :])
    return [ShapedArray(shape, first.dtype, all(x.weak_type for x in xs))]


def _concatenate_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: ConcatenateParams
) -> tuple[list[Value], list[Tangent]]:
    out = bind1(concatenate_p, *primals, params=p)
    if all(isinstance(t, Zero) for t in tangents):
        return [out], [Zero(out.aval.tangent())]
    return [out], [bind1(concatenate_p, *map(instantiate, tangents), params=p)]


def _concatenate_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: ConcatenateParams
) -> list[Tangent | None]:
    (ct,) = cts
    sizes = [x.aval.shape[p.axis] for x in operands]
    parts: Sequence[Tangent] = (
        [Zero(x.aval) for x in operands] if isinstance(ct, Zero) else split(ct, sizes, p.axis)
    )
    return [
        part if isinstance(x, UndefinedPrimal) else None
        for x, part in zip(operands, parts, strict=True)
    ]


def _concatenate_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: ConcatenateParams
) -> tuple[list[Value], list[int | None]]:
    xs = broadcast_batch(operands, dims, size)
    return [bind1(concatenate_p, *xs, params=ConcatenateParams(p.axis + 1))], [0]


define(
    concatenate_p,
    abstract_eval=pure(_concatenate_aval),
    cost=moving_cost(_concatenate_aval),
    lower=lambda ctx, xs, p: [hlo.concatenate(ctx.b, xs, p.axis)],
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
)


# split


@dataclass(frozen=True)
class SplitParams:
    """How long the parts are, and the axis that is cut."""

    sizes: tuple[Dim, ...]
    axis: int


split_p: Primitive[SplitParams] = Primitive("split")


def split(x: ArrayLike, sizes: Sequence[Dim], axis: int = 0) -> list[Value]:
    """Consecutive parts of these sizes, which add up to that of the axis."""
    value = operand("split", "x", x)
    at = canonical_axis("split", axis, value.ndim)
    return bind(split_p, value, params=SplitParams(tuple(sizes), at))


def _split_aval(avals: Sequence[Aval], p: SplitParams) -> list[Aval]:
    (x,) = array_avals("split", avals, 1)
    if not 0 <= p.axis < x.ndim or not same_dim(sum(p.sizes), x.shape[p.axis]):
        bad_value(f"split: expected sizes that add up to axis {p.axis} of {x}, got {list(p.sizes)}")
    before, after = x.shape[: p.axis], x.shape[p.axis + 1 :]
    return [x.update(shape=(*before, size, *after)) for size in p.sizes]


def _split_lower(ctx: Any, xs: Sequence[IRValue], p: SplitParams) -> list[IRValue]:
    (x,) = xs
    shape = ctx.avals_in[0].shape
    starts, steps = [0] * len(shape), [1] * len(shape)
    parts = []
    for end, size in zip(accumulate(p.sizes), p.sizes, strict=True):
        starts[p.axis] = end - size
        limits = (*shape[: p.axis], end, *shape[p.axis + 1 :])
        parts.append(hlo.slice(ctx.b, x, starts, limits, steps))
    return parts


def _split_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: SplitParams
) -> tuple[list[Value], list[Tangent]]:
    outs = bind(split_p, *primals, params=p)
    (t,) = tangents
    if isinstance(t, Zero):
        return outs, [Zero(out.aval.tangent()) for out in outs]
    return outs, list(bind(split_p, t, params=p))


def _split_transpose(
    cts: Sequence[Tangent], operands: Sequence[Operand], p: SplitParams
) -> list[Tangent | None]:
    if all(isinstance(ct, Zero) for ct in cts):
        return [Zero(operands[0].aval)]
    return [concatenate([instantiate(ct) for ct in cts], p.axis)]


def _split_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: SplitParams
) -> tuple[list[Value], list[int | None]]:
    (x,), (d,) = operands, dims
    assert d is not None, "unreachable: the one operand is batched"
    axis = p.axis + (d <= p.axis)
    return bind(split_p, x, params=SplitParams(p.sizes, axis)), [d] * len(p.sizes)


define(
    split_p,
    abstract_eval=pure(_split_aval),
    cost=moving_cost(_split_aval),
    lower=_split_lower,
    jvp=_split_jvp,
    transpose=_split_transpose,
    batch=_split_batch,
)
