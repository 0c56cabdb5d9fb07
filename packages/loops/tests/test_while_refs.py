"""A `while` that reads a differentiated Ref, through which no derivative flows, has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import closed_call, grad, jit, stop_gradient, vmap
from fiveloop.loops import cond, while_loop
from fiveloop.state import new_ref

Function = Callable[[Any], Any]
X = np.array([2.5, 3.5])


def count(r: Any) -> Any:
    """The first integer that is not less than what the Ref holds."""
    return while_loop(lambda i: i * 1.0 < r[...], lambda i: i + 1, 0)


def plain(x: Any) -> Any:
    r = new_ref(x)
    n = count(r)
    return r[...] * x * n


def in_a_branch(x: Any) -> Any:
    r = new_ref(x)
    n = cond(x > 0, lambda: count(r), lambda: 1)
    return r[...] * x * n


def compared_in_the_body(x: Any) -> Any:
    r = new_ref(x)
    body = lambda i: i + 1 + (r[...] < -1).astype(np.int32)
    n = while_loop(lambda i: i * 1.0 < r[...], body, 0)
    return r[...] * x * n


def counted_in_a_ref(x: Any) -> Any:
    r, n = new_ref(x), new_ref(x * 0.0 + 1.0)
    steps = new_ref(stop_gradient(n[...]) - 1.0)

    def body(i: Any) -> Any:
        steps[...] += 1.0
        return i + 1

    while_loop(lambda i: i * 1.0 < r[...], body, 0)
    return r[...] * x * stop_gradient(steps[...])


def stopped(x: Any) -> Any:
    """Here values of the loop depend on the Ref, but nothing that is differentiated on them."""
    r = new_ref(x)
    c = while_loop(lambda c: c < r[...], lambda c: c + 1.0 + 0.0 * r[...], x * 0.0)
    return r[...] * x * stop_gradient(c)


def called(x: Any) -> Any:
    return closed_call(plain)(x)


@pytest.mark.parametrize(
    "fun", [plain, in_a_branch, compared_in_the_body, counted_in_a_ref, stopped, called]
)
@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_no_derivative_flows_through_a_count(fun: Function, way: Function) -> None:
    n = np.ceil(X)
    np.testing.assert_allclose(np.asarray(way(grad(fun))(X[0])), 2 * X[0] * n[0])
    np.testing.assert_allclose(np.asarray(way(grad(grad(fun)))(X[0])), 2 * n[0])
    np.testing.assert_allclose(np.asarray(way(vmap(grad(fun)))(X)), 2 * X * n)
    total = lambda x: vmap(fun)(x).sum()
    np.testing.assert_allclose(np.asarray(way(grad(total))(X)), 2 * X * n)
