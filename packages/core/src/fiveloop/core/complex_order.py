"""The order of numbers as NumPy has it, complex ones too: by their real parts, then by their imaginary ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives.broadcast import restore_axes
from fiveloop.core.primitives.convert import promote
from fiveloop.core.primitives.reduce import reduce_max, reduce_min, reduce_or

Binary = Callable[[ArrayLike, ArrayLike], Value]


def is_complex(x: Any) -> bool:
    """Whether an argument is a complex number, or an array of them."""
    if isinstance(x, complex):
        return True
    return getattr(getattr(x, "dtype", None), "kind", "") == "c"


def _compare(plain: Binary, strict: Binary) -> Binary:
    """A comparison of numbers of any dtype; `strict` is that of real parts that decide."""

    def compare(x: ArrayLike, y: ArrayLike) -> Value:
        if not (is_complex(x) or is_complex(y)):
            return plain(x, y)
        a, b = promote(plain.__name__, x, y)
        first, second = (ew.real(a), ew.real(b)), (ew.imag(a), ew.imag(b))
        tied = ew.bitwise_and(ew.equal(*first), plain(*second))
        # A real part decides only where both imaginary parts are numbers.
        known = ew.bitwise_not(ew.bitwise_or(ew.is_nan(second[0]), ew.is_nan(second[1])))
        return ew.bitwise_or(ew.bitwise_and(strict(*first), known), tied)

    return compare


less = _compare(ew.less, ew.less)
less_equal = _compare(ew.less_equal, ew.less)
greater = _compare(ew.greater, ew.greater)
greater_equal = _compare(ew.greater_equal, ew.greater)


def maximum(x: ArrayLike, y: ArrayLike) -> Value:
    """The greater of two elements; NaN wins."""
    return _extreme(ew.maximum, greater_equal, x, y)


def minimum(x: ArrayLike, y: ArrayLike) -> Value:
    """The lesser of two elements; NaN wins."""
    return _extreme(ew.minimum, less_equal, x, y)


def _extreme(plain: Binary, wins: Binary, x: ArrayLike, y: ArrayLike) -> Value:
    if not (is_complex(x) or is_complex(y)):
        return plain(x, y)
    a, b = promote(plain.__name__, x, y)
    return ew.select(ew.bitwise_or(ew.is_nan(a), wins(a, b)), a, b)


def complex_max(x: Value, axes: tuple[int, ...]) -> Value:
    """The greatest complex number over axes; NaN in both parts if there is one."""
    return _over(x, axes, reduce_max, -math.inf)


def complex_min(x: Value, axes: tuple[int, ...]) -> Value:
    """The least complex number over axes; NaN in both parts if there is one."""
    return _over(x, axes, reduce_min, math.inf)


def _over(x: Value, axes: tuple[int, ...], find: Any, worst: float) -> Value:
    re, im = ew.real(x), ew.imag(x)
    best = find(re, axes)
    tied = ew.equal(re, restore_axes(best, x.shape, axes))
    out = ew.complex(best, find(ew.select(tied, im, worst), axes))
    missing = reduce_or(ew.is_nan(x), axes)
    return ew.select(missing, complex(math.nan, math.nan), out)
