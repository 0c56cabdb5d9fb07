"""Changing dtypes: `convert`, and bringing operands to one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Scalar, Value, as_value
from fiveloop.core.backend import hlo
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.check import array_aval, array_avals, bad_type, canonical_dtype
from fiveloop.core.primitives.costs import moving_cost
from fiveloop.core.promotion import (
    Typed,
    check_narrowing,
    host_scalar,
    is_python_number,
    join,
    python_number,
    python_typed,
    to_inexact,
)
from fiveloop.core.rules import Operand, Zero, define, pure
from fiveloop.core.trace.tracer import bind1

"""What a transpose rule is given: a known value, or what stands for a linear operand."""


@dataclass(frozen=True)
class ConvertParams:
    """The dtype to convert to."""

    dtype: np.dtype[Any]
    weak_type: bool = False


convert_p: Primitive[ConvertParams] = Primitive("convert")
real_p: Primitive[Any] = Primitive("real")  # its row is in `complex`, above; a transpose needs it


_WIDE = (np.dtype(np.float64), np.dtype(np.complex128))
"""What holds digits of a Python number that float32 and complex64 do not."""


def convert(x: ArrayLike, dtype: Any, weak_type: bool = False) -> Value:
    """The same elements in another dtype; complex numbers do not become real by themselves.

    TypeError for a complex array and a real dtype. A float becomes an integer towards zero. With `weak_type`, the
    result takes the dtype of what it meets.

    >>> print(convert(np.array([1.7, -1.7]), np.int32))
    [ 1 -1]
    >>> convert(2.0, np.float32, weak_type=True).aval
    f32*[]
    """
    typed = Typed(canonical_dtype("convert", dtype), weak_type)
    if is_python_number(x):
        return python_number(x, typed, "convert: argument `x`")
    value = operand("convert", "x", x)
    if value.aval.dtype == typed.dtype and value.aval.weak_type == weak_type:
        return value
    if isinstance(value, Scalar) and value.number is not None and typed.dtype in _WIDE:
        if typed.dtype.kind == "c" or not isinstance(value.number, complex):
            return python_number(value.number, typed, "convert: argument `x`")
    return bind1(convert_p, value, params=ConvertParams(*typed))


def _convert_aval(avals: Sequence[Aval], p: ConvertParams) -> list[Aval]:
    (x,) = array_avals("convert", avals, 1)
    if x.dtype.kind == "c" and p.dtype.kind != "c":
        bad_type(
            f"convert: expected a complex dtype for complex numbers, got {p.dtype.name} for {x}; "
            f"take `real(x)` or `abs(x)` first"
        )
    return [ShapedArray(x.shape, p.dtype, p.weak_type)]


def _convert_jvp(
    primals: Sequence[Value], tangents: Sequence[Value | Zero], p: ConvertParams
) -> tuple[list[Value], list[Value | Zero]]:
    out = bind1(convert_p, *primals, params=p)
    (t,) = tangents
    if isinstance(t, Zero) or not out.aval.differentiable:
        return [out], [Zero(out.aval.tangent())]
    return [out], [convert(t, p.dtype)]


def _convert_transpose(
    cts: Sequence[Value | Zero], operands: Sequence[Operand], p: ConvertParams
) -> list[Value | Zero | None]:
    (ct,), (x,) = cts, operands
    if isinstance(ct, Zero):
        return [Zero(x.aval)]
    return [convert_back(ct, x.aval.dtype)]


def convert_back(ct: Value, dtype: np.dtype[Any]) -> Value:
    """A cotangent in the dtype of the operand; a complex one keeps its real part for a real one."""
    if ct.aval.dtype.kind == "c" and dtype.kind != "c":
        return convert(bind1(real_p, ct), dtype)
    return convert(ct, dtype)


define(
    convert_p,
    abstract_eval=pure(_convert_aval),
    cost=moving_cost(_convert_aval),
    lower=lambda ctx, operands, p: [hlo.convert(ctx.b, operands[0], p.dtype)],
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=lambda size, operands, dims, p: ([bind1(convert_p, *operands, params=p)], list(dims)),
)


def operand(fun: str, name: str, x: Any) -> Value:
    """An argument as an array value; the error for anything else names function and argument."""
    value = x if isinstance(x, Value) else as_value(x, f"{fun}: argument `{name}`")
    array_aval(fun, value.aval, f"`{name}`")
    return value


def counted(x: Value) -> Value:
    """An array whose elements can be counted: bools become int32."""
    return convert(x, np.int32) if x.dtype == np.bool_ else x


def promote(fun: str, *xs: Any, inexact: bool = False) -> list[Value]:
    """Arguments as values of one dtype, by the promotion table; of a floating one if `inexact`.

    Python numbers and host scalars are converted on the host, exactly.
    """
    given = [x if is_python_number(x) else operand(fun, _name(k), x) for k, x in enumerate(xs)]
    types = tuple(_typed(x) for x in given)
    try:
        dtype, weak = join(types)
    except TypeError as e:
        bad_type(f"{fun}: {e}")
    target = Typed(to_inexact(dtype) if inexact else dtype, weak)
    return [_bring(x, target, fun, k) for k, x in enumerate(given)]


def _typed(x: Value | bool | int | float | complex) -> Typed:
    if isinstance(x, Value):
        return Typed(x.aval.dtype, x.aval.weak_type)
    return python_typed(x)


def _bring(x: Any, target: Typed, fun: str, k: int) -> Value:
    if is_python_number(x):
        return python_number(x, target, f"{fun}: argument `{_name(k)}`")
    aval = x.aval
    if aval.dtype == target.dtype:
        return x  # type: ignore[no-any-return]  # weakness needs no conversion: it is not in the elements
    if isinstance(x, Scalar):
        what = f"{fun}: argument `{_name(k)}`"
        return (
            host_scalar(x.exact, target, what)
            if aval.weak_type
            else Scalar(x.host.astype(target.dtype))
        )
    check_narrowing(_typed(x), target.dtype, f"{fun}: argument `{_name(k)}`")
    return convert(x, target.dtype, target.weak_type)


def _name(k: int) -> str:
    return "xyzw"[k] if k < 4 else f"argument {k}"
