"""Arithmetic of two arrays that broadcast, and signs."""

from __future__ import annotations

import numpy as np
from fiveloop.core import ArrayLike, Value
from fiveloop.core import operators as op
from fiveloop.core.complex_order import maximum as maximum_of
from fiveloop.core.complex_order import minimum as minimum_of
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.check import bad_type
from fiveloop.core.primitives.convert import convert, operand, promote
from fiveloop.core.promotion import dtype_kind


def add(x: ArrayLike, y: ArrayLike) -> Value:
    """The sum `x + y`.

    >>> fnp.add(np.array([1, 2]), 3)
    Array([4, 5], dtype=int64)
    """
    return ew.add(x, y)


def subtract(x: ArrayLike, y: ArrayLike) -> Value:
    """The difference `x - y`.

    >>> fnp.subtract(np.array([1, 2]), 3)
    Array([-2, -1], dtype=int64)
    """
    return ew.sub(x, y)


def multiply(x: ArrayLike, y: ArrayLike) -> Value:
    """The product `x * y`.

    >>> fnp.multiply(np.array([1, 2]), 3)
    Array([3, 6], dtype=int64)
    """
    return ew.mul(x, y)


def divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The quotient `x / y` as floating point numbers.

    Integers and bools become float32.

    >>> fnp.divide(np.array([1, 2]), 4)
    Array([0.25, 0.5 ], dtype=float32)
    """
    return op.true_divide(x, y)


def floor_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The greatest integer not above the quotient: `x // y`.

    >>> fnp.floor_divide(np.array([-7, 7]), 2)
    Array([-4,  3], dtype=int64)
    """
    return op.floor_divide(x, y)


def remainder(x: ArrayLike, y: ArrayLike) -> Value:
    """What floor division leaves, with the sign of `y`: `x % y`; 0 of integers over 0.

    >>> fnp.remainder(np.array([-7, 7]), 4)
    Array([1, 3], dtype=int64)
    """
    return op.remainder(x, y)


def fmod(x: ArrayLike, y: ArrayLike) -> Value:
    """What division towards zero leaves, with the sign of `x`; 0 of integers over 0.

    >>> fnp.fmod(np.array([-7, 7]), 4)
    Array([-3,  3], dtype=int64)
    """
    return op.fmod(x, y)


def divmod(x: ArrayLike, y: ArrayLike) -> tuple[Value, Value]:
    """The pair `(x // y, x % y)`.

    >>> fnp.divmod(7, 4)
    (Array(1, dtype=int32), Array(3, dtype=int32, weak_type=True))
    """
    return (op.floor_divide(x, y), op.remainder(x, y))


def power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`; a Python integer as exponent multiplies repeatedly.

    >>> fnp.power(np.array([2.0, 3.0]), 2)
    Array([4., 9.], dtype=float64)
    """
    return op.power(x, y)


def float_power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`, as floating point numbers.

    Integers and bools become float32.

    >>> fnp.float_power(2, -1)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return op.power(*promote("float_power", x, y, inexact=True))


def maximum(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of each pair of elements; NaN if either is.

    >>> fnp.maximum(np.array([1, 5]), 3)
    Array([3, 5], dtype=int64)
    """
    return maximum_of(x, y)


def minimum(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of each pair of elements; NaN if either is.

    >>> fnp.minimum(np.array([1, 5]), 3)
    Array([1, 3], dtype=int64)
    """
    return minimum_of(x, y)


def fmax(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of each pair of elements; if one is NaN, the other.

    >>> fnp.fmax(np.array([1.0, np.nan]), 0.5)
    Array([1. , 0.5], dtype=float64)
    """
    a, b = promote("fmax", x, y)
    return ew.select(ew.is_nan(a), b, ew.select(ew.is_nan(b), a, maximum_of(a, b)))


def fmin(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of each pair of elements; if one is NaN, the other.

    >>> fnp.fmin(np.array([1.0, np.nan]), 0.5)
    Array([0.5, 0.5], dtype=float64)
    """
    a, b = promote("fmin", x, y)
    return ew.select(ew.is_nan(a), b, ew.select(ew.is_nan(b), a, minimum_of(a, b)))


def negative(x: ArrayLike) -> Value:
    """Each element negated.

    >>> fnp.negative(np.array([1, -2]))
    Array([-1,  2], dtype=int64)
    """
    return ew.neg(x)


def positive(x: ArrayLike) -> Value:
    """Each element as it is.

    >>> fnp.positive(np.array([1, -2]))
    Array([ 1, -2], dtype=int64)
    """
    return operand("positive", "x", x)


def abs(x: ArrayLike) -> Value:
    """The absolute value of each element; a real number for complex ones.

    >>> fnp.abs(np.array([-1, 2]))
    Array([1, 2], dtype=int64)
    """
    return ew.abs(x)


def fabs(x: ArrayLike) -> Value:
    """The absolute value of each real number, as a floating point number.

    Integers and bools become float32.

    >>> fnp.fabs(np.array([-1, 2]))
    Array([1., 2.], dtype=float32)
    """
    (value,) = promote("fabs", x, inexact=True)
    if value.dtype.kind == "c":
        bad_type(f"fabs: expected real numbers, got {value.aval}; take `abs`")
    return ew.abs(value)


def sign(x: ArrayLike) -> Value:
    """-1, 0 or 1 as each element is negative, zero or positive, in the same dtype.

    >>> fnp.sign(np.array([-3, 0, 2]))
    Array([-1,  0,  1], dtype=int64)
    """
    return ew.sign(x)


def copysign(x: ArrayLike, y: ArrayLike) -> Value:
    """The absolute value of `x` with the sign of `y`.

    Integers and bools become float32.

    >>> fnp.copysign(3.0, -0.0)
    Array(-3., dtype=float32, weak_type=True)
    """
    a, b = promote("copysign", x, y, inexact=True)
    size = ew.abs(a)
    return ew.select(signbit(b), ew.neg(size), size)


def signbit(x: ArrayLike) -> Value:
    """Whether the sign of each element is minus; that of `-0.0` is.

    >>> fnp.signbit(np.array([-0.0, 1.0]))
    Array([ True, False], dtype=bool)
    """
    value = operand("signbit", "x", x)
    if dtype_kind(value.dtype) != "f":
        return ew.less(value, 0)
    bits = np.dtype(f"int{value.dtype.itemsize * 8}")
    return ew.less(sp.bitcast_convert(value, bits), 0)


def heaviside(x: ArrayLike, y: ArrayLike) -> Value:
    """0 where `x` is negative, `y` where it is zero, 1 where it is positive.

    Integers and bools become float32.

    >>> fnp.heaviside(np.array([-1.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    a, b = promote("heaviside", x, y, inexact=True)
    step = convert(ew.greater(a, 0), a.dtype)
    return ew.select(ew.is_nan(a), a, ew.select(ew.equal(a, 0), b, step))
