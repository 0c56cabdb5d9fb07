"""Exponential, trigonometric and special functions, element by element."""

from __future__ import annotations

import math

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.errors import RuleError
from fiveloop.core.primitives.costs import EXP, SLOW
from fiveloop.core.primitives.elementwise_arithmetic import (
    add,
    div,
    exp,
    mul,
    neg,
    rsqrt,
    square,
    sub,
)
from fiveloop.core.primitives.family import (
    apply_binary,
    apply_unary,
    binary,
    define_binary,
    define_unary,
    unary,
)

expm1_p = unary("expm1")
log1p_p = unary("log1p")
sin_p = unary("sin")
cos_p = unary("cos")
tan_p = unary("tan")
asin_p = unary("asin")
acos_p = unary("acos")
atan_p = unary("atan")
sinh_p = unary("sinh")
cosh_p = unary("cosh")
tanh_p = unary("tanh")
asinh_p = unary("asinh")
acosh_p = unary("acosh")
atanh_p = unary("atanh")
logistic_p = unary("logistic")
erf_p = unary("erf")
erfc_p = unary("erfc")
erf_inv_p = unary("erf_inv")
lgamma_p = unary("lgamma")
digamma_p = unary("digamma")
polygamma_p = binary("polygamma")
atan2_p = binary("atan2")


def expm1(x: ArrayLike) -> Value:
    """e to the power of each element, minus one, exact near zero."""
    return apply_unary(expm1_p, x, inexact=True)


def log1p(x: ArrayLike) -> Value:
    """The natural logarithm of one plus each element, exact near zero."""
    return apply_unary(log1p_p, x, inexact=True)


def sin(x: ArrayLike) -> Value:
    """Sine of each element, in radians."""
    return apply_unary(sin_p, x, inexact=True)


def cos(x: ArrayLike) -> Value:
    """Cosine of each element, in radians."""
    return apply_unary(cos_p, x, inexact=True)


def tan(x: ArrayLike) -> Value:
    """Tangent of each element, in radians."""
    return apply_unary(tan_p, x, inexact=True)


def asin(x: ArrayLike) -> Value:
    """The angle whose sine is each element."""
    return apply_unary(asin_p, x, inexact=True)


def acos(x: ArrayLike) -> Value:
    """The angle whose cosine is each element."""
    return apply_unary(acos_p, x, inexact=True)


def atan(x: ArrayLike) -> Value:
    """The angle whose tangent is each element."""
    return apply_unary(atan_p, x, inexact=True)


def atan2(x: ArrayLike, y: ArrayLike) -> Value:
    """The angle of the point with ordinate `x` and abscissa `y`."""
    return apply_binary(atan2_p, x, y, inexact=True)


def sinh(x: ArrayLike) -> Value:
    """The hyperbolic sine."""
    return apply_unary(sinh_p, x, inexact=True)


def cosh(x: ArrayLike) -> Value:
    """The hyperbolic cosine."""
    return apply_unary(cosh_p, x, inexact=True)


def tanh(x: ArrayLike) -> Value:
    """The hyperbolic tangent."""
    return apply_unary(tanh_p, x, inexact=True)


def asinh(x: ArrayLike) -> Value:
    """The inverse of the hyperbolic sine."""
    return apply_unary(asinh_p, x, inexact=True)


def acosh(x: ArrayLike) -> Value:
    """The inverse of the hyperbolic cosine."""
    return apply_unary(acosh_p, x, inexact=True)


def atanh(x: ArrayLike) -> Value:
    """The inverse of the hyperbolic tangent."""
    return apply_unary(atanh_p, x, inexact=True)


def logistic(x: ArrayLike) -> Value:
    """1 / (1 + exp(-x)), without overflow."""
    return apply_unary(logistic_p, x, inexact=True)


def erf(x: ArrayLike) -> Value:
    """The error function."""
    return apply_unary(erf_p, x, inexact=True)


def erfc(x: ArrayLike) -> Value:
    """One minus the error function, exact where that is small."""
    return apply_unary(erfc_p, x, inexact=True)


def erf_inv(x: ArrayLike) -> Value:
    """The inverse of the error function."""
    return apply_unary(erf_inv_p, x, inexact=True)


def lgamma(x: ArrayLike) -> Value:
    """The logarithm of the absolute value of the gamma function."""
    return apply_unary(lgamma_p, x, inexact=True)


def digamma(x: ArrayLike) -> Value:
    """The derivative of `lgamma`."""
    return apply_unary(digamma_p, x, inexact=True)


def polygamma(n: ArrayLike, x: ArrayLike) -> Value:
    """The n-th derivative of `digamma`."""
    return apply_binary(polygamma_p, n, x, inexact=True)


define_unary(expm1_p, flops=EXP, lower=hlo.expm1, jvp_from_out=lambda t, y: mul(t, add(y, 1)))
define_unary(log1p_p, flops=EXP, lower=hlo.log1p, jvp=lambda t, x: div(t, add(x, 1)))
define_unary(sin_p, flops=EXP, lower=hlo.sine, jvp=lambda t, x: mul(t, cos(x)))
define_unary(cos_p, flops=EXP, lower=hlo.cosine, jvp=lambda t, x: neg(mul(t, sin(x))))
define_unary(tan_p, flops=SLOW, lower=hlo.tan, jvp_from_out=lambda t, y: mul(t, add(square(y), 1)))
define_unary(asin_p, flops=SLOW, lower=hlo.asin, jvp=lambda t, x: mul(t, rsqrt(_cofactor(x))))
define_unary(acos_p, flops=SLOW, lower=hlo.acos, jvp=lambda t, x: neg(mul(t, rsqrt(_cofactor(x)))))
define_unary(atan_p, flops=SLOW, lower=hlo.atan, jvp=lambda t, x: div(t, add(square(x), 1)))
define_unary(sinh_p, flops=EXP, lower=hlo.sinh, jvp=lambda t, x: mul(t, cosh(x)))
define_unary(cosh_p, flops=EXP, lower=hlo.cosh, jvp=lambda t, x: mul(t, sinh(x)))
define_unary(tanh_p, flops=EXP, lower=hlo.tanh, jvp_from_out=lambda t, y: mul(t, sub(1, square(y))))
define_unary(
    asinh_p, flops=SLOW, lower=hlo.asinh, jvp=lambda t, x: mul(t, rsqrt(add(square(x), 1)))
)
define_unary(
    acosh_p,
    flops=SLOW,
    lower=hlo.acosh,
    jvp=lambda t, x: mul(t, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1)))),
)
define_unary(atanh_p, flops=SLOW, lower=hlo.atanh, jvp=lambda t, x: div(t, _cofactor(x)))
define_unary(
    logistic_p, flops=EXP, lower=hlo.logistic, jvp_from_out=lambda t, y: mul(t, mul(y, sub(1, y)))
)


def _cofactor(x: Value) -> Value:
    """1 - x^2, without cancellation near 1."""
    return mul(sub(1, x), add(x, 1))


def _bell(t: Value, x: Value) -> Value:
    return mul(t, mul(2 / math.sqrt(math.pi), exp(neg(square(x)))))


define_unary(erf_p, flops=EXP, lower=hlo.erf, jvp=_bell, kinds="f")
define_unary(erfc_p, flops=EXP, lower=hlo.erfc, jvp=lambda t, x: neg(_bell(t, x)), kinds="f")
define_unary(
    erf_inv_p,
    flops=EXP,
    lower=hlo.erf_inv,
    jvp_from_out=lambda t, y: mul(t, mul(math.sqrt(math.pi) / 2, exp(square(y)))),
    kinds="f",
)
define_unary(lgamma_p, flops=SLOW, lower=hlo.lgamma, jvp=lambda t, x: mul(t, digamma(x)), kinds="f")
define_unary(
    digamma_p, flops=SLOW, lower=hlo.digamma, jvp=lambda t, x: mul(t, polygamma(1, x)), kinds="f"
)


def _lower_polygamma(b: Builder, n: IRValue, x: IRValue) -> IRValue:
    return hlo.generic(b, "chlo.polygamma", [n, x], [(x.shape, x.dtype)])[0]


def _polygamma_dn(t: Value, n: Value, x: Value) -> Value:
    raise RuleError("`polygamma` has no jvp in its order `n`; differentiate it in `x` only")


define_binary(
    polygamma_p,
    flops=SLOW,
    lower=_lower_polygamma,
    jvp=(_polygamma_dn, lambda t, n, x: mul(t, polygamma(add(n, 1), x))),
    kinds="f",
)


def _distance(x: Value, y: Value) -> Value:
    return add(square(x), square(y))


define_binary(
    atan2_p,
    flops=SLOW,
    lower=hlo.atan2,
    jvp=(
        lambda t, x, y: mul(t, div(y, _distance(x, y))),
        lambda t, x, y: neg(mul(t, div(x, _distance(x, y)))),
    ),
    kinds="f",
)
