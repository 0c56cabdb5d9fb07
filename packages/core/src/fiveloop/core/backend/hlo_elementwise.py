"""StableHLO operations element by element of which those on arrays are made: arithmetic, comparisons, choices.

Some names here (`max`, `min`) hide Python's own in this file; elsewhere import the module `hlo` and write `hlo.max`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from .hlo_builder import Builder, IRValue, names

BOOL = np.dtype(np.bool_)

Unary: TypeAlias = Callable[[Builder, IRValue], IRValue]
"""Writes an operation with one operand, and gives its result."""


class Binary(Protocol):
    """Writes an operation with two operands of one type, which StableHLO calls `__name__`."""

    __name__: str

    def __call__(self, b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        """Append the operation and return its result."""


def unary(name: str) -> Unary:
    """StableHLO's operation `name` of one operand."""

    def write(b: Builder, x: IRValue, /) -> IRValue:
        return b.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def real_part(name: str) -> Unary:
    """`abs`, `real`, `imag`: complex numbers give reals."""

    def write(b: Builder, x: IRValue, /) -> IRValue:
        if x.dtype.kind != "c":
            return b.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.dtype)
        return b.emit_typed(f"stablehlo.{name} {x.name}", [x], x.shape, real_dtype(x.dtype))

    write.__name__ = name
    return write


def binary(name: str) -> Binary:
    """StableHLO's operation `name` of two operands of the same type."""

    def write(b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        require_same_type(name, x, y)
        return b.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part of a complex dtype."""
    return np.dtype(np.float32 if dtype == np.complex64 else np.float64)


def require_same_type(op: str, x: IRValue, y: IRValue) -> None:
    """Operands of the same type, or an error that names both types."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise TypeError(f"hlo {op}: expected operands of one type, got {x.type} and {y.type}")


real = real_part("real")
imag = real_part("imag")
neg = unary("negate")

add = binary("add")
sub = binary("subtract")
mul = binary("multiply")
max = binary("maximum")
min = binary("minimum")
and_ = binary("and")
or_ = binary("or")


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
    text = f"stablehlo.compare {direction}, {x.name}, {y.name}, {kind}"
    return b.emit_typed(text, [x, y], x.shape, BOOL)


def select(b: Builder, pred: IRValue, on_true: IRValue, on_false: IRValue) -> IRValue:
    """Elements of `on_true` where `pred` holds, else of `on_false`; `pred` may be a scalar."""
    require_same_type("select", on_true, on_false)
    text = f"stablehlo.select {pred.name}, {on_true.name}, {on_false.name}"
    return b.emit(f"{text} : {pred.type}, {on_true.type}", on_true.shape, on_true.dtype)


def clamp(b: Builder, low: IRValue, x: IRValue, high: IRValue) -> IRValue:
    """`x` limited to the range from `low` to `high`, which may be scalars."""
    operands = [low, x, high]
    return b.emit_typed(f"stablehlo.clamp {names(operands)}", operands, x.shape, x.dtype)


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
