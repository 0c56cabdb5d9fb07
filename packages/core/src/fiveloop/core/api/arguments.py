"""Arguments chosen by place or by name, and the function of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from operator import index
from typing import Any

from fiveloop.core import trace
from fiveloop.core.api.flatten import Naming, argument_naming, function_name, parameters
from fiveloop.core.api.static import static_key


@dataclass(frozen=True, slots=True)
class Chosen:
    """Some arguments of a function, by place and by name."""

    nums: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nums or self.names)

    def of(self, args: Any, kwargs: Any) -> tuple[dict[int, Any], dict[str, Any]]:
        """Those of a call, by place and by name."""
        placed = {k: args[k] for k in self.nums if k < len(args)}
        return placed, {k: kwargs[k] for k in self.names if k in kwargs}

    def others(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The other arguments of a call."""
        if not self:
            return args, kwargs
        positional = tuple([x for k, x in enumerate(args) if k not in self.nums])
        return positional, {k: v for k, v in kwargs.items() if k not in self.names}

    def other_places(self, num_args: int) -> list[int]:
        """The places of the other arguments of a call."""
        return [k for k in range(num_args) if k not in self.nums]

    def of_others(
        self, fun: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        """The function of the other arguments of a call, with these as they are."""
        return of_places(fun, *self.of(args, kwargs), self.other_places(len(args)))

    def naming(self, what: str, fun: object, num_args: int) -> Naming:
        """What the leaves of the other arguments are called."""
        return argument_naming(what, fun, self.other_places(num_args))

    def key(self, what: str, fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What tells calls apart in which these differ; TypeError if one cannot be compared."""
        placed, named = self.of(args, kwargs)
        return static_key(what, fun, [*placed.items(), *named.items()])

    def changed(self, change: Callable[[Any], Any], args: Any, kwargs: Any) -> Any:
        """The arguments of a call, with `change` of each of these in its place."""
        if not self:
            return args, kwargs
        given = list(args)
        for k in self.nums:
            if -len(given) <= k < len(given):
                given[k] = change(given[k])
        return tuple(given), {k: change(x) if k in self.names else x for k, x in kwargs.items()}


def of_places(
    fun: Callable[..., Any], fixed: dict[int, Any], named: dict[str, Any], places: Sequence[int]
) -> Callable[..., Any]:
    """The function of the arguments at `places`; the others are `fixed`, and `named`.

    It holds these alone. More arguments than there are places come after all others.
    """

    def of_given(*given: Any, **others: Any) -> Any:
        placed = {**fixed, **dict(zip(places, given, strict=False))}
        full = [placed[k] for k in sorted(placed)]
        return fun(*full, *given[len(places) :], **others, **named)

    return of_given


def chosen_arguments(
    what: str,
    fun: Callable[..., Any],
    nums: int | Sequence[int],
    names: str | Sequence[str],
    kind: str = "static",
) -> Chosen:
    """Arguments of a kind, static or donated, by place and by name: each is both, where the signature tells."""
    of = f"{what} of {function_name(fun)}"
    numbers = nums if isinstance(nums, (tuple, list)) else (nums,)
    try:
        places = tuple([index(k) for k in numbers])
    except TypeError:
        raise TypeError(
            f"{of}: {kind}_argnums must be an integer or a tuple of them, got {nums!r}; names go into {kind}_argnames"
        ) from None
    given = (names,) if isinstance(names, str) else tuple(names)
    known = parameters(fun)
    if known is None:
        return Chosen(places, given)
    for name in given:
        if name not in known.names and not known.takes_names:
            raise ValueError(f"{of}: {kind}_argnames names {name!r}, which is no argument of it")
    placed = known.placed
    for k in places:
        if not -len(placed) <= k < len(placed) and not known.takes_more:
            raise ValueError(
                f"{of}: {kind}_argnums must name one of its {len(placed)} positional arguments, got {k}"
            )
    every_num = {k % len(placed) if placed and k < 0 else k for k in places}
    every_num |= {placed.index(n) for n in given if n in placed}
    every_name = {*given, *[placed[k] for k in every_num if k < len(placed)]}
    return Chosen(tuple(sorted(every_num)), tuple(sorted(every_name)))


@trace.boundary
def with_static(
    what: str,
    fun: Callable[..., Any],
    nums: int | Sequence[int],
    names: str | Sequence[str],
    transform: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """A transform of the function of the other arguments, made at each call for its static ones."""
    static = chosen_arguments(what, fun, nums, names)

    @wraps(fun)
    @trace.guarded
    def call(*args: Any, **kwargs: Any) -> Any:
        static.key(what, fun, args, kwargs)
        rest = wraps(fun)(static.of_others(fun, args, kwargs))
        if parameters(fun) is not None:
            fixed = {*static.of(args, kwargs)[1]}
            # What messages read.
            rest.__signature__ = _without(fun, static.nums, fixed)  # type: ignore[attr-defined]
        positional, named = static.others(args, kwargs)
        return transform(rest)(*positional, **named)

    return call


def _without(fun: Callable[..., Any], nums: Sequence[int], names: set[str]) -> Any:
    """The signature of the function of the other arguments."""
    whole = signature(fun)
    items: list[Parameter] = list(whole.parameters.values())
    kept = [q for k, q in enumerate(items) if k not in nums and q.name not in names]
    return whole.replace(parameters=kept)
