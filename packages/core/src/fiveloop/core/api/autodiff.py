"""Derivatives of a function at a point: jvp, linearize and vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from fiveloop.core.api.flat_function import contents_of, lending
from fiveloop.core.api.flatten import Naming, argument_naming, check_callable, flatten_values
from fiveloop.core.api.operands import check_mutable
from fiveloop.core.api.pullback import Pullback, Pushforward, like_values, linearized
from fiveloop.core.pytree import (
    keystr,
    tree_structure,
)
from fiveloop.core.trace.boundary import boundary
from fiveloop.core.transforms.jvp import jvp_flat
from fiveloop.core.transforms.zeros import instantiate

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
Aux = TypeVar("Aux")


@overload
def jvp(
    fun: Callable[[*Ts], R],
    primals: tuple[*Ts],
    tangents: tuple[Any, ...],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fun: Callable[[*Ts], tuple[R, Aux]],
    primals: tuple[*Ts],
    tangents: tuple[Any, ...],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


@overload
def jvp(
    fun: Callable[..., R],
    primals: list[Any],
    tangents: list[Any],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]],
    primals: list[Any],
    tangents: list[Any],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


@boundary
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
) -> Any:
    """The result of `fun(*primals)` and its derivative in the direction `tangents`.

    `tangents` has the structure, shapes and dtypes of `primals`; integer arguments take any tangent, which
    counts as zero. With `has_aux` the function returns a pair, whose second part is given back as it is.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_callable("jvp", fun)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TypeError(
                f"jvp: {name} must be a tuple or a list with one entry an argument, got {type(given).__name__}"
            )
    values, tree = flatten_values((tuple(primals), {}), _inner("jvp: primals"))
    flat, values = lending(fun, tree, values, has_aux)
    given_dots, lent_dots = contents_of(tuple(tangents))
    dots = like_values(
        "jvp: tangents",
        given_dots,
        tree_structure(tuple(primals)),
        [x.aval for x in values],
        "primals",
    )
    outs, outs_dot = jvp_flat(flat, values, dots, fun)
    flat.give_back(outs)
    given = [instantiate(t) for t in outs_dot]
    flat.give_back(given, to=lent_dots)
    return flat.results(outs, flat.unflatten(given[: flat.num_outs]))


def _inner(what: str) -> Naming:
    """Names for the leaves of `(args, {})`, where `args` goes by one name."""
    return lambda path: f"{what}{keystr(path[1:])}"


@overload
def linearize(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., R]]: ...


@overload
def linearize(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Aux]: ...


@boundary
def linearize(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and its derivative there as a function of tangents.

    With `has_aux` the function returns a pair, whose second part is given back as it is, third.

    >>> y, f_lin = linearize(lambda x: x * x, 3.0)
    >>> f_lin(1.0)
    Array(6., dtype=float32, weak_type=True)
    """
    check_callable("linearize", fun)
    values, tree = flatten_values((primals, {}), argument_naming("linearize", fun))
    flat, values = lending(fun, tree, values, has_aux)
    outs, linear = linearized(flat, values, fun)
    return flat.results(outs, Pushforward(linear, flat, values, outs))


@overload
def vjp(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Pullback[tuple[*Ts]]]: ...


@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Pullback[tuple[*Ts]], Aux]: ...


@boundary
def vjp(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and a function from a cotangent of it to cotangents of the arguments.

    The cotangent has the structure, shapes and dtypes of the result. With `has_aux` the function returns a
    pair, whose second part is given back as it is, third. The cotangent of a Ref is that of what it held before
    the call; `f_vjp.with_refs` adds cotangents to Refs. `f_vjp` is a pytree of what it keeps: `jit` takes and gives it.

    >>> y, f_vjp = vjp(lambda x: x * x, 3.0)
    >>> f_vjp(1.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    check_callable("vjp", fun)
    name = argument_naming("vjp", fun)
    values, tree = flatten_values((primals, {}), name)
    check_mutable((primals, {}), values, name)
    flat, values = lending(fun, tree, values, has_aux)
    outs, linear = linearized(flat, values, fun)
    f_vjp: Pullback[Any] = Pullback(linear, flat, values, outs)
    return flat.results(outs, f_vjp)
