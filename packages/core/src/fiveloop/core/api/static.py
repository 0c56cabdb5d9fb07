"""Arguments chosen by place or by name: donated ones, and static ones, Python values that a trace may depend on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from numbers import Number
from operator import index
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from fiveloop.core.api.flatten import argument_name, function_name
from fiveloop.core.array import Value
from fiveloop.core.trace.boundary import boundary, guarded
from fiveloop.core.trace.tracer import Tracer

Chosen = tuple[tuple[int, ...], tuple[str, ...]]
"""Arguments by place, and by name."""


def chosen_arguments(
    what: str,
    fun: Callable[..., Any],
    nums: int | Sequence[int],
    names: str | Sequence[str],
    kind: str = "static",
) -> Chosen:
    """Arguments of a kind, static or donated, by place and by name: each is both, where the signature tells."""
    places = _places(what, fun, nums, kind)
    given = (names,) if isinstance(names, str) else tuple(names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return places, given
    placed = [q.name for q in parameters if q.kind in (q.POSITIONAL_ONLY, q.POSITIONAL_OR_KEYWORD)]
    for name in given:
        if name not in [q.name for q in parameters] and not any(
            q.kind is q.VAR_KEYWORD for q in parameters
        ):
            raise ValueError(
                f"{what} of {function_name(fun)}: {kind}_argnames names {name!r}, which is no argument of it"
            )
    for k in places:
        if not -len(placed) <= k < len(placed) and not any(
            q.kind is q.VAR_POSITIONAL for q in parameters
        ):
            raise ValueError(
                f"{what} of {function_name(fun)}: {kind}_argnums must name one of its {len(placed)} positional "
                f"arguments, got {k}"
            )
    every_num = {k % len(placed) if placed and k < 0 else k for k in places}
    every_num |= {placed.index(n) for n in given if n in placed}
    every_name = {*given, *[placed[k] for k in every_num if k < len(placed)]}
    return tuple(sorted(every_num)), tuple(sorted(every_name))


def _places(what: str, fun: object, nums: int | Sequence[int], kind: str) -> tuple[int, ...]:
    given = nums if isinstance(nums, (tuple, list)) else (nums,)
    try:
        return tuple(index(k) for k in given)
    except TypeError:
        raise TypeError(
            f"{what} of {function_name(fun)}: {kind}_argnums must be an integer or a tuple of them, got {nums!r}; "
            f"names go into {kind}_argnames"
        ) from None


def static_key(what: str, fun: Callable[..., Any], chosen: Chosen, args: Any, kwargs: Any) -> Any:
    """What tells calls with different static arguments apart: their places or names, types and values."""
    nums, names = chosen
    found = [(k, args[k]) for k in nums if k < len(args)]
    named = [(k, kwargs[k]) for k in names if k in kwargs]
    for k, x in (*found, *named):
        if _has_hash(x) and not isinstance(x, Tracer):
            continue
        called = argument_name(fun, k) if isinstance(k, int) else f"`{k}`"
        advice = "a tuple in place of a list"
        if isinstance(x, Value):
            advice = "leave it out of the static ones"
        raise TypeError(
            f"{what} of {function_name(fun)}: static argument {called} must be hashable, got {x!r} of type "
            f"{type(x).__name__}; {advice}"
        )
    return tuple((k, _exact(x)) for k, x in (*found, *named))


def _exact(x: Any) -> Any:
    """What is equal only for values that are the same: not for 1, 1.0 and True, nor 0.0 and -0.0, alone or within."""
    kind = type(x)
    if isinstance(x, (float, complex, np.generic)):
        host = np.asarray(x)
        return kind, host.dtype, host.tobytes()
    if isinstance(x, Number) and kind not in _PLAIN:
        return kind, x, repr(x)
    if isinstance(x, tuple):
        return kind, *map(_exact, x)
    if isinstance(x, frozenset):
        return kind, frozenset(map(_exact, x))
    if isinstance(x, (range, slice)):
        return kind, *map(_exact, (x.start, x.stop, x.step))
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


_PLAIN = frozenset([int, bool, str, bytes, NoneType, FunctionType])


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


def each_static(chosen: Chosen, change: Callable[[Any], Any], args: Any, kwargs: Any) -> Any:
    """The arguments, with `change` of each static one in its place."""
    nums, names = chosen
    if not nums and not names:
        return args, kwargs
    given = list(args)
    for k in nums:
        if -len(given) <= k < len(given):
            given[k] = change(given[k])
    return tuple(given), {k: change(x) if k in names else x for k, x in kwargs.items()}


def exact(x: Any) -> Any:
    """A static argument as C++ and dictionaries may compare it."""
    return x if type(x) in _PLAIN else Exact(x)


def inexact(x: Any) -> Any:
    """Undo `exact`."""
    return x.value if type(x) is Exact else x


@boundary
def with_static(
    what: str,
    fun: Callable[..., Any],
    nums: int | Sequence[int],
    names: str | Sequence[str],
    transform: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """A transform of the function of the other arguments, made at each call for its static ones."""
    chosen = chosen_arguments(what, fun, nums, names)

    @wraps(fun)
    @guarded
    def call(*args: Any, **kwargs: Any) -> Any:
        static_key(what, fun, chosen, args, kwargs)
        static, fixed = chosen
        rest = _without(fun, static, args, {k: v for k, v in kwargs.items() if k in fixed})
        given = [x for k, x in enumerate(args) if k not in static]
        return transform(rest)(*given, **{k: v for k, v in kwargs.items() if k not in fixed})

    return call


def _without(
    fun: Callable[..., Any], static: tuple[int, ...], args: Any, fixed: dict[str, Any]
) -> Callable[..., Any]:
    """The function of the arguments that are not static."""

    @wraps(fun)
    def rest(*given: Any, **named: Any) -> Any:
        left = iter(given)
        full = [args[k] if k in static else next(left) for k in range(len(args))]
        return fun(*full, *left, **named, **fixed)

    try:
        whole = inspect.signature(fun)
    except (TypeError, ValueError):
        return rest
    kept = [
        q
        for k, q in enumerate(whole.parameters.values())
        if k not in static and q.name not in fixed
    ]
    rest.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]  # what messages read
    return rest
