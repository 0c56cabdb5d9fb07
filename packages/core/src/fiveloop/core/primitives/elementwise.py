"""Elementwise functions: one row each, with name, docstring, StableHLO, derivative, kinds of dtype and cost.

A derivative has a term per operand, `term(t, out, *operands)`, where `t` is the operand's tangent.
Transposes of complex numbers are those of the bilinear product Re(a b), without conjugation, so that a cotangent of a
complex value is the derivative by z of a real result, as for any other linear operation.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.primitives import broadcast, check, convert, costs, family

NUMBERS = "biufc"  # bools too: their sum is `or`, their product `and`, as in NumPy
_shift = partial(family.binary, kinds="iu")
_rounding = partial(family.unary, kinds="f", unchanged="biu")
_bits = partial(family.binary, kinds="biu")

# comparisons and bits

equal: family.Binary = family.comparison(
    "equal", "Whether elements are equal; NaN equals nothing.", "EQ", NUMBERS
)
not_equal: family.Binary = family.comparison(
    "not_equal", "Whether elements differ; NaN differs from everything.", "NE", NUMBERS
)
less: family.Binary = family.comparison(
    "less", "Whether elements of `x` are less than those of `y`.", "LT"
)
less_equal: family.Binary = family.comparison(
    "less_equal", "Whether elements of `x` are less than or equal to those of `y`.", "LE"
)
greater: family.Binary = family.comparison(
    "greater", "Whether elements of `x` are greater than those of `y`.", "GT"
)
greater_equal: family.Binary = family.comparison(
    "greater_equal", "Whether elements of `x` are greater than or equal to those of `y`.", "GE"
)
bitwise_and: family.Binary = _bits(
    "bitwise_and",
    """`and` of bools, or of the bits of integers.

    >>> bitwise_and(np.array([True, False]), True), bitwise_and(6, 3).item()
    (Array([ True, False], dtype=bool), 2)
    """,
    hlo.and_,
)
bitwise_and_p = bitwise_and.prim
bitwise_or: family.Binary = _bits(
    "bitwise_or", "`or` of bools, or of the bits of integers.", hlo.or_
)
bitwise_xor: family.Binary = _bits(
    "bitwise_xor", "`xor` of bools, or of the bits of integers.", hlo.xor
)
bitwise_not: family.Unary = family.unary(
    "bitwise_not", "`not` of bools, or of the bits of integers.", hlo.not_, kinds="biu"
)
shift_left: family.Binary = _shift(
    "shift_left", "The bits of `x` shifted left by `y` bits; zeros come in.", hlo.shift_left
)
shift_right_logical: family.Binary = _shift(
    "shift_right_logical",
    "The bits of `x` shifted right by `y` bits; zeros come in.",
    hlo.shift_right_logical,
)
shift_right_arithmetic: family.Binary = _shift(
    "shift_right_arithmetic",
    "The bits of `x` shifted right by `y` bits; copies of the sign come in.",
    hlo.shift_right_arithmetic,
)
population_count: family.Unary = family.unary(
    "population_count", "The number of bits that are set.", hlo.popcnt, kinds="iu"
)
count_leading_zeros: family.Unary = family.unary(
    "count_leading_zeros",
    "The number of zero bits above the highest one.",
    hlo.count_leading_zeros,
    kinds="iu",
)
is_finite: family.Unary = family.unary(
    "is_finite",
    "Whether elements are neither infinite nor NaN.",
    hlo.is_finite,
    kinds="f",
    out=lambda dtype: family.BOOL,
)


def is_nan(x: ArrayLike) -> Value:
    """Whether elements are NaN."""
    value = convert.operand("is_nan", "x", x)
    return not_equal(value, value)


def to_condition(x: ArrayLike) -> Value:
    """Whether elements differ from zero, as a bool array."""
    value = convert.operand("to_condition", "x", x)
    return (
        value if value.dtype == family.BOOL else not_equal(value, convert.convert(0, value.dtype))
    )


# select

select_p = ir.Primitive[Any]("select")


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Value:
    """Elements of `on_true` where `pred` is true, of `on_false` elsewhere.

    TypeError if `pred` does not hold bools. The three are broadcast to one shape, and the last two brought to one
    dtype. No derivative flows into the side not taken, whatever its values are.

    >>> x = np.array([-1.0, 2.0])
    >>> print(select(x > 0, x, 0.0), grad(lambda x: select(x > 0, x, 0.0).sum())(x))
    [0. 2.] [0. 1.]
    """
    chosen = convert.operand("select", "pred", pred)
    if chosen.dtype != family.BOOL:
        check.bad_type(f"select: expected `pred` to hold bools, got {chosen.aval}")
    values = convert.promote("select", on_true, on_false)
    return trace.bind1(select_p, *family.same_shapes("select", [chosen, *values]))


def _select_aval(avals: ir.Avals, p: Any) -> list[ir.Aval]:
    pred, x, y = check.array_avals("select", avals, 3)
    if pred.dtype != family.BOOL or x.dtype != y.dtype:
        check.bad_type(
            f"select: expected a bool and two operands of one dtype, got {pred}, {x} and {y}"
        )
    weak = x.weak_type and y.weak_type
    return [ir.ShapedArray(family.elementwise_shape("select", avals), x.dtype, weak)]


def _select_jvp(primals: ad.Values, tangents: ad.Tangents, p: Any) -> ad.Duals:
    out = trace.bind1(select_p, *primals)
    # The tangent of a side that has none needs no axes.
    sides = [
        convert.convert(0, t.aval.dtype) if isinstance(t, ad.Zero) else t for t in tangents[1:]
    ]
    return [out], [family.fit(trace.bind1(select_p, primals[0], *sides), out.aval)]


rules.define(
    select_p,
    abstract_eval=rules.pure(_select_aval),
    cost=costs.moving_cost(_select_aval),
    lower=partial(family.lower_elementwise, hlo.select),
    jvp=_select_jvp,
    transpose=partial(
        family.transpose_elementwise,
        "select",
        [
            None,
            lambda ct, pred, other: select(pred, ct, convert.convert(0, ct.dtype)),
            lambda ct, pred, other: select(pred, convert.convert(0, ct.dtype), ct),
        ],
    ),
    batch=partial(family.batch_elementwise, select_p),
)

# arithmetic

neg: family.Unary = family.unary(
    "neg",
    "Minus each element.",
    hlo.neg,
    lambda t, y, x: neg(t),
    transpose=lambda ct: neg(ct),
    kinds="iufc",
)
neg_p = neg.prim
add: family.Binary = family.binary(
    family.add_p,
    "The sum of two arrays.",
    hlo.add,
    (lambda t, out, x, y: t, lambda t, out, x, y: t),
    transpose=(lambda ct, y: ct, lambda ct, x: ct),
    kinds=NUMBERS,
)
sub: family.Binary = family.binary(
    "sub",
    "The difference of two arrays.",
    hlo.sub,
    (lambda t, out, x, y: t, lambda t, out, x, y: neg(t)),
    transpose=(lambda ct, y: ct, lambda ct, x: neg(ct)),
)
mul: family.Binary = family.binary(
    "mul",
    "The product of two arrays, element by element.",
    hlo.mul,
    (lambda t, out, x, y: mul(t, y), lambda t, out, x, y: mul(x, t)),
    transpose=(
        lambda ct, y: mul(ct, check.known_factor("mul", y)),
        lambda ct, x: mul(check.known_factor("mul", x), ct),
    ),
    kinds=NUMBERS,
)
div: family.Binary = family.binary(
    "div",
    "The quotient of two arrays; integers are divided towards zero.",
    hlo.div,
    (lambda t, out, x, y: div(t, y), lambda t, out, x, y: neg(mul(t, div(out, y)))),
    transpose=(lambda ct, y: div(ct, check.known_factor("div", y)), None),
    flops=costs.DIVISION,
)
rem: family.Binary = family.binary(
    "rem",
    "The remainder of a division towards zero; it has the sign of `x`.",
    hlo.rem,
    (lambda t, out, x, y: t, lambda t, out, x, y: neg(mul(t, _trunc_quotient(x, y)))),
    kinds="iuf",
    flops=costs.DIVISION,
)
floor_div: family.Binary = family.binary(
    "floor_div",
    "The greatest integer not above the quotient of integers; 0 where `y` is 0.",
    hlo.floor_div,
    kinds="iu",
    flops=costs.DIVISION,
)
mod: family.Binary = family.binary(
    "mod",
    "What `floor_div` leaves of integers; it has the sign of `y`, and is 0 where `y` is 0.",
    hlo.mod,
    kinds="iu",
    flops=costs.DIVISION,
)


def _trunc_quotient(x: Value, y: Value) -> Value:
    quotient = div(x, y)
    return mul(sign(quotient), floor(abs(quotient)))


def _pow_dx(t: Value, out: Value, x: Value, y: Value) -> Value:
    """y x^(y-1), and 0 where y is 0, at x = 0 too."""
    flat = equal(y, 0)
    slope = mul(y, pow(x, select(flat, broadcast.full_like(y, 1), sub(y, 1))))
    return mul(t, select(flat, broadcast.full_like(slope, 0), slope))


def _pow_dy(t: Value, out: Value, x: Value, y: Value) -> Value:
    """x^y log x, and 0 where x is 0, as for a positive y in the limit."""
    nil = equal(x, 0)
    return mul(t, mul(out, log(select(nil, broadcast.full_like(x, 1), x))))


pow: family.Binary = family.binary(
    "pow", "`x` to the power of `y`.", hlo.pow, (_pow_dx, _pow_dy), flops=costs.SLOW
)


def _extreme_jvp(
    first: family.Binary,
    second: family.Binary,
    prim: ir.Primitive[Any],
    primals: ad.Values,
    tangents: ad.Tangents,
    p: Any,
) -> ad.Duals:
    """The tangent of an extreme: of the operand that wins, and half of both at a tie, without 0 * inf.

    `first` says where the first operand wins, `second` where the other does. Each mask chooses between a tangent and
    zero: so a transpose does not have to choose between two numbers, which takes a processor a branch.
    """
    out = trace.bind1(prim, *primals, params=p)
    one, other = first(*primals), second(*primals)
    masks = zip((one, other), (other, one), tangents, strict=True)
    given = [(no_worse, worst, t) for no_worse, worst, t in masks if not isinstance(t, ad.Zero)]
    parts = [_where(bitwise_and(a, bitwise_not(b)), t) for a, b, t in given]
    both = mul(reduce(add, [t for _, _, t in given]), 0.5)
    parts.append(_where(bitwise_and(one, other), both))
    return [out], [family.fit(reduce(add, parts), out.aval)]


def _where(mask: Value, t: Value) -> Value:
    """A tangent where a mask is true, zero elsewhere."""
    return select(mask, t, broadcast.full_like(t, 0))


maximum: family.Binary = family.binary(
    "maximum",
    "The greater of two elements; NaN wins. Its derivative is shared equally at a tie.",
    hlo.max,
    whole_jvp=lambda prim: partial(_extreme_jvp, greater_equal, less_equal, prim),
    kinds=NUMBERS,
)
minimum: family.Binary = family.binary(
    "minimum",
    "The lesser of two elements; NaN wins. Its derivative is shared equally at a tie.",
    hlo.min,
    whole_jvp=lambda prim: partial(_extreme_jvp, less_equal, greater_equal, prim),
    kinds=NUMBERS,
)
nextafter: family.Binary = family.binary(
    "nextafter",
    "The next number that the dtype can hold after `x` on the way to `y`.",
    hlo.next_after,
    kinds="f",
)


def reciprocal(x: ArrayLike) -> Value:
    """The reciprocal of each element."""
    (value,) = convert.promote("reciprocal", x, inexact=True)
    return div(1, value)


clamp_p = ir.Primitive[Any]("clamp")


def clamp(low: ArrayLike, x: ArrayLike, high: ArrayLike) -> Value:
    """`x` limited to the range from `low` to `high`; a derivative at a bound goes to `x`."""
    lo, value, hi = family.same_shapes("clamp", convert.promote("clamp", low, x, high))
    return trace.bind1(clamp_p, lo, value, hi)


family.define_elementwise(
    clamp_p,
    count=3,
    kinds="iuf",
    lower=hlo.clamp,
    jvp=partial(
        family.jvp_elementwise,
        clamp_p,
        [
            lambda t, out, low, x, high: _where(less(x, low), t),
            lambda t, out, low, x, high: _where(
                bitwise_and(greater_equal(x, low), less_equal(x, high)), t
            ),
            lambda t, out, low, x, high: _where(greater(x, high), t),
        ],
    ),
)

# signs and rounding


def _turning(t: Value, y: Value, x: Value) -> Value | None:
    """The tangent of a direction in the complex plane: how fast it turns; 0 at 0, which has none."""
    if x.dtype.kind != "c":
        return None
    size = abs(x)
    turn = div(imag(mul(t, conj(y))), select(equal(size, 0), broadcast.full_like(size, 1), size))
    return mul(mul(y, 1j), convert.convert(turn, x.dtype))


sign: family.Unary = family.unary(
    "sign",
    "-1, 0 or 1 as an element is negative, zero or positive; z/|z| of a complex number.",
    hlo.sign,
    _turning,
    kinds="iufc",
)
abs: family.Unary = family.unary(
    "abs",
    "The distance of each element from zero; its derivative at zero is zero.",
    hlo.abs,
    lambda t, y, x: real(mul(t, conj(sign(x)))) if x.dtype.kind == "c" else mul(t, sign(x)),
    kinds="ifc",
    out=arrays.real_dtype,
    unchanged="bu",
)
floor: family.Unary = _rounding(
    "floor", "The greatest integer not above each element, in the same dtype.", hlo.floor
)
ceil: family.Unary = _rounding(
    "ceil", "The least integer not below each element, in the same dtype.", hlo.ceil
)
round: family.Unary = _rounding(
    "round",
    "The nearest integer, a half to the even one, in the same dtype.",
    hlo.round_nearest_even,
)
_stop_gradient: family.Unary = family.unary(
    "stop_gradient", "The same numbers, as constants.", lambda b, x: x, kinds=NUMBERS
)


def stop_gradient(x: ArrayLike) -> Value:
    """The same values, through which no derivative flows."""
    value = convert.operand("stop_gradient", "x", x)
    return _stop_gradient(value) if value.aval.differentiable else value


# complex numbers

real: family.Unary = family.unary(
    convert.real_p,
    "The real part; of a real number the number itself.",
    hlo.real,
    lambda t, y, x: real(t),
    transpose=lambda ct: complex(ct, broadcast.full_like(ct, 0)),
    kinds="c",
    out=arrays.real_dtype,
    unchanged="biufV",
)
_imag: family.Unary = family.unary(
    "imag",
    "The imaginary part of complex numbers.",
    hlo.imag,
    lambda t, y, x: imag(t),
    transpose=lambda ct: conj(complex(broadcast.full_like(ct, 0), ct)),
    kinds="c",
    out=arrays.real_dtype,
)
conj: family.Unary = family.unary(
    "conj",
    "The complex conjugate; of a real number the number itself.",
    lambda b, x: hlo.complex(b, hlo.real(b, x), hlo.neg(b, hlo.imag(b, x))),
    lambda t, y, x: conj(t),
    transpose=lambda ct: conj(ct),
    kinds="c",
    unchanged="biufV",
)
_complex: family.Binary = family.binary(
    "complex",
    "Complex numbers from floating point numbers of one dtype.",
    hlo.complex,
    (
        lambda t, out, x, y: complex(t, broadcast.full_like(t, 0)),
        lambda t, out, x, y: complex(broadcast.full_like(t, 0), t),
    ),
    transpose=(lambda ct, y: real(ct), lambda ct, x: imag(conj(ct))),
    kinds="f",
    out=arrays.complex_dtype,
)


def imag(x: ArrayLike) -> Value:
    """The imaginary part; of a real number zero."""
    value = convert.operand("imag", "x", x)
    return _imag(value) if value.dtype.kind == "c" else broadcast.full_like(value, 0)


def complex(re: ArrayLike, im: ArrayLike) -> Value:
    """The complex numbers with these real and imaginary parts."""
    x, y = convert.promote("complex", re, im, inexact=True)
    narrow = x.dtype not in (np.float32, np.float64)
    if narrow and x.dtype.kind != "c":
        x, y = convert.promote("complex", x, y, np.float32(0))[:2]
    return _complex(x, y)


# powers, roots and exponentials

square: family.Unary = family.unary(
    "square",
    "Each element times itself.",
    lambda b, x: hlo.mul(b, x, x),
    lambda t, y, x: mul(t, mul(x, 2)),
    kinds="iufc",
)
sqrt: family.Unary = family.unary(
    "sqrt", "The square root.", hlo.sqrt, lambda t, y, x: div(mul(t, 0.5), y), flops=costs.ROOT
)
rsqrt: family.Unary = family.unary(
    "rsqrt",
    "One over the square root.",
    hlo.rsqrt,
    lambda t, y, x: mul(t, mul(-0.5, div(rsqrt(x), x))),
    flops=costs.DIVISION,
)
cbrt: family.Unary = family.long_series(
    "cbrt", "The real cube root.", hlo.cbrt, lambda t, y, x: div(t, mul(square(y), 3)), kinds="f"
)
exp: family.Unary = family.short_series(
    "exp", "e to the power of each element.", hlo.exp, lambda t, y, x: mul(t, y)
)
sin: family.Unary = family.short_series(
    "sin", "Sine of each element, in radians.", hlo.sine, lambda t, y, x: mul(t, cos(x))
)
cos: family.Unary = family.short_series(
    "cos", "Cosine of each element, in radians.", hlo.cosine, lambda t, y, x: neg(mul(t, sin(x)))
)
expm1: family.Unary = family.short_series(
    "expm1",
    "e to the power of each element, minus one, exact near zero.",
    hlo.expm1,
    lambda t, y, x: mul(t, add(y, 1)),
)
log: family.Unary = family.short_series(
    "log", "The natural logarithm.", hlo.log, lambda t, y, x: div(t, x)
)
log1p: family.Unary = family.short_series(
    "log1p",
    "The natural logarithm of one plus each element, exact near zero.",
    hlo.log1p,
    lambda t, y, x: div(t, add(x, 1)),
)
