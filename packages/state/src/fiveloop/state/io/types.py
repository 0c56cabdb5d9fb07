"""Types of calls of Python for the type checker: the results have the given `ShapeDtype`s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast, overload

from fiveloop.core import Value, pytree
from fiveloop.core.api.flatten import ShapeDtype

K = TypeVar("K")
Fun = Callable[..., Any]


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
