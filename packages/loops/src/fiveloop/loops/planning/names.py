"""What a user calls the values that a function closes over; asked for where a loop's story is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from types import FunctionType
from typing import Any

from fiveloop.core import Value, keystr, tree_flatten_with_path

_DEPTH = 3
"""How many functions within functions are looked into."""


def closure_names(fun: object, values: Sequence[Value]) -> list[str]:
    """The names under which a function holds some values: `w`, `params['w']`; `closed over` for the others."""
    found: dict[int, str] = {}
    for name, x in _held(fun, _DEPTH):
        found.setdefault(id(x), name)
    return [found.get(id(x), "closed over") for x in values]


def _held(fun: object, depth: int) -> Iterator[tuple[str, Any]]:
    fun = unwrap(fun) if callable(fun) else fun
    if not isinstance(fun, FunctionType) or not depth:
        return
    for name, content in _variables(fun):
        if isinstance(content, FunctionType):
            yield from _held(content, depth - 1)
        else:
            for path, x in tree_flatten_with_path(content)[0]:
                yield f"{name}{keystr(path)}", x


def _variables(fun: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    code = fun.__code__
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in code.co_names:
        if name in fun.__globals__ and not callable(fun.__globals__[name]):
            yield name, fun.__globals__[name]
