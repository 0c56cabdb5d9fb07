"""What operators and reductions do; importing this fills `array.OPS`, save for indexing, and arrays' type rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from fiveloop.core.array import OPS, ArrayLike, Value, to_array
from fiveloop.core.complex_order import complex_max, complex_min
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.ir.dims import Shape, size_of
from fiveloop.core.primitives.broadcast import reduce_sum, reshape, transpose, zeros_of
from fiveloop.core.primitives.check import bad_value, canonical_axes, canonical_dtype
from fiveloop.core.primitives.convert import convert, counted, operand, promote
from fiveloop.core.primitives.dot import matmul
from fiveloop.core.primitives.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    div,
    equal,
    floor,
    greater,
    greater_equal,
    less,
    less_equal,
    mul,
    neg,
    not_equal,
    pow,
    rem,
    select,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    stop_gradient,
    sub,
)
from fiveloop.core.primitives.elementwise import square as elementwise_square
from fiveloop.core.primitives.reduce import (
    argmax,
    argmin,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
)
from fiveloop.core.primitives.shape import split
from fiveloop.core.primitives.special import integer_pow
from fiveloop.core.promotion import wide_for_sums
from fiveloop.core.rules import TypeRules, define_type
from fiveloop.core.trace.tracer import is_concrete


def true_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The quotient as a floating point number; integers become float32."""
    return div(*promote("divide", x, y, inexact=True))


def floor_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The greatest integer not above the quotient; of integers over 0 it is 0, as in NumPy."""
    a, b = numbers("floor_divide", x, y)
    if a.dtype.kind == "u":
        return _zero_over_zero(div(a, b), b, y)
    if a.dtype.kind == "i":
        # Division goes towards zero: one less where a remainder is left and the signs differ.
        left = bitwise_and(not_equal(rem(a, b), 0), not_equal(sign(a), sign(b)))
        return _zero_over_zero(sub(div(a, b), convert(left, a.dtype)), b, y)
    return _float_floor_divide(stop_gradient(a), stop_gradient(b))


def numbers(fun: str, x: ArrayLike, y: ArrayLike) -> tuple[Value, Value]:
    """Two arguments brought to one dtype; bools count as int32."""
    a, b = promote(fun, x, y)
    return counted(a), counted(b)


def _float_floor_divide(x: Value, y: Value) -> Value:
    """By way of the remainder, so that `y * (x // y) + x % y` is `x`."""
    quotient, left = div(x, y), rem(x, y)
    whole = div(sub(x, left), y)
    whole = select(_other_side(left, y), sub(whole, 1), whole)
    down = floor(whole)
    near = select(greater(sub(whole, down), 0.5), add(down, 1), down)
    # A zero has the sign of the quotient; division by zero is infinite, or NaN.
    signed = select(equal(whole, 0), mul(quotient, 0), near)
    return select(equal(y, 0), quotient, signed)


def _other_side(left: Value, y: Value) -> Value:
    """Whether a remainder has not the sign of the divisor."""
    return bitwise_and(not_equal(left, 0), not_equal(less(left, 0), less(y, 0)))


def remainder(x: ArrayLike, y: ArrayLike) -> Value:
    """What is left of `x` after `floor_divide`; it has the sign of `y`, as in Python. Of integers over 0 it is 0."""
    a, b = numbers("remainder", x, y)
    left = _zero_over_zero(rem(a, b), b, y)
    if a.dtype.kind == "u":
        return left
    out = select(_other_side(left, b), add(left, b), left)
    if a.dtype.kind == "i":
        return out
    # A zero has the sign of `y`, and the derivative of `x`.
    still = stop_gradient(left)
    zero = select(less(b, 0), neg(sub(still, left)), sub(left, still))
    return select(equal(left, 0), zero, out)


def fmod(x: ArrayLike, y: ArrayLike) -> Value:
    """What division towards zero leaves, with the sign of `x`; of integers over 0 it is 0."""
    a, b = numbers("fmod", x, y)
    return _zero_over_zero(rem(a, b), b, y)


def _zero_over_zero(out: Value, y: Value, given: ArrayLike) -> Value:
    """A quotient or a remainder, but 0 of integers over 0, if the divisor as `given` may be that."""
    if out.dtype.kind not in "iu" or (isinstance(given, int) and given):
        return out
    return select(equal(y, 0), 0, out)


def power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`; a Python integer as exponent multiplies."""
    if isinstance(y, int) and not isinstance(y, bool):
        base = operand("power", "x", x)
        if base.dtype.kind in "iu" and y < 0:
            bad_value(f"power: integers have no negative integer powers, got {base.aval} ** {y}")
        return integer_pow(counted(base), y)
    return pow(*numbers("power", x, y))


def square(x: ArrayLike) -> Value:
    """Each element times itself; bools as int32."""
    return elementwise_square(counted(operand("square", "x", x)))


def left_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` moved up by `y` places."""
    return shift_left(*numbers("left_shift", x, y))


def right_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` moved down by `y` places; the sign stays."""
    a, b = numbers("right_shift", x, y)
    return shift_right_logical(a, b) if a.dtype.kind == "u" else shift_right_arithmetic(a, b)


def matrix_transpose(x: ArrayLike) -> Value:
    """The last two axes swapped."""
    value = operand("matrix_transpose", "x", x)
    if value.ndim < 2:
        bad_value(f"matrix_transpose: expected at least two axes, got {value.aval}")
    n = value.ndim
    return transpose(value, [*range(n - 2), n - 1, n - 2])


def astype(x: ArrayLike, dtype: Any) -> Value:
    """The same elements in another dtype; to bool, whether they differ from zero."""
    value = operand("astype", "x", x)
    target = canonical_dtype("astype", dtype)
    return not_equal(value, 0) if target == np.bool_ != value.dtype else convert(value, target)


def keep_axes(x: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """A reduction's result with the axes that it combined kept, at size 1."""
    return reshape(x, [1 if k in axes else d for k, d in enumerate(shape)])


def over_axes(
    fun: str,
    combine: Callable[[Value, tuple[int, ...]], Value],
    x: Value,
    axis: Any,
    keepdims: bool,
) -> Value:
    """The elements over an axis, several, or all combined; with `keepdims` these axes are kept, at size 1."""
    axes = canonical_axes(fun, axis, x.ndim)
    out = combine(x, axes)
    return keep_axes(out, x.shape, axes) if keepdims else out


def sum(x: ArrayLike, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum over `axis`, or over all; bools and narrow integers are summed as 32-bit ones."""
    return over_axes("sum", reduce_sum, _widened("sum", x, dtype), axis, keepdims)


def prod(x: ArrayLike, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Value:
    """The product over `axis`, or over all; bools and narrow integers as 32-bit ones."""
    return over_axes("prod", reduce_prod, _widened("prod", x, dtype), axis, keepdims)


def _widened(fun: str, x: ArrayLike, dtype: Any) -> Value:
    value = operand(fun, "x", x)
    if dtype is not None:
        return convert(value, dtype)
    if value.dtype.kind in "biu" and value.dtype.itemsize < 4:
        return convert(value, np.uint32 if value.dtype.kind == "u" else np.int32)
    return value


def mean(x: ArrayLike, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Value:
    """The mean over `axis`, or over all; that of integers is float32."""
    (value,) = promote("mean", x, inexact=True)
    value = value if dtype is None else convert(value, dtype)
    axes = canonical_axes("mean", axis, value.ndim)
    count = size_of([value.shape[k] for k in axes])
    # The sum, and the count too, may be more than the half floats hold.
    wide = convert(value, wide_for_sums(value.dtype))
    return convert(div(sum(wide, axes, keepdims=keepdims), count), value.dtype)


def _some(fun: str, x: ArrayLike, axis: Any) -> Value:
    """An array with at least one element along the axes."""
    value = operand(fun, "x", x)
    axes = canonical_axes(fun, axis, value.ndim)
    if 0 in [value.shape[k] for k in axes]:
        bad_value(f"{fun}: expected at least one element along axes {axes}, got {value.aval}")
    return value


def max(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The greatest element over `axis`, or over all."""
    value = _some("max", x, axis)
    greatest = complex_max if value.dtype.kind == "c" else reduce_max
    return over_axes("max", greatest, value, axis, keepdims)


def min(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The least element over `axis`, or over all."""
    value = _some("min", x, axis)
    least = complex_min if value.dtype.kind == "c" else reduce_min
    return over_axes("min", least, value, axis, keepdims)


def all(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Whether all elements over `axis` are true."""
    return over_axes("all", reduce_and, operand("all", "x", x), axis, keepdims)


def any(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Whether any element over `axis` is true."""
    return over_axes("any", reduce_or, operand("any", "x", x), axis, keepdims)


def argmax_method(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the first greatest element."""
    value = operand("argmax", "x", x)
    return over_axes("argmax", lambda v, axes: argmax(v, axis), value, axis, keepdims)


def argmin_method(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the first least element."""
    value = operand("argmin", "x", x)
    return over_axes("argmin", lambda v, axes: argmin(v, axis), value, axis, keepdims)


def unstack(x: Value) -> Iterator[Value]:
    """The slices along the first axis; while a function is traced, all at once."""
    if is_concrete(x):
        return (x[i] for i in range(len(x)))
    return (reshape(part, x.shape[1:]) for part in split(x, (1,) * len(x)))


def _unreachable(x: Any, *new: Any) -> NoReturn:
    raise AssertionError("unreachable: an array is never changed")


define_type(
    ShapedArray,
    TypeRules(
        zeros=zeros_of,
        add=add,
        getitem=lambda x, index: OPS["getitem"](x, index),
        setitem=lambda x, index, value: OPS["setitem"](x, index, value),
        buffer=lambda x: to_array(x).buffer,
        own_buffer=_unreachable,
        write_back=_unreachable,
        turn=_unreachable,
    ),
)

OPS.update(
    add=add,
    subtract=sub,
    multiply=mul,
    divide=true_divide,
    floor_divide=floor_divide,
    remainder=remainder,
    power=power,
    matmul=matmul,
    bitwise_and=bitwise_and,
    bitwise_or=bitwise_or,
    bitwise_xor=bitwise_xor,
    bitwise_invert=bitwise_not,
    left_shift=left_shift,
    right_shift=right_shift,
    less=less,
    less_equal=less_equal,
    greater=greater,
    greater_equal=greater_equal,
    equal=equal,
    not_equal=not_equal,
    negative=neg,
    abs=abs,
    unstack=unstack,
)
