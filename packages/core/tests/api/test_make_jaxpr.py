"""`make_jaxpr`, `eval_shape` and `closed_call`: looking at programs, and calls kept whole."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np

from fiveloop.core import ShapeDtype, closed_call, eval_shape, grad, jit, make_jaxpr, vmap
from fiveloop.core.extend import typecheck
from fiveloop.core.primitives.special import sin
from fiveloop.testing.core.compare import assert_all_close, assert_close

X = np.arange(3, dtype=np.float32)


def test_a_program_prints() -> None:
    jaxpr = make_jaxpr(lambda d, *, y: sin(d["a"]) * y + 1.0)({"a": X}, y=2.0)
    typecheck(jaxpr)
    assert str(jaxpr) == dedent(
        """\
        { lambda a:f32[3] b:f32*[] ; let
            c:f32[3] = sin a
            d:f32[3] = mul c b
            e:f32[3] = add d 1.0
          in (e,) }"""
    )


def test_a_jitted_function_is_one_equation() -> None:
    jaxpr = make_jaxpr(lambda x: jit(sin)(x) * 2.0)(X)
    assert str(jaxpr) == dedent(
        """\
        { lambda a:f32[3] ; let
            b:f32[3] = closed_call[name=sin] a
              jaxpr { lambda c:f32[3] ; let
                  d:f32[3] = sin c
                in (d,) }
            e:f32[3] = mul b 2.0
          in (e,) }"""
    )


def test_closed_over_arrays_are_constants() -> None:
    jaxpr = make_jaxpr(lambda x: x * X)(X)
    assert str(jaxpr).startswith("{ lambda a:f32[3] ; consts c0:f32[3] ; let")
    assert len(jaxpr.consts) == 1


def test_descriptions_in_place_of_arrays() -> None:
    jaxpr = make_jaxpr(lambda x, y: x + y)(ShapeDtype((2, 3), "float64"), 1.0)
    assert [str(a) for a in jaxpr.in_avals] == ["f64[2,3]", "f32*[]"]
    assert [str(a) for a in jaxpr.out_avals] == ["f64[2,3]"]


def test_the_program_of_a_derivative() -> None:
    jaxpr = make_jaxpr(grad(lambda x: (x * x).sum()))(X)
    typecheck(jaxpr)
    assert [str(a) for a in jaxpr.out_avals] == ["f32[3]"]


def test_eval_shape_computes_nothing() -> None:
    got = eval_shape(
        lambda x: {"s": x.sum(), "m": x[:, None] * x}, ShapeDtype((10**6,), np.float32)
    )
    assert got == {
        "s": ShapeDtype((), np.dtype("f4")),
        "m": ShapeDtype((10**6, 10**6), np.dtype("f4")),
    }


def test_closed_call_computes_what_its_function_does() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"p": sin(x) * y}

    call = closed_call(f)
    assert_close(call(X, 2.0)["p"], np.sin(X) * 2)
    assert_close(jit(call)(X, X)["p"], np.sin(X) * X)
    assert_close(vmap(call)(X, X)["p"], np.sin(X) * X)
    assert_close(grad(lambda x: call(x, X)["p"].sum())(X), np.cos(X) * X)
    assert_close(
        grad(lambda x: grad(lambda y: call(y, x)["p"].sum())(x).sum())(X), np.cos(X) - np.sin(X) * X
    )


def test_closed_call_closes_over_tracers() -> None:
    def f(x: Any) -> Any:
        return closed_call(lambda y: x * y)(x + 1.0)

    assert_all_close([f(X), jit(f)(X), vmap(f)(X)], [X * (X + 1)] * 3)
    assert_close(grad(lambda x: f(x).sum())(X), 2 * X + 1)


def test_static_arguments_are_python_values() -> None:
    def f(x: Any, n: int, *, twice: bool = False) -> Any:
        for _ in range(n):
            x = sin(x)
        return x * 2.0 if twice else x

    by_place = make_jaxpr(f, static_argnums=1)(X, 3)
    by_name = make_jaxpr(f, static_argnames=("n", "twice"))(X, n=2, twice=True)
    assert str(by_place).count("sin") == 3 and len(by_place.invars) == 1
    assert str(by_name).count("sin") == 2 and "mul" in str(by_name)
