"""Comparisons, logic and tests of elements."""

from __future__ import annotations

import math
from functools import partial

from fiveloop.core import ArrayLike, Value, arrays, ir, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import operators as op


@fused
def equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements are equal; NaN equals nothing.

    >>> fnp.equal(np.array([1, 2]), 2)
    Array([False,  True], dtype=bool)
    """
    return prims.equal(x, y)


@fused
def not_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements differ.

    >>> fnp.not_equal(np.array([1, 2]), 2)
    Array([ True, False], dtype=bool)
    """
    return prims.not_equal(x, y)


@fused
def less(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are below those of `y`.

    >>> fnp.less(np.array([1, 2]), 2)
    Array([ True, False], dtype=bool)
    """
    return complex_order.less(x, y)


@fused
def less_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are not above those of `y`.

    >>> fnp.less_equal(np.array([1, 2]), 1)
    Array([ True, False], dtype=bool)
    """
    return complex_order.less_equal(x, y)


@fused
def greater(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are above those of `y`.

    >>> fnp.greater(np.array([1, 2]), 1)
    Array([False,  True], dtype=bool)
    """
    return complex_order.greater(x, y)


@fused
def greater_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether elements of `x` are not below those of `y`.

    >>> fnp.greater_equal(np.array([1, 2]), 2)
    Array([False,  True], dtype=bool)
    """
    return complex_order.greater_equal(x, y)


@fused
def logical_and(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether both elements are true; a number is true if it is not zero.

    >>> fnp.logical_and(np.array([0, 2]), True)
    Array([False,  True], dtype=bool)
    """
    return prims.bitwise_and(_truth("logical_and", x), _truth("logical_and", y))


@fused
def logical_or(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether either element is true; a number is true if it is not zero.

    >>> fnp.logical_or(np.array([0, 2]), False)
    Array([False,  True], dtype=bool)
    """
    return prims.bitwise_or(_truth("logical_or", x), _truth("logical_or", y))


@fused
def logical_xor(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether exactly one element is true; a number is true if it is not zero.

    >>> fnp.logical_xor(np.array([0, 2]), True)
    Array([ True, False], dtype=bool)
    """
    return prims.bitwise_xor(_truth("logical_xor", x), _truth("logical_xor", y))


@fused
def logical_not(x: ArrayLike) -> Value:
    """Whether each element is false; a number is false if it is zero.

    >>> fnp.logical_not(np.array([0, 2]))
    Array([ True, False], dtype=bool)
    """
    return prims.bitwise_not(_truth("logical_not", x))


@fused
def bitwise_and(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits that both integers have.

    >>> fnp.bitwise_and(6, 3)
    Array(2, dtype=int32, weak_type=True)
    """
    return prims.bitwise_and(x, y)


@fused
def bitwise_or(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits that either integer has.

    >>> fnp.bitwise_or(6, 3)
    Array(7, dtype=int32, weak_type=True)
    """
    return prims.bitwise_or(x, y)


@fused
def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits that exactly one integer has.

    >>> fnp.bitwise_xor(6, 3)
    Array(5, dtype=int32, weak_type=True)
    """
    return prims.bitwise_xor(x, y)


@fused
def bitwise_invert(x: ArrayLike) -> Value:
    """All bits of each integer inverted.

    >>> fnp.bitwise_invert(np.array([0, 5]))
    Array([-1, -6], dtype=int64)
    """
    return prims.bitwise_not(x)


@fused
def left_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` shifted left by `y` bits.

    >>> fnp.left_shift(3, 2)
    Array(12, dtype=int32, weak_type=True)
    """
    return op.left_shift(x, y)


@fused
def right_shift(x: ArrayLike, y: ArrayLike) -> Value:
    """The bits of `x` shifted right by `y` bits; the sign stays.

    >>> fnp.right_shift(np.array([-8, 8]), 1)
    Array([-4,  4], dtype=int64)
    """
    return op.right_shift(x, y)


@fused
def isnan(x: ArrayLike) -> Value:
    """Whether each element is NaN.

    >>> fnp.isnan(np.array([1.0, np.nan]))
    Array([False,  True], dtype=bool)
    """
    value = prims.operand("isnan", "x", x)
    return prims.is_nan(value)


@fused
def isinf(x: ArrayLike) -> Value:
    """Whether each element is infinite.

    >>> fnp.isinf(np.array([1.0, -np.inf]))
    Array([False,  True], dtype=bool)
    """
    value = prims.operand("isinf", "x", x)
    if arrays.dtype_kind(value.dtype) == "c":
        return prims.bitwise_or(isinf(prims.real(value)), isinf(prims.imag(value)))
    if arrays.dtype_kind(value.dtype) != "f":
        return prims.not_equal(value, value)
    return prims.equal(prims.abs(value), math.inf)


@fused
def isfinite(x: ArrayLike) -> Value:
    """Whether each element is neither infinite nor NaN.

    >>> fnp.isfinite(np.array([1.0, np.inf, np.nan]))
    Array([ True, False, False], dtype=bool)
    """
    value = prims.operand("isfinite", "x", x)
    if arrays.dtype_kind(value.dtype) == "c":
        return prims.bitwise_and(isfinite(prims.real(value)), isfinite(prims.imag(value)))
    return (
        prims.is_finite(value)
        if arrays.dtype_kind(value.dtype) == "f"
        else prims.equal(value, value)
    )


@partial(fused, numbers="operands")
def isin(element: ArrayLike, test_elements: ArrayLike, *, invert: bool = False) -> Value:
    """Whether each element is equal to some test element; each is compared with each. `invert` negates the result.

    >>> fnp.isin(np.array([1, 2, 3]), np.array([3, 1]))
    Array([ True, False,  True], dtype=bool)
    """
    value, tests = prims.promote("isin", element, test_elements)
    pairs = prims.equal(prims.expand_dims(value, value.ndim), prims.reshape(tests, (tests.size,)))
    found = prims.reduce_or(pairs, value.ndim)
    return prims.bitwise_not(found) if invert else found


@partial(fused, numbers="operands")
def isclose(
    x: ArrayLike, y: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """Whether `abs(x - y) <= atol + rtol * abs(y)`; equal infinities are close.

    >>> fnp.isclose(1.0, 1.0 + 1e-6)
    Array(True, dtype=bool)
    """
    a, b = prims.promote("isclose", x, y, inexact=True)
    near = prims.less_equal(
        prims.abs(prims.sub(a, b)), prims.add(atol, prims.mul(rtol, prims.abs(b)))
    )
    out = prims.bitwise_or(prims.equal(a, b), prims.bitwise_and(near, isfinite(b)))
    return prims.bitwise_or(out, prims.bitwise_and(isnan(a), isnan(b))) if equal_nan else out


@partial(fused, numbers="operands")
def allclose(
    x: ArrayLike, y: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """Whether all pairs of elements are close, as one bool without axes.

    >>> fnp.allclose(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-7]))
    Array(True, dtype=bool)
    """
    return op.all(isclose(x, y, rtol, atol, equal_nan))


@fused
def array_equal(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether two arrays have one shape and equal elements, as one bool without axes.

    >>> fnp.array_equal(np.array([1, 2]), np.array([1, 2]))
    Array(True, dtype=bool)
    """
    a, b = prims.operand("array_equal", "x", x), prims.operand("array_equal", "y", y)
    return op.all(prims.equal(a, b)) if a.shape == b.shape else arrays.as_value(False)


@fused
def array_equiv(x: ArrayLike, y: ArrayLike) -> Value:
    """Whether two arrays broadcast to each other and are equal then, as one bool without axes.

    >>> fnp.array_equiv(np.array([1, 1]), 1)
    Array(True, dtype=bool)
    """
    a, b = prims.operand("array_equiv", "x", x), prims.operand("array_equiv", "y", y)
    fit = ir.broadcast_shapes(a.shape, b.shape) is not None
    return op.all(prims.equal(a, b)) if fit else arrays.as_value(False)


def _truth(fun: str, x: ArrayLike) -> Value:
    return prims.to_condition(prims.operand(fun, "x", x))
