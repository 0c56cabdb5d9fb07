"""Keys of static arguments: Python values that a trace may depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from numbers import Number
from types import FunctionType
from typing import Any

from fiveloop.core import trace, util
from fiveloop.core.api.flatten import argument_name, function_name
from fiveloop.core.arrays import Value


def static_key(what: str, fun: Callable[..., Any], given: Sequence[tuple[int | str, Any]]) -> Any:
    """What tells calls with different static arguments apart: their places or names, types and values."""
    for k, x in given:
        if _has_hash(x) and not isinstance(x, trace.Tracer):
            continue
        called = argument_name(fun, k) if isinstance(k, int) else f"`{k}`"
        advice = "a tuple in place of a list"
        if isinstance(x, Value):
            advice = "leave it out of the static ones"
        raise TypeError(
            f"{what} of {function_name(fun)}: static argument {called} must be hashable, got {x!r} of type "
            f"{type(x).__name__}; {advice}"
        )
    return tuple([(k, _exact(x)) for k, x in given])


def _exact(x: Any) -> Any:
    """What is equal only for values that are the same: not for 1, 1.0 and True, nor 0.0 and -0.0, alone or within."""
    found = util.exact_key(x, _exact)
    if found is not None:
        return found
    kind = type(x)
    if isinstance(x, Number):
        return kind, x, repr(x)
    if isinstance(x, tuple):  # a named one
        return kind, *map(_exact, x)
    if is_dataclass(kind):
        held = [_exact(getattr(x, field.name, None)) for field in fields(kind) if field.compare]
        return kind, x, *filter(_has_hash, held)
    return kind, x


def _has_hash(x: object) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


_AS_IS = util.PLAIN | {FunctionType}


class Exact:
    """A static argument on its way through C++, which compares its key, not the value."""

    __slots__ = ("hash", "key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = _exact(value)
        self.hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self.key == other.key

    def __hash__(self) -> int:
        return self.hash


def exact(x: Any) -> Any:
    """A static argument as C++ and dictionaries may compare it."""
    return x if type(x) in _AS_IS else Exact(x)


def exactly(x: Any) -> Exact:
    """A static argument as such, whatever it is."""
    return x if type(x) is Exact else Exact(x)


def inexact(x: Any) -> Any:
    """Undo `exact`."""
    return x.value if type(x) is Exact else x
