"""NumPy's order of complex numbers: by real parts, then by imaginary parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fiveloop.core import prims
from fiveloop.core.arrays import ArrayLike, Value

Binary = Callable[[ArrayLike, ArrayLike], Value]


def is_complex(x: Any) -> bool:
    """Whether an argument is a complex number, or an array of them."""
    if isinstance(x, complex):
        return True
    return getattr(getattr(x, "dtype", None), "kind", "") == "c"


def _compare(plain: Binary, strict: Binary) -> Binary:
    """A comparison of numbers of any dtype; `strict` compares real parts that differ."""

    def compare(x: ArrayLike, y: ArrayLike) -> Value:
        if not (is_complex(x) or is_complex(y)):
            return plain(x, y)
        a, b = prims.promote(plain.__name__, x, y)
        first, second = (prims.real(a), prims.real(b)), (prims.imag(a), prims.imag(b))
        tied = prims.bitwise_and(prims.equal(*first), plain(*second))
        # A real part decides only where both imaginary parts are numbers.
        known = prims.bitwise_not(
            prims.bitwise_or(prims.is_nan(second[0]), prims.is_nan(second[1]))
        )
        return prims.bitwise_or(prims.bitwise_and(strict(*first), known), tied)

    return compare


less = _compare(prims.less, prims.less)
less_equal = _compare(prims.less_equal, prims.less)
greater = _compare(prims.greater, prims.greater)
greater_equal = _compare(prims.greater_equal, prims.greater)


def maximum(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of two elements; NaN wins."""
    return _extreme(prims.maximum, greater_equal, x, y)


def minimum(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of two elements; NaN wins."""
    return _extreme(prims.minimum, less_equal, x, y)


def _extreme(plain: Binary, wins: Binary, x: ArrayLike, y: ArrayLike) -> Value:
    if not (is_complex(x) or is_complex(y)):
        return plain(x, y)
    a, b = prims.promote(plain.__name__, x, y)
    return prims.select(prims.bitwise_or(prims.is_nan(a), wins(a, b)), a, b)


def over_axes(find: Any, worst: float, x: Value, axes: tuple[int, ...]) -> Value:
    """The greatest or least complex number over axes, as `find` finds it; NaN in both parts if there is one."""
    re, im = prims.real(x), prims.imag(x)
    best = find(re, axes)
    tied = prims.equal(re, prims.restore_axes(best, x.shape, axes))
    out = prims.complex(best, find(prims.select(tied, im, worst), axes))
    missing = prims.reduce_or(prims.is_nan(x), axes)
    return prims.select(missing, complex(math.nan, math.nan), out)
