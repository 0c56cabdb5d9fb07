"""`grad` and `value_and_grad`: pytrees, argnums, auxiliary results, nesting, control flow on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, stop_gradient, value_and_grad, vmap
from fiveloop.core.errors import ConcretizationError
from fiveloop.core.extend import as_value, convert
from fiveloop.core.primitives.elementwise import cos, sin
from fiveloop.core.pytree import tree_leaves, tree_structure
from fiveloop.core.testing.compare import assert_all_close, assert_close

X = np.arange(1, 4, dtype=np.float32)
Function = Callable[..., Any]


def cube(x: Any) -> Any:
    return (x * x * x).sum()


def test_pytrees() -> None:
    got = grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": X, "b": [X, X], "n": None})
    assert tree_structure(got) == tree_structure({"a": 0, "b": [0, 0], "n": None})
    assert_all_close(tree_leaves(got), [X, X, 0 * X])


def test_argnums() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a * b * b).sum()

    assert_close(grad(f)(X, X), X * X)
    assert_close(grad(f, 1)(X, X), 2 * X * X)
    assert_close(grad(f, argnums=-1)(X, X), 2 * X * X)
    assert_close(grad(f, argnums=np.int64(1))(X, X), 2 * X * X)  # type: ignore[call-overload]  # it is an index
    assert_all_close(grad(f, argnums=range(2))(X, X), [X * X, 2 * X * X])  # type: ignore[arg-type]  # a tuple
    for argnums, wanted in (([0, 1], [X, 2 * X]), ((1, 0), [2 * X, X]), ([1], [2 * X])):
        found = grad(f, argnums=argnums)(X, X)
        assert isinstance(found, tuple)
        assert_all_close(found, [X * each for each in wanted])


def test_keyword_and_integer_arguments_are_constants() -> None:
    got = grad(lambda a, i, *, b: (a * b * i).sum())(X, 3, b=X)
    assert_close(got, 3 * X)


def test_value_and_grad() -> None:
    value, gradient = value_and_grad(cube)(X)
    assert_all_close([value, gradient], [(X**3).sum(), 3 * X * X])


def test_auxiliary_results() -> None:
    def f(a: Any) -> Any:
        return (a * a).sum(), {"twice": a * 2, "count": 3}

    gradient, aux = grad(f, has_aux=True)(X)
    assert_all_close([gradient, aux["twice"], aux["count"]], [2 * X, 2 * X, np.int32(3)])
    (value, again), gradient = value_and_grad(f, has_aux=True)(X)
    assert_all_close([value, gradient, again["twice"]], [(X * X).sum(), 2 * X, 2 * X])
    assert_close(grad(lambda a: grad(f, has_aux=True)(a)[1]["twice"].sum())(X), 2 + 0 * X)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_nested(wrap: Callable[[Function], Function]) -> None:
    def fourth(x: Any) -> Any:
        return x**4

    first = wrap(grad(fourth))
    second = wrap(grad(first))
    third = wrap(grad(second))
    assert [float(f(2.0)) for f in (first, second, third)] == [32, 48, 48]


def test_grad_of_vmap_and_vmap_of_grad() -> None:
    assert_close(grad(lambda v: vmap(lambda u: u**3)(v).sum())(X), 3 * X * X)
    assert_close(vmap(grad(lambda u: u**3))(X), 3 * X * X)
    assert_close(vmap(grad(grad(lambda u: u**3)))(X), 6 * X)


def test_grad_of_jit_and_jit_of_grad() -> None:
    assert_close(grad(jit(cube))(X), 3 * X * X)
    assert_close(jit(grad(jit(cube)))(X), 3 * X * X)
    inner = jit(grad(lambda v: jit(grad(cube))(v).sum()))
    assert_close(inner(X), 6 * X)


def test_jvp_of_grad_is_the_hessian_times_a_vector() -> None:
    value, change = jvp(grad(cube), (X,), (X,))
    assert_all_close([value, change], [3 * X * X, 6 * X * X])
    hessian = vmap(lambda v: jvp(grad(cube), (X,), (v,))[1])(np.eye(3, dtype=np.float32))
    assert_close(hessian, np.diag(6 * X))


def test_perturbations_are_not_confused() -> None:
    assert float(grad(lambda a: a * grad(lambda b: a + b)(1.0))(1.0)) == 1
    assert float(grad(lambda a: a * grad(lambda b: a * b * b)(a))(2.0)) == 2 * 2 * 2 * 3
    assert float(grad(lambda a: a * vmap(lambda b: a * b)(X).sum())(2.0)) == 4 * 6


def test_closures_over_tracers() -> None:
    assert float(grad(lambda a: jit(lambda b: a * b)(3.0))(2.0)) == 3
    nested = jit(lambda q: grad(lambda a: vmap(lambda b: a * b * q)(X).sum())(2.0))
    assert float(nested(2.0)) == 12


def test_control_flow_on_values() -> None:
    def piecewise(x: Any) -> Any:
        y = x * x
        while y < 100.0:
            y = y * x
        return y if x > 0 else -y

    def fifth(x: float) -> list[float]:
        return [5 * x**4, 20 * x**3, 60 * x * x]

    for x, want in ((3.0, fifth(3.0)), (2.8, fifth(2.8))):
        f: Function = piecewise
        for expected in want:
            f = grad(f)
            assert_close(f(np.float64(x)), np.float64(expected))


def test_sizes_and_branches_may_depend_on_values() -> None:
    def f(x: Any) -> Any:
        total = x * 0.0
        for k in range(int(x)):
            total = total + k * x
        return total if x > 1.5 and bool(x) else x

    assert float(grad(f)(3.0)) == 3
    assert float(grad(f)(1.0)) == 1


def test_control_flow_under_jvp_of_grad() -> None:
    def f(x: Any) -> Any:
        return x * x if x > 0 else -x

    value, change = jvp(grad(f), (3.0,), (1.0,))
    assert (float(value), float(change)) == (6, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_have_the_dtype_of_their_argument(dtype: str) -> None:
    x = convert(X, dtype)
    got = grad(lambda a: (a * a).sum())(x)
    assert got.dtype == x.dtype
    assert_close(convert(got, np.float64), 2 * X.astype(np.float64))


def test_python_and_numpy_scalars() -> None:
    assert_close(grad(lambda a: a * a)(2.0), np.float32(4))
    assert_close(grad(lambda a: a * a)(np.float64(2)), np.float64(4))


def test_arrays_without_elements() -> None:
    assert_close(
        grad(lambda a: (a * a).sum())(np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.float32)
    )


def test_arguments_that_do_not_matter() -> None:
    assert_close(grad(lambda a, b: (b * b).sum())(X, X), 0 * X)
    assert_close(grad(lambda a: as_value(3.0))(X), 0 * X)
    assert_close(grad(lambda a: (a * convert(convert(a, np.int32), a.dtype)).sum())(X + 0.5), X)


def test_many_leaves() -> None:
    given = {k: np.full(2, k, np.float32) for k in range(20)}
    gradient = jit(grad(lambda d: sum((v * v).sum() for v in d.values())))
    for _ in range(2):
        assert_all_close(tree_leaves(gradient(given)), [2 * v for v in given.values()])


def test_a_function_is_run_once() -> None:
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return sin(x) * cos(x)

    grad(f)(1.0)
    assert count == 1


def test_the_name_stays() -> None:
    assert grad(cube).__name__ == "cube"


@pytest.mark.parametrize("name", ["float", "item", "tolist"])
def test_a_number_that_would_lose_its_derivative_is_refused(name: str) -> None:
    read: Function = float if name == "float" else lambda x: getattr(x, name)()
    derivatives: list[Function] = [grad, lambda f: lambda x: jvp(f, (x,), (1.0,))[1]]
    for derive in derivatives:
        with pytest.raises(ConcretizationError, match=r"write `stop_gradient\(x\)` first"):
            derive(lambda x: x * read(x))(3.0)
        assert float(derive(lambda x: x * read(stop_gradient(x)))(3.0)) == 3.0
        assert float(derive(lambda x: x * int(x))(3.0)) == 3.0
