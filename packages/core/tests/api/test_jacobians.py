"""`jacfwd`, `jacrev` and `hessian`: structures, chunks, auxiliary results, complex numbers, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import hessian, jacfwd, jacrev, jit, vmap
from fiveloop.core.primitives.special import sin
from fiveloop.core.pytree import tree_leaves, tree_structure
from fiveloop.testing.core.compare import assert_all_close, assert_close
from fiveloop.testing.core.misuse import assert_misuse

X = np.array([0.5, -1.0, 2.0])
M = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
Z = np.array([1 + 1j, 2 - 1j])
BOTH = pytest.mark.parametrize("jac", [jacfwd, jacrev])


def mixed(p: Any, scale: Any) -> Any:
    return {"m": p["a"] * p["b"] * scale[:, None], "n": (p["b"] * p["b"]).sum()}


@BOTH
@pytest.mark.parametrize("chunk", [None, 1, 2, 4, 100])
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_trees(jac: Any, chunk: int | None, wrap: Callable[..., Any]) -> None:
    got = wrap(jac(mixed, chunk=chunk))({"a": M, "b": X}, np.array([1.0, 2.0]))
    assert tree_structure(got) == tree_structure({"m": {"a": 0, "b": 0}, "n": {"a": 0, "b": 0}})
    scale = np.array([1.0, 2.0])[:, None]
    by_a = np.einsum("ij,ik,jl->ijkl", X * scale, np.eye(2), np.eye(3))
    by_b = np.einsum("ij,jl->ijl", M * scale, np.eye(3))
    want = [by_a, by_b, np.zeros((2, 3)), 2 * X]
    assert_all_close(tree_leaves(got), want)


@BOTH
def test_argnums(jac: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y.sum()

    by_x, by_y = np.eye(3) * 6, np.tile(X[:, None], 3)
    ones = np.array([1.0, 2.0, 3.0])
    assert_close(jac(f)(X, ones), by_x)
    assert_close(jac(f, argnums=-1)(X, ones), by_y)
    assert_all_close(jac(f, argnums=(1, 0))(X, ones), [by_y, by_x])


@BOTH
def test_integer_arguments_have_slopes_of_their_own_dtype(jac: Any) -> None:
    def f(p: Any, n: Any) -> Any:
        return p["x"] * p["n"] * n, n

    arguments = {"x": X, "n": np.arange(3)}, np.int32(2)
    (by_p, by_n), whole = jac(f, argnums=(0, 1), allow_int=True)(*arguments)
    assert_close(by_p["x"], np.diag(2 * np.arange(3.0)))
    found = [(x.dtype, x.shape) for x in (by_p["n"], by_n, whole[0]["x"], whole[1])]
    assert found == [("int64", (3, 3)), ("int32", (3,)), ("int32", (3,)), ("int32", ())]
    assert not np.asarray(by_p["n"]).any()


def test_integer_arguments_of_a_hessian() -> None:
    p = {"x": X, "n": np.arange(3)}
    got = hessian(lambda p: (p["x"] ** 2 * p["n"]).sum(), allow_int=True, chunk=2)(p)
    assert_close(got["x"]["x"], np.diag(2 * np.arange(3.0)))
    assert got["n"]["x"].dtype == np.int64 and not np.asarray(got["n"]["n"]).any()


@BOTH
def test_auxiliary_results(jac: Any) -> None:
    jacobian, aux = jac(lambda x: (x * x, {"x": x, "n": 3}), has_aux=True)(X)
    assert_all_close([jacobian, aux["x"], aux["n"]], [np.diag(2 * X), X, np.int32(3)])


@BOTH
def test_integer_results_have_no_slope(jac: Any) -> None:
    real, whole = jac(lambda x: (x * x, x.astype(np.int32)))(X)
    assert_all_close([real, whole], [np.diag(2 * X), np.zeros((3, 3), np.int32)])


@BOTH
def test_holomorphic(jac: Any) -> None:
    got = jac(lambda z: z * z * z[0], holomorphic=True)(Z)
    want = np.diag(2 * Z * Z[0])
    want[:, 0] += Z**2
    assert_close(got, want)


@pytest.mark.parametrize("chunk", [None, 2])
def test_hessian(chunk: int | None) -> None:
    got = hessian(lambda x: (x**3).sum() * x[0], chunk=chunk)(X)
    want = np.diag(6 * X * X[0])
    want[0] += 3 * X**2
    want[:, 0] += 3 * X**2
    assert_close(got, want)
    trees = jit(hessian(lambda p: (sin(p["a"]) * p["b"]).sum(), chunk=chunk))({"a": X, "b": X})
    assert_close(trees["a"]["b"], np.diag(np.cos(X)))
    assert_close(trees["b"]["b"], np.zeros((3, 3)))
    complex_one = hessian(lambda z: (z**3).sum(), holomorphic=True)(Z)
    assert_close(complex_one, np.diag(6 * Z))


def test_hessian_with_an_auxiliary_result() -> None:
    second, aux = hessian(lambda x: ((x**3).sum(), x + 1), has_aux=True)(X)
    assert_all_close([second, aux], [np.diag(6 * X), X + 1])


def test_a_scalar_has_one_direction() -> None:
    assert_close(jacfwd(lambda x: x * X)(2.0), X.astype(np.float64))
    assert_close(jacrev(lambda x: x * x)(2.0), np.float32(4.0))
    assert_close(vmap(jacrev(sin))(X), np.cos(X))


def test_chunks_push_no_more_than_was_asked_for() -> None:
    widths: list[Any] = []

    def f(x: Any) -> Any:
        widths.append(type(x).__name__)
        return x * x

    jacfwd(f, chunk=2)(X)
    assert len(widths) == 2
    jacrev(f, chunk=2)(X)
    assert len(widths) == 3


MISUSE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "complex argument": (
        lambda: jacfwd(sin)(Z),
        TypeError,
        "jacfwd of sin: argument `x` must be real, got c128[2]; say holomorphic=True if the function is, or use `jvp`",
    ),
    "complex result": (
        lambda: jacrev(lambda x: x * 1j)(X),
        TypeError,
        "jacrev of <lambda>: its results must be real, got c128[3]; say whether it is holomorphic, or use `vjp`",
    ),
    "real argument": (
        lambda: jacfwd(sin, holomorphic=True)(X),
        TypeError,
        "jacfwd of sin: argument `x` must be complex for a holomorphic derivative, got f64[3]; convert it first, or "
        "leave holomorphic out",
    ),
    "integers": (
        lambda: jacrev(sin)(3),
        TypeError,
        "jacrev of sin: argument `x` must be floating to be differentiated, got i32*[]; convert it first, or leave it "
        "out of argnums",
    ),
    "chunk": (
        lambda: jacfwd(sin, chunk=0),
        ValueError,
        "jacfwd: chunk must be an integer of at least 1, got 0",
    ),
    "argnums": (
        lambda: jacfwd(sin, 1)(X),
        ValueError,
        "jacfwd of sin: argnums must name some of its 1 positional arguments by number, got 1",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_bad_input(name: str) -> None:
    call, kind, message = MISUSE[name]
    assert_misuse(call, kind, message)
