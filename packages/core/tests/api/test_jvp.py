"""`jvp`: structure, auxiliary results, nesting, arguments without tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from fiveloop.core import jit, jvp, vjp, vmap
from fiveloop.core.extend import convert
from fiveloop.core.primitives.special import cos, sin
from fiveloop.core.pytree import tree_leaves, tree_structure
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(1, 4, dtype=np.float32)


def test_pytrees() -> None:
    def f(d: Any, y: Any) -> Any:
        return {"p": d["a"] * y, "q": (d["b"],)}

    given = ({"a": X, "b": X}, X)
    value, change = jvp(f, given, ({"a": X, "b": 0 * X}, 2 * X))
    assert tree_structure(value) == tree_structure(change) == tree_structure({"p": 0, "q": (0,)})
    assert_all_close(tree_leaves(value), [X * X, X])
    assert_all_close(tree_leaves(change), [3 * X * X, 0 * X])


def test_lists_of_primals() -> None:
    value, change = jvp(lambda x: x * x, [X], [X])
    assert_all_close([value, change], [X * X, 2 * X * X])


def test_auxiliary_results_have_no_tangent() -> None:
    value, change, aux = jvp(lambda a: (a * a, {"more": a + 1}), (X,), (X,), has_aux=True)
    assert_all_close([value, change, aux["more"]], [X * X, 2 * X * X, X + 1])


def test_integer_arguments_take_any_tangent() -> None:
    value, change = jvp(lambda a, i: a * i, (X, 3), (X, 0))
    assert_all_close([value, change], [3 * X, 3 * X])


def test_integer_results_have_integer_zeros() -> None:
    value, change = jvp(lambda a: convert(a, np.int32), (X,), (X,))
    assert_all_close([value], [X.astype(np.int32)])
    assert not np.asarray(change).any()


def test_python_tangents_take_the_dtype_of_the_primal() -> None:
    value, change = jvp(lambda a: a * a, (np.float64(3),), (1.0,))
    assert_all_close([value, change], [np.float64(9), np.float64(6)])


def test_results_that_do_not_depend_on_the_argument() -> None:
    value, change = jvp(lambda a: 3.0, (X,), (X,))
    assert_all_close([value, change], [np.float32(3), np.float32(0)])


def test_nested() -> None:
    def second(x: Any) -> Any:
        return jvp(lambda y: jvp(sin, (y,), (1.0,))[1], (x,), (1.0,))[1]

    x = np.float64(0.3)
    assert_close(second(x), -np.sin(x))
    assert_close(jit(second)(x), -np.sin(x))
    assert_close(vmap(second)(X), -np.sin(X))


def test_perturbations_are_not_confused() -> None:
    def f(a: Any) -> Any:
        return a * jvp(lambda b: a + b, (1.0,), (1.0,))[1]

    assert float(jvp(f, (1.0,), (1.0,))[1]) == 1


def test_jvp_of_jit_and_of_vmap() -> None:
    f = jit(lambda v: vmap(lambda u: sin(u) * u)(v))
    value, change = jvp(f, (X,), (X,))
    assert_all_close([value, change], [np.sin(X) * X, X * (np.cos(X) * X + np.sin(X))])


def test_vmap_over_tangents() -> None:
    jacobian = vmap(lambda v: jvp(lambda a: a**3, (X,), (v,))[1])(np.eye(3, dtype=np.float32))
    assert_close(jacobian, np.diag(3 * X * X))


def test_control_flow_on_values() -> None:
    def f(x: Any) -> Any:
        return cos(x) if x > 1 else sin(x)

    for x in (0.5, 2.0):
        want = -np.sin(x) if x > 1 else np.cos(x)
        assert_close(jvp(f, (np.float64(x),), (1.0,))[1], np.float64(want))


def test_a_tangent_of_an_integer_may_be_anything() -> None:
    # JAX has a dtype for them, of no bytes.
    nothing = np.zeros((), [("float0", np.void, 0)])
    for tangent in (nothing, 0, 1.0, np.ones(3)):
        value, change = jvp(lambda x, n: (x * n, n), (2.0, 3), (1.0, tangent))
        assert [float(x) for x in tree_leaves((value, change))] == [6.0, 3.0, 3.0, 0.0]
        back = vjp(lambda x, n: (x * n, n), 2.0, 3)[1]
        assert [float(x) for x in tree_leaves(back((1.0, tangent)))] == [3.0, 0.0]
