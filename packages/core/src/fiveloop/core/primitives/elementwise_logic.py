"""Comparisons, choices and bits, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.backend import hlo
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Primitive
from fiveloop.core.primitives.broadcast import Tangent
from fiveloop.core.primitives.check import array_avals, bad_type
from fiveloop.core.primitives.convert import convert, operand, promote
from fiveloop.core.primitives.costs import moving_cost
from fiveloop.core.primitives.family import (
    BOOL,
    apply_binary,
    apply_unary,
    batch_elementwise,
    binary,
    define_binary,
    define_compare,
    define_unary,
    elementwise_shape,
    fit,
    lower_elementwise,
    same_shapes,
    to_bool,
    transpose_elementwise,
    unary,
)
from fiveloop.core.rule_types import Zero
from fiveloop.core.rules import define, pure
from fiveloop.core.trace.tracer import bind1

equal_p = binary("equal")
not_equal_p = binary("not_equal")
less_p = binary("less")
less_equal_p = binary("less_equal")
greater_p = binary("greater")
greater_equal_p = binary("greater_equal")
bitwise_and_p = binary("bitwise_and")
bitwise_or_p = binary("bitwise_or")
bitwise_xor_p = binary("bitwise_xor")
bitwise_not_p = unary("bitwise_not")
shift_left_p = binary("shift_left")
shift_right_logical_p = binary("shift_right_logical")
shift_right_arithmetic_p = binary("shift_right_arithmetic")
population_count_p = unary("population_count")
count_leading_zeros_p = unary("count_leading_zeros")
is_finite_p = unary("is_finite")
select_p = Primitive[Any]("select")


def equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements are equal; NaN equals nothing."""
    return apply_binary(equal_p, x, y)


def not_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements differ; NaN differs from everything."""
    return apply_binary(not_equal_p, x, y)


def less(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are less than those of `y`."""
    return apply_binary(less_p, x, y)


def less_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are less than or equal to those of `y`."""
    return apply_binary(less_equal_p, x, y)


def greater(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are greater than those of `y`."""
    return apply_binary(greater_p, x, y)


def greater_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are greater than or equal to those of `y`."""
    return apply_binary(greater_equal_p, x, y)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Value:
    """`and` of bools, or of the bits of integers.

    >>> bitwise_and(np.array([True, False]), True), bitwise_and(6, 3).item()
    (Array([ True, False], dtype=bool), 2)
    """
    return apply_binary(bitwise_and_p, x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Value:
    """`or` of bools, or of the bits of integers."""
    return apply_binary(bitwise_or_p, x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Value:
    """`xor` of bools, or of the bits of integers."""
    return apply_binary(bitwise_xor_p, x, y)


def bitwise_not(x: ArrayLike) -> Value:
    """`not` of bools, or of the bits of integers."""
    return apply_unary(bitwise_not_p, x)


def shift_left(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` moved up by `y` places; zeros come in."""
    return apply_binary(shift_left_p, x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` moved down by `y` places; zeros come in."""
    return apply_binary(shift_right_logical_p, x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` moved down by `y` places; copies of the sign come in."""
    return apply_binary(shift_right_arithmetic_p, x, y)


def population_count(x: ArrayLike) -> Value:
    """The number of bits that are set."""
    return apply_unary(population_count_p, x)


def count_leading_zeros(x: ArrayLike) -> Value:
    """The number of zero bits above the highest one."""
    return apply_unary(count_leading_zeros_p, x)


def is_finite(x: ArrayLike) -> Value:
    """Whether elements are neither infinite nor NaN."""
    (value,) = promote("is_finite", x, inexact=True)
    return bind1(is_finite_p, value)


def is_nan(x: ArrayLike) -> Value:
    """Whether elements are NaN."""
    value = operand("is_nan", "x", x)
    return not_equal(value, value)


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


def to_condition(x: ArrayLike) -> Value:
    """Whether elements differ from zero, as a bool array."""
    value = operand("to_condition", "x", x)
    return value if value.dtype == BOOL else not_equal(value, convert(0, value.dtype))


for _prim, _direction, _kinds in (
    (equal_p, "EQ", "biufc"),
    (not_equal_p, "NE", "biufc"),
    (less_p, "LT", "biuf"),
    (less_equal_p, "LE", "biuf"),
    (greater_p, "GT", "biuf"),
    (greater_equal_p, "GE", "biuf"),
):
    define_compare(_prim, _direction, _kinds)

define_binary(bitwise_and_p, lower=hlo.and_, kinds="biu")
define_binary(bitwise_or_p, lower=hlo.or_, kinds="biu")
define_binary(bitwise_xor_p, lower=hlo.xor, kinds="biu")
define_unary(bitwise_not_p, lower=hlo.not_, kinds="biu")
define_binary(shift_left_p, lower=hlo.shift_left, kinds="iu")
define_binary(shift_right_logical_p, lower=hlo.shift_right_logical, kinds="iu")
define_binary(shift_right_arithmetic_p, lower=hlo.shift_right_arithmetic, kinds="iu")
define_unary(population_count_p, lower=hlo.popcnt, kinds="iu")
define_unary(count_leading_zeros_p, lower=hlo.count_leading_zeros, kinds="iu")
define_unary(is_finite_p, lower=hlo.is_finite, kinds="f", out=to_bool)


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
