"""Complex numbers and their parts.

Transposes are those of the bilinear product Re(a b), without conjugation, so that a cotangent of a
complex value is the derivative by z of a real result, as for any other linear operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.primitives.broadcast import full_like
from fiveloop.core.primitives.convert import operand, promote, real_p
from fiveloop.core.primitives.family import (
    apply_binary,
    binary,
    define_binary,
    define_unary,
    unary,
)
from fiveloop.core.promotion import DType, complex_dtype, real_dtype
from fiveloop.core.trace.tracer import bind1

imag_p = unary("imag")
conj_p = unary("conj")
complex_p = binary("complex")


def real(x: ArrayLike) -> Value:
    """The real part; of a real number the number itself."""
    value = operand("real", "x", x)
    return bind1(real_p, value) if value.dtype.kind == "c" else value


def imag(x: ArrayLike) -> Value:
    """The imaginary part; of a real number zero."""
    value = operand("imag", "x", x)
    return bind1(imag_p, value) if value.dtype.kind == "c" else full_like(value, 0)


def conj(x: ArrayLike) -> Value:
    """The complex conjugate; of a real number the number itself."""
    value = operand("conj", "x", x)
    return bind1(conj_p, value) if value.dtype.kind == "c" else value


def complex(re: ArrayLike, im: ArrayLike) -> Value:
    """The complex numbers with these real and imaginary parts."""
    x, y = promote("complex", re, im, inexact=True)
    narrow = x.dtype not in (np.float32, np.float64)
    if narrow and x.dtype.kind != "c":
        x, y = promote("complex", x, y, np.float32(0))[:2]
    return apply_binary(complex_p, x, y)


def _lower_conj(b: Builder, x: IRValue) -> IRValue:
    return hlo.complex(b, hlo.real(b, x), hlo.neg(b, hlo.imag(b, x)))


def _no_imaginary(ct: Value) -> Value:
    return complex(ct, full_like(ct, 0))


define_unary(
    real_p,
    lower=hlo.real,
    jvp=lambda t, x: real(t),
    transpose=_no_imaginary,
    kinds="c",
    out=real_dtype,
)
define_unary(
    imag_p,
    lower=hlo.imag,
    jvp=lambda t, x: imag(t),
    transpose=lambda ct: conj(complex(full_like(ct, 0), ct)),
    kinds="c",
    out=real_dtype,
)
define_unary(
    conj_p, lower=_lower_conj, jvp=lambda t, x: conj(t), transpose=lambda ct: conj(ct), kinds="c"
)


def _complex_of(dtype: DType) -> DType:
    return complex_dtype(dtype)


def _with_zero_imag(t: Value, x: Value, y: Value) -> Value:
    return complex(t, full_like(t, 0))


def _with_zero_real(t: Value, x: Value, y: Value) -> Value:
    return complex(full_like(t, 0), t)


def _real_bar(ct: Value, other: Any) -> Value:
    return real(ct)


def _imag_bar(ct: Value, other: Any) -> Value:
    return imag(conj(ct))


define_binary(
    complex_p,
    lower=hlo.complex,
    jvp=(_with_zero_imag, _with_zero_real),
    transpose=(_real_bar, _imag_bar),
    kinds="f",
    out=_complex_of,
)
