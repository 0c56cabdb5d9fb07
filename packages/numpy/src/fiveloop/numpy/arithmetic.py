"""Arithmetic of two arrays that broadcast, and signs."""

from __future__ import annotations

from functools import partial

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import operators as op
from fiveloop.core.primitives import special


@fused
def add(x: ArrayLike, y: ArrayLike) -> Value:
    """The sum `x + y`.

    >>> fnp.add(np.array([1, 2]), 3)
    Array([4, 5], dtype=int64)
    """
    return prims.add(x, y)


@fused
def subtract(x: ArrayLike, y: ArrayLike) -> Value:
    """The difference `x - y`.

    >>> fnp.subtract(np.array([1, 2]), 3)
    Array([-2, -1], dtype=int64)
    """
    return prims.sub(x, y)


@fused
def multiply(x: ArrayLike, y: ArrayLike) -> Value:
    """The product `x * y`.

    >>> fnp.multiply(np.array([1, 2]), 3)
    Array([3, 6], dtype=int64)
    """
    return prims.mul(x, y)


@fused
def divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The quotient `x / y` as floating point numbers.

    Integers and bools become float32.

    >>> fnp.divide(np.array([1, 2]), 4)
    Array([0.25, 0.5 ], dtype=float32)
    """
    return op.true_divide(x, y)


@fused
def floor_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The greatest integer not above the quotient: `x // y`.

    >>> fnp.floor_divide(np.array([-7, 7]), 2)
    Array([-4,  3], dtype=int64)
    """
    return op.floor_divide(x, y)


@fused
def remainder(x: ArrayLike, y: ArrayLike) -> Value:
    """The remainder of floor division, with the sign of `y`: `x % y`; 0 for integers over 0.

    >>> fnp.remainder(np.array([-7, 7]), 4)
    Array([1, 3], dtype=int64)
    """
    return op.remainder(x, y)


@fused
def fmod(x: ArrayLike, y: ArrayLike) -> Value:
    """The remainder of division towards zero, with the sign of `x`; 0 for integers over 0.

    >>> fnp.fmod(np.array([-7, 7]), 4)
    Array([-3,  3], dtype=int64)
    """
    return op.fmod(x, y)


@fused
def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Value, Value]:
    """The pair `(x // y, x % y)`.

    >>> fnp.divmod(7, 4)
    (Array(1, dtype=int32, weak_type=True), Array(3, dtype=int32, weak_type=True))
    """
    return (op.floor_divide(x, y), op.remainder(x, y))


@partial(fused, numbers="static")
def power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`; a Python integer as exponent multiplies repeatedly.

    >>> fnp.power(np.array([2.0, 3.0]), 2)
    Array([4., 9.], dtype=float64)
    """
    return op.power(x, y)


@fused
def float_power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`, as floating point numbers.

    Integers and bools become float32.

    >>> fnp.float_power(2, -1)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return op.power(*prims.promote("float_power", x, y, inexact=True))


@fused
def polyval(p: ArrayLike, x: ArrayLike) -> Value:
    """The polynomial with coefficients `p`, the highest power first, at each element of `x`.

    >>> fnp.polyval(np.array([1.0, 0.0, 2.0]), np.array([3.0]))
    Array([11.], dtype=float64)
    """
    coefficients, value = prims.promote("polyval", p, x)
    if coefficients.ndim != 1:
        prims.bad_value(f"polyval: expected `p` to be a vector, got {coefficients.aval}")
    out = prims.full(value.shape, 0, value.dtype)
    for k in range(coefficients.size):
        out = prims.add(prims.mul(out, value), coefficients[k])
    return out


@fused
def maximum(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of each pair of elements; NaN if either is.

    >>> fnp.maximum(np.array([1, 5]), 3)
    Array([3, 5], dtype=int64)
    """
    return complex_order.maximum(x, y)


@fused
def minimum(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of each pair of elements; NaN if either is.

    >>> fnp.minimum(np.array([1, 5]), 3)
    Array([1, 3], dtype=int64)
    """
    return complex_order.minimum(x, y)


@fused
def fmax(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of each pair of elements; if one is NaN, the other.

    >>> fnp.fmax(np.array([1.0, np.nan]), 0.5)
    Array([1. , 0.5], dtype=float64)
    """
    a, b = prims.promote("fmax", x, y)
    return prims.select(
        prims.is_nan(a), b, prims.select(prims.is_nan(b), a, complex_order.maximum(a, b))
    )


@fused
def fmin(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of each pair of elements; if one is NaN, the other.

    >>> fnp.fmin(np.array([1.0, np.nan]), 0.5)
    Array([0.5, 0.5], dtype=float64)
    """
    a, b = prims.promote("fmin", x, y)
    return prims.select(
        prims.is_nan(a), b, prims.select(prims.is_nan(b), a, complex_order.minimum(a, b))
    )


@fused
def negative(x: ArrayLike) -> Value:
    """Each element negated.

    >>> fnp.negative(np.array([1, -2]))
    Array([-1,  2], dtype=int64)
    """
    return prims.neg(x)


@fused
def positive(x: ArrayLike) -> Value:
    """Each element as it is.

    >>> fnp.positive(np.array([1, -2]))
    Array([ 1, -2], dtype=int64)
    """
    return prims.operand("positive", "x", x)


@fused
def abs(x: ArrayLike) -> Value:
    """The absolute value of each element; a real number for complex ones.

    >>> fnp.abs(np.array([-1, 2]))
    Array([1, 2], dtype=int64)
    """
    return prims.abs(x)


@fused
def fabs(x: ArrayLike) -> Value:
    """The absolute value of each real number, as a floating point number.

    Integers and bools become float32.

    >>> fnp.fabs(np.array([-1, 2]))
    Array([1., 2.], dtype=float32)
    """
    (value,) = prims.promote("fabs", x, inexact=True)
    if value.dtype.kind == "c":
        prims.bad_type(f"fabs: expected real numbers, got {value.aval}; take `abs`")
    return prims.abs(value)


@fused
def sign(x: ArrayLike) -> Value:
    """-1, 0 or 1 as each element is negative, zero or positive, in the same dtype.

    >>> fnp.sign(np.array([-3, 0, 2]))
    Array([-1,  0,  1], dtype=int64)
    """
    return prims.sign(x)


@fused
def copysign(x: ArrayLike, y: ArrayLike) -> Value:
    """The absolute value of `x` with the sign of `y`.

    Integers and bools become float32.

    >>> fnp.copysign(3.0, -0.0)
    Array(-3., dtype=float32, weak_type=True)
    """
    a, b = prims.promote("copysign", x, y, inexact=True)
    size = prims.abs(a)
    return prims.select(signbit(b), prims.neg(size), size)


@fused
def signbit(x: ArrayLike) -> Value:
    """Whether the sign of each element is minus; that of `-0.0` is.

    >>> fnp.signbit(np.array([-0.0, 1.0]))
    Array([ True, False], dtype=bool)
    """
    value = prims.operand("signbit", "x", x)
    if arrays.dtype_kind(value.dtype) != "f":
        return prims.less(value, 0)
    bits = np.dtype(f"int{value.dtype.itemsize * 8}")
    return prims.less(special.bitcast_convert(value, bits), 0)


@fused
def heaviside(x: ArrayLike, y: ArrayLike) -> Value:
    """0 where `x` is negative, `y` where it is zero, 1 where it is positive.

    Integers and bools become float32.

    >>> fnp.heaviside(np.array([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    a, b = prims.promote("heaviside", x, y, inexact=True)
    step = prims.convert(prims.greater(a, 0), a.dtype)
    return prims.select(prims.is_nan(a), a, prims.select(prims.equal(a, 0), b, step))
