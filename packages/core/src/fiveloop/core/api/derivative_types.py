"""Types of `grad`, `value_and_grad`, the Jacobians and `hessian` for the type checker.

A derivative of one array has the structure of the argument, and a derivative with respect to one array that of the
result. Where neither is one array, or `argnums` is of an unusual form, the result is a `Pytree`, which a program casts
to the type that it knows it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from fiveloop.core import pytree, trace
from fiveloop.core.api.arguments import Argnums
from fiveloop.core.arrays import Value
from fiveloop.core.util import P, R, T

X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
A = TypeVar("A")
F1 = Callable[Concatenate[X, P], R]
F2 = Callable[Concatenate[X, Y, P], R]
F3 = Callable[Concatenate[X, Y, Z, P], R]
"""A function of arguments of types X, Y and Z, as many as the name says, and of others, that returns R."""
Anything = Callable[..., object]
Arg0 = Literal[0]
Arg1 = Literal[1]
Arg2 = Literal[2]
Both = tuple[Arg0, Arg1]
All3 = tuple[Arg0, Arg1, Arg2]
No = Literal[False]
Yes = Literal[True]


class Opt(TypedDict, total=False):
    """Options of a gradient."""

    holomorphic: bool
    allow_int: bool


class Jac(Opt, total=False):
    """Options of a Jacobian."""

    chunk: int | None


class OnTrees(Protocol):
    """A derivative of which only the program knows the structure; where a function is untyped, so is it."""

    def __call__(self, *args: Any, **kwargs: Any) -> pytree.Pytree: ...


class Gradient(Protocol):
    """The type of `grad`."""

    @overload
    def __call__(
        self, fun: F1[X, P, object], argnums: Arg0 = 0, *, has_aux: No = False, **kw: Unpack[Opt]
    ) -> F1[X, P, X]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, object], argnums: Arg1, *, has_aux: No = False, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, Y]: ...
    @overload
    def __call__(
        self, fun: F3[X, Y, Z, P, object], argnums: Arg2, *, has_aux: No = False, **kw: Unpack[Opt]
    ) -> F3[X, Y, Z, P, Z]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, object], argnums: Both, *, has_aux: No = False, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, tuple[X, Y]]: ...
    @overload
    def __call__(
        self, fun: F3[X, Y, Z, P, object], argnums: All3, *, has_aux: No = False, **kw: Unpack[Opt]
    ) -> F3[X, Y, Z, P, tuple[X, Y, Z]]: ...
    @overload
    def __call__(
        self, fun: F1[X, P, tuple[object, A]], argnums: Arg0 = 0, *, has_aux: Yes, **kw: Unpack[Opt]
    ) -> F1[X, P, tuple[X, A]]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, tuple[object, A]], argnums: Arg1, *, has_aux: Yes, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, tuple[Y, A]]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, tuple[object, A]], argnums: Both, *, has_aux: Yes, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, tuple[tuple[X, Y], A]]: ...
    @overload
    def __call__(
        self, fun: Anything, argnums: Argnums = 0, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> OnTrees: ...


class ValueAndGradient(Protocol):
    """The type of `value_and_grad`."""

    @overload
    def __call__(
        self, fun: F1[X, P, R], argnums: Arg0 = 0, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> F1[X, P, tuple[R, X]]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, R], argnums: Arg1, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, tuple[R, Y]]: ...
    @overload
    def __call__(
        self, fun: F3[X, Y, Z, P, R], argnums: Arg2, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> F3[X, Y, Z, P, tuple[R, Z]]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, R], argnums: Both, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> F2[X, Y, P, tuple[R, tuple[X, Y]]]: ...
    @overload
    def __call__(
        self, fun: F3[X, Y, Z, P, R], argnums: All3, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> F3[X, Y, Z, P, tuple[R, tuple[X, Y, Z]]]: ...
    @overload
    def __call__(
        self, fun: Callable[..., R], argnums: Argnums, *, has_aux: bool = False, **kw: Unpack[Opt]
    ) -> Callable[..., tuple[R, pytree.Pytree]]: ...


class Jacobian(Protocol):
    """The type of `jacfwd` and `jacrev`."""

    @overload
    def __call__(
        self, fun: F1[X, P, Value], argnums: Arg0 = 0, *, has_aux: No = False, **kw: Unpack[Jac]
    ) -> F1[X, P, X]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, Value], argnums: Arg1, *, has_aux: No = False, **kw: Unpack[Jac]
    ) -> F2[X, Y, P, Y]: ...
    @overload
    def __call__(
        self, fun: F2[X, Y, P, Value], argnums: Both, *, has_aux: No = False, **kw: Unpack[Jac]
    ) -> F2[X, Y, P, tuple[X, Y]]: ...
    @overload
    def __call__(
        self, fun: F1[X, P, tuple[Value, A]], argnums: Arg0 = 0, *, has_aux: Yes, **kw: Unpack[Jac]
    ) -> F1[X, P, tuple[X, A]]: ...
    @overload
    def __call__(
        self, fun: F1[Value, P, R], argnums: Arg0 = 0, *, has_aux: No = False, **kw: Unpack[Jac]
    ) -> F1[Value, P, R]: ...
    @overload
    def __call__(
        self, fun: F1[Value, P, tuple[R, A]], argnums: Arg0 = 0, *, has_aux: Yes, **kw: Unpack[Jac]
    ) -> F1[Value, P, tuple[R, A]]: ...
    @overload
    def __call__(
        self, fun: Anything, argnums: Argnums = 0, *, has_aux: bool = False, **kw: Unpack[Jac]
    ) -> OnTrees: ...


class SecondDerivatives(Protocol):
    """The type of `hessian`."""

    @overload
    def __call__(
        self, fun: F1[Value, P, R], argnums: Arg0 = 0, *, has_aux: No = False, **kw: Unpack[Jac]
    ) -> F1[Value, P, R]: ...
    @overload
    def __call__(
        self, fun: F1[Value, P, tuple[R, A]], argnums: Arg0 = 0, *, has_aux: Yes, **kw: Unpack[Jac]
    ) -> F1[Value, P, tuple[R, A]]: ...
    @overload
    def __call__(
        self, fun: Anything, argnums: Argnums = 0, *, has_aux: bool = False, **kw: Unpack[Jac]
    ) -> OnTrees: ...


def public(kind: type[T]) -> Callable[[Callable[..., Any]], T]:
    """Decorate a transform: a boundary, of a type whose overloads several transforms share."""
    return lambda transform: cast(
        T, trace.boundary(transform)
    )  # the signatures say less than the type
