"""What marks a part of a program: `stop_gradient`, through which no derivative flows, and `named_call`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

import numpy as np

from fiveloop.core.api.flatten import as_result, flatten_values
from fiveloop.core.api.staging import closed_as
from fiveloop.core.array import ArrayLike, Value
from fiveloop.core.primitives import elementwise
from fiveloop.core.pytree import tree_unflatten

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def stop_gradient(x: ArrayLike) -> Value: ...


@overload
def stop_gradient(x: T) -> T: ...


def stop_gradient(x: object) -> object:
    """The same arrays, through which no derivative flows; `x` is an array or a pytree of them.

    Integers and bools have no derivative, and are given back as they are.

    >>> from fiveloop.core import grad
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float32)
    """
    if isinstance(x, (Value, np.ndarray)):
        return elementwise.stop_gradient(x)
    values, tree = flatten_values(x, "stop_gradient: argument `x`")
    stopped = [as_result(elementwise.stop_gradient(v)) for v in values]
    out: object = tree_unflatten(tree, stopped)
    return out


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """`fun` under a name in printed jaxprs, its own if none is given; it is compiled in place, as if not marked.

    >>> from fiveloop.core import make_jaxpr
    >>> "name=twice" in str(make_jaxpr(named_call(lambda x: x * 2.0, name="twice"))(1.0))
    True
    """
    return closed_as("named_call", fun, name, inline=True)
