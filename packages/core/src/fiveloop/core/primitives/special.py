"""Special functions, one row each; and elementwise primitives with params or on bits."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, errors, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass

from . import broadcast, check, convert, costs, elementwise, family
from .elementwise import add, div, equal, exp, mul, neg, rsqrt, select, square, sub
from .elementwise import cos as cos
from .elementwise import sin as sin

_real_short = partial(family.short_series, kinds="f")
_real_long = partial(family.long_series, kinds="f")

tan: family.Unary = family.long_series(
    "tan",
    "Tangent of each element, in radians.",
    hlo.tan,
    lambda t, y, x: mul(t, add(square(y), 1)),
)
asin: family.Unary = family.long_series(
    "asin",
    "The angle whose sine is each element.",
    hlo.asin,
    lambda t, y, x: mul(t, rsqrt(_cofactor(x))),
)
acos: family.Unary = family.long_series(
    "acos",
    "The angle whose cosine is each element.",
    hlo.acos,
    lambda t, y, x: neg(mul(t, rsqrt(_cofactor(x)))),
)
atan: family.Unary = family.long_series(
    "atan",
    "The angle whose tangent is each element.",
    hlo.atan,
    lambda t, y, x: div(t, add(square(x), 1)),
)
atan2: family.Binary = family.binary(
    "atan2",
    "The angle of the point with ordinate `x` and abscissa `y`.",
    hlo.atan2,
    (
        lambda t, out, x, y: mul(t, div(y, _distance(x, y))),
        lambda t, out, x, y: neg(mul(t, div(x, _distance(x, y)))),
    ),
    kinds="f",
    flops=costs.SLOW,
)


def _length(b: hlo.Builder, x: hlo.IRValue, y: hlo.IRValue) -> hlo.IRValue:
    """The longer side times a root of 1 and more, so that no square overflows; infinity wins over NaN."""
    inf, none, one = (hlo.constant(b, c, x.shape, x.dtype) for c in (math.inf, 0, 1))
    x, y = hlo.abs(b, x), hlo.abs(b, y)
    infinite = hlo.or_(b, hlo.compare(b, x, inf, "EQ"), hlo.compare(b, y, inf, "EQ"))
    long = hlo.select(b, infinite, inf, hlo.max(b, x, y))
    ratio = hlo.div(b, hlo.min(b, x, y), long)
    out = hlo.mul(b, long, hlo.sqrt(b, hlo.add(b, hlo.mul(b, ratio, ratio), one)))
    return hlo.select(b, hlo.or_(b, infinite, hlo.compare(b, long, none, "EQ")), long, out)


def _cosine(out: Value, x: Value) -> Value:
    """The slope of `hypot` along the side `x`; 0 where the length is 0 or infinite."""
    flat = elementwise.bitwise_or(equal(out, 0), equal(out, math.inf))
    nil, one = broadcast.full_like(out, 0), broadcast.full_like(out, 1)
    return div(select(flat, nil, x), select(flat, one, out))


hypot: family.Binary = family.binary(
    "hypot",
    "The length of the vector `(x, y)`, without overflow on the way. Its derivative at the zero vector is zero.",
    _length,
    (lambda t, out, x, y: mul(t, _cosine(out, x)), lambda t, out, x, y: mul(t, _cosine(out, y))),
    kinds="f",
    flops=costs.ROOT + costs.DIVISION,
)


def log_add_exp(b: hlo.Builder, x: hlo.IRValue, y: hlo.IRValue) -> hlo.IRValue:
    """The greater plus log1p of the rest; for two equal infinities, this infinity."""
    apart = hlo.neg(b, hlo.abs(b, hlo.sub(b, x, y)))
    none = hlo.constant(b, 0, x.shape, x.dtype)
    gap = hlo.select(b, hlo.compare(b, x, y, "EQ"), none, apart)
    return hlo.add(b, hlo.max(b, x, y), _log1p_up_to_one(b, hlo.exp(b, gap)))


def _log1p_up_to_one(b: hlo.Builder, z: hlo.IRValue) -> hlo.IRValue:
    """log1p of numbers from 0 to 1: in float32 by the series of 2 atanh(z / (2 + z)), to the last bits.

    XLA's own has branches, which keep it and the exponential before it from becoming vector instructions.
    """
    if z.dtype != np.float32:
        return hlo.log1p(b, z)

    def constant(value: float) -> hlo.IRValue:
        return hlo.constant(b, value, z.shape, z.dtype)

    s = hlo.div(b, z, hlo.add(b, z, constant(2)))
    square_of_s, total = hlo.mul(b, s, s), constant(2 / 15)
    for k in range(13, 0, -2):
        total = hlo.add(b, hlo.mul(b, total, square_of_s), constant(2 / k))
    return hlo.mul(b, s, total)


def _share(x: Value, y: Value) -> Value:
    """The slope of `logaddexp(x, y)` in `x`: exp(x) / (exp(x) + exp(y)), half for equal infinities."""
    apart = sub(x, y)
    alike = elementwise.bitwise_and(elementwise.is_nan(apart), equal(x, y))
    return logistic(select(alike, broadcast.full_like(apart, 0), apart))


logaddexp: family.Binary = family.binary(
    "logaddexp",
    "log(exp(x) + exp(y)), without overflow on the way. Equal infinities share the derivative.",
    log_add_exp,
    (lambda t, out, x, y: mul(t, _share(x, y)), lambda t, out, x, y: mul(t, _share(y, x))),
    kinds="f",
    flops=2 * costs.EXP,
)
sinh: family.Unary = family.short_series(
    "sinh", "The hyperbolic sine.", hlo.sinh, lambda t, y, x: mul(t, cosh(x))
)
cosh: family.Unary = family.short_series(
    "cosh", "The hyperbolic cosine.", hlo.cosh, lambda t, y, x: mul(t, sinh(x))
)
tanh: family.Unary = family.short_series(
    "tanh", "The hyperbolic tangent.", hlo.tanh, lambda t, y, x: mul(t, sub(1, square(y)))
)
asinh: family.Unary = family.long_series(
    "asinh",
    "The inverse of the hyperbolic sine.",
    hlo.asinh,
    lambda t, y, x: mul(t, rsqrt(add(square(x), 1))),
)
acosh: family.Unary = family.long_series(
    "acosh",
    "The inverse of the hyperbolic cosine.",
    hlo.acosh,
    lambda t, y, x: mul(t, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1)))),
)
atanh: family.Unary = family.long_series(
    "atanh",
    "The inverse of the hyperbolic tangent.",
    hlo.atanh,
    lambda t, y, x: div(t, _cofactor(x)),
)
logistic: family.Unary = family.short_series(
    "logistic",
    "1 / (1 + exp(-x)), without overflow.",
    hlo.logistic,
    lambda t, y, x: mul(t, mul(y, sub(1, y))),
)
erf: family.Unary = _real_short("erf", "The error function.", hlo.erf, lambda t, y, x: _bell(t, x))
erfc: family.Unary = _real_short(
    "erfc",
    "One minus the error function, exact where that is small.",
    hlo.erfc,
    lambda t, y, x: neg(_bell(t, x)),
)
erf_inv: family.Unary = _real_short(
    "erf_inv",
    "The inverse of the error function.",
    hlo.erf_inv,
    lambda t, y, x: mul(t, mul(math.sqrt(math.pi) / 2, exp(square(y)))),
)
lgamma: family.Unary = _real_long(
    "lgamma",
    "The logarithm of the absolute value of the gamma function.",
    hlo.lgamma,
    lambda t, y, x: mul(t, digamma(x)),
)
digamma: family.Unary = _real_long(
    "digamma", "The derivative of `lgamma`.", hlo.digamma, lambda t, y, x: mul(t, polygamma(1, x))
)


def _no_derivative(t: Value, out: Value, n: Value, x: Value) -> Value:
    raise errors.RuleError("`polygamma` has no jvp in its order `n`; differentiate it in `x` only")


polygamma: family.Binary = family.binary(
    "polygamma",
    "The derivative of `digamma` of order `x`, at `y`.",
    hlo.polygamma,
    (_no_derivative, lambda t, out, n, x: mul(t, polygamma(add(n, 1), x))),
    kinds="f",
    flops=costs.SLOW,
)


def _cofactor(x: Value) -> Value:
    """1 - x^2, without cancellation near 1."""
    return mul(sub(1, x), add(x, 1))


def _distance(x: Value, y: Value) -> Value:
    return add(square(x), square(y))


def _bell(t: Value, x: Value) -> Value:
    return mul(t, mul(2 / math.sqrt(math.pi), exp(neg(square(x)))))


# integer_pow


@dataclass(frozen=True)
class IntegerPowParams:
    """The exponent."""

    y: int


integer_pow_p: ir.Primitive[IntegerPowParams] = ir.Primitive("integer_pow")


def integer_pow(x: ArrayLike, y: int) -> Value:
    """`x` to the power of a Python integer, by multiplication."""
    value = convert.operand("integer_pow", "x", x)
    if y in (1, 2):
        return value if y == 1 else square(value)
    return trace.bind1(integer_pow_p, value, params=IntegerPowParams(int(y)))


def _integer_pow_aval(avals: ir.Avals, p: IntegerPowParams) -> list[ir.Aval]:
    (x,) = check.array_avals("integer_pow", avals, 1)
    check.check_kind("integer_pow", x, "iufc")
    if p.y < 0 and x.dtype.kind in "iu":
        check.bad_type(f"integer_pow: expected an exponent >= 0 for integers, got {p.y} for {x}")
    return [x]


def _integer_pow_lower(ctx: Any, xs: hlo.IRValues, p: IntegerPowParams) -> list[hlo.IRValue]:
    """Square and multiply; one division at the end for a negative exponent."""
    b, (x,) = ctx.b, xs
    one = hlo.constant(b, 1, x.shape, x.dtype)
    result: hlo.IRValue | None = None
    power, count = x, -p.y if p.y < 0 else p.y
    while count:
        if count & 1:
            result = power if result is None else hlo.mul(b, result, power)
        count >>= 1
        power = hlo.mul(b, power, power) if count else power
    done = one if result is None else result
    return [hlo.div(b, one, done) if p.y < 0 else done]


def _integer_pow_tangent(t: Value, out: Value, x: Value, p: IntegerPowParams) -> ad.Tangent:
    if p.y == 0 or not out.aval.differentiable:
        return ad.Zero(out.aval.tangent())
    return mul(t, mul(float(p.y), integer_pow(x, p.y - 1)))


rules.define(
    integer_pow_p,
    abstract_eval=rules.pure(_integer_pow_aval),
    # Multiplications by squaring; a division for a negative exponent.
    cost=lambda avals, p: family.elementwise_cost(
        2 * max(p.y, -p.y).bit_length() + costs.DIVISION * (p.y < 0), avals, p
    ),
    lower=_integer_pow_lower,
    jvp=broadcast.jvp_of_one(integer_pow_p, _integer_pow_tangent),
    batch=broadcast.same_dims_batch(integer_pow_p),
)


# reduce_precision


@dataclass(frozen=True)
class ReducePrecisionParams:
    """The widths of the exponent and the mantissa that numbers are rounded to."""

    exponent_bits: int
    mantissa_bits: int


reduce_precision_p: ir.Primitive[ReducePrecisionParams] = ir.Primitive("reduce_precision")


def reduce_precision(x: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Value:
    """Numbers rounded as a narrower dtype would round them, in the same dtype; so are its derivatives."""
    value = convert.operand("reduce_precision", "x", x)
    params = ReducePrecisionParams(exponent_bits, mantissa_bits)
    return trace.bind1(reduce_precision_p, value, params=params)


def _reduce_precision_aval(avals: ir.Avals, p: ReducePrecisionParams) -> list[ir.Aval]:
    (x,) = check.array_avals("reduce_precision", avals, 1)
    check.check_kind("reduce_precision", x, "f")
    if p.exponent_bits < 1 or p.mantissa_bits < 0:
        check.bad_value(
            f"reduce_precision: expected exponent_bits >= 1 and mantissa_bits >= 0, got "
            f"{p.exponent_bits} and {p.mantissa_bits}"
        )
    return [x]


def _reduce_precision_lower(ctx: Any, xs: Any, p: ReducePrecisionParams) -> list[hlo.IRValue]:
    (x,) = xs
    attrs = f"exponent_bits = {p.exponent_bits} : i32, mantissa_bits = {p.mantissa_bits} : i32"
    return hlo.generic(ctx.b, "stablehlo.reduce_precision", [x], [(x.shape, x.dtype)], attrs)


rules.define(
    reduce_precision_p,
    abstract_eval=rules.pure(_reduce_precision_aval),
    cost=lambda avals, p: family.elementwise_cost(1, avals, p),
    lower=_reduce_precision_lower,
    jvp=broadcast.linear_jvp(reduce_precision_p),
    transpose=broadcast.linear_transpose(
        lambda ct, aval, p: trace.bind1(reduce_precision_p, ct, params=p)
    ),
    batch=broadcast.same_dims_batch(reduce_precision_p),
)


# bitcast_convert


@dataclass(frozen=True)
class BitcastParams:
    """The dtype that the bits are read as."""

    dtype: np.dtype[Any]


bitcast_convert_p: ir.Primitive[BitcastParams] = ir.Primitive("bitcast_convert")


def bitcast_convert(x: ArrayLike, dtype: Any) -> Value:
    """The bits of `x` read as another dtype.

    A narrower one adds a last axis, the lowest bits first; a wider one takes the last axis away.
    """
    value = convert.operand("bitcast_convert", "x", x)
    if value.dtype == np.dtype(dtype):
        return value
    return trace.bind1(bitcast_convert_p, value, params=BitcastParams(np.dtype(dtype)))


def _bitcast_aval(avals: ir.Avals, p: BitcastParams) -> list[ir.Aval]:
    (x,) = check.array_avals("bitcast_convert", avals, 1)
    old, new = x.dtype.itemsize, p.dtype.itemsize
    if {arrays.dtype_kind(x.dtype), arrays.dtype_kind(p.dtype)} & {"b", "c"}:
        check.bad_value(f"bitcast_convert: expected real numbers, got {x} to {p.dtype.name}")
    if old == new:
        return [ir.ShapedArray(x.shape, p.dtype)]
    if old > new:
        return [ir.ShapedArray((*x.shape, old // new), p.dtype)]
    if not x.shape or x.shape[-1] != new // old:
        check.bad_value(
            f"bitcast_convert: expected a last axis of size {new // old} to fill {p.dtype.name}, "
            f"got shape {errors.shape_str(x.shape)} of {x.dtype.name}"
        )
    return [ir.ShapedArray(x.shape[:-1], p.dtype)]


rules.define(
    bitcast_convert_p,
    abstract_eval=rules.pure(_bitcast_aval),
    cost=costs.moving_cost(_bitcast_aval),
    lower=lambda ctx, xs, p: [hlo.bitcast_convert(ctx.b, xs[0], p.dtype)],
    jvp=broadcast.zero_jvp(bitcast_convert_p),
    batch=broadcast.batch_in_front(bitcast_convert_p, lambda p, size: p),
)


# threefry2x32: the counter-based cipher that random bits are made of (Salmon et al., SC 2011)

UINT32 = np.dtype(np.uint32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

FEW_BITS = 8
"""More words than so many are computed once on CPU, before what is made of them.

jaxlib 0.12 would compute them again for each value that is made of them, and for each element of a reduction that is
not vectorised: in loops, seven random programs of 12 to 131,072 words take .66 to 1.08 of the time in eight of ten
cases, .82 in the median; outside of loops one value takes up to 1.7 of the time, several .74 to 1.08. jaxlib 0.10 does
as before.
"""

threefry2x32_p: ir.Primitive[Any] = ir.Primitive("threefry2x32")


def threefry2x32(
    key: tuple[ArrayLike, ArrayLike], counter: tuple[ArrayLike, ArrayLike]
) -> tuple[Value, Value]:
    """A counter of two uint32 words enciphered by a key of two words, element by element."""
    words = convert.promote("threefry2x32", *key, *counter)
    high, low = trace.bind(threefry2x32_p, *family.same_shapes("threefry2x32", words))
    return high, low


def _threefry_aval(avals: ir.Avals, p: Any) -> list[ir.Aval]:
    words = check.array_avals("threefry2x32", avals, 4)
    if any(w.dtype != UINT32 for w in words):
        check.bad_type(
            f"threefry2x32: expected four operands of uint32, got {', '.join(map(str, words))}"
        )
    return [ir.ShapedArray(family.elementwise_shape("threefry2x32", words), UINT32)] * 2


def _threefry_lower(ctx: Any, xs: hlo.IRValues, p: Any) -> list[hlo.IRValue]:
    b: hlo.Builder = ctx.b
    shape = ctx.avals_out[0].shape
    k0, k1 = xs[:2]
    x0, x1 = [family.repeat_scalar(b, x, shape) for x in xs[2:]]
    if k0.shape != k1.shape:
        k0, k1 = family.repeat_scalar(b, k0, shape), family.repeat_scalar(b, k1, shape)
    parity = hlo.constant(b, _PARITY, k0.shape, UINT32)
    keys = [k0, k1, hlo.xor(b, hlo.xor(b, k0, k1), parity)]
    x0, x1 = _add_key(b, x0, keys[0]), _add_key(b, x1, keys[1])
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = hlo.add(b, x0, x1)
            x1 = hlo.xor(b, x0, _rotate(b, x1, rotation))
        x0 = _add_key(b, x0, keys[(block + 1) % 3])
        count = hlo.constant(b, block + 1, k0.shape, UINT32)
        x1 = _add_key(b, x1, hlo.add(b, keys[(block + 2) % 3], count))
    once = ctx.platform == "cpu" and ir.is_more(ir.size_of(shape), FEW_BITS)
    return hlo.optimization_barrier(b, [x0, x1]) if once else [x0, x1]


def _add_key(b: hlo.Builder, x: hlo.IRValue, key: hlo.IRValue) -> hlo.IRValue:
    return hlo.add(b, x, family.repeat_scalar(b, key, x.shape))


def _rotate(b: hlo.Builder, x: hlo.IRValue, by: int) -> hlo.IRValue:
    left = hlo.shift_left(b, x, hlo.constant(b, by, x.shape, UINT32))
    right = hlo.shift_right_logical(b, x, hlo.constant(b, 32 - by, x.shape, UINT32))
    return hlo.or_(b, left, right)


def _threefry_batch(size: int, operands: ad.Values, dims: ad.BatchAxes, p: Any) -> ad.Batched:
    xs, place = family.align(size, operands, dims)
    return trace.bind(threefry2x32_p, *xs), [place, place]


rules.define(
    threefry2x32_p,
    abstract_eval=rules.pure(_threefry_aval),
    lower=_threefry_lower,
    jvp=broadcast.zero_jvp(threefry2x32_p),
    batch=_threefry_batch,
)
