"""Operators and methods as boundaries: an error of `x + y` or `x.sum(1)` shows no frame of the library.

Below a transform its boundary does this; outside of all, the operator is where the user's program calls the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from fiveloop.core import arrays, trace
from fiveloop.core.arrays import Value
from fiveloop.core.index import ops as index_ops

_WITH_REFLECTED = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "divmod"),
    *("and", "or", "xor", "lshift", "rshift"),
)
BINARY = (
    *(f"__{name}__" for name in _WITH_REFLECTED),
    *(f"__r{name}__" for name in _WITH_REFLECTED),
    *(
        f"__{name}__"
        for name in ("iadd", "lt", "le", "gt", "ge", "eq", "ne", "getitem", "contains")
    ),
)
UNARY = tuple(f"__{name}__" for name in ("neg", "abs", "invert", "len", "iter", "hash"))
OTHERS = ("__setitem__", "__round__", "__array_ufunc__")


def _methods(cls: type) -> tuple[str, ...]:
    return tuple(k for k, f in vars(cls).items() if k[0] != "_" and isinstance(f, FunctionType))


# Each has as many parameters as the operator: an operator is called more often than anything else.


def _binary(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(method)
    def operator(x: Any, y: Any) -> Any:
        try:
            return method(x, y)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


def _unary(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(method)
    def operator(x: Any) -> Any:
        try:
            return method(x)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


def _other(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def operator(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            trace.hide_frames(error)
            raise

    return operator


for _names, _guard, _cls in (
    (BINARY, _binary, Value),
    (UNARY, _unary, Value),
    (OTHERS, _other, Value),
    (_methods(arrays.Methods), _other, arrays.Methods),
    (_methods(index_ops.Place), _other, index_ops.Place),
):
    for _name in _names:
        setattr(_cls, _name, _guard(_cls.__dict__[_name]))
