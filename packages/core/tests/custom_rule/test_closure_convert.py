"""`closure_convert` and `custom_gradient`: what closures hold, as arguments of rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import closed_call, closure_convert, custom_gradient, custom_vjp, jit, vjp
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_all_near, assert_near
from fiveloop.testing.core.misuse import assert_misuse, raised

X = np.arange(1, 4, dtype=np.float64)
Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap


def same(f: Function) -> Function:
    return f


WRAPS: list[Function] = [same, jit, closed_call]


@partial(custom_vjp, nondiff_argnums=(0,))
def applied(f: Function, x: Any, *held: Any) -> Any:
    return f(x, *held)


def applied_bwd(f: Function, res: Any, ct: Any) -> Any:
    """Thrice the true derivative."""
    x, held = res
    return vjp(f, x, *held)[1](3.0 * ct)


applied.defvjp(lambda f, x, *held: (f(x, *held), (x, held)), applied_bwd)


def by_scale(a: Any) -> Any:
    f, held = closure_convert(lambda x: a * x["u"] + sin(a), {"u": X[0]})
    return applied(f, {"u": X[1]}, *held)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_rule_gets_what_a_function_closes_over(wrap: Function) -> None:
    assert_near(wrap(by_scale)(X[2]), X[2] * X[1] + np.sin(X[2]))
    assert_near(wrap(grad(by_scale))(X[2]), 3 * (X[1] + np.cos(X[2])))
    assert_near(wrap(vmap(grad(by_scale)))(X), 3 * (X[1] + np.cos(X)))


def test_what_has_no_derivative_stays() -> None:
    f, held = closure_convert(lambda x: X * x, 1.0)
    assert held == []
    assert_near(f(2.0), 2 * X)

    def count(n: Any, a: Any) -> Any:
        g, held = closure_convert(lambda x: a * x * n, X[0])
        assert [x.shape for x in held] == [()]
        return g(X[0], *held)

    assert_near(jit(count)(3, X[1]), 3 * X[0] * X[1])


def test_converted_functions_check_their_arguments() -> None:
    def f(x: Any) -> Any:
        return X * x

    converted, _ = closure_convert(f, X)
    for given in ((X, X), X[:2], (np.float32(X),)):
        args = given if isinstance(given, tuple) else (given,)
        message = str(raised(lambda args=args: converted(*args)))  # type: ignore[misc]
        assert message.startswith(
            "closure_convert of f: expected arguments like the examples, PyTreeDef(((*,), {})) of ['f64[3]'], and then "
            "0 closed-over values, got "
        )


@custom_gradient
def product(x: Any, y: Any) -> Any:
    z = sin(x)
    return {"xy": x * y, "z": z}, lambda ct: (ct["xy"] * z, 5.0 * ct["xy"] + y * ct["z"])


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_gradient_beside_the_result(wrap: Function) -> None:
    x, y = X[1], X[2]
    assert_all_near(list(wrap(product)(x, y).values()), [x * y, np.sin(x)])
    f = lambda x, y: product(y=y, x=x)["xy"] + 2.0 * product(x, y)["z"]
    assert_all_near(wrap(grad(f, (0, 1)))(x, y), [np.sin(x), 5.0 + 2.0 * y])
    assert_near(wrap(vmap(grad(f), (0, None)))(X, y), np.sin(X))
    assert_near(wrap(grad(grad(f)))(x, y), np.cos(x))
    g = custom_gradient(lambda x: (x * x, lambda ct: 10.0 * x * ct))
    assert_near(wrap(grad(g))(x), 10.0 * x)
    with_rule: Any = custom_gradient
    by_lane = lambda a: grad(with_rule(lambda x: (a * x, lambda ct: (7.0 * a * ct,))))(x)
    assert_near(wrap(vmap(by_lane))(X), 7.0 * X)


def test_errors() -> None:
    f = custom_gradient(lambda x: x)
    for call in (lambda: f(X), lambda: grad(f)(X)):
        message = str(raised(call))
        assert "it must return a pair (result, function from its cotangent), got f64[3]" in message
    assert_misuse(
        lambda: closure_convert(3, X),  # type: ignore[arg-type]
        TypeError,
        "closure_convert: expected a function, got 3 of type int",
    )
