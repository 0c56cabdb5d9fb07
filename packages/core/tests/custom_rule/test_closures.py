"""What rules and functions close over: values of outer transforms, alive or long gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import closed_call, custom_jvp, custom_vjp, jit, jvp, make_jaxpr
from fiveloop.core.extend import linearize_jaxpr
from fiveloop.core.testing.compare import assert_near
from fiveloop.core.testing.misuse import raised

X = np.arange(1, 4, dtype=np.float64)
Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap


def by_jvp(a: Any, x: Any) -> Any:
    @custom_jvp
    def f(x: Any) -> Any:
        return a * x

    f.defjvp(lambda p, t: (f(p[0]), 10.0 * a * t[0]))
    return f(x)


def by_vjp(a: Any, x: Any) -> Any:
    @custom_vjp
    def f(x: Any) -> Any:
        return a * x

    f.defvjp(lambda x: (f(x), ()), lambda res, ct: (10.0 * a * ct,))
    return f(x)


def by_rule_alone(a: Any, x: Any) -> Any:
    held = {"inside": [a]}
    f = custom_jvp(lambda x: 2.0 * x)
    f.defjvp(lambda p, t: (f(p[0]), 10.0 * held["inside"][0] * t[0]))
    return f(x)


def same(f: Function) -> Function:
    return f


KINDS = [by_jvp, by_vjp, by_rule_alone]
WRAPS: list[Function] = [same, jit, closed_call]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_values_of_outer_functions(kind: Function, outer: Function, inner: Function) -> None:
    g = inner(kind)
    assert_near(outer(grad(g, 1))(2.0, 3.0), 20.0)
    assert_near(outer(lambda a, x: jvp(lambda x: g(a, x), (x,), (1.0,))[1])(2.0, 3.0), 20.0)
    assert_near(outer(vmap(grad(g, 1)))(X, X), 10 * X)
    assert_near(outer(vmap(grad(g, 1), (None, 0)))(2.0, X), 20 + 0 * X)
    assert_near(outer(grad(lambda x: vmap(g)(X, x).sum()))(X), 10 * X)
    assert_near(outer(grad(lambda x: g(2.0, x) ** 2))(3.0), 20.0 * 2 * float(g(2.0, 3.0)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_rule_s_result_is_differentiated_by_what_it_closes_over(kind: Function) -> None:
    mixed = grad(lambda a: grad(lambda x: kind(a, x))(3.0))
    assert_near(jit(mixed)(2.0), 10.0)
    assert_near(grad(jit(lambda a: grad(lambda x: kind(a, x))(3.0)))(2.0), 10.0)


@pytest.mark.parametrize("kind", [by_jvp, by_vjp])
def test_a_closed_over_value_has_no_derivative(kind: Function) -> None:
    for f in (grad(jit(kind)), jit(grad(kind))):
        message = str(raised(lambda f=f: f(2.0, 3.0)))  # type: ignore[misc]
        assert message.startswith(
            "the custom rule of f: expected derivatives with respect to its arguments, but it closes over a value of "
            "type f32*[] that is differentiated; pass that as an argument, so that the rule can tell its part\n  at "
        )
    message = str(raised(lambda: grad(kind)(2.0, 3.0)))
    assert "has handed over to a custom rule, which may use only its arguments" in message
    assert __file__ in message


def test_a_rule_s_jaxpr_stays_right_after_its_function_is_gone() -> None:
    jaxpr = make_jaxpr(lambda a, x: closed_call(by_jvp)(a, x))(X[0], X[1])
    known, linear, nonzero, num_res = linearize_jaxpr(jaxpr, (False, True))
    assert (nonzero, num_res) == ((True,), 1)
    assert "mul" in str(linear)
    assert str(known).count("custom_rule") <= 1


def test_a_trial_that_fails_finds_nothing_and_harms_nobody() -> None:
    def f(a: Any, x: Any) -> Any:
        g = custom_jvp(lambda x: a * x)

        def refuse(primals: Any, tangents: Any) -> Any:
            raise RuntimeError(f"no derivative beside {a.shape}")

        g.defjvp(refuse)
        return g(x)

    assert_near(jit(f)(2.0, 3.0), 6.0)
    assert isinstance(raised(lambda: jit(grad(f, 1))(2.0, 3.0)), RuntimeError)
