"""Loops whose steps wait for each other have several steps a turn, unless their callers say how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.keys import key, random_bits, split
from fiveloop.core.primitives.special import sin, tanh
from fiveloop.core.prims import concatenate
from fiveloop.loops import explain, for_loop, fori_loop, map, planning, scan
from fiveloop.loops.plan.passes import plan
from fiveloop.state import callback

X: Any = np.linspace(-1.0, 2.0, 37)
TABLE: Any = np.linspace(-1.0, 1.0, 37 * 6).reshape(37, 6)


def turns(fun: Any, *args: Any) -> list[int]:
    """How many steps make a turn of each loop, 0 where it has been left open."""
    eqns = plan(make_jaxpr(fun)(*args)).eqns
    return [e.params.unroll for e in eqns if e.primitive.name == "for"]


def summed(x: Any, **options: Any) -> Any:
    return scan(lambda s, x: (s + sin(x), s), 0.0, x, **options)


def longer(count: int) -> Callable[[Any], Any]:
    """A loop of that many times three operations a step."""

    def step(s: Any, x: Any) -> Any:
        for _ in range(count):
            s = sin(s) + x * s
        return s, None

    return lambda x: scan(step, 0.0, x)


def blurred(x: Any) -> Any:
    """A stencil: each element is made of several, which two steps in one kernel would each make again."""
    return fori_loop(0, 37, lambda i, y: y.at[1:-1].set((y[2:] + y[:-2]) * 0.5), x)


def swinging(x: Any) -> Any:
    """Two arrays are carried, each made of both: two kernels, and each would compute both steps."""
    step = lambda i, s: (s[0] + 0.1 * s[1], s[1] - 0.1 * sin(s[0]))
    return fori_loop(0, 37, step, (x, x))


def nested(x: Any) -> Any:
    return scan(lambda s, x: (fori_loop(0, 3, lambda j, s: s * x, s), None), 1.0, x)


def down_and_right(x: Any) -> Any:
    """Each cell of a table passes a part of itself on to two neighbours."""

    def row(i: Any, a: Any) -> None:
        def cell(j: Any, nothing: Any) -> None:
            t = a[i, j]
            a[i + 1, j] += 0.3 * t
            a[i, j + 1] += 0.2 * t

        for_loop(16, cell, None)

    return for_loop(5, row, x)


def exchanged(x: Any, places: Any) -> Any:
    """Swaps of which one place is read: the steps of a turn would have to compare places."""

    def step(i: Any, x: Any) -> None:
        j = places[i]
        x[i], x[j] = x[j], x[i]

    return for_loop(37, step, x)


def inner_turns(fun: Any, *args: Any) -> list[int]:
    """How many steps make a turn of each loop in a loop."""
    outer = [e for e in plan(make_jaxpr(fun)(*args)).eqns if e.primitive.name == "for"]
    return [e.params.unroll for o in outer for e in o.params.body.eqns if e.primitive.name == "for"]


FOUND: list[tuple[Callable[[Any], Any], list[int]]] = [
    (summed, [4]),
    (longer(8), [2]),
    (longer(30), [0]),
    (nested, [0]),
    (lambda x: summed(x[:15]), [0]),
    (lambda x: summed(x[:16]), [4]),
    (lambda x: summed(x, unroll=1), [1]),
    (lambda x: summed(x, unroll=False), [1]),
    (lambda x: summed(x, unroll=3), [3]),
    (lambda x: summed(x, unroll="auto"), [4]),
    (lambda x: map(sin, x), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: y + callback(np.abs, X[0], y), x[0]), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: y.at[(7 * i) % 37].mul(0.5), x), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: 0.5 * y + 0.1, x), [2]),
    (lambda x: fori_loop(0, 37, lambda i, y: 0.5 * y + 0.1, concatenate([x, x])), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: tanh(y) + 0.1, x), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: tanh(y) + 0.1, x[:3]), [0]),
    (lambda x: fori_loop(0, 37, lambda i, y: tanh(y) + 0.1, x[:2]), [4]),
    (lambda x: swinging(x[:4]), [4]),
    (lambda x: fori_loop(0, 37, lambda i, y: tanh(sin(tanh(y))), x[0]), [4]),
    (lambda x: fori_loop(0, 37, lambda i, n: n + 1, 0), [0]),
    (blurred, [0]),
    (swinging, [0]),
    (lambda x: swinging(x[0]), [4]),
    (lambda x: exchanged(x, x.astype("int32")), [0]),
    (lambda x: fori_loop(1, 37, lambda i, y: y.at[i].add(y[i - 1]), x), [4]),
    (lambda x: fori_loop(0, 37, lambda i, y: y.at[i].mul(0.5), x), [0]),
]


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_how_many_steps_make_a_turn(number: int) -> None:
    fun, want = FOUND[number]
    assert turns(fun, X) == want


def test_a_busy_table_in_place() -> None:
    x = np.linspace(-1.0, 2.0, 6 * 17).reshape(6, 17)
    assert inner_turns(down_and_right, x) == [4]
    assert inner_turns(grad(lambda x: down_and_right(x).sum()), x) == [4]
    want = x.copy()
    for i in range(5):
        for j in range(16):
            want[i + 1, j] += 0.3 * want[i, j]
            want[i, j + 1] += 0.2 * want[i, j]
    np.testing.assert_allclose(np.asarray(jit(down_and_right)(x)), want, rtol=1e-12)

    def slope() -> Any:
        return np.asarray(jit(grad(lambda x: down_and_right(x).sum()))(x))

    with planning(unroll=False):
        one_a_turn = slope()
    np.testing.assert_allclose(slope(), one_a_turn, rtol=1e-12)


def decayed(nsteps: int, fun: Any = lambda s: 0.5 * s) -> list[int]:
    """How many steps make a turn of a loop of so many, with a decay and what else is done to the state."""
    x = np.ones(nsteps, np.float32)
    return turns(lambda x: scan(lambda s, x: (fun(s) + x, None), np.float32(0), x)[0], x)


@pytest.mark.parametrize(
    ("nsteps", "want"),
    [(8_000, 4), (7_999, 4), (7_990, 5), (100_000, 8), (100_002, 8), (100_017, 9)],
)
def test_long_loops_have_longer_turns_and_no_steps_left(nsteps: int, want: int) -> None:
    assert decayed(nsteps) == [want]


def test_a_step_with_a_function_hides_what_it_waits_for() -> None:
    assert decayed(100_000, sin) == [4]


def test_steps_that_are_left_are_compiled_once() -> None:
    def text(nsteps: int) -> str:
        return str(jit(lambda x: summed(x)[0]).lower(X[:nsteps]).as_text())

    assert text(16).count("stablehlo.sine") == 4
    assert text(19).count("stablehlo.sine") == 5
    assert text(33).count("stablehlo.sine") == 5


def test_switched_off() -> None:
    with planning(unroll=False):
        assert turns(summed, X) == [0]
        np.testing.assert_allclose(np.asarray(jit(summed)(X)[0]), np.sin(X).sum(), rtol=1e-12)


@pytest.mark.parametrize("length", [16, 17, 18, 19, 37])
def test_steps_that_are_left_over(length: int) -> None:
    total, ys = jit(summed)(X[:length])
    sums = np.cumsum(np.sin(X[:length]))
    np.testing.assert_allclose(np.asarray(total), sums[-1], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(ys)[1:], sums[:-1], rtol=1e-12, atol=1e-15)
    slope = jit(grad(lambda x: summed(x)[0]))(X[:length])
    np.testing.assert_allclose(np.asarray(slope), np.cos(X[:length]), rtol=1e-12)


def test_halves_of_a_derivative_choose_for_themselves() -> None:
    def loss(x: Any) -> Any:
        step: Callable[[Any, Any], Any] = lambda h, x: (tanh(0.5 * h + x), None)
        return scan(step, 0.0, x)[0]

    assert turns(grad(loss), X) == [4, 4]


@pytest.mark.parametrize(("fun", "other"), [(blurred, "take"), (swinging, "swap")])
def test_steps_of_several_kernels_are_told(fun: Callable[[Any], Any], other: str) -> None:
    decision = explain(fun, X).loops[0].decision("unroll")
    assert not decision.done
    assert decision.reason == (
        f"a turn is one step: a step on 37 elements is more than one kernel: `{other}`"
    )


def test_functions_of_arrays_are_told() -> None:
    loop = explain(lambda x: fori_loop(0, 37, lambda i, y: tanh(y) + 0.1, x), X).loops[0]
    told = loop.decision("unroll")
    assert not told.done
    assert (
        told.reason == "a turn is one step: several steps to a turn take longer to compute `tanh`"
    )


@pytest.mark.parametrize(("width", "want"), [(1, 4), (2, 0), (20, 0), (24, 2)])
def test_a_step_that_stacks_the_array_that_it_carries(width: int, want: int) -> None:
    average = lambda x: scan(lambda m, x: ((m := 0.9 * m + 0.1 * x), m), x[0], x)[1]
    xs = np.ones((37, width)) if width > 1 else X
    assert turns(average, xs) == [want]
    if not want:
        told = explain(average, xs).loops[0].decision("unroll")
        assert told.reason.endswith("a step stacks what it carries, in a kernel of its own")


@pytest.mark.parametrize(("size", "want"), [(2, 4), (3, 0)])
def test_a_step_that_multiplies_a_matrix(size: int, want: int) -> None:
    linear = lambda a, x: fori_loop(0, 37, lambda _, x: a @ x + 1.0, x)
    assert turns(linear, np.eye(size), np.ones(size)) == [want]


def test_a_step_that_draws_random_bits() -> None:
    def walk(k: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            k, x = c
            k, now = split(k)
            return (k, x + random_bits(now, ())), None

        return scan(step, (k, np.uint32(0)), None, 37)[0][1]

    loop = explain(walk, key(0)).loops[0]
    assert loop.decision("unroll").reason == "a turn is one step: it makes random bits"


def test_it_is_told() -> None:
    decision = explain(summed, X).loops[0].decision("unroll")
    assert decision.done
    assert decision.reason == "a step depends on the step before, so 4 steps run in one iteration"
    assert "unroll: 4 steps are compiled into one iteration" in str(explain(summed, X))
