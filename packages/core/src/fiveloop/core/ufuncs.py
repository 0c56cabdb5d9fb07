"""NumPy's functions of elements on our values: `np.sin(x)` is our `sin(x)`, `ndarray + x` our sum, traced or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fiveloop.core import complex_order
from fiveloop.core import methods as me
from fiveloop.core import operators as op
from fiveloop.core.array import OPS, Value, as_value
from fiveloop.core.errors import ConcretizationError, at_source
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.check import bad_type
from fiveloop.core.primitives.convert import operand, promote
from fiveloop.core.primitives.dot import matmul
from fiveloop.core.trace.tracer import Tracer, current_source

Function = Callable[..., Any]


def apply(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What NumPy asks of us where one of our values meets one of its functions."""
    out = kwargs.pop("out", None)
    if out is not None and any(o is not None for o in out):
        return _into(ufunc, method, inputs, out, kwargs)
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if method == "reduce" and ufunc in REDUCTIONS:
        return _reduced(ufunc, name, *inputs, **kwargs)
    if method != "__call__" or ufunc not in FUNCTIONS:
        bad_type(
            f"{name}: core has no operation of that meaning for arrays of its own; use that of fiveloop.numpy, or "
            "outside of traced functions a NumPy array, `np.asarray(x)`"
        )
    if kwargs:
        bad_type(
            f"{name}: expected no `{next(iter(kwargs))}` where an array is fiveloop's; use `astype` or `where` of "
            "fiveloop.numpy on the result"
        )
    return FUNCTIONS[ufunc](*inputs)


def _into(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], out: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """NumPy's own function writes into NumPy's own arrays, if all elements are known."""
    name = f"np.{ufunc.__name__}"
    if any(isinstance(o, Value) for o in out):
        bad_type(
            f"{name}: expected a NumPy array as `out`, got an array of ours, which is immutable"
        )
    for x in inputs:
        if isinstance(x, Tracer):
            raise ConcretizationError(
                f"{name}: a traced value cannot be written into a NumPy array, got {x!r} and `out`, or `+=` on a NumPy "
                f"array; write `x = x + y`, or use a Ref{at_source(current_source())}"
            )
    host = [np.asarray(x) if isinstance(x, Value) else x for x in inputs]
    return getattr(ufunc, method)(*host, out=out, **kwargs)


def _reduced(
    ufunc: np.ufunc, name: str, x: Any, axis: Any = 0, dtype: Any = None, **kwargs: Any
) -> Value:
    keepdims = bool(kwargs.pop("keepdims", False))
    if kwargs:
        bad_type(
            f"{name}: expected no `{next(iter(kwargs))}` where an array is fiveloop's; use the function of "
            "fiveloop.numpy"
        )
    value = as_value(x) if dtype is None else op.astype(x, dtype)
    out: Value = REDUCTIONS[ufunc](value, axis, keepdims=keepdims)
    return out


def _logical(f: Function) -> Function:
    def on_any(*xs: Any) -> Any:
        return f(*[ew.to_condition(x) for x in xs])

    return on_any


def _is_inf(x: Any) -> Any:
    return ew.bitwise_not(ew.bitwise_or(ew.is_finite(x), ew.is_nan(x)))


REDUCTIONS: dict[np.ufunc, Function] = {
    np.add: op.sum,
    np.multiply: op.prod,
    np.maximum: op.max,
    np.minimum: op.min,
    np.logical_and: op.all,
    np.logical_or: op.any,
}

FUNCTIONS: dict[np.ufunc, Function] = {
    np.add: ew.add,
    np.subtract: ew.sub,
    np.multiply: ew.mul,
    np.divide: op.true_divide,
    np.floor_divide: op.floor_divide,
    np.remainder: op.remainder,
    np.divmod: lambda x, y: (op.floor_divide(x, y), op.remainder(x, y)),
    np.power: op.power,
    np.matmul: matmul,
    np.maximum: complex_order.maximum,
    np.minimum: complex_order.minimum,
    np.negative: ew.neg,
    np.positive: lambda x: operand("positive", "x", x),
    np.absolute: ew.abs,
    np.fabs: lambda x: ew.abs(*promote("abs", x, inexact=True)),
    np.sign: ew.sign,
    np.square: op.square,
    np.conjugate: ew.conj,
    np.bitwise_and: ew.bitwise_and,
    np.bitwise_or: ew.bitwise_or,
    np.bitwise_xor: ew.bitwise_xor,
    np.invert: ew.bitwise_not,
    np.left_shift: op.left_shift,
    np.right_shift: op.right_shift,
    np.less: complex_order.less,
    np.less_equal: complex_order.less_equal,
    np.greater: complex_order.greater,
    np.greater_equal: complex_order.greater_equal,
    np.equal: ew.equal,
    np.not_equal: ew.not_equal,
    np.logical_and: _logical(ew.bitwise_and),
    np.logical_or: _logical(ew.bitwise_or),
    np.logical_xor: _logical(ew.bitwise_xor),
    np.logical_not: _logical(ew.bitwise_not),
    np.isfinite: ew.is_finite,
    np.isnan: ew.is_nan,
    np.isinf: _is_inf,
    np.floor: ew.floor,
    np.ceil: ew.ceil,
    np.rint: me.round,
    np.arctan2: sp.atan2,
    np.exp: ew.exp,
    np.expm1: ew.expm1,
    np.log: ew.log,
    np.log1p: ew.log1p,
    np.sqrt: ew.sqrt,
    np.cbrt: ew.cbrt,
    np.reciprocal: ew.reciprocal,
    np.sin: sp.sin,
    np.cos: sp.cos,
    np.tan: sp.tan,
    np.arcsin: sp.asin,
    np.arccos: sp.acos,
    np.arctan: sp.atan,
    np.sinh: sp.sinh,
    np.cosh: sp.cosh,
    np.tanh: sp.tanh,
    np.arcsinh: sp.asinh,
    np.arccosh: sp.acosh,
    np.arctanh: sp.atanh,
}
"""NumPy's functions by the operation of core of the same meaning."""

OPS["ufunc"] = apply
