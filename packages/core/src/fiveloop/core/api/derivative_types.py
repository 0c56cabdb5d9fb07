"""What the type checker knows of derivatives: the types of `grad`, `value_and_grad`, the Jacobians and `hessian`.

A derivative of one array has the structure of the argument, and a derivative with respect to one array that of the
result. Where neither is one array, or `argnums` is not among the usual, the result is a `Pytree`, which a program
casts to what it knows it to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from fiveloop.core.api.arguments import Argnums
from fiveloop.core.array import Value
from fiveloop.core.pytree import Pytree
from fiveloop.core.trace.boundary import boundary

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
Aux = TypeVar("Aux")
First = Literal[0]
Second = Literal[1]
Third = Literal[2]
Without = Literal[False]
With = Literal[True]


class GradientOptions(TypedDict, total=False):
    """How a gradient is taken."""

    holomorphic: bool
    allow_int: bool


class JacobianOptions(GradientOptions, total=False):
    """How a Jacobian is taken."""

    chunk: int | None


class OnTrees(Protocol):
    """A derivative of which only the program knows the structure; where a function is untyped, so is it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Pytree: ...


class Gradient(Protocol):
    """The type of `grad`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, P], object],
        argnums: First = 0,
        *,
        has_aux: Without = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, P], X]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], object],
        argnums: Second,
        *,
        has_aux: Without = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], Y]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, Z, P], object],
        argnums: Third,
        *,
        has_aux: Without = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, Z, P], Z]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], object],
        argnums: tuple[First, Second],
        *,
        has_aux: Without = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[X, Y]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, Z, P], object],
        argnums: tuple[First, Second, Third],
        *,
        has_aux: Without = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, Z, P], tuple[X, Y, Z]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, P], tuple[object, Aux]],
        argnums: First = 0,
        *,
        has_aux: With,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, P], tuple[X, Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], tuple[object, Aux]],
        argnums: Second,
        *,
        has_aux: With,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[Y, Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], tuple[object, Aux]],
        argnums: tuple[First, Second],
        *,
        has_aux: With,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[tuple[X, Y], Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[..., object],
        argnums: Argnums = 0,
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> OnTrees: ...


class ValueAndGradient(Protocol):
    """The type of `value_and_grad`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, P], R],
        argnums: First = 0,
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, P], tuple[R, X]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], R],
        argnums: Second,
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[R, Y]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, Z, P], R],
        argnums: Third,
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, Z, P], tuple[R, Z]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], R],
        argnums: tuple[First, Second],
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[R, tuple[X, Y]]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, Z, P], R],
        argnums: tuple[First, Second, Third],
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[Concatenate[X, Y, Z, P], tuple[R, tuple[X, Y, Z]]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[..., R],
        argnums: Argnums,
        *,
        has_aux: bool = False,
        **options: Unpack[GradientOptions],
    ) -> Callable[..., tuple[R, Pytree]]: ...


class Jacobian(Protocol):
    """The type of `jacfwd` and `jacrev`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, P], Value],
        argnums: First = 0,
        *,
        has_aux: Without = False,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[X, P], X]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], Value],
        argnums: Second,
        *,
        has_aux: Without = False,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[X, Y, P], Y]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, Y, P], Value],
        argnums: tuple[First, Second],
        *,
        has_aux: Without = False,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[X, Y, P], tuple[X, Y]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[X, P], tuple[Value, Aux]],
        argnums: First = 0,
        *,
        has_aux: With,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[X, P], tuple[X, Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[Value, P], R],
        argnums: First = 0,
        *,
        has_aux: Without = False,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[Value, P], R]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[Value, P], tuple[R, Aux]],
        argnums: First = 0,
        *,
        has_aux: With,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[Value, P], tuple[R, Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[..., object],
        argnums: Argnums = 0,
        *,
        has_aux: bool = False,
        **options: Unpack[JacobianOptions],
    ) -> OnTrees: ...


class SecondDerivatives(Protocol):
    """The type of `hessian`."""

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[Value, P], R],
        argnums: First = 0,
        *,
        has_aux: Without = False,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[Value, P], R]: ...

    @overload
    def __call__(
        self,
        fun: Callable[Concatenate[Value, P], tuple[R, Aux]],
        argnums: First = 0,
        *,
        has_aux: With,
        **options: Unpack[JacobianOptions],
    ) -> Callable[Concatenate[Value, P], tuple[R, Aux]]: ...

    @overload
    def __call__(
        self,
        fun: Callable[..., object],
        argnums: Argnums = 0,
        *,
        has_aux: bool = False,
        **options: Unpack[JacobianOptions],
    ) -> OnTrees: ...


def as_gradient(transform: Callable[..., Any]) -> Gradient:
    """The transform under its type."""
    return cast(
        Gradient, boundary(transform)
    )  # the overloads of functions that are alike stand once


def as_value_and_gradient(transform: Callable[..., Any]) -> ValueAndGradient:
    """The transform under its type."""
    return cast(
        ValueAndGradient, boundary(transform)
    )  # the overloads of functions that are alike stand once


def as_jacobian(transform: Callable[..., Any]) -> Jacobian:
    """The transform under its type."""
    return cast(
        Jacobian, boundary(transform)
    )  # the overloads of functions that are alike stand once


def as_second_derivatives(transform: Callable[..., Any]) -> SecondDerivatives:
    """The transform under its type."""
    return cast(
        SecondDerivatives, boundary(transform)
    )  # the overloads of functions that are alike stand once
