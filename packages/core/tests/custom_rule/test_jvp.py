"""`custom_jvp`: the rule is used under every transform, at every depth, and only where something is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import (
    SymbolicZero,
    closed_call,
    custom_jvp,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    vjp,
)
from fiveloop.core.extend import typecheck
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.compare import assert_all_near, assert_near

X = np.arange(1, 4, dtype=np.float64)
Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap


@custom_jvp
def twice_as_steep(x: Any) -> Any:
    """A sine whose derivative is said to be twice what it is."""
    return sin(x)


@twice_as_steep.defjvp
def twice_as_steep_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (x_dot,) = primals, tangents
    return twice_as_steep(x), 2.0 * cos(x) * x_dot


def same(f: Function) -> Function:
    return f


WRAPS: list[Function] = [same, jit, closed_call]
f = twice_as_steep


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_the_rule_is_used_under_every_transform(outer: Function, inner: Function) -> None:
    g = inner(f)
    assert_near(outer(g)(X), np.sin(X))
    assert_all_near(outer(lambda x: jvp(g, (x,), (X,)))(X), [np.sin(X), 2 * np.cos(X) * X])
    assert_near(outer(grad(lambda x: g(x).sum()))(X), 2 * np.cos(X))
    assert_near(outer(lambda x: vjp(g, x)[1](X)[0])(X), 2 * np.cos(X) * X)
    assert_near(outer(vmap(g))(X), np.sin(X))
    assert_near(outer(vmap(grad(g)))(X), 2 * np.cos(X))
    assert_near(outer(grad(lambda x: vmap(g)(x).sum()))(X), 2 * np.cos(X))
    assert_near(outer(vmap(vmap(grad(g))))(np.stack([X, X])), 2 * np.cos(np.stack([X, X])))
    value, f_lin = linearize(outer(g), X)
    assert_all_near([value, f_lin(X)], [np.sin(X), 2 * np.cos(X) * X])


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_higher_derivatives_follow_the_rule_of_the_rule(outer: Function, inner: Function) -> None:
    g = inner(f)
    assert_near(outer(grad(grad(g)))(1.5), -2 * np.sin(1.5))
    assert_near(outer(grad(inner(grad(g))))(1.5), -2 * np.sin(1.5))
    third = grad(grad(grad(g)))
    assert_near(outer(third)(np.float64(1.5)), -2 * np.cos(1.5))
    forward_of_reverse = jvp(outer(grad(g)), (np.float64(1.5),), (np.float64(1.0),))
    assert_all_near(forward_of_reverse, [2 * np.cos(1.5), -2 * np.sin(1.5)])


def test_python_control_flow_on_values() -> None:
    @custom_jvp
    def g(x: Any) -> Any:
        return sin(x) if x > 0 else cos(x)

    @g.defjvp
    def g_jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return g(x), (2.0 if x > 0 else 3.0) * t

    assert_all_near([g(1.0), g(-1.0)], [np.sin(1.0), np.cos(1.0)])
    assert_all_near([grad(g)(1.0), grad(g)(-1.0)], [2.0, 3.0])
    assert_near(jvp(g, (-1.0,), (1.0,))[1], 3.0)


def test_the_function_runs_where_nothing_is_differentiated() -> None:
    runs: list[str] = []

    @custom_jvp
    def g(x: Any, y: Any) -> Any:
        runs.append("function")
        return x * y

    @g.defjvp
    def g_jvp(primals: Any, tangents: Any) -> Any:
        runs.append("rule")
        return primals[0] * primals[1], tangents[0]

    g(1.0, 2.0)
    jit(g)(1.0, 2.0)
    vmap(g)(X, X)
    assert grad(lambda z: z + g(1.0, 2.0))(1.0) == 1.0
    assert set(runs) == {"function"}
    assert grad(g)(2.0, 3.0) == 1.0
    assert runs[-1] == "rule"


def test_trees_defaults_and_keywords() -> None:
    @custom_jvp
    def g(d: Any, scale: Any = 2.0, *, unused: None = None) -> Any:
        return {"out": d["a"] * scale, "same": (d["b"],)}

    @g.defjvp
    def g_jvp(primals: Any, tangents: Any) -> Any:
        (d, scale), (d_dot, _) = primals, tangents
        return g(d, scale), {"out": 5.0 * d_dot["a"] * scale, "same": (d_dot["b"],)}

    d = {"a": X, "b": X + 1.0}
    for call in (lambda d: g(d, 3.0), lambda d: g(d, scale=3.0), lambda d: g(scale=3.0, d=d)):
        got = jit(grad(lambda d, call=call: call(d)["out"].sum() + call(d)["same"][0].sum()))(d)
        assert_all_near([got["a"], got["b"]], [15.0 + 0 * X, 1.0 + 0 * X])
    assert_near(g(d)["out"], 2.0 * X)


def test_static_arguments() -> None:
    def g(h: Any, x: Any, n: int) -> Any:
        return h(x) * n

    with_rule = custom_jvp(g, nondiff_argnums=(0, 2))
    with_rule.defjvp(lambda h, n, primals, tangents: (h(primals[0]) * n, 7.0 * n * tangents[0]))
    assert_near(grad(lambda x: with_rule(sin, x, 3))(1.0), 21.0)
    assert_near(jit(grad(lambda x: with_rule(sin, x, n=3)))(1.0), 21.0)
    last = custom_jvp(g, nondiff_argnums=(0, -1))
    assert last.nondiff_argnums == (0, 2)
    named = custom_jvp(g, nondiff_argnums=2, nondiff_argnames="h")
    assert named.nondiff_argnums == (0, 2)
    named.defjvp(lambda h, n, primals, tangents: (h(primals[0]) * n, 7.0 * n * tangents[0]))
    assert_near(jit(grad(lambda x: named(n=3, h=sin, x=x)))(1.0), 21.0)


def test_an_array_that_is_static_has_no_derivative() -> None:
    g = custom_jvp(lambda a, x: a * x, nondiff_argnums=0)
    g.defjvp(lambda a, primals, tangents: (a * primals[0], a * tangents[0]))
    assert_all_near(grad(lambda a, x: g(a, x), (0, 1))(2.0, 3.0), [0.0, 2.0])
    assert_all_near(jit(grad(lambda a, x: g(a, x), (0, 1)))(2.0, 3.0), [0.0, 2.0])


def test_methods() -> None:
    class Layer:
        scale = 3.0

        @custom_jvp
        def of_one(self: Any) -> Any:
            return self * 2.0

        def __init__(self) -> None:
            self.calls = 0

    Layer.of_one.defjvp(lambda primals, tangents: (primals[0] * 2.0, 9.0 * tangents[0]))

    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def _call(self, x: Any) -> Any:
            return self.scale * x

        call = custom_jvp(_call, nondiff_argnums=(0,))
        call.defjvp(lambda self, primals, tangents: (primals[0], 10.0 * self.scale * tangents[0]))

    assert_near(grad(Model(2.0).call)(1.0), 20.0)
    assert_near(jit(grad(Model(3.0).call))(1.0), 30.0)
    assert_near(grad(Layer.of_one)(1.0), 9.0)


def test_defjvps() -> None:
    g = custom_jvp(lambda x, y: x * y)
    g.defjvps(lambda t, out, x, y: out * t, None)
    assert_all_near(grad(g, (0, 1))(2.0, 3.0), [6.0, 0.0])
    assert_all_near(jit(grad(g, (0, 1)))(2.0, 3.0), [6.0, 0.0])
    g.defjvps(None, None)
    assert_near(grad(g)(2.0, 3.0), 0.0)
    g.defjvps(lambda t, out, x, y: t, lambda t, out, x, y: 2.0 * t)
    assert_near(jvp(g, (2.0, 3.0), (1.0, 1.0))[1], 3.0)


def test_symbolic_zeros() -> None:
    seen: list[Any] = []

    def rule(primals: Any, tangents: Any) -> Any:
        seen[:] = tangents
        (x, y, _), (x_dot, y_dot, n_dot) = primals, tangents
        assert isinstance(n_dot, SymbolicZero)
        dot = SymbolicZero(x.aval) if isinstance(x_dot, SymbolicZero) else 4.0 * x_dot
        return (x * y, y), (dot, y_dot)

    g = custom_jvp(lambda x, y, n: (x * y, y))
    g.defjvp(rule, symbolic_zeros=True)
    assert_near(jit(grad(lambda x: g(x, 3.0, 2)[0]))(2.0), 4.0)
    assert isinstance(seen[1], SymbolicZero)
    assert (seen[1].shape, seen[1].ndim, seen[1].dtype) == ((), 0, np.dtype(np.float32))
    assert_near(grad(lambda y: g(2.0, y, 2)[0] + g(2.0, y, 2)[1])(2.0), 1.0)
    assert isinstance(seen[0], SymbolicZero)


def test_integers_have_no_tangents() -> None:
    g = custom_jvp(lambda x, n: (x * 2.0, n + 1))
    g.defjvp(lambda primals, tangents: ((primals[0], primals[1] + 1), (tangents[0], tangents[1])))
    (out, n), (dot, _) = jvp(g, (2.0, 3), (1.0, 0))
    assert_all_near([out, n, dot], [2.0, 4, 1.0])
    assert_near(grad(lambda x: g(x, 3)[0])(1.0), 1.0)


def test_perturbations_are_not_confused() -> None:
    @custom_jvp
    def g(x: Any, y: Any) -> Any:
        return x * y

    g.defjvp(lambda p, t: (g(*p), p[1] * t[0] + p[0] * t[1]))

    def outer(x: Any) -> Any:
        return x * grad(lambda y: g(x, y))(1.0)

    assert_near(grad(outer)(3.0), 6.0)
    assert_near(jit(grad(outer))(3.0), 6.0)
    assert_near(grad(lambda x: jvp(lambda y: g(x, y) * x, (2.0,), (1.0,))[1])(3.0), 6.0)


def test_a_linear_function_with_a_rule_is_transposed() -> None:
    g = custom_jvp(lambda t: 3.0 * t)
    g.defjvp(lambda p, t: (g(*p), g(*t)))
    h = custom_jvp(sin)
    h.defjvp(lambda p, t: (h(*p), g(cos(p[0]) * t[0])))
    assert_near(grad(h)(1.0), 3.0 * np.cos(1.0))
    assert_near(jit(grad(h))(1.0), 3.0 * np.cos(1.0))
    assert_near(vmap(grad(h))(X), 3.0 * np.cos(X))


def test_every_stage_is_well_typed() -> None:
    for program in (f, grad(f), grad(grad(f)), lambda x: jvp(f, (x,), (x,))):
        typecheck(make_jaxpr(program)(1.0))
    batched = make_jaxpr(vmap(f))(X)
    typecheck(batched)
    assert [eqn.primitive.name for eqn in batched.eqns] == ["custom_rule"]


def test_metadata() -> None:
    assert f.__name__ == "twice_as_steep"  # type: ignore[attr-defined]  # update_wrapper sets it
    assert f.__wrapped__ is not None  # type: ignore[attr-defined]  # update_wrapper sets it
