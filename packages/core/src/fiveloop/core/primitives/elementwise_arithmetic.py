"""Arithmetic, element by element: sums, products, powers, exp and log, extremes, rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import Builder, IRValue
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import Tangent, full_like
from fiveloop.core.primitives.check import array_avals, bad_type, check_kind, known_factor
from fiveloop.core.primitives.convert import convert, operand, promote
from fiveloop.core.primitives.costs import DIVISION, EXP, SLOW, elementwise_cost
from fiveloop.core.primitives.elementwise_complex import conj, imag, real
from fiveloop.core.primitives.elementwise_logic import (
    bitwise_and,
    bitwise_not,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    select,
)
from fiveloop.core.primitives.family import (
    add_p,
    apply_binary,
    apply_unary,
    binary,
    define_binary,
    define_elementwise,
    define_unary,
    fit,
    jvp_elementwise,
    same_dims_batch,
    same_shapes,
    unary,
    zero_jvp,
)
from fiveloop.core.promotion import real_dtype
from fiveloop.core.rule_types import Cost, Zero
from fiveloop.core.rules import Jvp, define, pure
from fiveloop.core.trace.tracer import bind1

NUMBERS = "biufc"  # bools too: their sum is `or`, their product `and`, as in NumPy

neg_p = unary("neg")
sub_p = binary("sub")
mul_p = binary("mul")
div_p = binary("div")
rem_p = binary("rem")
pow_p = binary("pow")
maximum_p = binary("maximum")
minimum_p = binary("minimum")
sign_p = unary("sign")
abs_p = unary("abs")
floor_p = unary("floor")
ceil_p = unary("ceil")
round_p = unary("round")
exp_p = unary("exp")
log_p = unary("log")
square_p = unary("square")
sqrt_p = unary("sqrt")
rsqrt_p = unary("rsqrt")
cbrt_p = unary("cbrt")
clamp_p = Primitive[Any]("clamp")
nextafter_p = binary("nextafter")


def neg(x: ArrayLike) -> Value:
    """Minus each element."""
    return apply_unary(neg_p, x)


def add(x: ArrayLike, y: ArrayLike) -> Value:
    """The sum of two arrays."""
    return apply_binary(add_p, x, y)


def sub(x: ArrayLike, y: ArrayLike) -> Value:
    """The difference of two arrays."""
    return apply_binary(sub_p, x, y)


def mul(x: ArrayLike, y: ArrayLike) -> Value:
    """The product of two arrays, element by element."""
    return apply_binary(mul_p, x, y)


def div(x: ArrayLike, y: ArrayLike) -> Value:
    """The quotient of two arrays; integers are divided towards zero."""
    return apply_binary(div_p, x, y)


def rem(x: ArrayLike, y: ArrayLike) -> Value:
    """The remainder of a division towards zero; it has the sign of `x`."""
    return apply_binary(rem_p, x, y)


def pow(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`."""
    return apply_binary(pow_p, x, y)


def maximum(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of two elements; NaN wins. Its derivative is shared equally at a tie."""
    return apply_binary(maximum_p, x, y)


def minimum(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of two elements; NaN wins. Its derivative is shared equally at a tie."""
    return apply_binary(minimum_p, x, y)


def nextafter(x: ArrayLike, y: ArrayLike) -> Value:
    """The next number that the dtype can hold after `x` on the way to `y`."""
    return apply_binary(nextafter_p, x, y, inexact=True)


def sign(x: ArrayLike) -> Value:
    """-1, 0 or 1 as an element is negative, zero or positive; z/|z| of a complex number."""
    return apply_unary(sign_p, x)


def abs(x: ArrayLike) -> Value:
    """The distance of each element from zero; its derivative at zero is zero."""
    value = operand("abs", "x", x)
    return value if value.dtype.kind in "bu" else bind1(abs_p, value)


def floor(x: ArrayLike) -> Value:
    """The greatest integer not above each element, in the same dtype."""
    return _rounded(floor_p, x)


def ceil(x: ArrayLike) -> Value:
    """The least integer not below each element, in the same dtype."""
    return _rounded(ceil_p, x)


def round(x: ArrayLike) -> Value:
    """The nearest integer, a half to the even one, in the same dtype."""
    return _rounded(round_p, x)


def _rounded(prim: Primitive[Any], x: ArrayLike) -> Value:
    value = operand(prim.name, "x", x)
    return value if value.dtype.kind in "biu" else bind1(prim, value)


def exp(x: ArrayLike) -> Value:
    """e to the power of each element."""
    return apply_unary(exp_p, x, inexact=True)


def log(x: ArrayLike) -> Value:
    """The natural logarithm."""
    return apply_unary(log_p, x, inexact=True)


def square(x: ArrayLike) -> Value:
    """Each element times itself."""
    return apply_unary(square_p, x)


def sqrt(x: ArrayLike) -> Value:
    """The square root."""
    return apply_unary(sqrt_p, x, inexact=True)


def rsqrt(x: ArrayLike) -> Value:
    """One over the square root."""
    return apply_unary(rsqrt_p, x, inexact=True)


def cbrt(x: ArrayLike) -> Value:
    """The real cube root."""
    return apply_unary(cbrt_p, x, inexact=True)


def clamp(low: ArrayLike, x: ArrayLike, high: ArrayLike) -> Value:
    """`x` held between `low` and `high`; a derivative at a bound goes to `x`."""
    lo, value, hi = same_shapes("clamp", promote("clamp", low, x, high))
    return bind1(clamp_p, lo, value, hi)


def reciprocal(x: ArrayLike) -> Value:
    """One over each element."""
    (value,) = promote("reciprocal", x, inexact=True)
    return div(1, value)


define_unary(
    neg_p, lower=hlo.neg, jvp=lambda t, x: neg(t), transpose=lambda ct: neg(ct), kinds="iufc"
)
define_binary(
    add_p,
    lower=hlo.add,
    jvp=(lambda t, x, y: t, lambda t, x, y: t),
    transpose=(lambda ct, y: ct, lambda ct, x: ct),
    kinds=NUMBERS,
)
define_binary(
    sub_p,
    lower=hlo.sub,
    jvp=(lambda t, x, y: t, lambda t, x, y: neg(t)),
    transpose=(lambda ct, y: ct, lambda ct, x: neg(ct)),
)
define_binary(
    mul_p,
    lower=hlo.mul,
    jvp=(lambda t, x, y: mul(t, y), lambda t, x, y: mul(x, t)),
    transpose=(
        lambda ct, y: mul(ct, known_factor("mul", y)),
        lambda ct, x: mul(known_factor("mul", x), ct),
    ),
    kinds=NUMBERS,
)
define_binary(
    div_p,
    flops=DIVISION,
    lower=hlo.div,
    jvp_with_out=(lambda t, out, x, y: div(t, y), lambda t, out, x, y: neg(mul(t, div(out, y)))),
    transpose=(lambda ct, y: div(ct, known_factor("div", y)), None),
)


def _trunc_quotient(x: Value, y: Value) -> Value:
    quotient = div(x, y)
    return mul(sign(quotient), floor(abs(quotient)))


define_binary(
    rem_p,
    flops=DIVISION,
    lower=hlo.rem,
    jvp=(lambda t, x, y: t, lambda t, x, y: neg(mul(t, _trunc_quotient(x, y)))),
    kinds="iuf",
)


def _pow_dx(t: Value, out: Value, x: Value, y: Value) -> Value:
    """y x^(y-1), and 0 where y is 0, at x = 0 too."""
    flat = equal(y, 0)
    slope = mul(y, pow(x, select(flat, full_like(y, 1), sub(y, 1))))
    return mul(t, select(flat, full_like(slope, 0), slope))


def _pow_dy(t: Value, out: Value, x: Value, y: Value) -> Value:
    """x^y log x, and 0 where x is 0, as for a positive y in the limit."""
    nil = equal(x, 0)
    return mul(t, mul(out, log(select(nil, full_like(x, 1), x))))


define_binary(pow_p, flops=SLOW, lower=hlo.pow, jvp_with_out=(_pow_dx, _pow_dy))


def _extreme_jvp(prim: Primitive[Any], first: Any, second: Any) -> Jvp:
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
        both = mul(_sum([t for _, _, t in given]), 0.5)
        parts.append(select(bitwise_and(one, other), both, full_like(both, 0)))
        return [out], [fit(_sum(parts), out.aval)]

    return rule


def _sum(terms: Sequence[Value]) -> Value:
    return reduce(lambda x, y: bind1(add_p, x, y), terms)


define_elementwise(
    maximum_p,
    count=2,
    lower=hlo.max,
    jvp=_extreme_jvp(maximum_p, greater_equal, less_equal),
    kinds=NUMBERS,
)
define_elementwise(
    minimum_p,
    count=2,
    lower=hlo.min,
    jvp=_extreme_jvp(minimum_p, less_equal, greater_equal),
    kinds=NUMBERS,
)


def _lower_nextafter(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    return hlo.generic(b, "chlo.next_after", [x, y], [(x.shape, x.dtype)])[0]


define_binary(nextafter_p, lower=_lower_nextafter, kinds="f")


def _unsigned_sign(b: Builder, x: IRValue) -> IRValue:
    """StableHLO's sign takes no unsigned integers."""
    if x.dtype.kind != "u":
        return hlo.sign(b, x)
    return hlo.min(b, x, hlo.constant(b, 1, x.shape, x.dtype))


def _turning(t: Value, y: Value, x: Value) -> Value:
    """The tangent of a direction in the complex plane: how fast it turns; 0 at 0, which has none."""
    size = abs(x)
    turn = div(imag(mul(t, conj(y))), select(equal(size, 0), full_like(size, 1), size))
    return mul(mul(y, 1j), convert(turn, x.dtype))


_constant_sign = zero_jvp(sign_p)
_turning_sign = jvp_elementwise(sign_p, [_turning], with_out=True)


def _sign_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: Any
) -> tuple[list[Value], list[Tangent]]:
    """The sign of a real number is constant, that of a complex one turns with it."""
    rule = _turning_sign if primals[0].dtype.kind == "c" else _constant_sign
    return rule(primals, tangents, p)


define_elementwise(sign_p, count=1, lower=_unsigned_sign, jvp=_sign_jvp, kinds="iufc")
define_unary(floor_p, lower=hlo.floor, kinds="f")
define_unary(ceil_p, lower=hlo.ceil, kinds="f")
define_unary(round_p, lower=hlo.round_nearest_even, kinds="f")


def _abs_term(t: Value, x: Value) -> Value:
    if x.dtype.kind != "c":
        return mul(t, sign(x))
    return real(mul(t, conj(sign(x))))


define_unary(abs_p, lower=hlo.abs, jvp=_abs_term, kinds="ifc", out=real_dtype)
define_unary(exp_p, flops=EXP, lower=hlo.exp, jvp_from_out=lambda t, y: mul(t, y))
define_unary(log_p, flops=EXP, lower=hlo.log, jvp=lambda t, x: div(t, x))
define_unary(
    square_p,
    lower=lambda b, x: hlo.mul(b, x, x),
    jvp=lambda t, x: mul(t, mul(x, 2)),
    kinds="iufc",
)
define_unary(sqrt_p, flops=DIVISION, lower=hlo.sqrt, jvp_from_out=lambda t, y: div(mul(t, 0.5), y))
define_unary(
    rsqrt_p, flops=DIVISION, lower=hlo.rsqrt, jvp=lambda t, x: mul(t, mul(-0.5, div(rsqrt(x), x)))
)
define_unary(
    cbrt_p,
    flops=SLOW,
    lower=hlo.cbrt,
    jvp_from_out=lambda t, y: div(t, mul(square(y), 3)),
    kinds="f",
)


def _clamp_inside(t: Value, low: Value, x: Value, high: Value) -> Value:
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
            lambda t, low, x, high: select(less(x, low), t, full_like(t, 0)),
            _clamp_inside,
            lambda t, low, x, high: select(greater(x, high), t, full_like(t, 0)),
        ],
    ),
)


# integer_pow


@dataclass(frozen=True)
class IntegerPowParams:
    """The exponent."""

    y: int


integer_pow_p: Primitive[IntegerPowParams] = Primitive("integer_pow")


def integer_pow(x: ArrayLike, y: int) -> Value:
    """`x` to the power of a Python integer, by multiplication."""
    value = operand("integer_pow", "x", x)
    if y in (1, 2):
        return value if y == 1 else bind1(square_p, value)
    return bind1(integer_pow_p, value, params=IntegerPowParams(int(y)))


def _integer_pow_aval(avals: Sequence[Aval], p: IntegerPowParams) -> list[Aval]:
    (x,) = array_avals("integer_pow", avals, 1)
    check_kind("integer_pow", x, "iufc")
    if p.y < 0 and x.dtype.kind in "iu":
        bad_type(f"integer_pow: expected an exponent >= 0 for integers, got {p.y} for {x}")
    return [x]


def _integer_pow_lower(ctx: Any, xs: Sequence[IRValue], p: IntegerPowParams) -> list[IRValue]:
    """Square and multiply; one division at the end for a negative exponent."""
    b, (x,) = ctx.b, xs
    one = hlo.constant(b, 1, x.shape, x.dtype)
    result: IRValue | None = None
    power, count = x, -p.y if p.y < 0 else p.y
    while count:
        if count & 1:
            result = power if result is None else hlo.mul(b, result, power)
        count >>= 1
        power = hlo.mul(b, power, power) if count else power
    done = one if result is None else result
    return [hlo.div(b, one, done) if p.y < 0 else done]


def _integer_pow_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: IntegerPowParams
) -> tuple[list[Value], list[Tangent]]:
    (x,), (t,) = primals, tangents
    out = bind1(integer_pow_p, x, params=p)
    if isinstance(t, Zero) or p.y == 0 or not out.aval.differentiable:
        return [out], [Zero(out.aval.tangent())]
    return [out], [mul(t, mul(float(p.y), integer_pow(x, p.y - 1)))]


def _integer_pow_cost(avals: Sequence[Aval], p: IntegerPowParams) -> Cost:
    """Multiplications by squaring; a division for a negative exponent."""
    flops = 2 * max(p.y, -p.y).bit_length() + DIVISION * (p.y < 0)
    return elementwise_cost(flops)(avals, p)


define(
    integer_pow_p,
    abstract_eval=pure(_integer_pow_aval),
    cost=_integer_pow_cost,
    lower=_integer_pow_lower,
    jvp=_integer_pow_jvp,
    batch=same_dims_batch(integer_pow_p),
)
