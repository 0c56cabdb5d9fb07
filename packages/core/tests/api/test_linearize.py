"""`linearize`: one evaluation, and a linear function that may be called and transformed."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import grad, jit, linearize, vmap
from fiveloop.core.extend import convert
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(1, 4, dtype=np.float32)


def test_value_and_derivative() -> None:
    value, linear = linearize(lambda a: a**3, X)
    assert_all_close([value, linear(X), linear(2 * X)], [X**3, 3 * X**3, 6 * X**3])


def test_several_arguments_and_results() -> None:
    value, linear = linearize(lambda a, b: {"p": a * b, "q": a}, X, X)
    out = linear(X, 2 * X)
    assert_all_close([value["p"], out["p"], out["q"]], [X * X, 3 * X * X, X])


def test_the_function_runs_once() -> None:
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return sin(x)

    _, linear = linearize(f, X)
    linear(X)
    linear(X)
    assert count == 1


def test_integer_arguments() -> None:
    value, linear = linearize(lambda a, i: (a * i, convert(a, np.int32)), X, 3)
    first, second = linear(X, 0)
    assert_all_close([value[0], first], [3 * X, 3 * X])
    assert not np.asarray(second).any()


def test_within_other_transforms() -> None:
    def f(x: Any) -> Any:
        return linearize(sin, x)[1](x).sum()

    assert_close(jit(f)(X), (np.cos(X) * X).sum(), scale=4)
    assert_close(grad(f)(X), np.cos(X) - np.sin(X) * X)


def test_vmap_of_the_linear_function() -> None:
    _, linear = linearize(lambda a: a**3, X)
    assert_close(vmap(linear)(np.eye(3, dtype=np.float32)), np.diag(3 * X * X))
    assert_close(jit(vmap(linear))(np.eye(3, dtype=np.float32)), np.diag(3 * X * X))


def test_control_flow_on_values() -> None:
    value, linear = linearize(lambda x: x * x if x > 0 else -x, 3.0)
    assert (float(value), float(linear(2.0))) == (9, 12)
