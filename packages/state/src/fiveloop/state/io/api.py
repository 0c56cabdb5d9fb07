"""The public functions: calls of Python from inside programs, and prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast, overload
from typing import Literal as OneOf

import numpy as np

from fiveloop.core import Value, arrays, ir, pytree, trace
from fiveloop.core.api import flatten
from fiveloop.core.api.flatten import ShapeDtype
from fiveloop.core.util import Fun
from fiveloop.state.io import host, primitive, printing
from fiveloop.state.refs import Ref

Vmap = OneOf["lanes", "stacked"]
K = TypeVar("K")


class HostFunction(Protocol):
    """The type of `callback` and `pure_callback`; a pytree of another kind is to be cast."""

    @overload
    def __call__(self, fun: Fun, result_shape_dtypes: None, *args: Any, **kwargs: Any) -> None: ...
    @overload
    def __call__(
        self, fun: Fun, result_shape_dtypes: ShapeDtype | Value, *args: Any, **kwargs: Any
    ) -> Value: ...
    @overload
    def __call__(
        self,
        fun: Fun,
        result_shape_dtypes: tuple[ShapeDtype, ShapeDtype],
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Value, Value]: ...
    @overload
    def __call__(
        self, fun: Fun, result_shape_dtypes: tuple[ShapeDtype, ...], *args: Any, **kwargs: Any
    ) -> tuple[Value, ...]: ...
    @overload
    def __call__(
        self, fun: Fun, result_shape_dtypes: list[ShapeDtype], *args: Any, **kwargs: Any
    ) -> list[Value]: ...
    @overload
    def __call__(
        self, fun: Fun, result_shape_dtypes: dict[K, ShapeDtype], *args: Any, **kwargs: Any
    ) -> dict[K, Value]: ...
    @overload
    def __call__(
        self, fun: Fun, result_shape_dtypes: object, *args: Any, **kwargs: Any
    ) -> pytree.Pytree: ...


def host_function(fun: Callable[..., Any]) -> HostFunction:
    """The function, with its type."""
    return cast(HostFunction, fun)


@host_function
@trace.boundary
def callback(
    fun: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    ordered: bool = False,
    vmap: Vmap = "lanes",
    **kwargs: Any,
) -> Any:
    """Call a Python function when the program reaches this point: once each time, under every transform.

    `fun` takes NumPy arrays, which it may change, in the structure of the arguments; leaves that are no arrays
    (strings, Python numbers) are passed unchanged. It must return arrays of the structure, shapes and dtypes of
    `result_shape_dtypes`, a pytree of `ShapeDtype`s or arrays, or None; otherwise the call raises TypeError. An
    exception of `fun` is raised by the call, unchanged.

    It has no derivative: if an argument is differentiated, the result must not contain floats. With `ordered`, calls
    are made in the order of the program. Under `vmap` each call is made once for each lane, in their order, and then
    the next call (for lanes that take different branches, see `cond`); or with vmap="stacked" once with a leading axis
    of lanes in every array and every result.

    >>> from fiveloop.core import ShapeDtype, jit
    >>> seen = []
    >>> def half(x):
    ...     seen.append(float(x))
    ...     return x / 2
    >>> jit(lambda x: callback(half, ShapeDtype((), "float32"), x) + 1.0)(3.0)
    Array(2.5, dtype=float32)
    >>> seen
    [3.0]
    """
    kind: primitive.CallKind = "ordered" if ordered else "io"
    return _called("callback", fun, result_shape_dtypes, args, kwargs, kind, vmap)


@host_function
@trace.boundary
def pure_callback(
    fun: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    vmap: Vmap = "lanes",
    **kwargs: Any,
) -> Any:
    """As `callback`, for a function without effects: its call may be left out, moved, or made again.

    It has no derivative of its own; give it one with `custom_jvp` or `custom_vjp` around the call.

    >>> import numpy as np
    >>> from fiveloop.core import ShapeDtype, jit
    >>> jit(lambda x: pure_callback(np.sort, ShapeDtype((3,), "int32"), x))(
    ...     np.array([3, 1, 2], "int32")
    ... )
    Array([1, 2, 3], dtype=int32)
    """
    return _called("pure_callback", fun, result_shape_dtypes, args, kwargs, "pure", vmap)


@trace.boundary
def debug_callback(
    fun: Callable[..., object],
    *args: Any,
    ordered: bool = False,
    vmap: Vmap = "lanes",
    **kwargs: Any,
) -> None:
    """As `callback`, but ignores the result of the function; differentiated arguments reach it as primals.

    >>> from fiveloop.core import grad
    >>> def f(x):
    ...     debug_callback(print, "x is", x)
    ...     return x * x
    >>> grad(f)(3.0)
    x is 3.0
    Array(6., dtype=float32)
    """
    kind: primitive.CallKind = "ordered" if ordered else "io"
    _called("debug_callback", fun, _NOTHING, args, kwargs, kind, vmap)


@trace.boundary
def debug_print(
    fmt: str, *args: Any, ordered: bool = False, vmap: Vmap = "lanes", **kwargs: Any
) -> None:
    """Print arguments by a format string, as `str.format` fills it in, when the program reaches this point.

    A format specification is applied to each element of an array. A format string that does not fit the arguments is a
    ValueError at once. How often it prints, and in which order, is as for `callback`.

    >>> from fiveloop.core import jit
    >>> jit(lambda x: debug_print("{} and {twice:.2f}", x, twice=2 * x))(1.5)
    1.5 and 3.00
    """
    if not isinstance(fmt, str):
        raise TypeError(
            f"debug_print: expected a format string first, got {fmt!r} of type {type(fmt).__name__}; write "
            f'`debug_print("{{}}", x)`'
        )
    if "Traced<" in fmt:
        raise ValueError(
            f"debug_print: expected a format string, got {fmt!r}, into which a traced value has been formatted "
            f'already; leave out the f in front, and write `debug_print("{{}}", x)`'
        )
    printer = printing.Printer(fmt)
    kind: primitive.CallKind = "ordered" if ordered else "io"
    call, values = _host_call("debug_print", printer, _NOTHING, args, kwargs)
    stand_ins = [np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in values]
    printer.check(*call.arguments(stand_ins))
    trace.bind(primitive.callback_p, *values, params=_params(call, kind, vmap))


_NOTHING = object()
"""Stands for the results of a call whose result is ignored."""


def _called(
    what: str, fun: Any, spec: Any, args: Any, kwargs: Any, kind: primitive.CallKind, vmap: Vmap
) -> Any:
    call, values = _host_call(what, fun, spec, args, kwargs)
    outs = trace.bind(primitive.callback_p, *values, params=_params(call, kind, vmap))
    tree, results = call.results.tree, [flatten.as_result(x) for x in outs]
    return None if tree is None else pytree.tree_unflatten(tree, results)


def _params(call: host.HostCall, kind: primitive.CallKind, vmap: Vmap) -> primitive.CallbackParams:
    if vmap not in ("lanes", "stacked"):
        raise ValueError(
            f'{call.results.what}: expected vmap to be "lanes" or "stacked", got {vmap!r}'
        )
    return primitive.CallbackParams(call, call.results.avals, kind, stacked=vmap == "stacked")


def _host_call(
    what: str, fun: Any, spec: Any, args: Any, kwargs: Any
) -> tuple[host.HostCall, list[Value]]:
    """The call, and the arrays among the arguments."""
    flatten.check_callable(what, fun)
    results = _results(what, spec)
    leaves, tree = pytree.tree_flatten((args, kwargs))
    is_array = [not isinstance(x, str) and hasattr(x, "__array__") for x in leaves]
    constants = tuple(host.ARRAY if a else x for x, a in zip(leaves, is_array, strict=True))
    values: list[Value] = []
    for (path, x), a in zip(
        pytree.tree_flatten_with_path((args, kwargs))[0], is_array, strict=True
    ):
        if isinstance(x, Ref):
            raise TypeError(
                f"{what}: expected arrays, got a Ref of type {x.aval} as argument{pytree.keystr(path[1:])}; read it: "
                f"`ref[...]`"
            )
        if a:
            values.append(arrays.as_value(x, f"{what}: argument{pytree.keystr(path[1:])}"))
    key = host.call_key(fun, tree, constants)
    return host.HostCall(key, results, fun, tree, constants), values


def _results(what: str, spec: Any) -> host.Results:
    source = trace.current_source()
    if spec is _NOTHING:
        return host.Results(what, source=source)
    leaves, tree = pytree.tree_flatten(spec, flatten.is_spec)
    avals = [flatten.aval_of(x, f"{what}: result_shape_dtypes") for x in leaves]
    plain = tuple(ir.ShapedArray(a.shape, a.dtype) for a in avals)
    return host.Results(what, plain, tree, source)
