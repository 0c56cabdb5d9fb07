"""`custom_vjp` and `custom_derivative`: reverse mode as it is written, forward mode as it is derived, and both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.core as core
from fiveloop.core import (
    CustomVJPPrimal,
    SymbolicZero,
    closed_call,
    custom_derivative,
    custom_jvp,
    custom_vjp,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    vjp,
)
from fiveloop.core.primitives.elementwise import exp
from fiveloop.core.primitives.shape import reverse
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.compare import assert_all_near, assert_near
from fiveloop.testing.core.gradcheck import check_grads

X = np.arange(1, 4, dtype=np.float64)
Function = Callable[..., Any]
grad: Function = core.grad
vmap: Function = core.vmap


@custom_vjp
def steep(x: Any, y: Any) -> Any:
    """A product whose derivative by x is said to be ten times what it is, and by y to be zero."""
    return x * y


steep.defvjp(lambda x, y: (steep(x, y), (x, y)), lambda res, ct: (10.0 * res[1] * ct, None))


def same(f: Function) -> Function:
    return f


WRAPS: list[Function] = [same, jit, closed_call]


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("inner", WRAPS)
def test_both_modes_under_every_transform(outer: Function, inner: Function) -> None:
    g = inner(steep)
    assert_near(outer(g)(X, X), X * X)
    assert_all_near(
        outer(grad(lambda x, y: g(x, y).sum(), (0, 1)))(X, X + 1), [10 * (X + 1), 0 * X]
    )
    assert_all_near(
        outer(lambda x, y: jvp(g, (x, y), (X, X)))(X, X + 1), [X * (X + 1), 10 * X * (X + 1)]
    )
    assert_near(outer(vmap(g, (None, 0)))(2.0, X), 2 * X)
    assert_near(outer(vmap(grad(g), (0, None)))(X, 3.0), 30.0 + 0 * X)
    assert_near(outer(vmap(lambda x, y: jvp(g, (x, y), (x, y))[1], (0, None)))(X, 3.0), 30 * X)
    value, f_lin = linearize(outer(g), X, X)
    assert_all_near([value, f_lin(X, X)], [X * X, 10 * X * X])


@pytest.mark.parametrize("outer", WRAPS)
def test_what_all_examples_share_gets_the_sum(outer: Function) -> None:
    got = outer(grad(lambda x: vmap(steep, (None, 0))(x, X).sum()))(np.float64(2.0))
    assert_near(got, 10 * X.sum())
    assert_near(outer(vmap(grad(lambda y: vmap(steep, (0, None))(X, y).sum())))(X), 0 * X)


@pytest.mark.parametrize("outer", WRAPS)
@pytest.mark.parametrize("keep", [lambda x, y: x, lambda x, y: (x, y), lambda x, y: ()])
def test_bwd_gets_the_cotangent_of_each_lane(outer: Function, keep: Function) -> None:
    """It need not be linear: the sum of what is clipped is not the sum, clipped."""
    f: Any = custom_vjp(lambda x, y: x + y)
    f.defvjp(lambda x, y: (x + y, keep(x, y)), lambda res, ct: (ct.clip(-1.0, 1.0), ct))
    for call in (f, jit(f), closed_call(f)):
        lanes = lambda x, call=call: vmap(call, (None, 0))(x, X) @ np.array([2.0, 0.25, -2.5])
        assert_near(outer(grad(lanes))(X[0]), 0.25)
        twice = lambda x, call=call: vmap(lambda c: c * vmap(call, (None, 0))(x, c * X))(X).sum()
        assert_near(outer(grad(twice))(X[0]), 9.0)


@pytest.mark.parametrize("outer", WRAPS)
def test_higher_derivatives(outer: Function) -> None:
    x, y = np.float64(2.0), np.float64(3.0)
    assert_near(outer(grad(grad(steep), 1))(x, y), 10.0)
    assert_near(outer(grad(lambda x, y: jvp(steep, (x, y), (1.0, 1.0))[1], 1))(x, y), 10.0)
    assert_near(outer(lambda x, y: jvp(lambda y: grad(steep)(x, y), (y,), (y,))[1])(x, y), 30.0)
    second = outer(lambda y: jvp(lambda y: jvp(steep, (x, y), (1.0, 1.0))[1], (y,), (1.0,))[1])
    assert_near(second(y), 10.0)


def test_a_true_derivative_is_what_differences_say() -> None:
    f = custom_vjp(lambda x, y: (sin(x) * y, y.sum()))
    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda res, ct: (cos(res[0]) * res[1] * ct[0], sin(res[0]) * ct[0] + ct[1]),
    )
    check_grads(f, (X, X[::-1].copy()), order=2)


def test_residuals_results_and_arguments_are_trees() -> None:
    f = custom_vjp(lambda d, n: {"y": d["a"] * d["b"], "n": n + 1})
    f.defvjp(
        lambda d, n: (f(d, n), {"kept": [d], "n": n}),
        lambda res, ct: ({"a": res["kept"][0]["b"] * ct["y"], "b": None}, None),
    )
    got = jit(grad(lambda d: f(d, 2)["y"].sum()))({"a": X, "b": X + 1})
    assert_all_near([got["a"], got["b"]], [X + 1, 0 * X])


def functions_in(forward: Function, *args: Any) -> set[str]:
    text = str(make_jaxpr(forward)(*args))
    return {name for name in ("sin", "cos", "exp") if f"= {name} " in text}


def test_residuals_that_bwd_does_not_use_are_not_computed() -> None:
    fwd = lambda x, y: (x * y, (sin(y), cos(x), exp(x)))
    bwd = lambda res, ct: (res[0] * ct, res[1] * ct)
    by_vjp = custom_derivative(lambda x, y: x * y, fwd=fwd, bwd=bwd)
    by_both = custom_derivative(
        lambda x, y: x * y, fwd=fwd, bwd=bwd, jvp=lambda p, t: (p[0] * p[1], p[1] * t[0])
    )
    for f in (by_vjp, by_both):
        assert functions_in(lambda x, y, f=f: vjp(jit(f), x, y), X, X) == {"sin", "cos"}
        assert functions_in(lambda x, f=f: vjp(jit(lambda x: f(x, X)), x), X) == {"sin"}
        assert functions_in(lambda y, f=f: vjp(jit(lambda y: f(X, y)), y), X) == {"cos"}
        assert_near(jit(grad(f))(2.0, 3.0), np.sin(3.0))


def test_all_residuals_are_kept_if_bwd_cannot_tell_which_it_uses() -> None:
    f = custom_vjp(lambda x, y: x * y)
    f.defvjp(
        lambda x, y: (x.value * y.value, (cos(x.value), exp(x.value))),
        lambda res, ct: (res[0] * ct, None),
        symbolic_zeros=True,
    )
    assert functions_in(lambda x: vjp(jit(f), x, X), X) == {"cos", "exp"}

    def fails(res: Any, ct: Any) -> Any:
        raise ValueError("not today")

    g = custom_vjp(lambda x: 2.0 * x)
    g.defvjp(lambda x: (2.0 * x, exp(x)), fails)
    assert_near(jit(lambda x: vjp(g, x)[0])(1.0), 2.0)
    with pytest.raises(ValueError, match="not today"):
        jit(grad(g))(1.0)


def test_cotangents_of_integers_do_not_matter() -> None:
    for given in (None, 0, np.zeros((), np.float32), 3):
        f = custom_vjp(lambda x, n: x * n)
        f.defvjp(lambda x, n: (x * n, n), lambda n, ct, given=given: (n * ct, given))
        assert_near(grad(f)(2.0, 3), 3.0)
        assert_near(jit(grad(f))(2.0, 3), 3.0)


def test_static_arguments() -> None:
    f = custom_vjp(lambda n, x, h: h(x) * n, nondiff_argnums=(0, 2))
    f.defvjp(lambda n, x, h: (h(x) * n, x), lambda n, h, x, ct: (n * h(x) * ct,))
    assert_near(grad(lambda x: f(5, x, cos))(1.0), 5 * np.cos(1.0))
    assert_near(jit(grad(lambda x: f(5, x, h=cos)))(1.0), 5 * np.cos(1.0))
    named = custom_vjp(lambda n, x, h: h(x) * n, nondiff_argnames=("h", "n"))
    named.defvjp(lambda n, x, h: (h(x) * n, x), lambda n, h, x, ct: (n * h(x) * ct,))
    assert_near(jit(grad(lambda x: named(5, x, h=cos)))(1.0), 5 * np.cos(1.0))


def test_symbolic_zeros() -> None:
    seen: list[Any] = []

    def fwd(x: Any, y: Any) -> Any:
        seen[:] = [x, y]
        return (x.value * y.value, x.value), (x.value, y.value)

    def bwd(res: Any, ct: Any) -> Any:
        seen.append(ct)
        return (
            SymbolicZero(res[0].aval) if isinstance(ct[0], SymbolicZero) else res[1] * ct[0]
        ), None

    f = custom_vjp(lambda x, y: (x * y, x))
    f.defvjp(fwd, bwd, symbolic_zeros=True)
    assert_near(grad(lambda x: f(x, 3.0)[0])(2.0), 3.0)
    assert all(isinstance(x, CustomVJPPrimal) for x in seen[:2])
    assert [x.perturbed for x in seen[:2]] == [True, False]
    assert isinstance(seen[2][1], SymbolicZero)
    assert_near(jit(grad(lambda x: f(x, 3.0)[1]))(2.0), 0.0)


def test_control_flow_on_values_reaches_the_rules() -> None:
    f = custom_vjp(lambda x: x if x > 0 else 2.0 * x)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct if x > 0 else 5.0 * ct,))
    assert_all_near([grad(f)(1.0), grad(f)(-1.0)], [1.0, 5.0])
    assert_near(jvp(f, (1.0,), (3.0,))[1], 3.0)


def test_both_rules_serve_their_modes() -> None:
    f = custom_derivative(
        lambda x: x * x,
        jvp=lambda p, t: (p[0] * p[0], 3.0 * p[0] * t[0]),
        fwd=lambda x: (x * x, x),
        bwd=lambda x, ct: (5.0 * x * ct,),
    )
    for wrap in WRAPS:
        assert_near(wrap(f)(2.0), 4.0)
        assert_near(wrap(lambda x: jvp(f, (x,), (1.0,))[1])(2.0), 6.0)
        assert_near(wrap(grad(f))(2.0), 10.0)
        assert_near(wrap(vmap(grad(f)))(X), 5.0 * X)
        assert_near(wrap(vmap(lambda x: jvp(f, (x,), (1.0,))[1]))(X), 3.0 * X)
        assert_near(wrap(grad(lambda x: jvp(f, (x,), (1.0,))[1]))(2.0), 3.0)
        assert_near(wrap(grad(grad(f)))(2.0), 5.0)


def test_one_rule_gives_both_modes() -> None:
    by_jvp = custom_derivative(sin, jvp=lambda p, t: (sin(p[0]), 4.0 * t[0]))
    by_vjp = custom_derivative(sin, fwd=lambda x: (sin(x), ()), bwd=lambda res, ct: (4.0 * ct,))
    for f in (by_jvp, by_vjp):
        assert_near(jit(grad(f))(1.0), 4.0)
        assert_near(jit(lambda x, f=f: jvp(f, (x,), (1.0,))[1])(1.0), 4.0)


def test_the_derived_forward_mode_moves_elements_back() -> None:
    f = custom_vjp(lambda x: reverse(x, (0,)) * 2.0)
    f.defvjp(lambda x: (f(x), ()), lambda res, ct: (2.0 * reverse(ct, (0,)),))
    assert_near(jvp(f, (X,), (X,))[1], 2.0 * X[::-1])
    assert_near(
        vmap(lambda x: jvp(f, (x,), (x,))[1])(np.stack([X, X])), 2.0 * np.stack([X, X])[:, ::-1]
    )
    assert_near(vjp(f, X)[1](X)[0], 2.0 * X[::-1])


def test_rules_on_objects() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def _call(self, x: Any) -> Any:
            return self.scale * x

        call = custom_vjp(_call, nondiff_argnums=(0,))
        call.defvjp(lambda self, x: (x, ()), lambda self, res, ct: (7.0 * self.scale * ct,))

    assert_near(grad(Model(2.0).call)(1.0), 14.0)


def test_the_cotangent_of_a_leaf_stands_for_an_argument_of_one_leaf() -> None:
    f = custom_vjp(lambda d, y: d["a"][0] * y)
    f.defvjp(lambda d, y: (f(d, y), y), lambda y, ct: (5.0 * y * ct, None))
    for wrap in WRAPS:
        got = wrap(grad(lambda d: f(d, X).sum()))({"a": [X]})
        assert_near(got["a"][0], 5.0 * X)


def test_a_symbolic_zero_of_a_primal() -> None:
    f = custom_jvp(lambda x, n: (x * 2.0, x))
    f.defjvp(
        lambda p, t: (f(*p), (3.0 * t[0], SymbolicZero.from_primal_value(p[0]))),
        symbolic_zeros=True,
    )
    zero = SymbolicZero.from_primal_value(X)
    assert (zero.shape, zero.dtype, zero.ndim) == ((3,), np.dtype(np.float64), 1)
    for wrap in WRAPS:
        got = wrap(grad(lambda x: f(x, 1)[0].sum() + 7.0 * f(x, 1)[1].sum()))(X)
        assert_near(got, 3.0 + 0 * X)
