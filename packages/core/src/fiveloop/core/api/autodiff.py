"""Derivatives of a function at a point: jvp, linearize and vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from fiveloop.core.api.arguments import not_a_value
from fiveloop.core.api.flatten import (
    FlatFunction,
    Naming,
    argument_naming,
    as_result,
    check_callable,
    flatten_values,
)
from fiveloop.core.array import Value
from fiveloop.core.errors import at_source
from fiveloop.core.ir.avals import Aval
from fiveloop.core.primitives.convert import convert
from fiveloop.core.pytree import (
    TreeDef,
    keystr,
    tree_flatten_with_path,
    tree_structure,
    tree_unflatten,
)
from fiveloop.core.rule_types import UndefinedPrimal, Zero
from fiveloop.core.trace.boundary import boundary
from fiveloop.core.trace.tracer import current_source
from fiveloop.core.transforms.jvp import jvp_flat
from fiveloop.core.transforms.linearize import Linear, linearize_flat
from fiveloop.core.transforms.transpose import backward_pass
from fiveloop.core.transforms.zeros import Tangent, instantiate, zero_like

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
    fun: Callable[..., Any], primals: list[Any], tangents: list[Any], *, has_aux: bool = False
) -> Any: ...


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
                f"{at_source(current_source())}"
            )
    values, tree = flatten_values((tuple(primals), {}), _inner("jvp: primals"))
    dots = like_values(
        "jvp: tangents",
        tuple(tangents),
        tree_structure(tuple(primals)),
        [x.aval for x in values],
        "primals",
    )
    flat = FlatFunction(fun, tree, has_aux)
    outs, outs_dot = jvp_flat(flat, values, dots, fun)
    n = flat.num_outs
    result = flat.unflatten(outs[:n]), flat.unflatten([instantiate(t) for t in outs_dot[:n]])
    return (*result, flat.unflatten_aux(outs[n:])) if has_aux else result


def _inner(what: str) -> Naming:
    """Names for the leaves of `(args, {})`, where `args` goes by one name."""
    return lambda path: f"{what}{keystr(path[1:])}"


def like_values(
    what: str, given: Any, wanted: TreeDef, avals: Sequence[Aval], likes: str
) -> list[Tangent]:
    """The leaves of tangents or cotangents, checked against the types of the values that they belong to.

    `wanted` is the structure of these values, and `likes` is what they are called.
    """
    leaves, tree = flatten_values(given, what)
    if tree != wanted:
        raise TypeError(
            f"{what} must have the structure of the {likes}, {wanted}, got {tree}{at_source(current_source())}"
        )
    return [
        _check_like(what, given, k, aval, t, likes)
        for k, (aval, t) in enumerate(zip(avals, leaves, strict=True))
    ]


def _check_like(what: str, tree: Any, k: int, aval: Aval, t: Value, likes: str) -> Tangent:
    if not aval.differentiable:
        return Zero(aval.tangent())
    if t.weak_type and not t.shape and t.dtype != aval.dtype:
        t = convert(t, aval.dtype)
    if t.shape != aval.shape or t.dtype != aval.dtype:
        path = keystr(tree_flatten_with_path(tree)[0][k][0])
        raise TypeError(
            f"{what}{path} must have the type of the {likes}, {aval}, got {t.aval}{at_source(current_source())}"
        )
    return t


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
    Array(6., dtype=float32)
    """
    check_callable("linearize", fun)
    values, tree = flatten_values((primals, {}), argument_naming("linearize", fun))
    nonzero = tuple(x.aval.differentiable for x in values)
    flat = FlatFunction(fun, tree, has_aux)
    outs, linear = linearize_flat(flat, values, nonzero, fun)
    n, in_tree, avals = flat.num_outs, tree_structure(primals), [x.aval for x in values]

    @boundary
    def f_lin(*tangents: Any) -> Any:
        checked = like_values("linearize: tangents", tangents, in_tree, avals, "primals")
        given = [instantiate(t) for t, nz in zip(checked, nonzero, strict=True) if nz]
        return flat.unflatten([instantiate(t) for t in linear(given, outs)[:n]])

    result = flat.unflatten(outs[:n])
    return (result, f_lin, flat.unflatten_aux(outs[n:])) if has_aux else (result, f_lin)


@overload
def vjp(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[Any], tuple[*Ts]]]: ...


@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[Any], tuple[*Ts]], Aux]: ...


@boundary
def vjp(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and a function from a cotangent of it to cotangents of the arguments.

    The cotangent has the structure, shapes and dtypes of the result. With `has_aux` the function returns a
    pair, whose second part is given back as it is, third.

    >>> y, f_vjp = vjp(lambda x: x * x, 3.0)
    >>> f_vjp(1.0)
    (Array(6., dtype=float32),)
    """
    check_callable("vjp", fun)
    name = argument_naming("vjp", fun)
    values, tree = flatten_values((primals, {}), name)
    for (path, _), x in zip(tree_flatten_with_path((primals, {}))[0], values, strict=True):
        if x.aval.accumulates:
            raise not_a_value(name(path), x.aval)
    flat = FlatFunction(fun, tree, has_aux)
    nonzero = tuple(x.aval.differentiable for x in values)
    outs, linear = linearize_flat(flat, values, nonzero, fun)
    n = flat.num_outs
    out_avals = [x.aval for x in outs[:n]]

    @boundary
    def f_vjp(ct: Any) -> Any:
        assert flat.out_tree is not None, "unreachable: the function has run"
        checked = like_values("vjp: cotangent", ct, flat.out_tree, out_avals, "result")
        in_cts = iter(pull_back(linear, values, nonzero, [*checked, *map(zero_like, outs[n:])]))
        leaves = [
            as_result(instantiate(next(in_cts) if nz else zero_like(x)))
            for x, nz in zip(values, nonzero, strict=True)
        ]
        return tree_unflatten(tree, leaves)[0]

    result = flat.unflatten(outs[:n])
    return (result, f_vjp, flat.unflatten_aux(outs[n:])) if has_aux else (result, f_vjp)


def pull_back(
    linear: Linear, primals: Sequence[Value], nonzero: Sequence[bool], cts: Sequence[Tangent]
) -> list[Tangent]:
    """The cotangents of the differentiated inputs, from those of all results."""
    unknowns = [
        UndefinedPrimal(x.aval.tangent()) for x, nz in zip(primals, nonzero, strict=True) if nz
    ]
    given = [ct for ct, nz in zip(cts, linear.out_nonzero, strict=True) if nz]
    return backward_pass(linear.jaxpr, [*linear.residuals, *unknowns], given)
