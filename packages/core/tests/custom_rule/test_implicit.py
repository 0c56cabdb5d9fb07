"""`custom_root` and `custom_linear_solve`: derivatives through the equation, whatever the solver does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import closed_call, custom_linear_solve, custom_root, jit, jvp, make_jaxpr
from fiveloop.core.arrays.array import Array
from fiveloop.core.extend import (
    as_value,
    concatenate,
    eval_jaxpr,
    reshape,
    to_array,
    transpose_jaxpr,
)
from fiveloop.core.primitives.dot import dot_general
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_all_near, assert_near
from fiveloop.testing.core.gradcheck import check_grads

Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap
X = np.array([1.0, 4.0, 9.0])
A = np.array([[4.0, 1.0], [2.0, 3.0]])
B = np.array([1.0, 2.0])


def same(f: Function) -> Function:
    return f


WRAPS: list[Function] = [same, jit, closed_call]


def root(a: Any) -> Any:
    def newton(f: Function, x: Any) -> Any:
        for _ in range(30):
            x = x - f(x) / (2.0 * x)
        return x

    return custom_root(lambda x: x * x - a, np.float64(1.0), newton, lambda g, y: y / g(1.0))


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_roots(outer: Function, inner: Function) -> None:
    f = inner(root)
    assert_near(outer(f)(np.float64(4.0)), 2.0)
    assert_near(outer(grad(f))(np.float64(4.0)), 0.25)
    assert_near(outer(grad(grad(f)))(np.float64(4.0)), -1 / 32)
    assert_all_near(outer(lambda a: jvp(f, (a,), (1.0,)))(np.float64(4.0)), [2.0, 0.25])
    assert_near(outer(vmap(grad(f)))(X), 0.5 / np.sqrt(X))
    assert_near(outer(grad(lambda a: vmap(f)(a).sum()))(X), 0.5 / np.sqrt(X))


def test_a_root_of_trees_with_auxiliary_results() -> None:
    def solved(p: Any) -> Any:
        def solve(f: Function, x: Any) -> Any:
            assert set(f(x)) == {"u", "v"}
            return {"u": p["a"] * 0.5, "v": p["a"] + p["b"]}, {"steps": 3, "size": p["a"]}

        return custom_root(
            lambda x: {"u": 2.0 * x["u"] - p["a"], "v": x["v"] - 2.0 * x["u"] - p["b"]},
            {"u": np.float64(0.0), "v": np.float64(0.0)},
            solve,
            lambda g, y: {"u": 0.5 * y["u"], "v": y["v"] + y["u"]},
            has_aux=True,
        )

    p = {"a": np.float64(3.0), "b": np.float64(5.0)}
    for wrap in WRAPS:
        (x, aux) = wrap(solved)(p)
        assert type(aux["steps"]) is Array
        assert_all_near([x["u"], x["v"], aux["steps"], aux["size"]], [1.5, 8.0, 3, 3.0])
        got = wrap(
            grad(lambda p: solved(p)[0]["v"] * 2.0 + solved(p)[0]["u"] + solved(p)[1]["size"])
        )(p)
        assert_all_near([got["a"], got["b"]], [2.5, 2.0])


def inverse_2x2(matvec: Function, b: Any) -> Any:
    columns = [reshape(matvec(e), (2, 1)) for e in np.eye(2)]
    m = concatenate(columns, 1)
    det = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    first, second = m[1, 1] * b[0] - m[0, 1] * b[1], m[0, 0] * b[1] - m[1, 0] * b[0]
    return concatenate([reshape(first / det, (1,)), reshape(second / det, (1,))], 0)


def solution(a: Any, b: Any) -> Any:
    def matvec(x: Any) -> Any:
        return dot_general(a, x, (((1,), (0,)), ((), ())))

    return custom_linear_solve(matvec, b, inverse_2x2, inverse_2x2)


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_linear_systems(outer: Function, inner: Function) -> None:
    f = inner(solution)
    x = np.linalg.solve(A, B)
    assert_near(outer(f)(A, B), x)
    v = np.linalg.solve(A.T, np.cos(x))
    got = outer(grad(lambda a, b: sin(f(a, b)).sum(), (0, 1)))(A, B)
    assert_all_near(got, [-np.outer(v, x), v])
    got = outer(lambda a, b: jvp(f, (a, b), (A, B)))(A, B)
    assert_all_near(got, [x, np.zeros(2)])
    assert_near(outer(vmap(f, (0, None)))(np.stack([A, 2 * A]), B), np.stack([x, x / 2]))
    got = outer(grad(lambda b: vmap(f, (None, 0))(A, np.stack([1.0, 2.0])[:, None] * b).sum()))(B)
    assert_near(got, 3.0 * np.linalg.solve(A.T, np.ones(2)))


def test_systems_agree_with_differences() -> None:
    check_grads(solution, (A, B), order=2)


def test_a_solve_is_transposed_by_solving() -> None:
    jaxpr = make_jaxpr(lambda b: solution(A, b))(B)
    transposed, nonzero = transpose_jaxpr(jaxpr, (True,), (True,))
    assert nonzero == (True,)
    assert_near(eval_jaxpr(transposed, [to_array(as_value(B))])[0], np.linalg.solve(A.T, B))


def test_symmetric_systems_with_auxiliary_results() -> None:
    def f(a: Any, b: Any) -> Any:
        def solve(matvec: Function, b: Any) -> Any:
            return b / matvec(1.0), {"of": matvec(1.0)}

        return custom_linear_solve(lambda x: a * x, b, solve, symmetric=True, has_aux=True)

    a, b = np.float64(4.0), np.float64(2.0)
    for wrap in WRAPS:
        x, aux = wrap(f)(a, b)
        assert_all_near([x, aux["of"]], [0.5, 4.0])
        got = wrap(grad(lambda a, b: f(a, b)[0] + f(a, b)[1]["of"], (0, 1)))(a, b)
        assert_all_near(got, [-0.125, 0.25])
        assert_near(wrap(grad(grad(lambda a: f(a, b)[0])))(a), 2 * 2.0 / 64)


def warm_root(a: Any) -> Any:
    """The solver and the tangent's solver close over what the root is differentiated by."""

    def newton(f: Function, x: Any) -> Any:
        x = 0.5 * a + 1.0
        for _ in range(20):
            x = x - f(x) / (2.0 * x)
        return x

    guess = np.array(1.0)
    return custom_root(lambda x: x * x - a, guess, newton, lambda g, y: a / a * y / g(1.0))


def warm_system(a: Any) -> Any:
    def solve(matvec: Function, b: Any) -> Any:
        return a / a * b / closed_call(lambda x: a / a * matvec(x))(1.0)

    return custom_linear_solve(lambda x: a * x, np.array(2.0), solve, solve)


@pytest.mark.parametrize("solver", [warm_root, warm_system])
@pytest.mark.parametrize("outer", WRAPS)
def test_solvers_may_close_over_what_is_differentiated(solver: Function, outer: Function) -> None:
    functions: Any = (
        (np.sqrt, lambda x: 0.5 / np.sqrt(x), lambda x: -0.25 * x**-1.5)
        if solver is warm_root
        else (lambda x: 2.0 / x, lambda x: -2.0 / x**2, lambda x: 4.0 / x**3)
    )
    value, first, second = functions
    a = np.array(4.0)
    assert_near(outer(solver)(a), value(a))
    assert_near(outer(grad(solver))(a), first(a))
    assert_near(outer(lambda a: jvp(solver, (a,), (np.ones(()),))[1])(a), first(a))
    assert_near(outer(grad(grad(solver)))(a), second(a))
    assert_near(outer(vmap(grad(solver)))(X), first(X))
    assert_near(outer(grad(lambda a: vmap(lambda s: solver(s * a))(X).sum()))(a), first(X * a) @ X)
    assert_near(outer(grad(lambda a: vmap(lambda s: solver(a) * s)(X).sum()))(a), first(a) * 14.0)


@pytest.mark.parametrize("outer", WRAPS)
def test_solvers_may_close_over_lanes(outer: Function) -> None:
    def total(c: Any) -> Any:
        def root(a: Any) -> Any:
            guess = np.array(1.0)
            solve = lambda f, x: a / a * c**0.5
            x = custom_root(lambda x: x * x - c, guess, solve, lambda g, y: a / a * y / g(1.0))
            by_a = lambda f, b: a / a * b / f(1.0)
            return x + custom_linear_solve(lambda x: c * x, np.array(3.0), by_a, by_a)

        return vmap(root)(X).sum()

    c = np.array(4.0)
    assert_near(outer(total)(c), 3 * (2.0 + 0.75))
    assert_near(outer(grad(total))(c), 3 * (0.25 - 3 / 16))
    assert_near(outer(grad(grad(total)))(c), 3 * (-1 / 32 + 6 / 64))


def test_solvers_that_branch_on_values() -> None:
    def root(a: Any) -> Any:
        def newton(f: Function, x: Any) -> Any:
            x = 0.5 * a
            while abs(f(x)) > 1e-12:
                x = x - f(x) / (2.0 * x)
            return x

        return custom_root(lambda x: x * x - a, np.array(1.0), newton, lambda g, y: y / g(1.0))

    def system(a: Any) -> Any:
        def solve(matvec: Function, b: Any) -> Any:
            x = 0.0 * a
            while abs(b - matvec(x)) > 1e-12:
                x = x + (b - matvec(x)) / 5.0
            return x

        return custom_linear_solve(lambda x: a * x, np.array(2.0), solve, solve)

    for f, slope, bend in ((root, 0.25, -1 / 32), (system, -0.125, 1 / 16)):
        assert_near(grad(f)(np.array(4.0)), slope)
        assert_near(grad(grad(f))(np.array(4.0)), bend)
