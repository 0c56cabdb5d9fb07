"""Functions with rules obey the laws, after every pair of transforms; and how they print."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from fiveloop.core import (
    closed_call,
    custom_derivative,
    custom_jvp,
    custom_linear_solve,
    custom_root,
    custom_vjp,
    grad,
    jit,
    jvp,
    make_jaxpr,
    vmap,
)
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.special import cos, sin
from fiveloop.testing.core.cube import TRANSFORMS, check_chain
from fiveloop.testing.core.golden import assert_prints
from fiveloop.testing.core.laws import check_law_eval, check_law_lower, check_laws
from fiveloop.testing.core.program_steps import (
    CORE_KINDS,
    Apply,
    Custom,
    Integer,
    with_custom_rules,
)
from fiveloop.testing.core.programs import Block, Program, Use, programs
from fiveloop.testing.core.samples import sample

A, B = np.array([0.3, -0.7, 1.1]), np.array([0.5, 0.2, -0.4])


def true_jvp(x: Any, y: Any) -> Any:
    f = custom_jvp(lambda x, y: (sin(x) * y, y))
    f.defjvp(
        lambda p, t: (f(*p), (cos(p[0]) * p[1] * t[0] + sin(p[0]) * t[1], t[1])),
    )
    return f(x, y)


def true_vjp(x: Any, y: Any) -> Any:
    f = custom_vjp(lambda x, y: (sin(x) * y, y.sum()))
    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda res, ct: (cos(res[0]) * res[1] * ct[0], sin(res[0]) * ct[0] + ct[1]),
    )
    return f(x, y)


def true_both(x: Any, y: Any) -> Any:
    return custom_derivative(
        lambda x, y: x * y,
        jvp=lambda p, t: (p[0] * p[1], t[0] * p[1] + p[0] * t[1]),
        fwd=lambda x, y: (x * y, (x, y)),
        bwd=lambda res, ct: (res[1] * ct, res[0] * ct),
    )(x, y)


def nested(x: Any, y: Any) -> Any:
    outs = closed_call(lambda y: true_vjp(true_jvp(x, y)[0], true_both(y, x)))(y)
    return (*outs, *vmap(true_jvp)(x, y))


def with_grad(x: Any, y: Any) -> Any:
    return grad(lambda x: true_vjp(true_jvp(x, y)[0], y)[1] + true_both(x, y).sum())(x)


def root(x: Any, y: Any) -> Any:
    def newton(f: Any, z: Any) -> Any:
        for _ in range(12):
            z = z - f(z) / (3.0 * z * z)
        return z

    target = sin(x) + 2.0 + y * y
    return custom_root(
        lambda z: z * z * z - target, 0.0 * x + 1.4, newton, lambda g, b: b / g(np.ones(3))
    )


def solved(x: Any, y: Any) -> Any:
    diagonal = sin(x) + 2.0
    return custom_linear_solve(
        lambda z: diagonal * z, y, lambda f, b: b / f(np.ones(3)), symmetric=True
    )


PROGRAMS = {p.__name__: p for p in (true_jvp, true_vjp, true_both, nested, with_grad, root, solved)}


@pytest.mark.parametrize("fun", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_laws(fun: Callable[..., Any]) -> None:
    s = sample(fun, A, B)
    check_laws(s)
    check_law_lower(s)


@pytest.mark.oracle
@pytest.mark.parametrize("names", list(product(sorted(TRANSFORMS), repeat=2)), ids="-".join)
def test_pairs_of_transforms(names: tuple[str, ...]) -> None:
    for fun in (true_jvp, true_vjp, solved):
        check_chain(sample(fun, A, B), names)


@pytest.mark.oracle
@pytest.mark.parametrize("names", list(product(["jvp", "vjp", "batch"], repeat=3)), ids="-".join)
def test_three_deep(names: tuple[str, ...]) -> None:
    check_chain(sample(true_both, A, B), names)


@pytest.mark.oracle
@settings(max_examples=8)
@given(programs(with_custom_rules(CORE_KINDS)))
def test_random_programs(program: Program) -> None:
    s = program.sample()
    check_law_eval(s, program.twin(*program.arrays()))
    check_laws(s)


def test_a_rule_that_runs_after_its_program_sees_the_integers_that_were_there() -> None:
    inner = Block(
        (Integer("int_neg", (0,)), Integer("int_add", (0, 1)), Apply("bell", (Use(0),))), (1,)
    )
    steps = (Custom("custom_jvp", inner), Integer("int_add", (0, 0)))
    program = Program(Block(steps, (1,)), shapes=((),), ints=(2,))
    check_laws(program.sample())


@custom_jvp
def square(x: Any) -> Any:
    return x * x


square.defjvp(lambda p, t: (square(p[0]), 3.0 * p[0] * t[0]))


@custom_vjp
def halve(x: Any) -> Any:
    return x * 0.5


halve.defvjp(lambda x: (halve(x), x), lambda x, ct: (ct * x,))


def test_printing_a_function_with_a_rule() -> None:
    assert_prints(
        make_jaxpr(square)(np.float32(2.0)),
        """
        { lambda a:f32[] ; let
            b:f32[] = custom_rule[name=square rule=jvp] a
              jaxpr { lambda c:f32[] ; let
                  d:f32[] = mul c c
                in (d,) }
          in (b,) }
        """,
    )


def test_printing_forward_mode_of_a_backward_rule() -> None:
    jaxpr = make_jaxpr(lambda x: jvp(halve, (x,), (x,)))(np.float32(2.0))
    assert_prints(
        jaxpr,
        """
        { lambda a:f32[] ; let
            b:f32[] = custom_rule[name=halve rule=vjp] a
              jaxpr { lambda c:f32[] ; let
                  d:f32[] = mul c 0.5
                in (d,) }
            e:f32[] = custom_rule[name=halve rule=bwd] a a
          in (b, e) }
        """,
    )
    assert_prints(
        run_passes(jaxpr),
        """
        { lambda a:f32[] ; let
            b:f32[] = closed_call[name=halve] a
              jaxpr { lambda c:f32[] ; let
                  d:f32[] = mul c 0.5
                in (d,) }
            e:f32[] = closed_call[name=halve] a a
              jaxpr { lambda f:f32[] g:f32[] ; let
                  h:f32[] = mul g f
                in (h,) }
          in (b, e) }
        """,
    )


def test_printing_a_gradient_and_a_batch() -> None:
    assert_prints(
        make_jaxpr(grad(halve))(np.float32(2.0)),
        """
        { lambda a:f32[] ; let
            b:f32[] = mul 1.0 a
          in (b,) }
        """,
    )
    assert_prints(
        make_jaxpr(vmap(square))(np.zeros(3, np.float32)),
        """
        { lambda a:f32[3] ; let
            b:f32[3] = custom_rule[name=square rule=jvp] a
              jaxpr { lambda c:f32[3] ; let
                  d:f32[3] = mul c c
                in (d,) }
          in (b,) }
        """,
    )


def test_one_function_of_the_module_for_one_body() -> None:
    @jit
    def layer(x: Any) -> Any:
        return square(x)

    text = jit(lambda x: layer(layer(layer(x)))).lower(np.float32(2.0)).as_text()
    assert text.count("func.func private @square") == 1
