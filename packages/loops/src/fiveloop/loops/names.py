"""The user's names of values that a function closes over, for `explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from inspect import unwrap
from types import FunctionType
from typing import Any

from fiveloop.core import ad, ir, pytree
from fiveloop.loops.common import CarriedRefs

COMPUTED = "computed before"
OWN = ("ended", "steps taken", "all ended", COMPUTED, "an effect's")
"""The names of what is a loop's own, and not the user's."""
_DEPTH = 3
"""How many functions within functions are looked into."""


def closure_names(funs: Sequence[object], values: ad.Values) -> list[str]:
    """The names under which functions hold some values: `w`, `params['w']`; `closed over` for the others."""
    found: dict[int, str] = {}
    for fun in funs:
        for name, x in _held(fun, _DEPTH):
            found.setdefault(id(x), name)
    return [found.get(id(x), "closed over") for x in values]


def name_inputs(binders: ir.Vars, names: Iterable[str]) -> None:
    """Give the inputs of a body the names that they have in the user's program."""
    for v, name in zip(binders, names, strict=False):
        v.hint = name


def _held(fun: object, depth: int) -> Iterator[tuple[str, Any]]:
    yield from _carried(fun)
    fun = unwrap(fun) if callable(fun) else fun
    if not isinstance(fun, FunctionType) or not depth:
        return
    for name, content in _variables(fun):
        if isinstance(content, FunctionType):
            yield from _held(content, depth - 1)
        else:
            for path, x in pytree.tree_flatten_with_path(content)[0]:
                yield f"{name}{pytree.keystr(path)}", x


def _carried(fun: object) -> Iterator[tuple[str, Any]]:
    """The Refs that a loop carries, to which a function or one around it closes over."""
    while isinstance(fun, FunctionType):
        for cell in fun.__closure__ or ():
            with suppress(ValueError):  # not assigned yet
                if isinstance(cell.cell_contents, CarriedRefs):
                    yield from cell.cell_contents.names()
        fun = getattr(fun, "__wrapped__", None)


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
