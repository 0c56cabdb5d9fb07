"""Every transform inside every other, on the same functions, against finite differences or a Python loop.

A transform is tried as a map between functions from vectors to vectors. The outer one is compared with what it
means for the function that the inner one gave, evaluated point by point; so no error hides behind another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.testing.remat.references  # noqa: F401  # the oracle learns what a checkpoint is
from fiveloop.core import (
    closed_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    named_call,
    value_and_grad,
    vjp,
    vmap,
)
from fiveloop.loops import for_loop, scan
from fiveloop.remat import checkpoint, dots_saveable
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core.samples import sample

Host = np.ndarray[Any, np.dtype[np.float64]]
Function = Callable[[Any], Any]
OnHost = Callable[[Host], Host]

X = np.array([0.4, -0.7, 1.1])
V = np.array([0.3, 1.0, -0.5])
W = np.array([1.0, -2.0, 0.5])
ROWS = np.array([1.0, -0.5])
M = np.array([[0.5, -1.0, 0.2], [1.5, 0.3, -0.4], [0.1, 0.7, 0.9]])


# the functions


def of_values(x: Any) -> Any:
    y = fnp.sin(x) * (M @ x)
    z = fnp.concatenate([y[1:], x[:1] * y.sum()])
    return fnp.where(z > 0.1, z * x, fnp.exp(z) - x)


def with_a_ref(x: Any) -> Any:
    ref = new_ref(x)

    def body(i: Any, refs: Any) -> None:
        refs["y"][i] = fnp.tanh(refs["y"][i - 1]) * x[i] + ref[i]
        ref[i] += refs["y"][i] * 0.5

    out = for_loop(3, body, {"y": x * 2.0})
    return out["y"] * freeze(ref)


def with_a_scan(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        new = jit(fnp.sin)(carry * row) + checkpoint(fnp.cos)(row)
        return new, new * carry

    return scan(step, x[0], x)[1]


# the transforms, and what they mean


def slope(f: OnHost, x: Host, v: Host, h: float = 1e-4) -> Host:
    """The directional derivative, by central differences of fourth order."""
    return (f(x - 2 * h * v) - 8 * f(x - h * v) + 8 * f(x + h * v) - f(x + 2 * h * v)) / (12 * h)


def pulled(f: OnHost, x: Host) -> Host:
    return np.array([W @ slope(f, x, e) for e in np.eye(3)])


def curved(f: OnHost, x: Host) -> Host:
    return slope(lambda y: pulled(f, y), x, V, 1e-3)


def by_rows(f: OnHost, x: Host) -> Host:
    return np.asarray(sum(f(x * r) * r for r in ROWS))


def weighed(f: Function) -> Function:
    return lambda x: (f(x) * W).sum()


def transposed(f: Function) -> Function:
    return lambda x: linear_transpose(lambda t: jvp(f, (x,), (t,))[1], x)(W)[0]


def lanes(f: Function) -> Function:
    return lambda x: (vmap(f)(x * ROWS[:, None]) * ROWS[:, None]).sum(0)


def columns(f: Function) -> Function:
    return lambda x: (vmap(f, in_axes=1, out_axes=-1)(x[:, None] * ROWS) * ROWS).sum(-1)


Meaning = Callable[[OnHost, Host], Host]


def same(f: OnHost, x: Host) -> Host:
    return f(x)


def forward(f: OnHost, x: Host) -> Host:
    return slope(f, x, V)


TRANSFORMS: dict[str, tuple[Callable[[Function], Function], Meaning]] = {
    "jit": (jit, same),
    "closed_call": (closed_call, same),
    "named_call": (named_call, same),
    "checkpoint": (checkpoint, same),
    "checkpoint with a policy": (lambda f: checkpoint(f, policy=dots_saveable), same),
    "jvp": (lambda f: lambda x: jvp(f, (x,), (V,))[1], forward),
    "linearize": (lambda f: lambda x: linearize(f, x)[1](V), forward),
    "jacfwd": (lambda f: lambda x: jacfwd(f)(x) @ V, forward),
    "jacfwd in chunks": (lambda f: lambda x: jacfwd(f, chunk=2)(x) @ V, forward),
    "vjp": (lambda f: lambda x: vjp(f, x)[1](W)[0], pulled),
    "grad": (lambda f: grad(weighed(f)), pulled),
    "value_and_grad": (lambda f: lambda x: value_and_grad(weighed(f))(x)[1], pulled),
    "jacrev": (lambda f: lambda x: W @ jacrev(f)(x), pulled),
    "linear_transpose": (transposed, pulled),
    "hessian": (lambda f: lambda x: hessian(weighed(f))(x) @ V, curved),
    "vmap": (lanes, by_rows),
    "vmap of columns": (columns, by_rows),
}


@cache
def on_host(f: Function) -> OnHost:
    compiled = jit(f)
    return lambda x: np.asarray(compiled(x))


KINDS = ["jit", "checkpoint", "jvp", "linearize", "vjp", "linear_transpose", "vmap"]
"""One of each kind: loops are compiled for these alone, which costs more."""


def check(f: Function, inner: str, outers: list[str], run: Callable[..., Any]) -> None:
    """All outer transforms in one program, which takes less time to compile; or `run` by the oracle."""
    make, meaning = TRANSFORMS[inner]
    once = make(f)
    host = on_host(once)
    np.testing.assert_allclose(host(X), meaning(on_host(f), X), rtol=1e-5, atol=1e-6)
    twice = run(lambda x: [TRANSFORMS[outer][0](once)(x) for outer in outers], X)
    for outer, got in zip(outers, twice, strict=True):
        want = TRANSFORMS[outer][1](host, X)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-5, err_msg=outer)


@pytest.mark.parametrize("inner", TRANSFORMS)
def test_every_transform_of_every_other(inner: str) -> None:
    check(of_values, inner, list(TRANSFORMS), lambda f, x: sample(f, x).run())


@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("f", [with_a_ref, with_a_scan])
def test_every_kind_of_every_other_around_loops(f: Function, inner: str) -> None:
    check(f, inner, KINDS, lambda f, x: jit(f)(x))


@pytest.mark.parametrize("inner", KINDS)
def test_on_values_that_are_known(inner: str) -> None:
    """The same without jit: derivatives are taken online, and each operation runs by itself."""
    once = TRANSFORMS[inner][0](of_values)
    host = on_host(once)
    for outer in KINDS:
        again, meant = TRANSFORMS[outer]
        got = np.asarray(again(once)(X))
        np.testing.assert_allclose(got, meant(host, X), rtol=1e-4, atol=1e-5, err_msg=outer)


def branchy(x: Any) -> Any:
    if x > 0.0:
        return x**3
    return -(x**2) if bool(x > -1.0) else x * 0.0


@pytest.mark.parametrize("x", [2.0, -0.5, -3.0])
def test_python_branches_at_every_depth(x: float) -> None:
    first = [3 * x**2, -2 * x, 0.0][0 if x > 0 else 1 if x > -1 else 2]
    second = [6 * x, -2.0, 0.0][0 if x > 0 else 1 if x > -1 else 2]
    third = 6.0 if x > 0 else 0.0
    slopes: dict[str, Function] = {
        "grad": grad,
        "jvp": lambda f: lambda y: jvp(f, (y,), (1.0,))[1],
        "linearize": lambda f: lambda y: linearize(f, y)[1](1.0),
        "vjp": lambda f: lambda y: vjp(f, y)[1](1.0)[0],
        "jacfwd": jacfwd,
        "jacrev": jacrev,
    }
    for a in slopes.values():
        np.testing.assert_allclose(float(a(branchy)(x)), first, rtol=1e-6)
        for b in slopes.values():
            np.testing.assert_allclose(float(b(a(branchy))(x)), second, rtol=1e-6)
    np.testing.assert_allclose(float(hessian(branchy)(x)), second, rtol=1e-6)
    np.testing.assert_allclose(float(grad(grad(grad(branchy)))(x)), third, rtol=1e-6)
    np.testing.assert_allclose(float(hessian(grad(branchy))(x)), third, rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, jit, checkpoint, closed_call])
def test_perturbations_are_not_confused(wrap: Callable[[Function], Function]) -> None:
    def push(f: Function, x: Any) -> Any:
        return jvp(wrap(f), (x,), (1.0,))[1]

    def back(f: Function, x: Any) -> Any:
        return grad(wrap(f))(x)

    for outer in (push, back):
        for inner in (push, back):
            # d/dx (x * d/dy (x + y)) is 1, and 2 if the two are confused.
            assert float(outer(lambda x, i=inner: x * i(lambda y: x + y, 1.0), 1.0)) == 1.0  # type: ignore[misc]
            # d/dx (x * d/dy (x * y)) at y = 3 is 2 x.
            assert float(outer(lambda x, i=inner: x * i(lambda y: x * y, 3.0), 2.0)) == 4.0  # type: ignore[misc]
            # The inner one of a constant of the outer one: d/dx (d/dy x) is 0.
            assert float(outer(lambda x, i=inner: i(lambda y: x * 1.0, 3.0) + 0.0 * x, 2.0)) == 0.0  # type: ignore[misc]


def test_a_batch_is_not_confused_with_another() -> None:
    xs, ys = np.arange(3.0), np.arange(2.0)
    table = vmap(lambda x: vmap(lambda y: x * 10 + y)(ys))(xs)
    np.testing.assert_array_equal(np.asarray(table), xs[:, None] * 10 + ys)
    sums = vmap(lambda x: vmap(lambda y: x)(xs).sum() + x)(xs)
    np.testing.assert_array_equal(np.asarray(sums), xs * 4)


def test_names_are_printed() -> None:
    text = str(make_jaxpr(named_call(fnp.sin, name="first"))(1.0))
    assert "name=first" in text
    assert "name=sin" in str(make_jaxpr(closed_call(fnp.sin))(1.0))
