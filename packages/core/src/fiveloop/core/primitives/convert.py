"""Changing dtypes: `convert`, and bringing operands to one dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import check, costs


@dataclass(frozen=True)
class ConvertParams:
    """The dtype to convert to."""

    dtype: np.dtype[Any]
    weak_type: bool = False


convert_p: ir.Primitive[ConvertParams] = ir.Primitive("convert")
real_p: ir.Primitive[Any] = ir.Primitive("real")  # its row is in `elementwise`; transposes need it

_WIDE = (np.dtype(np.float64), np.dtype(np.complex128))
"""What holds digits of a Python number that float32 and complex64 do not."""


def convert(x: ArrayLike, dtype: Any, weak_type: bool = False) -> Value:
    """The same elements in another dtype; complex numbers do not become real by themselves.

    TypeError for a complex array and a real dtype. A float is rounded towards zero to become an integer. With
    `weak_type`, the result takes the dtype of the operands that it is combined with.

    >>> print(convert(np.array([1.7, -1.7]), np.int32))
    [ 1 -1]
    >>> convert(2.0, np.float32, weak_type=True).aval
    f32*[]
    """
    typed = arrays.Typed(check.canonical_dtype("convert", dtype), weak_type)
    if arrays.is_python_number(x):
        return arrays.python_number(x, typed, "convert: argument `x`")
    value = operand("convert", "x", x)
    if value.aval.dtype == typed.dtype and value.aval.weak_type == weak_type:
        return value
    if isinstance(value, arrays.Scalar) and value.number is not None and typed.dtype in _WIDE:
        if typed.dtype.kind == "c" or not isinstance(value.number, complex):
            return arrays.python_number(value.number, typed, "convert: argument `x`")
    return trace.bind1(convert_p, value, params=ConvertParams(*typed))


def _convert_aval(avals: ir.Avals, p: ConvertParams) -> list[ir.Aval]:
    (x,) = check.array_avals("convert", avals, 1)
    if x.dtype.kind == "c" and p.dtype.kind != "c":
        check.bad_type(
            f"convert: expected a complex dtype for complex numbers, got {p.dtype.name} for {x}; "
            f"take `real(x)` or `abs(x)` first"
        )
    return [ir.ShapedArray(x.shape, p.dtype, p.weak_type)]


def _convert_jvp(primals: ad.Values, tangents: ad.Tangents, p: ConvertParams) -> ad.Duals:
    (t,), out = tangents, trace.bind1(convert_p, *primals, params=p)
    if isinstance(t, ad.Zero) or not out.aval.differentiable:
        return [out], [ad.Zero(out.aval.tangent())]
    return [out], [convert(t, p.dtype)]


def _convert_transpose(cts: ad.Tangents, operands: ad.Operands, p: ConvertParams) -> ad.Cotangents:
    assert isinstance(cts[0], Value), "unreachable: the only cotangent is not zero"
    return [convert_back(cts[0], operands[0].aval.dtype)]


def convert_back(ct: Value, dtype: np.dtype[Any]) -> Value:
    """A cotangent in the dtype of the operand; a real operand gets the real part of a complex cotangent."""
    if ct.aval.dtype.kind == "c" and dtype.kind != "c":
        return convert(trace.bind1(real_p, ct), dtype)
    return convert(ct, dtype)


rules.define(
    convert_p,
    abstract_eval=rules.pure(_convert_aval),
    cost=costs.moving_cost(_convert_aval),
    lower=lambda ctx, operands, p: [hlo.convert(ctx.b, operands[0], p.dtype)],
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=lambda size, xs, dims, p: (trace.bind(convert_p, *xs, params=p), list(dims)),
)


def operand(fun: str, name: str, x: Any) -> Value:
    """An argument as an array value; the error for anything else names function and argument."""
    value = x if isinstance(x, Value) else arrays.as_value(x, f"{fun}: argument `{name}`")
    check.array_aval(fun, value.aval, f"`{name}`")
    return value


def counted(x: Value) -> Value:
    """An array whose elements can be counted: bools become int32."""
    return convert(x, np.int32) if x.dtype == np.bool_ else x


def promote(fun: str, *xs: Any, inexact: bool = False) -> list[Value]:
    """Arguments as values of one dtype, by the promotion table; of a floating one if `inexact`.

    Python numbers and host scalars are converted on the host, exactly.
    """
    given = [
        x if arrays.is_python_number(x) else operand(fun, _name(k), x) for k, x in enumerate(xs)
    ]
    types = tuple(_typed(x) for x in given)
    try:
        dtype, weak = arrays.join(types)
    except TypeError as e:
        check.bad_type(f"{fun}: {e}")
    target = arrays.Typed(arrays.to_inexact(dtype) if inexact else dtype, weak)
    return [_bring(x, target, fun, k) for k, x in enumerate(given)]


def _typed(x: Value | bool | int | float | complex) -> arrays.Typed:
    if isinstance(x, Value):
        return arrays.Typed(x.aval.dtype, x.aval.weak_type)
    return arrays.python_typed(x)


def _bring(x: Any, target: arrays.Typed, fun: str, k: int) -> Value:
    if arrays.is_python_number(x):
        return arrays.python_number(x, target, f"{fun}: argument `{_name(k)}`")
    aval = x.aval
    if aval.dtype == target.dtype:
        return x  # type: ignore[no-any-return]  # weakness needs no conversion: it is not in the elements
    if isinstance(x, arrays.Scalar):
        if not aval.weak_type:
            return arrays.Scalar(x.host.astype(target.dtype))
        return arrays.host_scalar(x.exact, target, f"{fun}: argument `{_name(k)}`")
    arrays.check_narrowing(_typed(x), target.dtype, f"{fun}: argument `{_name(k)}`")
    return convert(x, target.dtype, target.weak_type)


def _name(k: int) -> str:
    return "xyzw"[k] if k < 4 else f"argument {k}"
