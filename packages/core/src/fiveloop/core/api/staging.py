"""Inspection of programs (`make_jaxpr`, `eval_shape`), `closed_call`, annotations, and the compilation cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, overload

import numpy as np

from fiveloop.core import ad, ir, prims, pytree, trace
from fiveloop.core.api import arguments, flat_function, flatten
from fiveloop.core.arrays import Array, ArrayLike, Value
from fiveloop.core.backend import client, compilation_cache
from fiveloop.core.backend.tree import TreeDef
from fiveloop.core.closed_call import call_jaxpr
from fiveloop.core.util import P, R, T


def stage_user(
    fun: Callable[..., Any], args: Any, kwargs: Any, *, returns_refs: bool = False
) -> tuple[trace.Staged, flat_function.FlatFunction]:
    """A user's function traced on the types of its arguments."""
    name = flatten.argument_naming("tracing", fun)
    tree = flatten.flatten_located((args, kwargs), flatten.is_spec, name)[1]
    pairs = pytree.tree_flatten_with_path((args, kwargs), is_leaf=flatten.is_spec)[0]
    flat = flat_function.FlatFunction(fun, tree, returns_refs=returns_refs)
    avals = [flatten.aval_of(x, name(path)) for path, x in pairs]
    return trace.stage(flat, avals, flatten.function_name(fun), fun), flat


def stage_call(
    fun: Callable[..., Any], values: ad.Values, tree: TreeDef
) -> tuple[trace.Staged, flat_function.FlatFunction]:
    """A user's function traced on values for its arguments, outside of traces only once for the same function."""
    avals = tuple([x.aval for x in values])

    def traced() -> tuple[trace.Staged, flat_function.FlatFunction]:
        flat = flat_function.FlatFunction(fun, tree, returns_refs=True)
        staged = trace.stage(flat, avals, flatten.function_name(fun), fun)
        flat.release()
        return staged, flat

    return trace.traced_once((tree, avals), [fun], traced)


def make_jaxpr(
    fun: Callable[P, Any],
    *,
    axis_env: Sequence[tuple[Hashable, int]] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[..., ir.Jaxpr]:
    """A function that returns the jaxpr of `fun` for its arguments, or for descriptions of them.

    `axis_env` has the names and sizes of named axes that the function may use, outermost first. Static arguments
    are hashable Python values that the trace may depend on, as in `jit`.

    >>> print(make_jaxpr(lambda x: x * 2.0)(flatten.ShapeDtype((3,), "float32")))  # doctest: +SKIP
    """
    flatten.check_callable("make_jaxpr", fun)
    if static_argnums != () or static_argnames != ():
        named, make = (static_argnums, static_argnames), partial(make_jaxpr, axis_env=axis_env)
        return arguments.with_static("make_jaxpr", fun, *named, make)

    @wraps(fun)
    @trace.guarded
    def jaxpr_maker(*args: Any, **kwargs: Any) -> ir.Jaxpr:
        with ExitStack() as stack:
            for axis_name, size in axis_env:
                bound = trace.AxisTrace(trace.current_trace(), trace.new_axis(axis_name, size))
                stack.enter_context(trace.use_trace(bound))
            return stage_user(fun, args, kwargs)[0].jaxpr

    return jaxpr_maker


@overload
def eval_shape(fun: Callable[..., Value], *args: Any, **kwargs: Any) -> flatten.ShapeDtype: ...
@overload
def eval_shape(fun: Callable[..., R], *args: Any, **kwargs: Any) -> R: ...
@trace.boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what `fun` would return, without computing anything.

    To a type checker the result has the type that `fun` returns; its leaves have only `shape` and `dtype`.

    >>> eval_shape(lambda x: x.sum(), ShapeDtype((3,), "float32"))
    ShapeDtype(shape=(), dtype=dtype('float32'))
    """
    flatten.check_callable("eval_shape", fun)
    staged, flat = stage_user(fun, args, kwargs)
    return flat.unflatten([flatten.ShapeDtype(a.shape, a.dtype) for a in staged.jaxpr.out_avals])


def closed_call(
    fun: Callable[P, R], *, name: str | None = None, inline: bool = False
) -> Callable[P, R]:
    """`fun` as one equation: traced once per call, one equation under every transform, lowered as one function.

    >>> closed_call(lambda x: x + 1.0)(2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return closed_as("closed_call", fun, name, inline)


def closed_as(what: str, fun: Callable[P, R], name: str | None, inline: bool) -> Callable[P, R]:
    """`closed_call` for a caller that messages name."""
    flatten.check_callable(what, fun)
    naming = flatten.argument_naming(what, fun)

    @wraps(fun)
    @trace.guarded
    @trace.python_form(
        lambda *args, **kwargs: flat_function.call_as_python(fun, args, kwargs, naming)
    )
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        values, tree = flatten.flatten_arguments((args, kwargs), naming)
        staged, flat = stage_call(fun, values, tree)
        flatten.refuse_closed_over(naming, staged.captured, values, tree)
        called = name or flatten.function_name(fun)
        outs = call_jaxpr(staged.jaxpr, [*staged.captured, *values], called, inline)
        result: R = flat.unflatten(outs)
        return result

    return call


_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@overload
def stop_gradient(x: ArrayLike) -> Value: ...
@overload
def stop_gradient(x: T) -> T: ...
def stop_gradient(x: object) -> object:
    """The same arrays, through which no derivative flows; `x` is an array or a pytree of them.

    Integers and bools have no derivative, and are returned unchanged.

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
    return closed_as("named_call", fun, name, inline=True)


def optimization_barrier(operand: T) -> T:
    """The same arrays, behind a barrier that XLA does not fuse or merge operations across.

    All arrays are computed before any use of one of the results. `operand` is an array or a pytree of arrays; tangents
    and cotangents pass through barriers of their own.

    >>> optimization_barrier((np.float32(1.0), np.arange(2)))
    (Array(1., dtype=float32), Array([0, 1], dtype=int64))
    """
    values, tree = flatten.flatten_values(operand, "optimization_barrier: argument `operand`")
    values = [prims.operand("optimization_barrier", "operand", x) for x in values]
    out: T = pytree.tree_unflatten(tree, [flatten.as_result(x) for x in prims.barrier(*values)])
    return out


@trace.boundary
def block_until_ready(x: T) -> T:
    """`x`, a pytree, once its arrays and Refs have been computed; a program that fails raises its error here.

    The call of a compiled program may return before the program has ended: wait for its results to measure its time.

    >>> from fiveloop.core import jit
    >>> block_until_ready(jit(lambda x: x * 2.0)(3.0))
    Array(6., dtype=float32, weak_type=True)
    """
    if isinstance(x, Array):
        x.block_until_ready()
        return x
    leaves = pytree.tree_leaves(x)
    arrays = [leaf for leaf in leaves if type(leaf) is Array]
    if len(arrays) < len(leaves):
        refs = [v for v in leaves if isinstance(v, Value) and v.aval.accumulates]
        arrays += [v for ref in refs if isinstance(v := ref[...], Array)]
    try:
        client.wait_for_all([array.buffer for array in arrays])
    except RuntimeError:
        for array in arrays:
            array.block_until_ready()  # names one that was donated
        raise
    return x


@trace.boundary
def platform_dependent(
    *args: Any, default: Callable[..., R] | None = None, **per_platform: Callable[..., R]
) -> R:
    """The result of the function for the platform that programs are compiled for; `default` is for other platforms.

    Platforms are `cpu`, `cuda`, `rocm` and `tpu` (ValueError for another, or if there is no function for the one
    here). All functions are traced, and must return the same shapes and dtypes (TypeError); the program contains one
    of them.

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
    chosen = per_platform.get(here := client.platform(), default)
    if chosen is None:
        raise ValueError(
            f"platform_dependent: expected a function for the platform {here!r}, got those for "
            f"{', '.join(per_platform) or 'none'}; add `{here}=` or `default=`"
        )
    out = chosen(*args)
    wanted = eval_shape(lambda: out)
    for name, fun in (per_platform | funs).items():
        if fun is not chosen and (given := eval_shape(fun, *args)) != wanted:
            raise TypeError(
                f"platform_dependent: expected functions whose results are of one type, got {wanted} and, for {name}, "
                f"{given}; convert one of them"
            )
    return out


@trace.boundary
def enable_compilation_cache(
    path: str | os.PathLike[str], *, max_bytes: int | None = compilation_cache.DEFAULT_MAX_BYTES
) -> None:
    """Store compiled programs in the folder `path`, and load programs that other processes have compiled.

    Eager operations are stored, too; programs that call Python are not. Any number of processes may share the folder.
    Above `max_bytes`, the least recently used programs are deleted; None means no limit. The folder contains machine
    code: choose one that only trusted users can write to.

    `FIVELOOP_CACHE_DIR` and `FIVELOOP_CACHE_MAX_BYTES` in the environment do the same.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     enable_compilation_cache(folder, max_bytes=10**9)
    ...     disable_compilation_cache()
    """
    what = "enable_compilation_cache"
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{what}: expected `path` to be the path of a folder, got {path!r}")
    if max_bytes is not None and type(max_bytes) is not int:
        raise TypeError(
            f"{what}: expected `max_bytes` to be an int, or None for no limit, got {max_bytes!r}"
        )
    names = (f"{what}: `path`", f"{what}: `max_bytes`")
    compilation_cache.use(compilation_cache.open_cache(os.fspath(path), max_bytes, *names))


def disable_compilation_cache() -> None:
    """Compile every program in this process, whatever the environment says; the folder stays as it is.

    >>> disable_compilation_cache()
    """
    compilation_cache.use(None)
