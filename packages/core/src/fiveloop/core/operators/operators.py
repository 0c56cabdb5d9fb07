"""Operators and reductions of values; importing this fills `array.OPS`, except for indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from fiveloop.core import arrays, ir, prims, rules, trace
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.index import ops as index_ops
from fiveloop.core.operators import complex_order
from fiveloop.core.primitives import special

GUARDED = """
    __divmod__ __rdivmod__ __iadd__ __getitem__ __contains__ __len__ __iter__ __hash__
    __setitem__ __round__ __array_ufunc__
""".split()
"""The methods that Python calls, beside the operators, below which the library hides its frames."""


# Each has as many parameters as the operator: an operator is called more often than anything else.


def _binary(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(method)
    def operator(x: Any, y: Any) -> Any:
        try:
            return method(x, y)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


def _unary(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(method)
    def operator(x: Any) -> Any:
        try:
            return method(x)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


def _other(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def operator(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


_GUARDS: dict[int, Callable[[Callable[..., Any]], Callable[..., Any]]] = {1: _unary, 2: _binary}

for _name, _method in list(vars(Value).items()):
    if _name in GUARDED or (isinstance(_method, FunctionType) and _method in arrays.OPERATORS):
        _takes = 0 if _method.__defaults__ else _method.__code__.co_argcount
        setattr(Value, _name, _GUARDS.get(_takes, _other)(_method))
for _cls in (arrays.Methods, index_ops.Place):
    for _name, _method in list(vars(_cls).items()):
        if _name[0] != "_" and isinstance(_method, FunctionType):
            setattr(_cls, _name, _other(_method))


def true_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The quotient as a floating point number; integers become float32."""
    return prims.div(*prims.promote("divide", x, y, inexact=True))


def floor_divide(x: ArrayLike, y: ArrayLike) -> Value:
    """The greatest integer not above the quotient; of integers over 0 it is 0, as in NumPy."""
    a, b = numbers("floor_divide", x, y)
    if a.dtype.kind in "iu":
        return prims.floor_div(a, b)
    # By way of the remainder, so that `y * (x // y) + x % y` is `x`.
    a, b = prims.stop_gradient(a), prims.stop_gradient(b)
    quotient, left = prims.div(a, b), prims.rem(a, b)
    # A zero has the sign of the quotient; division by zero is infinite, or NaN.
    part = prims.select(prims.equal(a, left), prims.mul(a, 0), prims.sub(a, left))
    whole = prims.select(prims.equal(b, 0), quotient, prims.div(part, b))
    whole = prims.select(_other_side(left, b), prims.sub(whole, 1), whole)
    down = prims.floor(whole)
    return prims.select(prims.greater(prims.sub(whole, down), 0.5), prims.add(down, 1), down)


def numbers(fun: str, x: ArrayLike, y: ArrayLike) -> tuple[Value, Value]:
    """Two arguments brought to one dtype; bools count as int32."""
    a, b = prims.promote(fun, x, y)
    return prims.counted(a), prims.counted(b)


def _other_side(left: Value, y: Value) -> Value:
    """Whether a remainder is on the other side of zero than the divisor."""
    return prims.select(prims.less(y, 0), prims.greater(left, 0), prims.less(left, 0))


def remainder(x: ArrayLike, y: ArrayLike) -> Value:
    """What is left of `x` after `floor_divide`; it has the sign of `y`, as in Python. Of integers over 0 it is 0."""
    a, b = numbers("remainder", x, y)
    if a.dtype.kind in "iu":
        return prims.mod(a, b)
    left = prims.rem(a, b)
    out = prims.select(_other_side(left, b), prims.add(left, b), left)
    # A zero has the sign of `y`, and the derivative of `x`.
    still = prims.stop_gradient(left)
    zero = prims.select(prims.less(b, 0), prims.neg(prims.sub(still, left)), prims.sub(left, still))
    return prims.select(prims.equal(left, 0), zero, out)


def fmod(x: ArrayLike, y: ArrayLike) -> Value:
    """The remainder of division towards zero, with the sign of `x`; for integers over 0 it is 0."""
    a, b = numbers("fmod", x, y)
    left = prims.rem(a, b)
    if left.dtype.kind not in "iu" or (isinstance(y, int) and y):
        return left
    return prims.select(prims.equal(b, 0), 0, left)


def power(x: ArrayLike, y: ArrayLike) -> Value:
    """`x` to the power of `y`; a Python integer as exponent multiplies."""
    if isinstance(y, int) and not isinstance(y, bool):
        base = prims.operand("power", "x", x)
        if base.dtype.kind in "iu" and y < 0:
            prims.bad_value(
                f"power: integers have no negative integer powers, got {base.aval} ** {y}"
            )
        return special.integer_pow(prims.counted(base), y)
    return prims.pow(*numbers("power", x, y))


def square(x: ArrayLike) -> Value:
    """Each element times itself; bools as int32."""
    return prims.square(prims.counted(prims.operand("square", "x", x)))


def squared_size(x: Value) -> Value:
    """The square of each distance from zero; not by way of `abs`, whose second derivative at zero is zero."""
    if x.dtype.kind != "c":
        return prims.square(x)
    return prims.add(prims.square(prims.real(x)), prims.square(prims.imag(x)))


def left_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` shifted left by `y` bits."""
    return prims.shift_left(*numbers("left_shift", x, y))


def right_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` shifted right by `y` bits; the sign stays."""
    a, b = numbers("right_shift", x, y)
    logical = a.dtype.kind == "u"
    return (prims.shift_right_logical if logical else prims.shift_right_arithmetic)(a, b)


def matrix_transpose(x: ArrayLike) -> Value:
    """The last two axes swapped."""
    value = prims.operand("matrix_transpose", "x", x)
    if value.ndim < 2:
        prims.bad_value(f"matrix_transpose: expected at least two axes, got {value.aval}")
    n = value.ndim
    return prims.transpose(value, [*range(n - 2), n - 1, n - 2])


def astype(x: ArrayLike, dtype: Any) -> Value:
    """The same elements in another dtype; to bool, whether they differ from zero."""
    value = prims.operand("astype", "x", x)
    target = prims.canonical_dtype("astype", dtype)
    if target == np.bool_ != value.dtype:
        return prims.not_equal(value, 0)
    return prims.convert(value, target)


def keep_axes(x: Value, shape: ir.Shape, axes: Sequence[int]) -> Value:
    """A reduction's result with the axes that it combined kept, at size 1."""
    return prims.reshape(x, [1 if k in axes else d for k, d in enumerate(shape)])


def over_axes(
    fun: str, combine: Callable[..., Value], x: Value, axis: Any, keepdims: bool
) -> Value:
    """The elements over an axis, several, or all combined; with `keepdims` these axes are kept, at size 1."""
    axes = prims.canonical_axes(fun, axis, x.ndim)
    out = combine(x, axes)
    return keep_axes(out, x.shape, axes) if keepdims else out


def sum(x: ArrayLike, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum over `axis`, or over all; bools and narrow integers are summed as 32-bit ones."""
    return over_axes("sum", prims.reduce_sum, _widened("sum", x, dtype), axis, keepdims)


def prod(x: ArrayLike, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Value:
    """The product over `axis`, or over all; bools and narrow integers as 32-bit ones."""
    return over_axes("prod", prims.reduce_prod, _widened("prod", x, dtype), axis, keepdims)


def _widened(fun: str, x: ArrayLike, dtype: Any) -> Value:
    value = prims.operand(fun, "x", x)
    if dtype is not None:
        return prims.convert(value, dtype)
    if value.dtype.kind in "biu" and value.dtype.itemsize < 4:
        return prims.convert(value, np.uint32 if value.dtype.kind == "u" else np.int32)
    return value


def masked(fun: str, x: ArrayLike, where: ArrayLike | None, neutral: ArrayLike) -> Value:
    """The operand of a reduction, with a neutral element where `where` is false."""
    value = prims.operand(fun, "x", x)
    if where is None:
        return value
    held = prims.operand(fun, "where", where)
    if held.dtype != np.bool_:
        prims.bad_type(f"{fun}: expected `where` to hold bools, got {held.aval}")
    return prims.select(held, value, neutral)


def count(value: Value, axes: tuple[int, ...], keepdims: bool, where: ArrayLike | None) -> Any:
    """How many elements are reduced: a number, or an array of the dtype of `value` if `where` is given."""
    if where is None:
        return ir.size_of([value.shape[k] for k in axes])
    held = prims.broadcast_to(prims.to_condition(where), value.shape)
    return sum(prims.convert(held, value.dtype), axes, keepdims=keepdims)


def mean(
    x: ArrayLike,
    axis: Any = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Value:
    """The mean over `axis`, or over all; that of integers is float32."""
    (value,) = prims.promote("mean", x, inexact=True)
    value = value if dtype is None else prims.convert(value, dtype)
    axes = prims.canonical_axes("mean", axis, value.ndim)
    # The sum, and the count too, may be more than the half floats hold.
    wide = prims.convert(value, arrays.wide_for_sums(value.dtype))
    total = sum(masked("mean", wide, where, 0), axes, keepdims=keepdims)
    return prims.convert(prims.div(total, count(wide, axes, keepdims, where)), value.dtype)


def _extreme(fun: str, find: Any, worst: float, x: ArrayLike, axis: Any, keepdims: bool) -> Value:
    """The extreme, by `find`, of at least one element along the axes."""
    value = prims.operand(fun, "x", x)
    axes = prims.canonical_axes(fun, axis, value.ndim)
    if 0 in [value.shape[k] for k in axes]:
        prims.bad_value(f"{fun}: expected at least one element along axes {axes}, got {value.aval}")
    if value.dtype.kind == "c":
        find = partial(complex_order.over_axes, find, worst)
    return over_axes(fun, find, value, axes, keepdims)


def max(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The greatest element over `axis`, or over all."""
    return _extreme("max", prims.reduce_max, -np.inf, x, axis, keepdims)


def min(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The least element over `axis`, or over all."""
    return _extreme("min", prims.reduce_min, np.inf, x, axis, keepdims)


def all(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Whether all elements over `axis` are true."""
    return over_axes("all", prims.reduce_and, prims.operand("all", "x", x), axis, keepdims)


def any(x: ArrayLike, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Whether any element over `axis` is true."""
    return over_axes("any", prims.reduce_or, prims.operand("any", "x", x), axis, keepdims)


def argmax_method(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the first greatest element."""
    value = prims.operand("argmax", "x", x)
    return over_axes("argmax", lambda v, axes: prims.argmax(v, axis), value, axis, keepdims)


def argmin_method(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """The index of the first least element."""
    value = prims.operand("argmin", "x", x)
    return over_axes("argmin", lambda v, axes: prims.argmin(v, axis), value, axis, keepdims)


def unstack(x: Value) -> Iterator[Value]:
    """The slices along the first axis; while a function is traced, all at once."""
    if trace.is_concrete(x):
        return (x[i] for i in range(len(x)))
    return (prims.reshape(part, x.shape[1:]) for part in prims.split(x, (1,) * len(x)))


def _unreachable(x: Any, *new: Any) -> NoReturn:
    raise AssertionError("unreachable: an array is never changed")


rules.define_type(
    ir.ShapedArray,
    rules.TypeRules(
        zeros=prims.zeros_of,
        add=prims.add,
        getitem=index_ops.read_array,
        setitem=index_ops.refuse_write,
        buffer=lambda x: arrays.to_array(x).buffer,
        own_buffer=_unreachable,
        write_back=_unreachable,
        turn=_unreachable,
    ),
)

arrays.OPS.update(
    add=prims.add,
    subtract=prims.sub,
    multiply=prims.mul,
    divide=true_divide,
    floor_divide=floor_divide,
    remainder=remainder,
    power=power,
    matmul=prims.matmul,
    bitwise_and=prims.bitwise_and,
    bitwise_or=prims.bitwise_or,
    bitwise_xor=prims.bitwise_xor,
    bitwise_invert=prims.bitwise_not,
    left_shift=left_shift,
    right_shift=right_shift,
    less=prims.less,
    less_equal=prims.less_equal,
    greater=prims.greater,
    greater_equal=prims.greater_equal,
    equal=prims.equal,
    not_equal=prims.not_equal,
    negative=prims.neg,
    abs=prims.abs,
    unstack=unstack,
)
