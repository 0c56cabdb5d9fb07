"""NumPy's ufuncs on fiveloop values: `np.sin(x)` calls fiveloop's `sin(x)`, also on traced values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import arrays, errors, prims, trace
from fiveloop.core.arrays import Value
from fiveloop.core.operators import complex_order
from fiveloop.core.operators import methods as me
from fiveloop.core.operators import operators as op
from fiveloop.core.primitives import special
from fiveloop.core.util import Fun


def apply(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The implementation of NumPy's functions for values: NumPy calls it where an argument is a value."""
    out = kwargs.pop("out", None)
    if out is not None and any(o is not None for o in out):
        return _into(ufunc, method, inputs, out, kwargs)
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if method == "reduce" and ufunc in REDUCTIONS:
        return _reduced(ufunc, name, *inputs, **kwargs)
    if method != "__call__" or ufunc not in FUNCTIONS:
        prims.bad_type(
            f"{name}: core has no operation of that meaning for arrays of its own; use that of fiveloop.numpy, or "
            "outside of traced functions a NumPy array, `np.asarray(x)`"
        )
    if kwargs:
        prims.bad_type(
            f"{name}: expected no `{next(iter(kwargs))}` where an array is fiveloop's; use `astype` or `where` of "
            "fiveloop.numpy on the result"
        )
    return FUSED[ufunc](*inputs)


def _into(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], out: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """NumPy's own function writes into NumPy's own arrays, if all elements are known."""
    name = f"np.{ufunc.__name__}"
    if any(isinstance(o, Value) for o in out):
        prims.bad_type(
            f"{name}: expected a NumPy array as `out`, got an array of ours, which is immutable"
        )
    for x in inputs:
        if isinstance(x, trace.Tracer):
            raise errors.ConcretizationError(
                f"{name}: a traced value cannot be written into a NumPy array, got {x!r} and `out`, or `+=` on a NumPy "
                f"array; write `x = x + y`, or use a Ref{errors.at_source(trace.current_source())}"
            )
    host = [np.asarray(x) if isinstance(x, Value) else x for x in inputs]
    return getattr(ufunc, method)(*host, out=out, **kwargs)


def _reduced(
    ufunc: np.ufunc, name: str, x: Any, axis: Any = 0, dtype: Any = None, **kwargs: Any
) -> Value:
    keepdims = bool(kwargs.pop("keepdims", False))
    if kwargs:
        prims.bad_type(
            f"{name}: expected no `{next(iter(kwargs))}` where an array is fiveloop's; use the function of "
            "fiveloop.numpy"
        )
    value = arrays.as_value(x) if dtype is None else op.astype(x, dtype)
    out: Value = REDUCTIONS[ufunc](value, axis, keepdims=keepdims)
    return out


def _logical(f: Fun) -> Fun:
    return lambda *xs: f(*map(prims.to_condition, xs))


REDUCTIONS: dict[np.ufunc, Fun] = {
    np.add: op.sum,
    np.multiply: op.prod,
    np.maximum: op.max,
    np.minimum: op.min,
    np.logical_and: op.all,
    np.logical_or: op.any,
}

OPERATORS = frozenset(
    "add subtract multiply divide floor_divide remainder power matmul negative equal not_equal "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
)
"""The functions of NumPy that are operators, by the names that these have in `arrays.OPS`, too."""

FUNCTIONS: dict[np.ufunc, Fun] = {
    **{getattr(np, name): f for name, f in arrays.OPS.items() if name in OPERATORS},
    np.divmod: lambda x, y: (op.floor_divide(x, y), op.remainder(x, y)),
    np.maximum: complex_order.maximum,
    np.minimum: complex_order.minimum,
    np.positive: lambda x: prims.operand("positive", "x", x),
    np.absolute: prims.abs,
    np.fabs: lambda x: prims.abs(*prims.promote("abs", x, inexact=True)),
    np.sign: prims.sign,
    np.square: op.square,
    np.conjugate: prims.conj,
    np.invert: prims.bitwise_not,
    np.less: complex_order.less,
    np.less_equal: complex_order.less_equal,
    np.greater: complex_order.greater,
    np.greater_equal: complex_order.greater_equal,
    np.logical_and: _logical(prims.bitwise_and),
    np.logical_or: _logical(prims.bitwise_or),
    np.logical_xor: _logical(prims.bitwise_xor),
    np.logical_not: _logical(prims.bitwise_not),
    np.isfinite: prims.is_finite,
    np.isnan: prims.is_nan,
    np.isinf: lambda x: prims.bitwise_not(prims.bitwise_or(prims.is_finite(x), prims.is_nan(x))),
    np.floor: prims.floor,
    np.ceil: prims.ceil,
    np.rint: me.round,
    np.arctan2: special.atan2,
    np.exp: prims.exp,
    np.expm1: prims.expm1,
    np.log: prims.log,
    np.log1p: prims.log1p,
    np.sqrt: prims.sqrt,
    np.cbrt: prims.cbrt,
    np.reciprocal: prims.reciprocal,
    np.sin: special.sin,
    np.cos: special.cos,
    np.tan: special.tan,
    np.arcsin: special.asin,
    np.arccos: special.acos,
    np.arctan: special.atan,
    np.sinh: special.sinh,
    np.cosh: special.cosh,
    np.tanh: special.tanh,
    np.arcsinh: special.asinh,
    np.arccosh: special.acosh,
    np.arctanh: special.atanh,
}
"""NumPy's functions by the operation of core of the same meaning."""

FUSED = {
    ufunc: trace.fused(f, numbers="static" if f is op.power else None)
    for ufunc, f in FUNCTIONS.items()
}

arrays.OPS["ufunc"] = apply
