"""An effect that a package outside of the tree adds: it takes place once a step and lane, in every transform."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    RuleError,
    closed_call,
    custom_jvp,
    custom_vjp,
    disable_jit,
    grad,
    hessian,
    jit,
    jvp,
    make_jaxpr,
    vmap,
)
from fiveloop.core.extend import ShapedArray, as_value, eval_jaxpr, typecheck
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import freeze, new_ref
from fiveloop.state.extend import thread_effect

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def package() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        yield import_module("tally")
    finally:
        sys.path.remove(str(HERE))


def counted(package: Any, f: Callable[..., Any], *args: Any) -> float:
    """What the programs that run in `f(*args)` count."""
    package.totals.clear()
    f(*args)
    return float(sum(package.totals))


def programs(tally: Any) -> dict[str, tuple[Callable[..., Any], float]]:
    """Functions of one number near 0.5 that are differentiable in forward mode, and what each counts."""

    def straight(x: Any) -> Any:
        tally(2.0)
        return fnp.sin(x)

    def looped(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            tally(i)
            r[...] = fnp.sin(r[...])

        return for_loop(4, body, x)

    def scanned(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            tally(1.0)
            return fnp.sin(c), looped(c)

        return scan(step, x, None, length=3)[0]

    def branching(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            cond(i > 1, lambda: tally(10.0), lambda: None)
            r[...] = r[...] * 2.0

        return for_loop(4, body, x)

    @jit
    def jitted(x: Any) -> Any:
        tally(3.0)
        return closed_call(straight)(x) * x

    @custom_jvp
    def ruled(x: Any) -> Any:
        tally(7.0)
        return x * x

    @ruled.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        tally(7.0)
        return primals[0] ** 2, 2 * primals[0] * tangents[0]

    return {
        "straight": (straight, 2.0),
        "looped": (looped, 6.0),
        "scanned": (scanned, 21.0),
        "branching": (branching, 20.0),
        "jitted": (jitted, 5.0),
        "checkpointed": (checkpoint(looped), 6.0),
        "checkpointed branches": (checkpoint(branching), 20.0),
        "ruled": (ruled, 7.0),
    }


NAMES = (
    "straight",
    "looped",
    "scanned",
    "branching",
    "jitted",
    "checkpointed",
    "checkpointed branches",
    "ruled",
)


@pytest.mark.parametrize("name", NAMES)
def test_once_in_every_transform(package: Any, name: str) -> None:
    f, want = programs(package.tally)[name]
    typecheck(make_jaxpr(f)(0.5))
    one = np.float32(0.5)
    assert counted(package, f, one) == want
    assert counted(package, jit(f), one) == want
    assert counted(package, jit(lambda x: jvp(f, (x,), (1.0,))), one) == want
    assert counted(package, grad(f), one) == want
    assert counted(package, jit(grad(f)), one) == want
    assert counted(package, jit(grad(checkpoint(lambda x: fnp.sin(f(x))))), one) == want
    assert counted(package, jit(hessian(f)), one) == want
    with disable_jit():
        assert counted(package, f, one) == want


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_program_counts_at_each_call(package: Any, name: str) -> None:
    f, want = programs(package.tally)[name]
    fast = jit(f)
    assert [counted(package, fast, np.float32(0.5)) for _ in range(3)] == [want] * 3


def test_every_lane(package: Any) -> None:
    def f(x: Any) -> Any:
        package.tally(x)
        return x

    xs = np.arange(4, dtype=np.float32)
    assert counted(package, jit(vmap(f)), xs) == 6.0
    assert counted(package, vmap(vmap(f)), xs.reshape(2, 2)) == 6.0


def test_only_lanes_that_take_the_branch(package: Any) -> None:
    def chosen(x: Any) -> Any:
        def dear(x: Any) -> Any:
            package.tally(x)
            return checkpoint(lambda y: (package.tally(100.0), y * 2.0)[1])(x)

        return cond(x > 1.0, dear, lambda x: x, x)

    xs = np.arange(4, dtype=np.float32)
    assert counted(package, jit(vmap(chosen)), xs) == 205.0
    assert counted(package, jit(vmap(grad(chosen))), xs) == 205.0


def test_while_loops(package: Any) -> None:
    def asked(x: Any) -> Any:
        package.tally(x * 0.0 + 1.0)  # of every lane: what lanes share is counted once
        return x < 5.0

    def step(x: Any) -> Any:
        package.tally(100.0)
        return x + 1.0

    def f(x: Any) -> Any:
        return while_loop(asked, step, x)

    assert counted(package, f, np.float32(2)) == 304.0
    assert counted(package, jit(f), np.float32(2)) == 304.0
    assert counted(package, lambda x: jvp(f, (x,), (x,)), np.float32(2)) == 304.0
    # One lane makes three steps, one makes one, and one none; each asks once more than it steps.
    assert counted(package, jit(vmap(f)), np.array([2, 4, 9], np.float32)) == 407.0


def test_in_a_custom_vjp(package: Any) -> None:
    @custom_vjp
    def square(x: Any) -> Any:
        package.tally(1.0)
        return x * x

    def forward(x: Any) -> Any:
        package.tally(10.0)
        return x * x, x

    def backward(x: Any, ct: Any) -> Any:
        package.tally(100.0)
        return (2 * x * ct,)

    square.defvjp(forward, backward)
    assert counted(package, jit(square), 3.0) == 1.0
    assert counted(package, jit(grad(square)), 3.0) == 110.0

    def chosen(x: Any) -> Any:
        return cond(x > 1.0, square, lambda x: x, x)

    xs = np.arange(4, dtype=np.float32)
    assert counted(package, jit(vmap(chosen)), xs) == 2.0
    assert counted(package, jit(vmap(grad(chosen))), xs) == 220.0


def test_results_and_refs_are_not_disturbed(package: Any) -> None:
    ref = new_ref(fnp.zeros(3))

    @jit
    def f(x: Any) -> Any:
        package.tally(x)
        ref[0] += x
        return x + 1.0, {"double": x * 2.0}

    package.totals.clear()
    assert [float(x) for x in (f(1.0)[0], f(2.0)[1]["double"])] == [2.0, 4.0]
    np.testing.assert_array_equal(np.asarray(ref[...]), [3.0, 0.0, 0.0])
    assert package.totals == [1.0, 2.0]


def test_the_effect_is_in_the_type_until_it_is_handled(package: Any) -> None:
    def f(x: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            package.tally(r[...])
            r[...] = r[...] * 2.0

        return for_loop(3, body, x)

    jaxpr = make_jaxpr(f)(1.0)
    assert [str(e) for e in jaxpr.effects] == ["TallyEffect()"]
    threaded = thread_effect(jaxpr, package.TallyEffect, ShapedArray((), "float32"))
    typecheck(threaded)
    assert str(threaded) == GOLDEN


GOLDEN = """\
{ lambda a:Ref{f32[]} b:f32*[] ; Accum<a> ; let
    c:f32[] = for[nsteps=3 num_consts=0] a b
      body { lambda _:i32[] d:Ref{f32[]} e:Ref{f32[]} ; Accum<d> Read<e> Write<e> ; let
          f:f32[] <- e[]
          d[] += f
          g:f32[] = mul f 2.0
          e[] <- g
        in () }
  in (c,) }"""


def test_a_differentiated_handled_effect(package: Any) -> None:
    """A total in a Ref of the user's own: its derivative is that of what is counted."""

    def total(x: Any) -> Any:
        def f(x: Any) -> Any:
            scan(lambda c, _: (c * x, package.tally(c)), x, None, length=3)
            return x

        jaxpr = make_jaxpr(f)(x)
        threaded = thread_effect(jaxpr, package.TallyEffect, ShapedArray((), "float32"))
        ref = new_ref(fnp.zeros(()))
        eval_jaxpr(threaded, [ref, as_value(x)])
        return freeze(ref)

    assert float(total(2.0)) == 2.0 + 4.0 + 8.0
    assert float(grad(total)(2.0)) == 1.0 + 4.0 + 12.0
    assert float(jit(grad(total))(2.0)) == 17.0


def test_a_primitive_without_a_rule_says_so(package: Any) -> None:
    silent = package.Primitive("silent")
    package.define(
        silent,
        abstract_eval=package._types,
        lower=package.Refusal("it is silent"),
        jvp=package._jvp,
        batch=lambda size, operands, dims, p: (package.bind(silent, *operands), []),
    )

    def f(x: Any) -> Any:
        package.bind(silent, x)
        return x

    with pytest.raises(
        RuleError, match="`silent` has no handler rule; give it one with `define_handler"
    ):
        jit(f)(1.0)
    with pytest.raises(
        RuleError, match="`silent` has no predicate rule; give it one with `define_pred"
    ):
        jit(vmap(lambda x: cond(x > 0, f, lambda x: x, x)))(np.ones(3))
