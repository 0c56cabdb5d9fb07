"""Shape primitives: concatenate, split, pad, reverse and iota; others are in `broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import broadcast, check, convert, costs, elementwise
from fiveloop.core.rules import define, pure

# reverse


@dataclass(frozen=True)
class ReverseParams:
    """The axes along which the order is turned round."""

    axes: tuple[int, ...]


reverse_p: ir.Primitive[ReverseParams] = ir.Primitive("reverse")


def reverse(x: ArrayLike, axes: Any = None) -> Value:
    """The elements in the opposite order along `axes`, or along all."""
    value = convert.operand("reverse", "x", x)
    turned = check.canonical_axes("reverse", axes, value.ndim, "axes")
    return trace.bind1(reverse_p, value, params=ReverseParams(turned)) if turned else value


def _reverse_aval(avals: ir.Avals, p: ReverseParams) -> list[ir.Aval]:
    (x,) = check.array_avals("reverse", avals, 1)
    check.canonical_axes("reverse", p.axes, x.ndim, "axes")
    return [x]


define(
    reverse_p,
    abstract_eval=pure(_reverse_aval),
    cost=costs.moving_cost(_reverse_aval),
    lower=lambda ctx, xs, p: [hlo.reverse(ctx.b, xs[0], p.axes)],
    jvp=broadcast.linear_jvp(reverse_p),
    transpose=broadcast.linear_transpose(lambda ct, aval, p: reverse(ct, p.axes)),
    batch=lambda size, xs, dims, p: ([reverse(xs[0], broadcast.past(p.axes, dims[0]))], list(dims)),
)


# pad


@dataclass(frozen=True)
class PadParams:
    """How much is put before, after and between the elements of each axis; negative amounts cut."""

    low: tuple[ir.Dim, ...]
    high: tuple[ir.Dim, ...]
    interior: tuple[int, ...]


pad_p: ir.Primitive[PadParams] = ir.Primitive("pad")


def pad(
    x: ArrayLike,
    value: ArrayLike,
    low: Sequence[ir.Dim],
    high: Sequence[ir.Dim],
    interior: Sequence[int] | None = None,
) -> Value:
    """A scalar `value` put before, after and between the elements of each axis.

    Negative amounts in `low` and `high` cut elements away.
    """
    array = convert.operand("pad", "x", x)
    (_, filler) = convert.promote("pad", array, value)
    if filler.dtype == array.dtype and filler.shape:
        check.bad_value(f"pad: expected `value` to be a scalar, got {filler.aval}")
    if filler.dtype != array.dtype:
        check.bad_type(f"pad: expected `value` to fit into {array.aval}, got {filler.aval}")
    between = tuple(interior) if interior is not None else (0,) * array.ndim
    p = PadParams(tuple(low), tuple(high), between)
    if not any(p.low) and not any(p.high) and not any(p.interior) and len(p.low) == array.ndim:
        return array
    return trace.bind1(pad_p, array, filler, params=p)


def _pad_aval(avals: ir.Avals, p: PadParams) -> list[ir.Aval]:
    x, value = check.array_avals("pad", avals, 2)
    if value.shape or value.dtype != x.dtype:
        check.bad_type(
            f"pad: expected a scalar of dtype {x.dtype.name} to pad {x} with, got {value}"
        )
    if not len(p.low) == len(p.high) == len(p.interior) == x.ndim or min(p.interior, default=0) < 0:
        check.bad_value(
            f"pad: expected amounts for each axis of {x}, none of `interior` negative, got low "
            f"{p.low}, high {p.high}, interior {p.interior}"
        )
    amounts = zip(x.shape, p.low, p.high, p.interior, strict=True)
    shape = tuple(d + (lo + hi) + (max(d - 1, 0) * mid if mid else 0) for d, lo, hi, mid in amounts)
    if any(ir.is_more(0, d) for d in shape):
        check.bad_value(
            f"pad: cannot cut more elements than there are: {x} would become {errors.shape_str(shape)}"
        )
    return [x.update(shape=shape)]


def _pad_transpose(cts: ad.Tangents, operands: ad.Operands, p: PadParams) -> ad.Cotangents:
    """The elements that came from `x`; what is left of the sum came from the value."""
    (ct,), (x, value) = cts, operands
    assert isinstance(ct, Value), "unreachable: the only cotangent is not zero"
    x_bar = unpad(ct, x.aval.shape, p)
    outs = broadcast.of_linear(operands, [x_bar, ct])
    if isinstance(value, ad.UndefinedPrimal):
        outs[1] = elementwise.sub(broadcast.reduce_sum(ct), broadcast.reduce_sum(x_bar))
    return outs


def unpad(y: Value, shape: ir.Shape, p: PadParams) -> Value:
    """Undo a padding: the elements of `y` that came from an operand of this shape, zeros where cut."""
    zero = arrays.Scalar(np.zeros((), y.dtype))
    none = (0,) * y.ndim
    low, high = tuple(-d for d in p.low), tuple(-d for d in p.high)
    if not any(p.interior):
        return pad(y, zero, low, high)
    # With gaps: make each axis a table of rows, an element followed by its gap, and keep column 0.
    gaps = p.interior
    y = pad(y, zero, low, tuple(h + g for h, g in zip(high, gaps, strict=True)))
    table = [n for d, g in zip(shape, gaps, strict=True) for n in (d, g + 1)]
    cut = [n for g in gaps for n in (0, -g)]
    # An axis of size 0 has no gap after its last element: add what is missing to whole rows.
    missing = tuple(d * (g + 1) - n for n, d, g in zip(y.shape, shape, gaps, strict=True))
    rows = broadcast.reshape(pad(y, zero, none, missing), table)
    return broadcast.reshape(pad(rows, zero, (0,) * len(cut), cut), shape)


def _pad_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: PadParams) -> ad.Batched:
    x, value = operands
    place = 0 if dims[0] is None else dims[0]
    low, high, mid = (list(d) for d in (p.low, p.high, p.interior))
    for amounts in (low, high, mid):
        amounts.insert(place, 0)
    batched = PadParams(tuple(low), tuple(high), tuple(mid))
    x = broadcast.bdim_at(x, dims[0], size, place)
    if dims[1] is None:
        return [trace.bind1(pad_p, x, value, params=batched)], [place]
    # With a value for each lane: pad with zeros, and choose the values around a hole.
    zero, true = arrays.Scalar(np.zeros((), x.dtype)), arrays.Scalar(np.asarray(True))
    padded = trace.bind1(pad_p, x, zero, params=batched)
    hole = trace.bind1(pad_p, broadcast.full(x.shape, False), true, params=batched)
    spread = broadcast.broadcast_in_dim(value, padded.shape, [place])
    return [elementwise.select(hole, spread, padded)], [place]


define(
    pad_p,
    abstract_eval=pure(_pad_aval),
    cost=costs.moving_cost(_pad_aval),
    lower=lambda ctx, xs, p: [hlo.pad(ctx.b, xs[0], xs[1], p.low, p.high, p.interior)],
    jvp=broadcast.linear_jvp(pad_p),
    transpose=_pad_transpose,
    batch=_pad_batch,
)


# iota


@dataclass(frozen=True)
class IotaParams:
    """The type of the result, and the axis along which it counts."""

    shape: ir.Shape
    dtype: np.dtype[Any]
    axis: int


iota_p: ir.Primitive[IotaParams] = ir.Primitive("iota")


def iota(dtype: Any, shape: Any, axis: int = 0) -> Value:
    """An array that counts 0, 1, 2, ... along one axis; an integer `shape` is one axis.

    >>> print(iota(np.int32, (2, 3), axis=1))
    [[0 1 2]
     [0 1 2]]
    """
    out = check.canonical_shape("iota", shape)
    params = IotaParams(
        out, check.canonical_dtype("iota", dtype), check.canonical_axis("iota", axis, len(out))
    )
    return trace.bind1(iota_p, params=params)


def _iota_aval(avals: ir.Avals, p: IotaParams) -> list[ir.Aval]:
    out = ir.ShapedArray(p.shape, p.dtype)
    check.check_kind("iota", out, "iufc")
    if not 0 <= p.axis < len(p.shape):
        check.bad_value(f"iota: expected an axis of {errors.shape_str(p.shape)}, got {p.axis}")
    return [out]


define(
    iota_p,
    abstract_eval=pure(_iota_aval),
    cost=costs.moving_cost(_iota_aval),
    lower=lambda ctx, xs, p: [hlo.iota(ctx.b, p.shape, p.dtype, p.axis)],
    jvp=broadcast.zero_jvp(iota_p),
    batch=lambda size, operands, dims, p: (trace.bind(iota_p, params=p), [None]),
)


# concatenate


@dataclass(frozen=True)
class ConcatenateParams:
    """The axis along which operands are joined."""

    axis: int


concatenate_p: ir.Primitive[ConcatenateParams] = ir.Primitive("concatenate")


def concatenate(xs: Sequence[ArrayLike], axis: int = 0) -> Value:
    """Arrays joined end to end along one axis, brought to one dtype.

    ValueError if there is none, or if their ranks or other axes differ.

    >>> print(concatenate([np.arange(3), np.array([0.5])]))
    [0.  1.  2.  0.5]
    >>> concatenate([np.ones((2, 3)), np.ones((2, 1))], axis=1).shape
    (2, 4)
    """
    if not hasattr(xs, "__len__"):
        check.bad_type(f"concatenate: expected a sequence of arrays, got {xs!r}")
    if not len(xs):
        check.bad_value("concatenate: expected at least one array, got none")
    values = convert.promote("concatenate", *xs)
    joined = check.canonical_axis("concatenate", axis, values[0].ndim)
    if len(values) == 1:
        return values[0]
    return trace.bind1(concatenate_p, *values, params=ConcatenateParams(joined))


def stack(xs: Sequence[ArrayLike], axis: int = 0) -> Value:
    """Arrays of one shape joined along a new axis."""
    if not len(xs):
        check.bad_value("stack: expected at least one array, got none")
    values = convert.promote("stack", *xs)
    at = check.canonical_axis("stack", axis, values[0].ndim + 1)
    for x in values[1:]:
        if x.ndim != values[0].ndim or not all(map(ir.same_dim, x.shape, values[0].shape)):
            check.bad_value(
                f"stack: expected arrays of one shape, got {values[0].aval} and {x.aval}"
            )
    return concatenate([broadcast.expand_dims(x, at) for x in values], at)


def _concatenate_aval(avals: ir.Avals, p: ConcatenateParams) -> list[ir.Aval]:
    xs = check.array_avals("concatenate", avals)
    first = xs[0]
    if not 0 <= p.axis < first.ndim:
        check.bad_value(f"concatenate: expected arrays with an axis {p.axis}, got {first}")
    for x in xs[1:]:
        if x.dtype != first.dtype:
            check.bad_type(f"concatenate: expected arrays of one dtype, got {first} and {x}")
        if x.ndim != first.ndim or any(
            k != p.axis and not ir.same_dim(a, b)
            for k, (a, b) in enumerate(zip(x.shape, first.shape, strict=True))
        ):
            check.bad_value(
                f"concatenate: expected arrays of one shape save along axis {p.axis}, got {first} and {x}"
            )
    total = sum((x.shape[p.axis] for x in xs[1:]), first.shape[p.axis])
    shape = (*first.shape[: p.axis], total, *first.shape[p.axis + 1 :])
    return [ir.ShapedArray(shape, first.dtype, all(x.weak_type for x in xs))]


def _joined_back(cts: ad.Tangents, operands: ad.Operands, p: ConcatenateParams) -> ad.Cotangents:
    assert isinstance(cts[0], Value), "unreachable: the only cotangent is not zero"
    sizes = [x.aval.shape[p.axis] for x in operands]
    return broadcast.of_linear(operands, split(cts[0], sizes, p.axis))


define(
    concatenate_p,
    abstract_eval=pure(_concatenate_aval),
    cost=costs.moving_cost(_concatenate_aval),
    lower=lambda ctx, xs, p: [hlo.concatenate(ctx.b, xs, p.axis)],
    jvp=broadcast.linear_jvp(concatenate_p),
    transpose=_joined_back,
    batch=broadcast.batch_in_front(concatenate_p, broadcast.along_next_axis),
)


# split


@dataclass(frozen=True)
class SplitParams:
    """How long the parts are, and the axis that is cut."""

    sizes: tuple[ir.Dim, ...]
    axis: int


split_p: ir.Primitive[SplitParams] = ir.Primitive("split")


def split(x: ArrayLike, sizes: Sequence[ir.Dim], axis: int = 0) -> list[Value]:
    """Consecutive parts of these sizes, which add up to that of the axis."""
    value = convert.operand("split", "x", x)
    at = check.canonical_axis("split", axis, value.ndim)
    return trace.bind(split_p, value, params=SplitParams(tuple(sizes), at))


def _split_aval(avals: ir.Avals, p: SplitParams) -> list[ir.Aval]:
    (x,) = check.array_avals("split", avals, 1)
    if not 0 <= p.axis < x.ndim or not ir.same_dim(sum(p.sizes), x.shape[p.axis]):
        check.bad_value(
            f"split: expected sizes that add up to axis {p.axis} of {x}, got {list(p.sizes)}"
        )
    before, after = x.shape[: p.axis], x.shape[p.axis + 1 :]
    return [x.update(shape=(*before, size, *after)) for size in p.sizes]


def _split_lower(ctx: Any, xs: hlo.IRValues, p: SplitParams) -> list[hlo.IRValue]:
    (x,) = xs
    shape = ctx.avals_in[0].shape
    starts, steps = [0] * len(shape), [1] * len(shape)
    parts = []
    for end, size in zip(accumulate(p.sizes), p.sizes, strict=True):
        starts[p.axis] = end - size
        limits = (*shape[: p.axis], end, *shape[p.axis + 1 :])
        parts.append(hlo.slice(ctx.b, x, starts, limits, steps))
    return parts


def _split_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: SplitParams) -> ad.Batched:
    params = SplitParams(p.sizes, *broadcast.past([p.axis], dims[0]))
    return trace.bind(split_p, *operands, params=params), list(dims) * len(p.sizes)


define(
    split_p,
    abstract_eval=pure(_split_aval),
    cost=costs.moving_cost(_split_aval),
    lower=_split_lower,
    jvp=broadcast.linear_jvp(split_p),
    transpose=lambda cts, xs, p: [concatenate([*map(broadcast.instantiate, cts)], p.axis)],
    batch=_split_batch,
)
