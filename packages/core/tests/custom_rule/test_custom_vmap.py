"""`custom_vmap`: what a function is on a batch, and what derivatives make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import closed_call, custom_vjp, custom_vmap, jit, jvp, make_jaxpr
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.compare import assert_all_near, assert_near
from fiveloop.testing.core.misuse import assert_misuse, raised

X = np.arange(1, 4, dtype=np.float64)
Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap


def same(f: Function) -> Function:
    return f


WRAPS: list[Function] = [same, jit, closed_call]


@custom_vmap
def wave(x: Any) -> Any:
    """A sine, of which a batch is said to be the cosine."""
    return sin(x)


@wave.def_vmap
def wave_vmap(axis_size: int, in_batched: list[Any], xs: Any) -> Any:
    assert (axis_size, in_batched, xs.shape[0]) == (3, [True], 3)
    return cos(xs), True


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_batch_is_what_the_rule_says(wrap: Function) -> None:
    assert_near(wrap(wave)(X[0]), np.sin(X[0]))
    assert_near(wrap(vmap(wave))(X), np.cos(X))
    assert_near(vmap(wrap(wave))(X), np.cos(X))
    columns = np.stack([X, 2 * X], 1)
    assert_near(wrap(vmap(wave, 1, 1))(columns.T), np.cos(columns.T))
    assert_near(wrap(vmap(vmap(wave), 1, 1))(columns), np.cos(columns))
    assert_near(wrap(vmap(lambda x: x + wave(X[0])))(X), X + np.sin(X[0]))


@pytest.mark.parametrize("wrap", WRAPS)
def test_derivatives_are_those_of_the_rule(wrap: Function) -> None:
    by_x = lambda x: jvp(wave, (x,), (np.array(1.0),))
    assert_all_near(wrap(by_x)(X[0]), [np.sin(X[0]), np.cos(X[0])])
    assert_all_near(wrap(vmap(by_x))(X), [np.cos(X), -np.sin(X)])
    by_tangent = lambda t: jvp(wave, (X[0],), (t,))[1]
    assert_near(wrap(vmap(by_tangent))(X), -np.sin(X[0]) * X)
    assert_all_near(wrap(lambda x: jvp(vmap(wave), (x,), (x,)))(X), [np.cos(X), -X * np.sin(X)])
    assert_near(wrap(grad(lambda x: vmap(wave)(x).sum()))(X), -np.sin(X))
    assert_near(wrap(grad(wave))(X[0]), np.cos(X[0]))


@pytest.mark.parametrize("wrap", WRAPS)
def test_trees_of_which_a_part_is_batched(wrap: Function) -> None:
    seen: list[Any] = []

    @custom_vmap
    def f(d: Any, y: Any) -> Any:
        return {"sum": d["u"] + y, "y": y}

    @f.def_vmap
    def f_vmap(axis_size: int, in_batched: list[Any], d: Any, y: Any) -> Any:
        seen[:] = [in_batched]
        return {"sum": d["u"] * y, "y": y}, {"sum": True, "y": in_batched[1]}

    out = wrap(vmap(f, ({"u": 0}, None), {"sum": 0, "y": None}))({"u": X}, X[1])
    assert_all_near([out["sum"], out["y"]], [X * X[1], X[1]])
    assert seen == [[{"u": True}, False]]
    assert_near(wrap(vmap(lambda u: f(y=X[1], d={"u": u})["sum"]))(X), X * X[1])


def test_with_a_derivative_rule_around_it() -> None:
    f = custom_vjp(wave)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10.0 * x * ct,))
    for wrap in WRAPS:
        assert_near(wrap(vmap(f))(X), np.cos(X))
        assert_near(wrap(vmap(grad(f)))(X), 10.0 * X)


def test_the_rule_may_close_over_what_lanes_share() -> None:
    def scaled(s: Any) -> Any:
        f = custom_vmap(lambda x: x)
        f.def_vmap(lambda size, batched, xs: (s * xs, True))
        return vmap(f)(X)

    for wrap in WRAPS:
        assert_near(wrap(scaled)(X[1]), X[1] * X)


def test_it_prints_as_one_equation() -> None:
    assert "custom_rule[name=wave rule=vmap] a" in str(make_jaxpr(wave)(X[0]))


def test_errors() -> None:
    f = custom_vmap(lambda x: (x, x))
    assert_misuse(
        lambda: f(X),
        TypeError,
        "custom_vmap of <lambda>: expected a rule before the first call, got none; give one with "
        "`<lambda>.def_vmap(rule)`",
    )
    rules = {
        "must return a pair (result, which of its leaves are batched), got f64[3]": lambda *a: a[2],
        "must say of each leaf of the result whether it is batched, in the structure that <lambda> "
        "gives, PyTreeDef((*, *)), got True": lambda n, b, x: ((x, x), True),
        "must give a result of the structure that <lambda> gives, PyTreeDef((*, *)), got PyTreeDef(*)": (
            lambda n, b, x: (x, (True, True))
        ),
        "must give what <lambda> gives, f64[3], as the result[1], got f64[]": (
            lambda n, b, x: ((x, x.sum()), (True, True))
        ),
    }
    for message, rule in rules.items():
        f.def_vmap(rule)
        error = raised(lambda: vmap(f)(X))
        assert type(error) is TypeError and f"it {message}\n  at " in str(error)
        assert str(error).startswith("the vmap rule of <lambda>, <lambda> at ")

    def of_lane(a: Any) -> Any:
        g = custom_vmap(lambda x: a * x)
        g.def_vmap(lambda n, b, x: (x, True))
        return g(a)

    for wrap in (same, jit):
        message = str(raised(lambda wrap=wrap: wrap(vmap(of_lane))(X)))  # type: ignore[misc]
        assert (
            "expected a batch of its arguments, but it closes over a value of each lane" in message
        )
