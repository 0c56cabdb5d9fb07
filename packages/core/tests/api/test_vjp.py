"""`vjp`: structure of cotangents, calling twice, arguments and results without cotangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import grad, jit, vjp, vmap
from fiveloop.core.extend import convert
from fiveloop.core.primitives.special import sin
from fiveloop.core.pytree import tree_leaves, tree_structure
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(1, 4, dtype=np.float32)


def test_pytrees() -> None:
    value, back = vjp(lambda d, y: {"p": d["a"] * y, "q": (d["b"],)}, {"a": X, "b": X}, X)
    assert_all_close(tree_leaves(value), [X * X, X])
    got = back({"p": X, "q": (2 * X,)})
    assert tree_structure(got) == tree_structure(({"a": 0, "b": 0}, 0))
    assert_all_close(tree_leaves(got), [X * X, 2 * X, X * X])


def test_the_function_may_be_called_again() -> None:
    _, back = vjp(lambda a: a**3, X)
    assert_all_close([back(X)[0], back(2 * X)[0]], [3 * X**3, 6 * X**3])


def test_auxiliary_results() -> None:
    value, back, aux = vjp(lambda a: (a * a, a + 1), X, has_aux=True)
    assert_all_close([value, back(X)[0], aux], [X * X, 2 * X * X, X + 1])


def test_integers_have_no_cotangent() -> None:
    value, back = vjp(lambda a, i: (a * i, convert(a, np.int32)), X, 3)
    assert_all_close(value, [3 * X, X.astype(np.int32)])
    first, second = back((X, np.zeros(3, np.int32)))
    assert_close(first, 3 * X)
    assert not np.asarray(second).any()


def test_python_cotangents_take_the_dtype_of_the_result() -> None:
    _, back = vjp(lambda a: (a * a).sum(), X.astype(np.float64))
    assert_close(back(1.0)[0], 2 * X.astype(np.float64))


def test_vmap_over_cotangents() -> None:
    _, back = vjp(lambda a: a**3, X)
    (jacobian,) = vmap(back)(np.eye(3, dtype=np.float32))
    assert_close(jacobian, np.diag(3 * X * X))


def test_within_other_transforms() -> None:
    def f(x: Any) -> Any:
        return vjp(sin, x)[1](x)[0].sum()

    assert_close(jit(f)(X), (np.cos(X) * X).sum(), scale=4)
    assert_close(grad(f)(X), np.cos(X) - np.sin(X) * X)
    assert_close(jit(grad(f))(X), np.cos(X) - np.sin(X) * X)


def test_the_transpose_of_a_transpose() -> None:
    def linear(x: Any) -> Any:
        return (x * np.array([1, 2, 3], np.float32))[::-1]

    _, back = vjp(linear, X)
    _, again = vjp(lambda ct: back(ct)[0], X)
    assert_close(again(X)[0], linear(X))


def test_complex_numbers_are_linear() -> None:
    _, back = vjp(lambda a: a * np.complex64(1 + 2j), np.complex64(1j))
    assert_close(back(np.complex64(1))[0], np.complex64(1 + 2j))


def test_control_flow_on_values() -> None:
    value, back = vjp(lambda x: x * x if x > 0 else -x, -3.0)
    assert (float(value), float(back(1.0)[0])) == (3, -1)
