"""Elementwise primitives with params, and those that look at a number's bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue
from fiveloop.core.errors import shape_str
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import bdim_at_front, linear_jvp, linear_transpose
from fiveloop.core.primitives.check import array_avals, bad_value, check_kind
from fiveloop.core.primitives.convert import operand
from fiveloop.core.primitives.costs import elementwise_cost, moving_cost
from fiveloop.core.primitives.family import define_unary, same_dims_batch, unary, zero_jvp
from fiveloop.core.promotion import dtype_kind
from fiveloop.core.rules import define, pure
from fiveloop.core.trace.tracer import bind1

# stop_gradient

stop_gradient_p = unary("stop_gradient")


def stop_gradient(x: ArrayLike) -> Value:
    """The same values, through which no derivative flows."""
    value = operand("stop_gradient", "x", x)
    return bind1(stop_gradient_p, value) if value.aval.differentiable else value


define_unary(stop_gradient_p, lower=lambda b, x: x, kinds="biufc")


# reduce_precision


@dataclass(frozen=True)
class ReducePrecisionParams:
    """The widths of the exponent and the mantissa that numbers are rounded to."""

    exponent_bits: int
    mantissa_bits: int


reduce_precision_p: Primitive[ReducePrecisionParams] = Primitive("reduce_precision")


def reduce_precision(x: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Value:
    """Numbers rounded as a narrower dtype would round them, in the same dtype; so are its derivatives."""
    value = operand("reduce_precision", "x", x)
    params = ReducePrecisionParams(exponent_bits, mantissa_bits)
    return bind1(reduce_precision_p, value, params=params)


def _reduce_precision_aval(avals: Sequence[Aval], p: ReducePrecisionParams) -> list[Aval]:
    (x,) = array_avals("reduce_precision", avals, 1)
    check_kind("reduce_precision", x, "f")
    if p.exponent_bits < 1 or p.mantissa_bits < 0:
        bad_value(
            f"reduce_precision: expected exponent_bits >= 1 and mantissa_bits >= 0, got "
            f"{p.exponent_bits} and {p.mantissa_bits}"
        )
    return [x]


def _reduce_precision_lower(
    ctx: Any, xs: Sequence[IRValue], p: ReducePrecisionParams
) -> list[IRValue]:
    (x,) = xs
    attrs = f"exponent_bits = {p.exponent_bits} : i32, mantissa_bits = {p.mantissa_bits} : i32"
    return hlo.generic(ctx.b, "stablehlo.reduce_precision", [x], [(x.shape, x.dtype)], attrs)


define(
    reduce_precision_p,
    abstract_eval=pure(_reduce_precision_aval),
    cost=elementwise_cost(),
    lower=_reduce_precision_lower,
    jvp=linear_jvp(reduce_precision_p),
    transpose=linear_transpose(lambda ct, aval, p: bind1(reduce_precision_p, ct, params=p)),
    batch=same_dims_batch(reduce_precision_p),
)


# bitcast_convert


@dataclass(frozen=True)
class BitcastParams:
    """The dtype that the bits are read as."""

    dtype: np.dtype[Any]


bitcast_convert_p: Primitive[BitcastParams] = Primitive("bitcast_convert")


def bitcast_convert(x: ArrayLike, dtype: Any) -> Value:
    """The bits of `x` read as another dtype.

    A narrower one adds a last axis, the lowest bits first; a wider one takes the last axis away.
    """
    value = operand("bitcast_convert", "x", x)
    if value.dtype == np.dtype(dtype):
        return value
    return bind1(bitcast_convert_p, value, params=BitcastParams(np.dtype(dtype)))


def _bitcast_aval(avals: Sequence[Aval], p: BitcastParams) -> list[Aval]:
    (x,) = array_avals("bitcast_convert", avals, 1)
    old, new = x.dtype.itemsize, p.dtype.itemsize
    if "b" in (dtype_kind(x.dtype), dtype_kind(p.dtype)) or "c" in (x.dtype.kind, p.dtype.kind):
        bad_value(f"bitcast_convert: expected real numbers, got {x} to {p.dtype.name}")
    if old == new:
        return [ShapedArray(x.shape, p.dtype)]
    if old > new:
        return [ShapedArray((*x.shape, old // new), p.dtype)]
    if not x.shape or x.shape[-1] != new // old:
        bad_value(
            f"bitcast_convert: expected a last axis of size {new // old} to fill {p.dtype.name}, "
            f"got shape {shape_str(x.shape)} of {x.dtype.name}"
        )
    return [ShapedArray(x.shape[:-1], p.dtype)]


def _bitcast_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: BitcastParams
) -> tuple[list[Value], list[int | None]]:
    x = bdim_at_front(operands[0], dims[0], size)
    return [bind1(bitcast_convert_p, x, params=p)], [0]


define(
    bitcast_convert_p,
    abstract_eval=pure(_bitcast_aval),
    cost=moving_cost(_bitcast_aval),
    lower=lambda ctx, xs, p: [hlo.bitcast_convert(ctx.b, xs[0], p.dtype)],
    jvp=zero_jvp(bitcast_convert_p),
    batch=_bitcast_batch,
)
