"""Settings: what a block of a program chooses for all that is traced in it; part of every key of kept traces."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Generic, TypeVar

from fiveloop.core import errors, ir
from fiveloop.core.trace.modes import counted

T = TypeVar("T", bound=Hashable)


class _Chosen(threading.local):
    values: tuple[tuple[str, Hashable], ...] = ()


_chosen = _Chosen()


class Setting(Generic[T]):
    """A value with a default that a block may change; values are immutable and can be compared.

    What is traced may depend on `value`, and needs to tell nobody: a function is traced again where it differs.

    >>> precision = Setting("precision", "low")
    >>> with precision.to("high"):
    ...     precision.value
    'high'
    >>> precision.value
    'low'
    """

    def __init__(self, name: str, default: T) -> None:
        self.name = name
        self.default = default

    @property
    def value(self) -> T:
        """What holds here."""
        for name, value in _chosen.values:
            if name == self.name:
                return value  # type: ignore[return-value]  # `to` has put it there
        return self.default

    @contextmanager
    def to(self, value: T) -> Iterator[None]:
        """Within the block the setting has this value, in this thread."""
        before = _chosen.values
        others = [pair for pair in before if pair[0] != self.name]
        mine = [] if value == self.default else [(self.name, value)]
        _chosen.values = tuple(sorted([*others, *mine], key=lambda pair: pair[0]))
        try:
            with counted():
                yield
        finally:
            _chosen.values = before


class UserContext(Setting[T]):
    """A setting of a user's own: `with context(value):` changes it, `context.value` is what holds."""

    def __call__(self, value: T) -> AbstractContextManager[None]:
        """A block within which the context has this value."""
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{self.name}: expected a hashable value, as functions are traced anew for each, got {value!r} of type "
                f"{type(value).__name__}; a tuple in place of a list{errors.at_source(ir.user_source())}"
            ) from None
        return self.to(value)


_serial = count()


def make_user_context(default_value: T, *, name: str = "user context") -> UserContext[T]:
    """A value that functions may depend on while they are traced: a jitted function has a program for each.

    >>> from fiveloop.core import jit
    >>> scale = make_user_context(1.0, name="scale")
    >>> scaled = jit(lambda x: x * scale.value)
    >>> with scale(3.0):
    ...     print(scaled(2.0))
    6.0
    >>> print(scaled(2.0))
    2.0
    """
    return UserContext(f"{name} #{next(_serial)}", default_value)


def chosen_settings() -> tuple[tuple[str, Hashable], ...]:
    """The settings that are not at their defaults here, with their values."""
    return _chosen.values
