"""Looking at programs: `make_jaxpr`, `eval_shape`, and `closed_call`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from fiveloop.core import ad, arrays, ir, pytree
from fiveloop.core.api import arguments, flat_function, flatten, operands
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import TreeDef
from fiveloop.core.closed_call.bind import call_jaxpr
from fiveloop.core.trace.axes import AxisTrace, new_axis
from fiveloop.core.trace.boundary import boundary, guarded
from fiveloop.core.trace.modes import python_form
from fiveloop.core.trace.same_function import traced_once
from fiveloop.core.trace.stage import Staged, stage
from fiveloop.core.trace.tracer import current_trace, use_trace

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ShapeDtype:
    """The shape and dtype of an array that need not exist; `make_jaxpr`, `eval_shape` and `lower` take it."""

    shape: tuple[int, ...]
    dtype: Any


def is_spec(x: object) -> bool:
    """Whether something describes an array instead of being one."""
    return isinstance(x, (ShapeDtype, ir.Aval))


def aval_of(x: Any, what: str = "argument") -> ir.Aval:
    """The type of a value or of a description of one."""
    if isinstance(x, ir.Aval):
        return x
    if isinstance(x, ShapeDtype):
        return ir.ShapedArray(tuple(x.shape), np.dtype(x.dtype))
    return arrays.as_value(x, what).aval


def stage_user(
    fun: Callable[..., Any], args: Any, kwargs: Any, *, returns_refs: bool = False
) -> tuple[Staged, flat_function.FlatFunction]:
    """A user's function traced on the types of its arguments."""
    tree = flatten.flatten_located((args, kwargs), is_spec)[1]
    name = flatten.argument_naming("tracing", fun)
    pairs = pytree.tree_flatten_with_path((args, kwargs), is_leaf=is_spec)[0]
    flat = flat_function.FlatFunction(fun, tree, returns_refs=returns_refs)
    return stage(
        flat, [aval_of(x, name(path)) for path, x in pairs], flatten.function_name(fun), fun
    ), flat


def stage_call(
    fun: Callable[..., Any], values: ad.Values, tree: TreeDef
) -> tuple[Staged, flat_function.FlatFunction]:
    """A user's function traced on values for its arguments, outside of traces only once for the same function."""
    avals = tuple([x.aval for x in values])

    def trace() -> tuple[Staged, flat_function.FlatFunction]:
        flat = flat_function.FlatFunction(fun, tree, returns_refs=True)
        return stage(flat, avals, flatten.function_name(fun), fun), flat

    return traced_once((tree, avals), [fun], trace)


def make_jaxpr(
    fun: Callable[P, Any],
    *,
    axis_env: Sequence[tuple[Hashable, int]] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., ir.Jaxpr]:
    """A function that gives the jaxpr of `fun` on arguments, or on descriptions of them.

    `axis_env` has the names and sizes of named axes that the function may use, outermost first. Static arguments
    are hashable Python values that the trace may depend on, as in `jit`.

    >>> print(make_jaxpr(lambda x: x * 2.0)(ShapeDtype((3,), "float32")))  # doctest: +SKIP
    """
    flatten.check_callable("make_jaxpr", fun)
    if static_argnums != () or static_argnames != ():
        return arguments.with_static(
            "make_jaxpr",
            fun,
            static_argnums,
            static_argnames,
            partial(make_jaxpr, axis_env=axis_env),
        )

    @wraps(fun)
    @guarded
    def jaxpr_maker(*args: Any, **kwargs: Any) -> ir.Jaxpr:
        with ExitStack() as stack:
            for axis_name, size in axis_env:
                trace = AxisTrace(current_trace(), new_axis(axis_name, size))
                stack.enter_context(use_trace(trace))
            return stage_user(fun, args, kwargs)[0].jaxpr

    return jaxpr_maker


@overload
def eval_shape(fun: Callable[..., Value], *args: Any, **kwargs: Any) -> ShapeDtype: ...


@overload
def eval_shape(fun: Callable[..., R], *args: Any, **kwargs: Any) -> R: ...


@boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what `fun` would return, without computing anything.

    A pytree is, to the type checker, of the type of the result; its leaves have `shape` and `dtype` alone.

    >>> eval_shape(lambda x: x.sum(), ShapeDtype((3,), "float32"))
    ShapeDtype(shape=(), dtype=dtype('float32'))
    """
    flatten.check_callable("eval_shape", fun)
    staged, flat = stage_user(fun, args, kwargs)
    return flat.unflatten([ShapeDtype(a.shape, a.dtype) for a in staged.jaxpr.out_avals])


def closed_call(
    fun: Callable[P, R], *, name: str | None = None, inline: bool = False
) -> Callable[P, R]:
    """`fun` as one equation: traced once per call, kept whole by every transform, lowered as one function.

    >>> closed_call(lambda x: x + 1.0)(2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return closed_as("closed_call", fun, name, inline)


def closed_as(what: str, fun: Callable[P, R], name: str | None, inline: bool) -> Callable[P, R]:
    """`closed_call` for a caller that messages name."""
    flatten.check_callable(what, fun)
    naming = flatten.argument_naming(what, fun)

    @wraps(fun)
    @guarded
    @python_form(lambda *args, **kwargs: flat_function.call_as_python(fun, args, kwargs, naming))
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        values, tree = operands.flatten_arguments((args, kwargs), naming)
        staged, flat = stage_call(fun, values, tree)
        operands.refuse_closed_over(naming, staged.captured, values, tree)
        called = name or flatten.function_name(fun)
        outs = call_jaxpr(staged.jaxpr, [*staged.captured, *values], called, inline)
        result: R = flat.unflatten(outs)
        return result

    return call
