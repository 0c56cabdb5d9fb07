"""StableHLO operations that work element by element.

Some names here (`abs`, `max`, `min`, `pow`, `complex`) hide Python's own in this file; elsewhere
import the module `hlo` and write `hlo.max`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from .hlo_builder import Builder, IRValue, constant, generic, tensor_type

BOOL = np.dtype(np.bool_)


Unary: TypeAlias = Callable[[Builder, IRValue], IRValue]
"""Writes an operation with one operand, and gives its result."""


class Binary(Protocol):
    """Writes an operation with two operands of one type, which StableHLO calls `__name__`."""

    __name__: str

    def __call__(self, b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        """Append the operation and return its result."""


def _unary(name: str) -> Unary:
    def write(b: Builder, x: IRValue, /) -> IRValue:
        return b.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def _chlo(name: str) -> Unary:
    def write(b: Builder, x: IRValue, /) -> IRValue:
        return b.emit(f"chlo.{name} {x.name} : {x.type} -> {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def _chlo_binary(name: str) -> Binary:
    def write(b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        return generic(b, f"chlo.{name}", [x, y], [(x.shape, x.dtype)])[0]

    write.__name__ = name
    return write


def _real_part(name: str) -> Unary:
    """`abs`, `real`, `imag`: complex numbers give reals."""

    def write(b: Builder, x: IRValue, /) -> IRValue:
        if x.dtype.kind != "c":
            return b.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.dtype)
        dtype = real_dtype(x.dtype)
        out = tensor_type(x.shape, dtype)
        return b.emit(f"stablehlo.{name} {x.name} : ({x.type}) -> {out}", x.shape, dtype)

    write.__name__ = name
    return write


def _binary(name: str) -> Binary:
    def write(b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        require_same_type(name, x, y)
        return b.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part of a complex dtype."""
    return np.dtype(np.float32 if dtype == np.complex64 else np.float64)


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose parts have this dtype."""
    return np.dtype(np.complex64 if dtype == np.float32 else np.complex128)


def require_same_type(op: str, x: IRValue, y: IRValue) -> None:
    """Operands of one type, or an error that names both."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise TypeError(f"hlo {op}: expected operands of one type, got {x.type} and {y.type}")


real = _real_part("real")
imag = _real_part("imag")
neg = _unary("negate")
exp = _unary("exponential")
expm1 = _unary("exponential_minus_one")
log = _unary("log")
log1p = _unary("log_plus_one")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
cbrt = _unary("cbrt")
tanh = _unary("tanh")
sin = sine = _unary("sine")
cos = cosine = _unary("cosine")
tan = _unary("tan")
logistic = _unary("logistic")
ceil = _unary("ceil")
floor = _unary("floor")
round_nearest_even = _unary("round_nearest_even")
round_nearest_afz = _unary("round_nearest_afz")
not_ = _unary("not")
popcnt = _unary("popcnt")
count_leading_zeros = _unary("count_leading_zeros")

erf = _chlo("erf")
erfc = _chlo("erfc")
erf_inv = _chlo("erf_inv")
lgamma = _chlo("lgamma")
digamma = _chlo("digamma")
next_after = _chlo_binary("next_after")
polygamma = _chlo_binary("polygamma")
asin = _chlo("asin")
acos = _chlo("acos")
atan = _chlo("atan")
sinh = _chlo("sinh")
cosh = _chlo("cosh")
asinh = _chlo("asinh")
acosh = _chlo("acosh")
atanh = _chlo("atanh")

add = _binary("add")
sub = _binary("subtract")
mul = _binary("multiply")
div = _binary("divide")
rem = _binary("remainder")
pow = _binary("power")
max = _binary("maximum")
min = _binary("minimum")
atan2 = _binary("atan2")
and_ = _binary("and")
or_ = _binary("or")
xor = _binary("xor")
shift_left = _binary("shift_left")
shift_right_logical = _binary("shift_right_logical")
shift_right_arithmetic = _binary("shift_right_arithmetic")


_abs = _real_part("abs")
_sign = _unary("sign")


def abs(b: Builder, x: IRValue) -> IRValue:
    """The magnitude; that of a complex number is real."""
    return x if x.dtype.kind in "ub" else _abs(b, x)


def sign(b: Builder, x: IRValue) -> IRValue:
    """-1, 0 or 1; a complex number gives itself divided by its magnitude."""
    return min(b, x, constant(b, 1, x.shape, x.dtype)) if x.dtype.kind in "ub" else _sign(b, x)


def is_finite(b: Builder, x: IRValue) -> IRValue:
    """True where a float is neither infinite nor NaN."""
    out = tensor_type(x.shape, BOOL)
    return b.emit(f"stablehlo.is_finite {x.name} : ({x.type}) -> {out}", x.shape, BOOL)


def complex(b: Builder, re: IRValue, im: IRValue) -> IRValue:
    """A complex array from its real and imaginary parts."""
    require_same_type("complex", re, im)
    dtype = complex_dtype(re.dtype)
    out = tensor_type(re.shape, dtype)
    return b.emit(f"stablehlo.complex {re.name}, {im.name} : {out}", re.shape, dtype)


def compare(
    b: Builder, x: IRValue, y: IRValue, direction: str, total_order: bool = False
) -> IRValue:
    """Compare as `direction` says (EQ NE LT LE GT GE); `total_order` also orders NaN and zeros."""
    require_same_type("compare", x, y)
    if x.dtype.kind in "ub":
        kind = "UNSIGNED"
    elif x.dtype.kind == "i":
        kind = "SIGNED"
    else:
        kind = "TOTALORDER" if total_order else "FLOAT"
    out = tensor_type(x.shape, BOOL)
    text = f"stablehlo.compare {direction}, {x.name}, {y.name}, {kind}"
    return b.emit(f"{text} : ({x.type}, {y.type}) -> {out}", x.shape, BOOL)


def select(b: Builder, pred: IRValue, on_true: IRValue, on_false: IRValue) -> IRValue:
    """Elements of `on_true` where `pred` holds, else of `on_false`; `pred` may be a scalar."""
    require_same_type("select", on_true, on_false)
    text = f"stablehlo.select {pred.name}, {on_true.name}, {on_false.name}"
    return b.emit(f"{text} : {pred.type}, {on_true.type}", on_true.shape, on_true.dtype)


def clamp(b: Builder, low: IRValue, x: IRValue, high: IRValue) -> IRValue:
    """`x` held between `low` and `high`, which may be scalars."""
    text = f"stablehlo.clamp {low.name}, {x.name}, {high.name}"
    signature = f"({low.type}, {x.type}, {high.type}) -> {x.type}"
    return b.emit(f"{text} : {signature}", x.shape, x.dtype)


def convert(b: Builder, x: IRValue, dtype: DTypeLike) -> IRValue:
    """`x` in another dtype; complex to real keeps the real part."""
    out = np.dtype(dtype)
    if out == x.dtype:
        return x
    if x.dtype.kind == "c" and out.kind != "c":
        return convert(b, real(b, x), out)
    text = f"stablehlo.convert {x.name} : ({x.type}) -> {tensor_type(x.shape, out)}"
    return b.emit(text, x.shape, out)


def bitcast_convert(b: Builder, x: IRValue, dtype: DTypeLike) -> IRValue:
    """The bits of `x` read as another dtype; a width ratio adds or removes a last axis."""
    out = np.dtype(dtype)
    shape = x.shape
    if x.dtype.itemsize > out.itemsize:
        shape = (*shape, x.dtype.itemsize // out.itemsize)
    elif x.dtype.itemsize < out.itemsize:
        if not shape or shape[-1] * x.dtype.itemsize != out.itemsize:
            raise TypeError(f"hlo bitcast_convert: the last axis of {x.type} does not fill {out}")
        shape = shape[:-1]
    text = f"stablehlo.bitcast_convert {x.name} : ({x.type}) -> {tensor_type(shape, out)}"
    return b.emit(text, shape, out)


COMBINERS: dict[str, Binary] = {
    "add": add,
    "mul": mul,
    "max": max,
    "min": min,
    "and": and_,
    "or": or_,
}
"""How reductions, scatters and accumulations combine two elements."""

_finfo: Any = ml_dtypes.finfo  # NumPy's own does not know the 8-bit floats


def identity(kind: str, dtype: np.dtype) -> np.ndarray:
    """The element that leaves any other unchanged under the reduction `kind`."""
    match kind:
        case "add" | "or":
            value: object = 0
        case "mul":
            value = 1
        case "and":
            value = True if dtype == np.bool_ else np.array(-1).astype(dtype)
        case "max":
            value = _extreme(dtype, low=True)
        case "min":
            value = _extreme(dtype, low=False)
        case _:
            known = ", ".join(COMBINERS)
            raise ValueError(f"expected a reduction among {known}, got {kind!r}")
    return np.asarray(value).astype(dtype)


def _extreme(dtype: np.dtype, low: bool) -> object:
    """The least or greatest value; a float without infinities gives its largest finite one."""
    if dtype == np.bool_:
        return not low
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if low else info.max
    infinity = np.asarray(-np.inf if low else np.inf).astype(dtype)
    if np.isinf(infinity):
        return infinity
    finite = _finfo(dtype)
    return finite.min if low else finite.max
