"""Derivatives: jvp, linearize, vjp, grad and value_and_grad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any

import numpy as np

from fiveloop.core.api.flatten import (
    FlatFunction,
    Naming,
    argument_name,
    argument_naming,
    check_callable,
    flatten_values,
    function_name,
)
from fiveloop.core.array import Scalar, Value, as_value
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
from fiveloop.core.rule_types import UndefinedPrimal
from fiveloop.core.trace.tracer import current_source
from fiveloop.core.transforms.jvp import jvp_flat
from fiveloop.core.transforms.linearize import Linear, linearize_flat
from fiveloop.core.transforms.transpose import backward_pass
from fiveloop.core.transforms.zeros import Tangent, instantiate, zero_like


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
    dots = _like(
        "jvp: tangents", tuple(tangents), tree_structure(tuple(primals)), values, "primals"
    )
    flat = FlatFunction(fun, tree, has_aux)
    outs, outs_dot = jvp_flat(flat, values, dots, fun)
    n = flat.num_outs
    result = flat.unflatten(outs[:n]), flat.unflatten([instantiate(t) for t in outs_dot[:n]])
    return (*result, flat.unflatten_aux(outs[n:])) if has_aux else result


def _inner(what: str) -> Naming:
    """Names for the leaves of `(args, {})`, where `args` goes by one name."""
    return lambda path: f"{what}{keystr(path[1:])}"


def _like(
    what: str, given: Any, wanted: TreeDef, values: Sequence[Value], likes: str
) -> list[Tangent]:
    """The leaves of tangents or cotangents, checked against the values that they belong to.

    `wanted` is the structure of these values, and `likes` is what they are called.
    """
    leaves, tree = flatten_values(given, what)
    if tree != wanted:
        raise TypeError(
            f"{what} must have the structure of the {likes}, {wanted}, got {tree}{at_source(current_source())}"
        )
    return [
        _check_like(what, given, k, x, t, likes)
        for k, (x, t) in enumerate(zip(values, leaves, strict=True))
    ]


def _check_like(what: str, tree: Any, k: int, x: Value, t: Value, likes: str) -> Tangent:
    if not x.aval.differentiable:
        return zero_like(x)
    if t.weak_type and not t.shape and t.dtype != x.dtype:
        t = convert(t, x.dtype)
    if t.shape != x.shape or t.dtype != x.dtype:
        path = keystr(tree_flatten_with_path(tree)[0][k][0])
        raise TypeError(
            f"{what}{path} must have the type of the {likes}, {x.aval}, got {t.aval}{at_source(current_source())}"
        )
    return t


def linearize(fun: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of `fun(*primals)`, and its derivative there as a function of tangents.

    >>> y, f_lin = linearize(lambda x: x * x, 3.0)
    >>> f_lin(1.0)
    Array(6., dtype=float32)
    """
    check_callable("linearize", fun)
    values, tree = flatten_values((primals, {}), argument_naming("linearize", fun))
    nonzero = tuple(x.aval.differentiable for x in values)
    flat = FlatFunction(fun, tree)
    outs, linear = linearize_flat(flat, values, nonzero, fun)

    def f_lin(*tangents: Any) -> Any:
        checked = _like("linearize: tangents", tangents, tree_structure(primals), values, "primals")
        given = [instantiate(t) for t, nz in zip(checked, nonzero, strict=True) if nz]
        return flat.unflatten([instantiate(t) for t in linear(given, outs)])

    return flat.unflatten(outs), f_lin


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
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
            raise _not_a_value(name(path), x.aval)
    flat = FlatFunction(fun, tree, has_aux)
    nonzero = tuple(x.aval.differentiable for x in values)
    outs, linear = linearize_flat(flat, values, nonzero, fun)
    n = flat.num_outs

    def f_vjp(ct: Any) -> Any:
        assert flat.out_tree is not None, "unreachable: the function has run"
        checked = _like("vjp: cotangent", ct, flat.out_tree, outs[:n], "result")
        in_cts = iter(pull_back(linear, values, nonzero, [*checked, *map(zero_like, outs[n:])]))
        leaves = [
            instantiate(next(in_cts) if nz else zero_like(x))
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


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives both the value of `fun` and its gradient with respect to the arguments `argnums`.

    `fun` must return a float scalar, or with `has_aux` a pair of one and anything else. The gradient has the
    structure, shapes and dtypes of the argument; for several argnums it is a tuple.

    >>> value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32))
    """
    check_callable("grad", fun)

    @wraps(fun)
    def value_and_grad_fun(*args: Any, **kwargs: Any) -> Any:
        wanted = _wanted(fun, argnums, len(args))
        chosen = tuple(args[k] for k in wanted)

        def of_chosen(*given: Any) -> Any:
            full = list(args)
            for k, x in zip(wanted, given, strict=True):
                full[k] = x
            return fun(*full, **kwargs)

        values, tree = flatten_values((chosen, {}), argument_naming("grad", fun, wanted))
        _check_differentiable(fun, chosen, wanted)
        flat = FlatFunction(of_chosen, tree, has_aux, fun)
        nonzero = (True,) * len(values)
        outs, linear = linearize_flat(flat, values, nonzero, fun)
        ct = _unit_cotangent(fun, flat, outs)
        in_cts = pull_back(linear, values, nonzero, [ct, *map(zero_like, outs[1:])])
        grads, _ = tree_unflatten(tree, [instantiate(c) for c in in_cts])
        value = flat.unflatten(outs[:1])
        result = (value, flat.unflatten_aux(outs[1:])) if has_aux else value
        return result, grads[0] if isinstance(argnums, int) else grads

    return value_and_grad_fun


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `fun` with respect to the arguments `argnums`.

    As `value_and_grad`; with `has_aux` it gives a pair of the gradient and the auxiliary result.

    >>> grad(lambda x: x**2)(3.0)
    Array(6., dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux=has_aux)

    @wraps(fun)
    def grad_fun(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_fun


def _wanted(fun: object, argnums: int | Sequence[int], num_args: int) -> list[int]:
    wanted = []
    for k in (argnums,) if isinstance(argnums, (int, str)) else argnums:
        if not hasattr(k, "__index__") or not -num_args <= index(k) < num_args:
            raise ValueError(
                f"grad of {function_name(fun)}: argnums must name some of its {num_args} positional arguments by "
                f"number, got {k!r}{at_source(current_source())}"
            )
        wanted.append(index(k) % num_args)
    return wanted


def _check_differentiable(fun: object, chosen: Sequence[Any], wanted: Sequence[int]) -> None:
    for k, arg in zip(wanted, chosen, strict=True):
        for path, leaf in tree_flatten_with_path(arg)[0]:
            aval = as_value(leaf).aval
            if aval.accumulates:
                raise _not_a_value(
                    f"grad of {function_name(fun)}: argument {argument_name(fun, k)}{keystr(path)}",
                    aval,
                )
            if not aval.differentiable:
                raise TypeError(
                    f"grad of {function_name(fun)}: argument {argument_name(fun, k)}{keystr(path)} must be floating to "
                    f"be differentiated, got {aval}; convert it first, or leave it out of argnums"
                    f"{at_source(current_source())}"
                )


def _not_a_value(what: str, aval: Aval) -> TypeError:
    """An argument whose contents change has no gradient of its own: what it holds has one."""
    return TypeError(
        f"{what} must be an array to be differentiated, got a Ref of type {aval}; pass what it holds, `ref[...]`, and "
        f"make the Ref in the function{at_source(current_source())}"
    )


def _unit_cotangent(fun: object, flat: FlatFunction, outs: Sequence[Value]) -> Tangent:
    if flat.num_outs != 1:
        raise TypeError(
            f"grad of {function_name(fun)}: it must return one float scalar, got {flat.num_outs} arrays; use `vjp` "
            f"for other results, or has_aux=True for a pair{at_source(current_source())}"
        )
    aval = outs[0].aval
    if aval.shape or aval.dtype.kind == "c" or not aval.differentiable:
        raise TypeError(
            f"grad of {function_name(fun)}: it must return one float scalar, got {aval}; reduce it, or use "
            f"`vjp`{at_source(current_source())}"
        )
    return Scalar(np.ones((), aval.dtype))
