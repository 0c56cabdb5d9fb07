"""References of the elementwise primitives; what NumPy lacks is computed from Python's own `math`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from fiveloop.testing.core.oracle import define_reference

_Array = np.ndarray[Any, Any]
_Function = Callable[..., Any]


@cache
def _narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("float16", "bfloat16")


def widened(fn: _Function, *xs: _Array) -> _Array:
    """A function of arrays of one dtype, computed in float32 for half floats, in that dtype otherwise."""
    dtype = xs[0].dtype
    if _narrow(dtype):
        return np.asarray(np.asarray(fn(*[x.astype(np.float32) for x in xs])).astype(dtype))
    return np.asarray(fn(*xs)).astype(dtype, copy=False)


def _define(name: str, fn: _Function) -> None:
    define_reference(name, lambda values, p: [widened(fn, *values)])


def _define_test(name: str, fn: _Function) -> None:
    """A primitive whose results are bools."""
    define_reference(name, lambda values, p: [np.asarray(fn(*values), np.bool_)])


def _by_math(fn: Callable[[float], float]) -> _Function:
    """A function of one float, applied to each element in double precision."""
    return lambda x: np.vectorize(fn, otypes=[np.float64])(np.asarray(x, np.float64))


def _erf_inv(x: float) -> float:
    if abs(x) >= 1.0:
        return math.copysign(math.inf, x) if abs(x) == 1.0 else math.nan
    y = statistics.NormalDist().inv_cdf((x + 1.0) / 2.0) / math.sqrt(2.0)
    for _ in range(3):  # Newton's steps make up for the cancellation in x + 1
        y -= (math.erf(y) - x) * math.sqrt(math.pi) / 2.0 * math.exp(y * y)
    return y


def _lgamma(x: float) -> float:
    if x == math.floor(x) and x <= 0.0:
        return math.inf
    return math.lgamma(x)


def _digamma(x: float) -> float:
    if math.isnan(x) or (x == math.floor(x) and x <= 0.0):
        return math.nan
    if x < 0.5:
        return _digamma(1.0 - x) - math.pi / math.tan(math.pi * x)
    shift = 0.0
    while x < 10.0:
        shift -= 1.0 / x
        x += 1.0
    s = 1.0 / (x * x)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s / 132))))
    return shift + math.log(x) - 0.5 / x - series


def _polygamma(n: float, x: float) -> float:
    """The n-th derivative of digamma, by its series, the tail by Euler and Maclaurin."""
    if n == 0:
        return _digamma(x)
    s, total = n + 1.0, 0.0
    while x < 20.0:
        total += x**-s
        x += 1.0
    total += x ** (1.0 - s) / (s - 1.0) + 0.5 * x**-s
    term = s * x ** (-s - 1.0)
    for k, bernoulli in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66), start=1):
        total += bernoulli * term / math.factorial(2 * k)
        term *= (s + 2 * k - 1) * (s + 2 * k) / (x * x)
    return math.copysign(math.gamma(n + 1.0) * total, -1.0 if n % 2 == 0 else 1.0)


def _by_math2(fn: Callable[[float, float], float]) -> _Function:
    return lambda x, y: np.vectorize(fn, otypes=[np.float64])(x.astype(float), y.astype(float))


def _rounded_to(values: Sequence[_Array], p: Any) -> list[_Array]:
    """Rounded to a narrower float: overflow gives infinity, what is subnormal there gives zero."""
    (x,) = values
    bias = 2 ** (p.exponent_bits - 1) - 1
    mantissa, exponent = np.frexp(x.astype(np.float64))
    scale = 2.0 ** (p.mantissa_bits + 1)
    out = np.ldexp(np.round(mantissa * scale) / scale, exponent)
    largest = (2.0 - 2.0**-p.mantissa_bits) * 2.0**bias
    out = np.where(np.abs(out) > largest, np.copysign(np.inf, x), out)
    out = np.where(np.abs(out) < 2.0 ** (1 - bias), np.copysign(0.0, x), out)
    return [np.where(np.isfinite(x), out, x).astype(x.dtype)]


def _quotient(x: _Array, y: _Array) -> Any:
    """Division; of integers, toward zero."""
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    q = np.abs(x.astype(object)) // np.abs(np.where(y == 0, 1, y).astype(object))
    signed = np.where((x < 0) != (y < 0), -q, q)
    return _wrapped(np.where(y == 0, -1, signed), x.dtype)


def _remainder(x: _Array, y: _Array) -> Any:
    """The remainder of `_quotient`: it has the sign of the dividend."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    r = np.abs(x.astype(object)) % np.abs(np.where(y == 0, 1, y).astype(object))
    return _wrapped(np.where(y == 0, x.astype(object), np.where(x < 0, -r, r)), x.dtype)


def _wrapped(x: Any, dtype: np.dtype[Any]) -> _Array:
    """Python integers cut to the bits of a dtype."""
    bits = dtype.itemsize * 8
    signed = dtype.kind == "i"

    def cut(i: int) -> int:
        i &= (1 << bits) - 1
        return i - (1 << bits) if signed and i >> (bits - 1) else i

    flat = [cut(int(i)) for i in np.asarray(x, object).reshape(-1)]
    return np.asarray(flat, dtype).reshape(np.shape(x))


def _int_power(x: _Array, y: _Array) -> _Array:
    shape = np.broadcast_shapes(x.shape, y.shape)
    pairs = zip(
        np.broadcast_to(x, shape).reshape(-1), np.broadcast_to(y, shape).reshape(-1), strict=True
    )
    out = [_one_int_power(int(a), int(b)) for a, b in pairs]
    return _wrapped(np.asarray(out, object).reshape(shape), x.dtype)


def _one_int_power(a: int, b: int) -> int:
    if b >= 0:
        return int(a**b)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def _power(x: _Array, y: _Array) -> Any:
    return _int_power(x, y) if x.dtype.kind in "iu" else np.power(x, y)


def _integer_power(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    if x.dtype.kind in "iu":
        return [_int_power(x, np.asarray(p.y, np.int64))]
    return [widened(lambda v: v ** np.asarray(p.y, v.dtype), x)]


def _shift(values: Sequence[_Array], left: bool, arithmetic: bool) -> _Array:
    x, by = values
    bits = x.dtype.itemsize * 8
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    amounts = by.astype(np.int64) if by.dtype.itemsize < 8 else by
    inside = (amounts >= 0) & (amounts < bits)
    safe = np.where(inside, amounts, 0).astype(unsigned)
    if arithmetic and x.dtype.kind == "i":
        return np.where(inside, x >> safe.astype(x.dtype), np.where(x < 0, -1, 0)).astype(x.dtype)
    raw = x.astype(unsigned)
    moved = raw << safe if left else raw >> safe
    return np.where(inside, moved, 0).astype(unsigned).astype(x.dtype)


def _sign(x: _Array) -> Any:
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    return np.where(x == 0, x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)


def _logistic(x: _Array) -> Any:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    return np.where(
        x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))
    )


def _nan_max(x: _Array, y: _Array) -> Any:
    return np.logical_or(x, y) if x.dtype == np.bool_ else np.maximum(x, y)


def _nan_min(x: _Array, y: _Array) -> Any:
    return np.logical_and(x, y) if x.dtype == np.bool_ else np.minimum(x, y)


def _select(values: Sequence[_Array], p: Any) -> list[_Array]:
    pred, on_true, on_false = values
    return [np.where(pred, on_true, on_false).astype(on_true.dtype)]


def _clamp(values: Sequence[_Array], p: Any) -> list[_Array]:
    low, x, high = values
    return [widened(lambda a, b, c: np.minimum(np.maximum(b, a), c), low, x, high)]


def converted(x: _Array, dtype: np.dtype[Any]) -> _Array:
    """Elements in another dtype: floats too great for an integer dtype become its extremes, NaN 0."""
    if dtype == np.bool_:
        return np.asarray(x != 0)
    if x.dtype.kind in "iub" or dtype.kind not in "iu":
        real = x.real if x.dtype.kind == "c" and dtype.kind != "c" else x
        return real.astype(dtype)
    info = np.iinfo(dtype)
    whole = [0 if math.isnan(v) else _cut(v, info.min, info.max) for v in np.ravel(x.astype(float))]
    return np.asarray(whole, dtype).reshape(x.shape)


def _cut(v: float, low: int, high: int) -> int:
    return low if v <= low else high if v >= high else int(v)


def _convert(values: Sequence[_Array], p: Any) -> list[_Array]:
    return [converted(values[0], np.dtype(p.dtype))]


def _bitcast(values: Sequence[_Array], p: Any) -> list[_Array]:
    (x,) = values
    new = np.dtype(p.dtype)
    x = np.ascontiguousarray(x)
    if new.itemsize == x.dtype.itemsize:
        return [x.view(new).reshape(x.shape)]
    if new.itemsize < x.dtype.itemsize:
        return [x.reshape(*x.shape, 1).view(new)]
    return [x.view(new).reshape(x.shape[:-1])]


def _popcount(x: _Array) -> Any:
    mask = (1 << (x.dtype.itemsize * 8)) - 1
    return np.vectorize(lambda i: (int(i) & mask).bit_count(), otypes=[x.dtype])(x)


def _leading_zeros(x: _Array) -> Any:
    bits = x.dtype.itemsize * 8
    mask = (1 << bits) - 1
    return np.vectorize(lambda i: bits - (int(i) & mask).bit_length(), otypes=[x.dtype])(x)


_SAME_DTYPE: dict[str, _Function] = {
    "neg": np.negative,
    "sign": _sign,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "square": np.square,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "logistic": _logistic,
    "erf": _by_math(math.erf),
    "erfc": _by_math(math.erfc),
    "erf_inv": _by_math(_erf_inv),
    "lgamma": _by_math(_lgamma),
    "digamma": _by_math(_digamma),
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.round,
    "bitwise_not": np.invert,
    "conj": np.conj,
    "population_count": _popcount,
    "count_leading_zeros": _leading_zeros,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "rem": _remainder,
    "floor_div": lambda x, y: np.where(y == 0, 0, np.floor_divide(x, np.where(y == 0, 1, y))),
    "mod": lambda x, y: np.where(y == 0, 0, np.remainder(x, np.where(y == 0, 1, y))),
    "pow": _power,
    "maximum": _nan_max,
    "minimum": _nan_min,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "polygamma": _by_math2(_polygamma),
    "stop_gradient": lambda x: x,
    "nextafter": np.nextafter,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
_TESTS: dict[str, _Function] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "is_finite": np.isfinite,
}

for _name, _fn in _SAME_DTYPE.items():
    _define(_name, _fn)
for _name, _fn in _TESTS.items():
    _define_test(_name, _fn)
define_reference("abs", lambda values, p: [np.abs(values[0])])
define_reference("real", lambda values, p: [np.ascontiguousarray(values[0].real)])
define_reference("imag", lambda values, p: [np.ascontiguousarray(values[0].imag)])
define_reference(
    "complex",
    lambda values, p: [(values[0] + 1j * values[1]).astype(f"c{values[0].dtype.itemsize * 2}")],
)
define_reference("shift_left", lambda values, p: [_shift(values, True, False)])
define_reference("shift_right_logical", lambda values, p: [_shift(values, False, False)])
define_reference("shift_right_arithmetic", lambda values, p: [_shift(values, False, True)])
define_reference("integer_pow", _integer_power)
define_reference("select", _select)
define_reference("clamp", _clamp)
define_reference("convert", _convert)
define_reference("bitcast_convert", _bitcast)
define_reference("reduce_precision", _rounded_to)
