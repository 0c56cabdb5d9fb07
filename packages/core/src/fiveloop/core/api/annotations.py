"""Annotations of a program: stopped gradients, named calls, optimization barriers, code for one platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from fiveloop.core import arrays, prims, pytree, trace
from fiveloop.core.api import flatten, staging
from fiveloop.core.arrays import Value
from fiveloop.core.backend.client import platform

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@overload
def stop_gradient(x: arrays.ArrayLike) -> Value: ...


@overload
def stop_gradient(x: T) -> T: ...


def stop_gradient(x: object) -> object:
    """The same arrays, through which no derivative flows; `x` is an array or a pytree of them.

    Integers and bools have no derivative, and are given back as they are.

    >>> from fiveloop.core import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32)
    """
    if isinstance(x, (Value, np.ndarray)):
        return prims.stop_gradient(x)
    values, tree = flatten.flatten_values(x, "stop_gradient: argument `x`")
    stopped = [flatten.as_result(prims.stop_gradient(v)) for v in values]
    out: object = pytree.tree_unflatten(tree, stopped)
    return out


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """`fun` under a name in printed jaxprs, its own if none is given; it is compiled in place, as if not marked.

    >>> from fiveloop.core import make_jaxpr
    >>> "name=twice" in str(make_jaxpr(named_call(lambda x: x * 2.0, name="twice"))(1.0))
    True
    """
    return staging.closed_as("named_call", fun, name, inline=True)


def optimization_barrier(operand: T) -> T:
    """The same arrays, of which the compiler merges or fuses nothing with what is computed from them.

    All are computed before anything that uses one of the results. `operand` is an array or a pytree of them;
    tangents and cotangents pass through barriers of their own.

    >>> optimization_barrier((np.float32(1.0), np.arange(2)))
    (Array(1., dtype=float32), Array([0, 1], dtype=int64))
    """
    values, tree = flatten.flatten_values(operand, "optimization_barrier: argument `operand`")
    values = [prims.operand("optimization_barrier", "operand", x) for x in values]
    out: T = pytree.tree_unflatten(tree, [flatten.as_result(x) for x in prims.barrier(*values)])
    return out


@trace.boundary
def platform_dependent(
    *args: Any, default: Callable[..., R] | None = None, **per_platform: Callable[..., R]
) -> R:
    """What the function for the platform that programs are compiled for gives of `args`; `default` is for others.

    Platforms are `cpu`, `cuda`, `rocm` and `tpu` (ValueError for another, or if there is no function for the one
    here). All functions are traced, and must give the same shapes and dtypes (TypeError); the program has one of them.

    >>> platform_dependent(3.0, cpu=lambda x: x + 1.0, default=lambda x: x * 0.0)
    4.0
    """
    funs = {"default": default} if default is not None else {}
    for name, fun in (per_platform | funs).items():
        flatten.check_callable(f"platform_dependent: {name}", fun)
        if name not in ("default", *_PLATFORMS):
            raise ValueError(
                f"platform_dependent: expected names of platforms, {', '.join(_PLATFORMS)}, got {name!r}; "
                f"leave it out, or write `default=`"
            )
    chosen = per_platform.get(here := platform(), default)
    if chosen is None:
        raise ValueError(
            f"platform_dependent: expected a function for the platform {here!r}, got those for "
            f"{', '.join(per_platform) or 'none'}; add `{here}=` or `default=`"
        )
    out = chosen(*args)
    wanted = staging.eval_shape(lambda: out)
    for name, fun in (per_platform | funs).items():
        if fun is not chosen and (given := staging.eval_shape(fun, *args)) != wanted:
            raise TypeError(
                f"platform_dependent: expected functions whose results are of one type, got {wanted} and, for {name}, "
                f"{given}; convert one of them"
            )
    return out
