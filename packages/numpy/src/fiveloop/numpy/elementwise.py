"""Functions of each element: exponentials, logarithms, trigonometry, rounding."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op
from fiveloop.core.primitives import special


@fused
def exp(x: ArrayLike) -> Value:
    """`e` to the power of each element.

    Integers and bools become float32.

    >>> fnp.exp(1.0)
    Array(2.7182817, dtype=float32, weak_type=True)
    """
    return prims.exp(x)


@fused
def exp2(x: ArrayLike) -> Value:
    """2 to the power of each element.

    Integers and bools become float32.

    >>> fnp.exp2(np.array([1, 3]))
    Array([2., 8.], dtype=float32)
    """
    return prims.exp(prims.mul(_inexact("exp2", x), math.log(2.0)))


@fused
def expm1(x: ArrayLike) -> Value:
    """`exp(x) - 1`, exact for small elements too.

    Integers and bools become float32.

    >>> fnp.expm1(1e-6)
    Array(1.0000005e-06, dtype=float32, weak_type=True)
    """
    return prims.expm1(x)


@fused
def log(x: ArrayLike) -> Value:
    """The natural logarithm of each element; NaN for negative ones.

    Integers and bools become float32.

    >>> fnp.log(np.array([1, 10]))
    Array([0.       , 2.3025851], dtype=float32)
    """
    return prims.log(x)


@fused
def log2(x: ArrayLike) -> Value:
    """The logarithm to base 2 of each element.

    Integers and bools become float32.

    >>> fnp.log2(np.array([1, 8]))
    Array([0., 3.], dtype=float32)
    """
    return _scaled(prims.log(x), 1 / math.log(2.0))


def _scaled(x: Value, factor: float) -> Value:
    """A product with a real number, part by part: the complex one has infinity times zero."""
    if x.dtype.kind != "c":
        return prims.mul(x, factor)
    return prims.complex(prims.mul(prims.real(x), factor), prims.mul(prims.imag(x), factor))


@fused
def log10(x: ArrayLike) -> Value:
    """The logarithm to base 10 of each element.

    Integers and bools become float32.

    >>> fnp.log10(np.array([1, 100]))
    Array([0., 2.], dtype=float32)
    """
    return _scaled(prims.log(x), 1 / math.log(10.0))


@fused
def log1p(x: ArrayLike) -> Value:
    """`log(1 + x)`, exact for small elements too.

    Integers and bools become float32.

    >>> fnp.log1p(1e-6)
    Array(9.999995e-07, dtype=float32, weak_type=True)
    """
    return prims.log1p(x)


@fused
def sqrt(x: ArrayLike) -> Value:
    """The square root of each element; NaN for negative real ones.

    Integers and bools become float32.

    >>> fnp.sqrt(np.array([4, 9]))
    Array([2., 3.], dtype=float32)
    """
    return prims.sqrt(x)


@fused
def cbrt(x: ArrayLike) -> Value:
    """The real cube root of each element.

    Integers and bools become float32.

    >>> fnp.cbrt(-8.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return prims.cbrt(x)


@fused
def square(x: ArrayLike) -> Value:
    """Each element times itself, in the same dtype.

    >>> fnp.square(np.array([2, 3]))
    Array([4, 9], dtype=int64)
    """
    return op.square(x)


@fused
def reciprocal(x: ArrayLike) -> Value:
    """The reciprocal of each element.

    Integers and bools become float32.

    >>> fnp.reciprocal(4)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return prims.reciprocal(x)


@fused
def sin(x: ArrayLike) -> Value:
    """The sine of each element, in radians.

    Integers and bools become float32.

    >>> fnp.sin(0.5)
    Array(0.47942555, dtype=float32, weak_type=True)
    """
    return special.sin(x)


@fused
def cos(x: ArrayLike) -> Value:
    """The cosine of each element, in radians.

    Integers and bools become float32.

    >>> fnp.cos(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return special.cos(x)


@fused
def tan(x: ArrayLike) -> Value:
    """The tangent of each element, in radians.

    Integers and bools become float32.

    >>> fnp.tan(0.5)
    Array(0.5463025, dtype=float32, weak_type=True)
    """
    return special.tan(x)


@fused
def arcsin(x: ArrayLike) -> Value:
    """The angle whose sine is each element, in `[-pi/2, pi/2]`.

    Integers and bools become float32.

    >>> fnp.arcsin(0.5)
    Array(0.5235988, dtype=float32, weak_type=True)
    """
    return special.asin(x)


@fused
def arccos(x: ArrayLike) -> Value:
    """The angle whose cosine is each element, in `[0, pi]`.

    Integers and bools become float32.

    >>> fnp.arccos(0.5)
    Array(1.0471976, dtype=float32, weak_type=True)
    """
    return special.acos(x)


@fused
def arctan(x: ArrayLike) -> Value:
    """The angle whose tangent is each element, in `[-pi/2, pi/2]`.

    Integers and bools become float32.

    >>> fnp.arctan(1.0)
    Array(0.7853982, dtype=float32, weak_type=True)
    """
    return special.atan(x)


@fused
def arctan2(y: ArrayLike, x: ArrayLike) -> Value:
    """The angle of the point `(x, y)` in `(-pi, pi]`; the arguments broadcast.

    Integers and bools become float32.

    >>> fnp.arctan2(1.0, -1.0)
    Array(2.3561945, dtype=float32, weak_type=True)
    """
    return special.atan2(y, x)


@fused
def sinh(x: ArrayLike) -> Value:
    """The hyperbolic sine of each element.

    Integers and bools become float32.

    >>> fnp.sinh(1.0)
    Array(1.1752012, dtype=float32, weak_type=True)
    """
    return special.sinh(x)


@fused
def cosh(x: ArrayLike) -> Value:
    """The hyperbolic cosine of each element.

    Integers and bools become float32.

    >>> fnp.cosh(1.0)
    Array(1.5430806, dtype=float32, weak_type=True)
    """
    return special.cosh(x)


@fused
def tanh(x: ArrayLike) -> Value:
    """The hyperbolic tangent of each element.

    Integers and bools become float32.

    >>> fnp.tanh(0.5)
    Array(0.46211717, dtype=float32, weak_type=True)
    """
    return special.tanh(x)


@fused
def arcsinh(x: ArrayLike) -> Value:
    """The inverse hyperbolic sine of each element.

    Integers and bools become float32.

    >>> fnp.arcsinh(1.0)
    Array(0.88137364, dtype=float32, weak_type=True)
    """
    return special.asinh(x)


@fused
def arccosh(x: ArrayLike) -> Value:
    """The inverse hyperbolic cosine of each element, from 1 on.

    Integers and bools become float32.

    >>> fnp.arccosh(2.0)
    Array(1.316958, dtype=float32, weak_type=True)
    """
    return special.acosh(x)


@fused
def arctanh(x: ArrayLike) -> Value:
    """The inverse hyperbolic tangent of each element, in `(-1, 1)`.

    Integers and bools become float32.

    >>> fnp.arctanh(0.5)
    Array(0.54930615, dtype=float32, weak_type=True)
    """
    return special.atanh(x)


@fused
def hypot(x: ArrayLike, y: ArrayLike) -> Value:
    """The length of the vector `(x, y)`, without intermediate overflow; the arguments broadcast.

    Integers and bools become float32. The derivative at the zero vector is 0.

    >>> fnp.hypot(3.0, 4.0)
    Array(5., dtype=float32, weak_type=True)
    """
    return special.hypot(x, y)


@fused
def logaddexp(x: ArrayLike, y: ArrayLike) -> Value:
    """`log(exp(x) + exp(y))`, without intermediate overflow; the arguments broadcast.

    Integers and bools become float32. Equal infinities share the derivative.

    >>> fnp.logaddexp(0.0, 0.0)
    Array(0.6931472, dtype=float32, weak_type=True)
    """
    return special.logaddexp(x, y)


@fused
def deg2rad(x: ArrayLike) -> Value:
    """Degrees as radians.

    Integers and bools become float32.

    >>> fnp.deg2rad(180.0)
    Array(3.1415927, dtype=float32, weak_type=True)
    """
    return prims.mul(_inexact("deg2rad", x), math.pi / 180)


@fused
def rad2deg(x: ArrayLike) -> Value:
    """Radians as degrees.

    Integers and bools become float32.

    >>> fnp.rad2deg(1.0)
    Array(57.29578, dtype=float32, weak_type=True)
    """
    return prims.mul(_inexact("rad2deg", x), 180 / math.pi)


@fused
def sinc(x: ArrayLike) -> Value:
    """`sin(pi x) / (pi x)`, and 1 at zero.

    Integers and bools become float32.

    >>> fnp.sinc(0.5)
    Array(0.63661975, dtype=float32, weak_type=True)
    """
    value = prims.mul(_inexact("sinc", x), math.pi)
    # Near zero the derivatives of the quotient lose their digits: there by its series.
    near = prims.less(prims.abs(value), 0.03)
    square = prims.square(prims.select(near, value, 0))
    series: ArrayLike = 1 / 5040
    for term in (1 / 120, 1 / 6, 1):
        series = prims.sub(term, prims.mul(square, series))
    safe = prims.select(near, 1, value)
    return prims.select(near, series, prims.div(special.sin(safe), safe))


@fused
def floor(x: ArrayLike) -> Value:
    """Each element rounded down to an integer, in the same dtype.

    >>> fnp.floor(np.array([1.5, -1.5]))
    Array([ 1., -2.], dtype=float64)
    """
    return prims.floor(x)


@fused
def ceil(x: ArrayLike) -> Value:
    """Each element rounded up to an integer, in the same dtype.

    >>> fnp.ceil(np.array([1.5, -1.5]))
    Array([ 2., -1.], dtype=float64)
    """
    return prims.ceil(x)


@fused
def trunc(x: ArrayLike) -> Value:
    """Each element rounded towards zero, in the same dtype.

    >>> fnp.trunc(np.array([1.5, -1.5]))
    Array([ 1., -1.], dtype=float64)
    """
    value = prims.operand("trunc", "x", x)
    if arrays.dtype_kind(value.dtype) != "f":
        return prims.floor(value)
    return prims.select(prims.less(value, 0), prims.ceil(value), prims.floor(value))


@fused
def rint(x: ArrayLike) -> Value:
    """The nearest integer to each element, a half to the even one.

    Integers and bools become float32.

    >>> fnp.rint(np.array([0.5, 1.5]))
    Array([0., 2.], dtype=float64)
    """
    return me.round(_inexact("rint", x))


@fused
def round(x: ArrayLike, decimals: int = 0) -> Value:
    """Each element rounded to `decimals` places, a half to the even digit, in the same dtype.

    >>> fnp.round(np.array([1.234, 5.678]), 1)
    Array([1.2, 5.7], dtype=float64)
    """
    return me.round(x, decimals)


@partial(fused, numbers="operands")
def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Value:
    """Each element limited to the range from `min` to `max`, which broadcast; None is no bound.

    >>> fnp.clip(np.arange(5), 1, 3)
    Array([1, 1, 2, 3, 3], dtype=int64)
    """
    return me.clip(x, min, max)


@fused
def real(x: ArrayLike) -> Value:
    """The real part of each element.

    >>> fnp.real(np.array([1 + 2j]))
    Array([1.], dtype=float64)
    """
    return prims.real(x)


@fused
def imag(x: ArrayLike) -> Value:
    """The imaginary part of each element; zeros for real arrays.

    >>> fnp.imag(np.array([1 + 2j]))
    Array([2.], dtype=float64)
    """
    return prims.imag(x)


@fused
def conj(x: ArrayLike) -> Value:
    """Each element with its imaginary part negated.

    >>> fnp.conj(np.array([1 + 2j]))
    Array([1.-2.j], dtype=complex128)
    """
    return prims.conj(x)


@fused
def angle(x: ArrayLike) -> Value:
    """The angle of each complex element in `(-pi, pi]`.

    Integers and bools become float32.

    >>> fnp.angle(1j)
    Array(1.5707964, dtype=float32, weak_type=True)
    """
    (value,) = prims.promote("angle", x, inexact=True)
    return special.atan2(imag(value), real(value))


@fused
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    """Each element, with NaN and the infinities replaced; by default infinities by the greatest finite number.

    `copy` is ignored, as arrays are immutable.

    >>> fnp.nan_to_num(np.array([np.nan, np.inf, 1.0]), posinf=9.0)
    Array([0., 9., 1.], dtype=float64)
    """
    value = prims.operand("nan_to_num", "x", x)
    if arrays.dtype_kind(value.dtype) == "c":
        real, imag = prims.real(value), prims.imag(value)
        return prims.complex(*(nan_to_num(z, copy, nan, posinf, neginf) for z in (real, imag)))
    if arrays.dtype_kind(value.dtype) != "f":
        return value
    inf, zero = np.asarray([np.inf, 0], value.dtype)
    limit = float(np.nextafter(inf, zero))
    high = limit if posinf is None else posinf
    low = -limit if neginf is None else neginf
    out = prims.select(prims.is_nan(value), nan, value)
    out = prims.select(prims.equal(out, math.inf), high, out)
    return prims.select(prims.equal(out, -math.inf), low, out)


def _inexact(fun: str, x: ArrayLike) -> Value:
    (value,) = prims.promote(fun, x, inexact=True)
    return value
