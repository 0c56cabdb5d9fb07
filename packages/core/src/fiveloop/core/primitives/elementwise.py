"""Elementwise functions: a row each of name, docstring, StableHLO, derivative, kinds of dtype and cost.

A derivative has a term per operand, `term(t, out, *operands)`, where `t` is the operand's tangent.
Transposes of complex numbers are those of the bilinear product Re(a b), without conjugation, so that a cotangent of a
complex value is the derivative by z of a real result, as for any other linear operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import full_like
from fiveloop.core.primitives.check import array_avals, bad_type, known_factor
from fiveloop.core.primitives.convert import convert, operand, promote, real_p
from fiveloop.core.primitives.costs import DIVISION, EXP, SLOW, moving_cost
from fiveloop.core.primitives.family import (
    BOOL,
    Binary,
    Unary,
    add_p,
    batch_elementwise,
    binary,
    comparison,
    define_elementwise,
    elementwise_shape,
    fit,
    jvp_elementwise,
    lower_elementwise,
    same_shapes,
    to_bool,
    transpose_elementwise,
    unary,
)
from fiveloop.core.promotion import complex_dtype, real_dtype
from fiveloop.core.rules import Jvp, Tangent, Zero, define, pure
from fiveloop.core.trace.tracer import bind1

NUMBERS = "biufc"  # bools too: their sum is `or`, their product `and`, as in NumPy

# comparisons and bits

equal: Binary = comparison(
    "equal", "Whether elements are equal; NaN equals nothing.", "EQ", NUMBERS
)
not_equal: Binary = comparison(
    "not_equal", "Whether elements differ; NaN differs from everything.", "NE", NUMBERS
)
less: Binary = comparison("less", "Whether elements of `x` are less than those of `y`.", "LT")
less_equal: Binary = comparison(
    "less_equal", "Whether elements of `x` are less than or equal to those of `y`.", "LE"
)
greater: Binary = comparison(
    "greater", "Whether elements of `x` are greater than those of `y`.", "GT"
)
greater_equal: Binary = comparison(
    "greater_equal", "Whether elements of `x` are greater than or equal to those of `y`.", "GE"
)
bitwise_and: Binary = binary(
    "bitwise_and",
    """`and` of bools, or of the bits of integers.

    >>> bitwise_and(np.array([True, False]), True), bitwise_and(6, 3).item()
    (Array([ True, False], dtype=bool), 2)
    """,
    hlo.and_,
    kinds="biu",
)
bitwise_and_p = bitwise_and.prim
bitwise_or: Binary = binary(
    "bitwise_or", "`or` of bools, or of the bits of integers.", hlo.or_, kinds="biu"
)
bitwise_xor: Binary = binary(
    "bitwise_xor", "`xor` of bools, or of the bits of integers.", hlo.xor, kinds="biu"
)
bitwise_not: Unary = unary(
    "bitwise_not", "`not` of bools, or of the bits of integers.", hlo.not_, kinds="biu"
)
shift_left: Binary = binary(
    "shift_left",
    "The bits of `x` moved up by `y` places; zeros come in.",
    hlo.shift_left,
    kinds="iu",
)
shift_right_logical: Binary = binary(
    "shift_right_logical",
    "The bits of `x` moved down by `y` places; zeros come in.",
    hlo.shift_right_logical,
    kinds="iu",
)
shift_right_arithmetic: Binary = binary(
    "shift_right_arithmetic",
    "The bits of `x` moved down by `y` places; copies of the sign come in.",
    hlo.shift_right_arithmetic,
    kinds="iu",
)
population_count: Unary = unary(
    "population_count", "The number of bits that are set.", hlo.popcnt, kinds="iu"
)
count_leading_zeros: Unary = unary(
    "count_leading_zeros",
    "The number of zero bits above the highest one.",
    hlo.count_leading_zeros,
    kinds="iu",
)
is_finite: Unary = unary(
    "is_finite",
    "Whether elements are neither infinite nor NaN.",
    hlo.is_finite,
    kinds="f",
    out=to_bool,
)


def is_nan(x: ArrayLike) -> Value:
    """Whether elements are NaN."""
    value = operand("is_nan", "x", x)
    return not_equal(value, value)


def to_condition(x: ArrayLike) -> Value:
    """Whether elements differ from zero, as a bool array."""
    value = operand("to_condition", "x", x)
    return value if value.dtype == BOOL else not_equal(value, convert(0, value.dtype))


# select

select_p = Primitive[Any]("select")


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Value:
    """Elements of `on_true` where `pred` holds, of `on_false` elsewhere.

    TypeError if `pred` does not hold bools. The three are broadcast to one shape, and the last two brought to one
    dtype. No derivative flows into the side not taken, whatever its values are.

    >>> x = np.array([-1.0, 2.0])
    >>> print(select(x > 0, x, 0.0), grad(lambda x: select(x > 0, x, 0.0).sum())(x))
    [0. 2.] [0. 1.]
    """
    chosen = operand("select", "pred", pred)
    if chosen.dtype != BOOL:
        bad_type(f"select: expected `pred` to hold bools, got {chosen.aval}")
    values = promote("select", on_true, on_false)
    return bind1(select_p, *same_shapes("select", [chosen, *values]))


def _select_aval(avals: Sequence[Aval], p: Any) -> list[Aval]:
    pred, x, y = array_avals("select", avals, 3)
    if pred.dtype != BOOL or x.dtype != y.dtype:
        bad_type(f"select: expected a bool and two operands of one dtype, got {pred}, {x} and {y}")
    weak = x.weak_type and y.weak_type
    return [ShapedArray(elementwise_shape("select", avals), x.dtype, weak)]


def _select_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
) -> tuple[list[Value], list[Tangent]]:
    out = bind1(select_p, *primals)
    _, t, u = tangents
    if isinstance(t, Zero) and isinstance(u, Zero):
        return [out], [Zero(out.aval.tangent())]
    sides = [_zero_without_axes(s) if isinstance(s, Zero) else s for s in (t, u)]
    return [out], [fit(bind1(select_p, primals[0], *sides), out.aval)]


def _zero_without_axes(t: Zero) -> Value:
    return convert(0, t.aval.dtype)


define(
    select_p,
    abstract_eval=pure(_select_aval),
    cost=moving_cost(_select_aval),
    lower=lower_elementwise(hlo.select),
    jvp=_select_jvp,
    transpose=transpose_elementwise(
        "select",
        [
            None,
            lambda ct, pred, other: select(pred, ct, convert(0, ct.dtype)),
            lambda ct, pred, other: select(pred, convert(0, ct.dtype), ct),
        ],
    ),
    batch=batch_elementwise(select_p),
)

# arithmetic

neg: Unary = unary(
    "neg",
    "Minus each element.",
    hlo.neg,
    lambda t, y, x: neg(t),
    transpose=lambda ct: neg(ct),
    kinds="iufc",
)
neg_p = neg.prim
add: Binary = binary(
    add_p,
    "The sum of two arrays.",
    hlo.add,
    (lambda t, out, x, y: t, lambda t, out, x, y: t),
    transpose=(lambda ct, y: ct, lambda ct, x: ct),
    kinds=NUMBERS,
)
sub: Binary = binary(
    "sub",
    "The difference of two arrays.",
    hlo.sub,
    (lambda t, out, x, y: t, lambda t, out, x, y: neg(t)),
    transpose=(lambda ct, y: ct, lambda ct, x: neg(ct)),
)
mul: Binary = binary(
    "mul",
    "The product of two arrays, element by element.",
    hlo.mul,
    (lambda t, out, x, y: mul(t, y), lambda t, out, x, y: mul(x, t)),
    transpose=(
        lambda ct, y: mul(ct, known_factor("mul", y)),
        lambda ct, x: mul(known_factor("mul", x), ct),
    ),
    kinds=NUMBERS,
)
div: Binary = binary(
    "div",
    "The quotient of two arrays; integers are divided towards zero.",
    hlo.div,
    (lambda t, out, x, y: div(t, y), lambda t, out, x, y: neg(mul(t, div(out, y)))),
    transpose=(lambda ct, y: div(ct, known_factor("div", y)), None),
    flops=DIVISION,
)
rem: Binary = binary(
    "rem",
    "The remainder of a division towards zero; it has the sign of `x`.",
    hlo.rem,
    (lambda t, out, x, y: t, lambda t, out, x, y: neg(mul(t, _trunc_quotient(x, y)))),
    kinds="iuf",
    flops=DIVISION,
)


def _trunc_quotient(x: Value, y: Value) -> Value:
    quotient = div(x, y)
    return mul(sign(quotient), floor(abs(quotient)))


def _pow_dx(t: Value, out: Value, x: Value, y: Value) -> Value:
    """y x^(y-1), and 0 where y is 0, at x = 0 too."""
    flat = equal(y, 0)
    slope = mul(y, pow(x, select(flat, full_like(y, 1), sub(y, 1))))
    return mul(t, select(flat, full_like(slope, 0), slope))


def _pow_dy(t: Value, out: Value, x: Value, y: Value) -> Value:
    """x^y log x, and 0 where x is 0, as for a positive y in the limit."""
    nil = equal(x, 0)
    return mul(t, mul(out, log(select(nil, full_like(x, 1), x))))


pow: Binary = binary("pow", "`x` to the power of `y`.", hlo.pow, (_pow_dx, _pow_dy), flops=SLOW)


def _extreme_jvp(first: Binary, second: Binary, prim: Primitive[Any]) -> Jvp:
    """The tangent of an extreme: of the operand that wins, and half of both at a tie, without 0 * inf.

    `first` says where the first operand wins, `second` where the other does. Each mask chooses between a tangent and
    zero: so a transpose does not have to choose between two numbers, which takes a processor a branch.
    """

    def rule(
        primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
    ) -> tuple[list[Value], list[Tangent]]:
        out = bind1(prim, *primals, params=p)
        one, other = first(*primals), second(*primals)
        masks = zip((one, other), (other, one), tangents, strict=True)
        given = [(no_worse, worst, t) for no_worse, worst, t in masks if not isinstance(t, Zero)]
        if not given:
            return [out], [Zero(out.aval.tangent())]
        parts = [select(bitwise_and(a, bitwise_not(b)), t, full_like(t, 0)) for a, b, t in given]
        both = mul(reduce(add, [t for _, _, t in given]), 0.5)
        parts.append(select(bitwise_and(one, other), both, full_like(both, 0)))
        return [out], [fit(reduce(add, parts), out.aval)]

    return rule


maximum: Binary = binary(
    "maximum",
    "The greater of two elements; NaN wins. Its derivative is shared equally at a tie.",
    hlo.max,
    whole_jvp=partial(_extreme_jvp, greater_equal, less_equal),
    kinds=NUMBERS,
)
minimum: Binary = binary(
    "minimum",
    "The lesser of two elements; NaN wins. Its derivative is shared equally at a tie.",
    hlo.min,
    whole_jvp=partial(_extreme_jvp, less_equal, greater_equal),
    kinds=NUMBERS,
)
nextafter: Binary = binary(
    "nextafter",
    "The next number that the dtype can hold after `x` on the way to `y`.",
    hlo.next_after,
    kinds="f",
)


def reciprocal(x: ArrayLike) -> Value:
    """One over each element."""
    (value,) = promote("reciprocal", x, inexact=True)
    return div(1, value)


clamp_p = Primitive[Any]("clamp")


def clamp(low: ArrayLike, x: ArrayLike, high: ArrayLike) -> Value:
    """`x` held between `low` and `high`; a derivative at a bound goes to `x`."""
    lo, value, hi = same_shapes("clamp", promote("clamp", low, x, high))
    return bind1(clamp_p, lo, value, hi)


def _clamp_inside(t: Value, out: Value, low: Value, x: Value, high: Value) -> Value:
    inside = bitwise_and(greater_equal(x, low), less_equal(x, high))
    return select(inside, t, full_like(t, 0))


define_elementwise(
    clamp_p,
    count=3,
    kinds="iuf",
    lower=hlo.clamp,
    jvp=jvp_elementwise(
        clamp_p,
        [
            lambda t, out, low, x, high: select(less(x, low), t, full_like(t, 0)),
            _clamp_inside,
            lambda t, out, low, x, high: select(greater(x, high), t, full_like(t, 0)),
        ],
    ),
)

# signs and rounding


def _turning(t: Value, y: Value, x: Value) -> Value | None:
    """The tangent of a direction in the complex plane: how fast it turns; 0 at 0, which has none."""
    if x.dtype.kind != "c":
        return None
    size = abs(x)
    turn = div(imag(mul(t, conj(y))), select(equal(size, 0), full_like(size, 1), size))
    return mul(mul(y, 1j), convert(turn, x.dtype))


def _unsigned_sign(b: Builder, x: IRValue, /) -> IRValue:
    """StableHLO's sign takes no unsigned integers."""
    if x.dtype.kind != "u":
        return hlo.sign(b, x)
    return hlo.min(b, x, hlo.constant(b, 1, x.shape, x.dtype))


def _abs_term(t: Value, y: Value, x: Value) -> Value:
    if x.dtype.kind != "c":
        return mul(t, sign(x))
    return real(mul(t, conj(sign(x))))


sign: Unary = unary(
    "sign",
    "-1, 0 or 1 as an element is negative, zero or positive; z/|z| of a complex number.",
    _unsigned_sign,
    _turning,
    kinds="iufc",
)
abs: Unary = unary(
    "abs",
    "The distance of each element from zero; its derivative at zero is zero.",
    hlo.abs,
    _abs_term,
    kinds="ifc",
    out=real_dtype,
    unchanged="bu",
)
floor: Unary = unary(
    "floor",
    "The greatest integer not above each element, in the same dtype.",
    hlo.floor,
    kinds="f",
    unchanged="biu",
)
ceil: Unary = unary(
    "ceil",
    "The least integer not below each element, in the same dtype.",
    hlo.ceil,
    kinds="f",
    unchanged="biu",
)
round: Unary = unary(
    "round",
    "The nearest integer, a half to the even one, in the same dtype.",
    hlo.round_nearest_even,
    kinds="f",
    unchanged="biu",
)
_stop_gradient: Unary = unary(
    "stop_gradient", "The same numbers, as constants.", lambda b, x: x, kinds=NUMBERS
)


def stop_gradient(x: ArrayLike) -> Value:
    """The same values, through which no derivative flows."""
    value = operand("stop_gradient", "x", x)
    return _stop_gradient(value) if value.aval.differentiable else value


# complex numbers

real: Unary = unary(
    real_p,
    "The real part; of a real number the number itself.",
    hlo.real,
    lambda t, y, x: real(t),
    transpose=lambda ct: complex(ct, full_like(ct, 0)),
    kinds="c",
    out=real_dtype,
    unchanged="biufV",
)
_imag: Unary = unary(
    "imag",
    "The imaginary part of complex numbers.",
    hlo.imag,
    lambda t, y, x: imag(t),
    transpose=lambda ct: conj(complex(full_like(ct, 0), ct)),
    kinds="c",
    out=real_dtype,
)
conj: Unary = unary(
    "conj",
    "The complex conjugate; of a real number the number itself.",
    lambda b, x: hlo.complex(b, hlo.real(b, x), hlo.neg(b, hlo.imag(b, x))),
    lambda t, y, x: conj(t),
    transpose=lambda ct: conj(ct),
    kinds="c",
    unchanged="biufV",
)
_complex: Binary = binary(
    "complex",
    "Complex numbers from floating point numbers of one dtype.",
    hlo.complex,
    (
        lambda t, out, x, y: complex(t, full_like(t, 0)),
        lambda t, out, x, y: complex(full_like(t, 0), t),
    ),
    transpose=(lambda ct, y: real(ct), lambda ct, x: imag(conj(ct))),
    kinds="f",
    out=complex_dtype,
)


def imag(x: ArrayLike) -> Value:
    """The imaginary part; of a real number zero."""
    value = operand("imag", "x", x)
    return _imag(value) if value.dtype.kind == "c" else full_like(value, 0)


def complex(re: ArrayLike, im: ArrayLike) -> Value:
    """The complex numbers with these real and imaginary parts."""
    x, y = promote("complex", re, im, inexact=True)
    narrow = x.dtype not in (np.float32, np.float64)
    if narrow and x.dtype.kind != "c":
        x, y = promote("complex", x, y, np.float32(0))[:2]
    return _complex(x, y)


# powers, roots and exponentials

square: Unary = unary(
    "square",
    "Each element times itself.",
    lambda b, x: hlo.mul(b, x, x),
    lambda t, y, x: mul(t, mul(x, 2)),
    kinds="iufc",
)
sqrt: Unary = unary(
    "sqrt", "The square root.", hlo.sqrt, lambda t, y, x: div(mul(t, 0.5), y), flops=DIVISION
)
rsqrt: Unary = unary(
    "rsqrt",
    "One over the square root.",
    hlo.rsqrt,
    lambda t, y, x: mul(t, mul(-0.5, div(rsqrt(x), x))),
    flops=DIVISION,
)
cbrt: Unary = unary(
    "cbrt",
    "The real cube root.",
    hlo.cbrt,
    lambda t, y, x: div(t, mul(square(y), 3)),
    kinds="f",
    flops=SLOW,
)
exp: Unary = unary(
    "exp", "e to the power of each element.", hlo.exp, lambda t, y, x: mul(t, y), flops=EXP
)
expm1: Unary = unary(
    "expm1",
    "e to the power of each element, minus one, exact near zero.",
    hlo.expm1,
    lambda t, y, x: mul(t, add(y, 1)),
    flops=EXP,
)
log: Unary = unary("log", "The natural logarithm.", hlo.log, lambda t, y, x: div(t, x), flops=EXP)
log1p: Unary = unary(
    "log1p",
    "The natural logarithm of one plus each element, exact near zero.",
    hlo.log1p,
    lambda t, y, x: div(t, add(x, 1)),
    flops=EXP,
)
