"""A `cond` whose lanes choose for themselves is linear in the operands in which its branches are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import custom_jvp, grad, hessian, jacrev, jit, linear_transpose, vmap
from fiveloop.loops import cond, switch
from fiveloop.state import new_ref

X = np.array([0.5, -1.0, 2.0])
W = np.array([2.0, 3.0])
TAKEN = np.array([True, False, True])
WAYS = pytest.mark.parametrize("way", ["select", "group", "serial"])


def in_place(p: Any, x: Any, way: Any) -> Any:
    r = new_ref(x)

    def twice() -> Any:
        r[...] *= 2.0
        return r[...]

    return cond(p, twice, lambda: r[...] * 3.0, vmap=way)


LINEAR: dict[str, Any] = {
    "two products": lambda p, x, way: cond(p, lambda x: 2.0 * x, lambda x: 3.0 * x, x, vmap=way),
    "what lanes share": lambda p, x, way: cond(
        p, lambda x: (fnp.array(W) * x).sum() * 0.4, lambda x: 3.0 * x, x, vmap=way
    ),
    "a switch": lambda p, x, way: switch(
        p.astype(np.int32), [lambda x: 3.0 * x, lambda x: x + x], x, vmap=way
    ),
    "a Ref": in_place,
}


@WAYS
@pytest.mark.parametrize("name", LINEAR)
def test_a_choice_of_each_lane_is_transposed(name: str, way: str) -> None:
    fun = LINEAR[name]
    each = lambda x: vmap(lambda p, x: fun(p, x, way))(TAKEN, x)
    slopes = np.where(TAKEN, 2.0, 3.0)
    (got,) = linear_transpose(each, X)(X)
    np.testing.assert_allclose(np.asarray(got), slopes * X)
    shared = lambda x: vmap(lambda p: fun(p, x, way))(TAKEN)
    (got,) = linear_transpose(shared, np.float64(1.0))(X)
    np.testing.assert_allclose(np.asarray(got), (slopes * X).sum())


def sine(way: Any) -> Any:
    """A sine with a rule that branches on where it is."""

    @custom_jvp
    def fun(x: Any) -> Any:
        return fnp.sin(x)

    @fun.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        shared = fnp.array(W)
        up = lambda t: (shared * fnp.cos(x) * t).sum() / 5.0
        return fnp.sin(x), cond(x > 0, up, lambda t: fnp.cos(x) * t, t, vmap=way)

    return fun


@WAYS
def test_a_rule_that_branches_on_a_primal_is_differentiated_in_a_batch(way: str) -> None:
    fun = vmap(sine(way))
    np.testing.assert_allclose(np.asarray(grad(lambda x: fun(x).sum())(X)), np.cos(X))
    np.testing.assert_allclose(np.asarray(jit(jacrev(fun))(X)), np.diag(np.cos(X)))
    np.testing.assert_allclose(np.asarray(hessian(lambda x: fun(x).sum())(X)), np.diag(-np.sin(X)))
