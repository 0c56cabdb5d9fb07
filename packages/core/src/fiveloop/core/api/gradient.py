"""Gradients of functions with one scalar result: grad and value_and_grad."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, pytree, trace, transforms
from fiveloop.core.api import derivative_types, flat_function, flatten, pullback
from fiveloop.core.api.argnums import Argnums, Differentiation


@derivative_types.public(derivative_types.ValueAndGradient)  # type: ignore[type-abstract]  # it is a type alone
def value_and_grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives both the value of `fun` and its gradient with respect to the arguments `argnums`.

    `fun` must return a float scalar, or with `has_aux` a pair of one and anything else, arrays or not.
    The gradient has the structure, shapes and dtypes of the argument; for several argnums it is a tuple. With
    `holomorphic` arguments and result are complex, and the gradient is the complex derivative. With `allow_int`
    arguments may hold integers, whose gradients are zeros of their own dtype.

    >>> value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32))
    """
    return _both("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int)


def _both(
    what: str, fun: Callable[..., Any], argnums: Argnums, *options: bool
) -> Callable[..., Any]:
    """`value_and_grad`, or that part of `grad`, which messages name."""
    flatten.check_callable(what, fun)
    asked = Differentiation(what, fun, argnums, *options)

    @wraps(fun)
    @trace.guarded
    def value_and_grad_fun(*args: Any, **kwargs: Any) -> Any:
        chosen = asked.choose(args, kwargs)
        values, tree, flat = chosen.values, chosen.tree, chosen.flat
        outs, linear = pullback.linearized(flat, values, fun)
        cts = [_unit_cotangent(asked, flat, outs), *map(transforms.zero_like, outs[1:])]
        in_cts = pullback.pull_back(linear, [x.aval for x in values], cts)
        leaves = [flatten.as_result(transforms.instantiate(ct)) for ct in in_cts]
        return flat.results(outs), asked.one(pytree.tree_unflatten(tree, leaves)[0])

    return value_and_grad_fun


@derivative_types.public(derivative_types.Gradient)  # type: ignore[type-abstract]  # it is a type alone
def grad(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradient of `fun` with respect to the arguments `argnums`.

    As `value_and_grad`; with `has_aux` it gives a pair of the gradient and the auxiliary result.

    >>> grad(lambda x: x**2)(3.0)
    Array(6., dtype=float32)
    """
    both = _both("grad", fun, argnums, has_aux, holomorphic, allow_int)

    @wraps(fun)
    @trace.guarded
    def grad_fun(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_fun


def _unit_cotangent(
    asked: Differentiation, flat: flat_function.FlatFunction, outs: ad.Values
) -> ad.Tangent:
    if flat.num_outs != 1:
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {flat.num_outs or 'no'} arrays; use `vjp` for other "
            f"results, or has_aux=True for a pair"
        )
    aval = outs[0].aval
    if aval.accumulates:
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {aval}; read a Ref first: `ref[...]`"
        )
    if asked.holomorphic and (aval.shape or aval.dtype.kind != "c"):
        raise TypeError(
            f"{asked.of}: with holomorphic=True it must return one complex scalar, got {aval}; leave holomorphic out "
            f"for a real result"
        )
    if aval.shape or not aval.differentiable or (aval.dtype.kind == "c" and not asked.holomorphic):
        raise TypeError(
            f"{asked.of}: it must return one float scalar, got {aval}; reduce it, or use `vjp`"
        )
    return arrays.Scalar(np.ones((), aval.dtype))
