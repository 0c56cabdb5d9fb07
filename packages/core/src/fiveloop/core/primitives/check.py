"""Checks of arguments that primitives and their functions share; errors name the user's line."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from fiveloop.core import arrays, errors, ir, trace
from fiveloop.core.arrays import Value

KIND_NAMES = {
    "fc": "floating point or complex numbers",
    "f": "floating point numbers",
    "iu": "integers",
    "biu": "integers or bools",
    "iuf": "real numbers",
    "biuf": "real numbers or bools",
    "iuc": "numbers",
    "iufc": "numbers",
    "b": "bools",
    "c": "complex numbers",
}


def bad_type(message: str) -> NoReturn:
    """Raise a TypeError that ends with the user's line."""
    raise TypeError(f"{message}{errors.at_source(trace.current_source())}")


def bad_value(message: str) -> NoReturn:
    """Raise a ValueError that ends with the user's line."""
    raise ValueError(f"{message}{errors.at_source(trace.current_source())}")


def known_factor(name: str, x: object) -> Value:
    """The other operand of a product under transposition; RuleError if it is linear too."""
    if not isinstance(x, Value):
        raise errors.RuleError(
            f"`{name}` has no transpose in two operands at once: expected it to be linear in one of them, and the "
            f"other known; differentiate it first (`jvp`, `linearize`){errors.at_source(trace.current_source())}"
        )
    return x


def array_aval(fun: str, aval: ir.Aval, what: str = "an operand") -> ir.ShapedArray:
    """The type of an operand that must be an array; a Ref is refused."""
    if not isinstance(aval, ir.ShapedArray):
        bad_type(f"{fun}: expected {what} to be an array, got {aval}; read a Ref first: `ref[...]`")
    return aval


def check_count(fun: str, avals: ir.Avals, count: int, *, or_more: bool = False) -> None:
    """Refuse another number of operands than `count`; a larger one is right with `or_more`."""
    if len(avals) < count or (len(avals) > count and not or_more):
        expected = f"at least {count}" if or_more else str(count)
        bad_type(f"{fun}: expected {expected} operands, got {len(avals)}")


def array_avals(fun: str, avals: ir.Avals, count: int | None = None) -> list[ir.ShapedArray]:
    """The types of operands that must be arrays, and `count` of them if that is given."""
    if count is not None:
        check_count(fun, avals, count)
    return [array_aval(fun, a) for a in avals]


def check_kind(fun: str, aval: ir.Aval, kinds: str) -> None:
    """Refuse a dtype whose kind is not among those accepted."""
    if arrays.dtype_kind(aval.dtype) not in kinds:
        expected = KIND_NAMES.get(kinds, f"a dtype of the kinds {kinds}")
        bad_type(f"{fun}: expected {expected}, got {aval}")


def known_int(fun: str, what: str, x: Any) -> int:
    """A parameter as a Python integer; a traced value, or no integer, is an error that names the parameter."""
    if type(x) is int:
        return x
    if isinstance(x, trace.Tracer):
        refuse_traced(fun, what, x)
    try:
        return operator.index(x)
    except TypeError:
        bad_type(f"{fun}: expected `{what}` to be an integer, got {x!r}")


def known_bool(fun: str, what: str, x: Any) -> bool:
    """A parameter that is True or False; anything else is an error that names it."""
    if isinstance(x, trace.Tracer):
        refuse_traced(fun, what, x)
    if not isinstance(x, bool | np.bool_):
        bad_type(
            f"{fun}: expected `{what}` to be True or False, got {x!r} of type {type(x).__name__}"
        )
    return bool(x)


def int_or_ints(fun: str, what: str, x: Any) -> tuple[int, ...]:
    """A parameter that is one integer or several, as a tuple of Python integers."""
    several = isinstance(x, Iterable) and not _is_scalar(x)
    if isinstance(x, trace.Tracer):
        refuse_traced(fun, what, x)
    return tuple(known_int(fun, what, d) for d in (x if several else (x,)))


def refuse_traced(fun: str, what: str, x: trace.Tracer) -> NoReturn:
    """Raise for a parameter that must be known while tracing."""
    trace.check_live(x)
    raise errors.ConcretizationError(
        f"{fun}: expected `{what}` to be known while tracing, got {x!r}; {errors.STATIC}"
        f"{errors.at_source(trace.current_source())}"
    )


def canonical_axis(fun: str, axis: Any, ndim: int, what: str = "axis") -> int:
    """An axis counted from the front, for one that may count from the end."""
    k = known_int(fun, what, axis)
    if not -ndim <= k < ndim:
        bad_value(f"{fun}: expected `{what}` in [{-ndim}, {ndim}) for {ndim} axes, got {k}")
    return k % ndim


def canonical_axes(fun: str, axes: Any, ndim: int, what: str = "axis") -> tuple[int, ...]:
    """Axes counted from the front: None means all; one axis or several, each once."""
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, Iterable) and not isinstance(axes, trace.Tracer) else (axes,)
    out = tuple(canonical_axis(fun, a, ndim, what) for a in given)
    if len(set(out)) != len(out):
        bad_value(f"{fun}: expected each axis once in `{what}`, got {axes}")
    return out


def canonical_shape(fun: str, shape: Any, what: str = "shape") -> ir.Shape:
    """A shape as a tuple of dims; an integer stands for a single axis."""
    if isinstance(shape, trace.Tracer):
        refuse_traced(fun, what, shape)
    given = shape if isinstance(shape, Iterable) and not _is_scalar(shape) else (shape,)
    out = tuple(d if ir.is_dim(d) else _as_dim(fun, d, what) for d in given)
    if any(ir.is_constant(d) and d < 0 for d in out):
        bad_value(f"{fun}: expected no negative sizes in `{what}`, got {errors.shape_str(out)}")
    return out


def canonical_dtype(fun: str, dtype: Any) -> np.dtype[Any]:
    """A dtype as NumPy knows it, of numbers or bools."""
    try:
        out: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        bad_type(f"{fun}: expected `dtype` to name a dtype, got {dtype!r}")
    if arrays.dtype_kind(out) not in "biufc" or out.char in "gG":
        bad_type(f"{fun}: expected `dtype` to be one of numbers or bools, got {out.name}")
    return out if out.isnative else out.newbyteorder("=")


def _is_scalar(x: object) -> bool:
    return isinstance(x, (Value, np.ndarray)) and not x.shape


def _as_dim(fun: str, d: Any, what: str) -> ir.Dim:
    if isinstance(d, trace.Tracer):
        refuse_traced(fun, what, d)
    try:
        return operator.index(d)
    except TypeError:
        bad_type(f"{fun}: expected `{what}` to hold integers, got {d!r}")


def common_shape(fun: str, shapes: Sequence[ir.Shape]) -> ir.Shape:
    """The shape that operands broadcast to under NumPy's rules, or an error that shows them all."""
    out = ir.broadcast_shapes(*shapes)
    if out is None:
        listed = ", ".join(errors.shape_str(s) for s in shapes)
        bad_value(f"{fun}: expected shapes that broadcast together, got {listed}")
    return out
