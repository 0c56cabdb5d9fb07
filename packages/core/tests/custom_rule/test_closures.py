"""What rules and functions close over: values of outer transforms, alive or long gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import (
    closed_call,
    custom_derivative,
    custom_jvp,
    custom_vjp,
    jit,
    jvp,
    make_jaxpr,
)
from fiveloop.core.extend import linearize_jaxpr
from fiveloop.testing.core.compare import assert_near
from fiveloop.testing.core.misuse import raised

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


def by_rules_called_again(a: Any, x: Any) -> Any:
    @custom_vjp
    def f(x: Any) -> Any:
        return closed_call(lambda y: a * y)(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (closed_call(lambda c: 10.0 * a * c)(ct),))
    return f(x)


def by_both(a: Any, x: Any) -> Any:
    f = custom_derivative(
        lambda x: a * x,
        jvp=lambda p, t: (a * p[0], 10.0 * a * t[0]),
        fwd=lambda x: (a * x, ()),
        bwd=lambda res, ct: (10.0 * a * ct,),
    )
    return f(x)


THREE = np.array(3.0)
LANES = {
    "call": lambda g: vmap(lambda a: g(a, THREE))(X),
    "nested": lambda g: vmap(lambda a: vmap(lambda b: g(a * b, THREE))(X))(X),
    "inner batched": lambda g: vmap(lambda a: vmap(lambda b: g(a, b))(X))(X),
    "inner shared": lambda g: vmap(lambda a: vmap(lambda b: g(a, THREE) + b)(X))(X),
    "gradient inside": lambda g: vmap(lambda a: grad(g, 1)(a, THREE))(X),
    "jvp inside": lambda g: vmap(lambda a: jvp(lambda x: g(a, x), (THREE,), (np.ones(()),))[1])(X),
    "jvp around": lambda g: jvp(lambda x: vmap(lambda a: g(a, x))(X), (THREE,), (np.ones(()),))[1],
    "gradient around": lambda g: grad(lambda x: (vmap(lambda a: g(a, x))(X) ** 2).sum())(THREE),
    "between": lambda g: vmap(lambda x: grad(lambda x: vmap(lambda a: g(a, x))(X).sum())(x))(X),
    "of itself": lambda g: vmap(lambda a: g(g(a, THREE), 4.0))(X),
    "not differentiated": lambda g: vmap(lambda a: grad(lambda y: g(a, THREE) * y)(THREE))(X),
    "second": lambda g: vmap(lambda a: grad(grad(lambda x: g(a, x) ** 2))(THREE))(X),
    "second around": lambda g: grad(grad(lambda x: (vmap(lambda a: g(a, x))(X) ** 2).sum()))(THREE),
}


@pytest.mark.parametrize("program", LANES)
@pytest.mark.parametrize("kind", [by_jvp, by_vjp, by_rule_alone, by_rules_called_again, by_both])
def test_lanes_are_closed_over_by_functions_of_what_the_lanes_share(
    program: str, kind: Function
) -> None:
    run: Any = LANES[program]
    assert_near(run(kind), jit(lambda: run(kind))())


def test_what_the_lanes_share_stays_shared() -> None:
    def pair(a: Any) -> Any:
        f = custom_jvp(lambda x: (a * x, 2.0 * x))
        f.defjvp(lambda p, t: (f(p[0]), (a * t[0], 2.0 * t[0])))
        return f(THREE)

    outs = vmap(pair, out_axes=(0, None))(X)
    assert_near(outs[0], 3 * X)
    assert_near(outs[1], 6.0)


def test_python_branches_on_values_beside_lanes() -> None:
    def g(a: Any, x: Any) -> Any:
        f = custom_vjp(lambda x: a * x if x > 0 else x)
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (a * ct if x > 0 else 7.0 * ct,))
        return f(x)

    assert_near(vmap(lambda a: g(a, THREE))(X), 3 * X)
    assert_near(vmap(lambda a: grad(g, 1)(a, -THREE))(X), 7.0 + 0 * X)


def test_a_value_that_the_rule_alone_holds_has_no_part_in_the_result() -> None:
    for wrap in WRAPS:
        assert_near(wrap(grad(lambda a: by_rule_alone(a, 3.0)))(2.0), 0.0)


def test_a_rule_hands_a_closed_over_value_through_a_call() -> None:
    """The value is a tracer of a trace that has ended when the rule runs: another stands for it."""

    def f(x: Any) -> Any:
        scale = (x * 2.0).astype(np.int32)

        @custom_jvp
        def g(v: Any) -> Any:
            return v * v

        @g.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            (v,), (t,) = primals, tangents
            return v * v, 2.0 * v * t * jit(lambda k: (k, k + 1))(scale)[0]

        return g(x)

    for wrap in WRAPS:
        assert_near(wrap(grad(f))(1.5), 9.0)


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
