"""Short steps of a loop that may end after any of them make turns, whose steps after the end change nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
import fiveloop.state as st
from fiveloop.core import Jaxpr, grad, ir, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import explain, scan, while_loop
from fiveloop.loops.plan.passes import plan

LENGTH = 23
COUNTS = [1, 2, 3, 4, 5, 8, 11, 22, 23, 30]


def steps(count: Any, x: Any, **options: Any) -> Any:
    """A loop of as many steps as a number says, of at most 23; the root of a later step is no number."""

    def step(carry: Any, k: Any) -> Any:
        i, y = carry
        y = fnp.sin(y) + 0.1 * fnp.sqrt(count - i) * x
        return (i + 1.0, y), y * y

    until = lambda carry: carry[0] >= count
    xs = np.arange(LENGTH)
    return scan(step, (np.float32(0.0), x), xs, until=until, **options)


def bounded(count: Any, x: Any) -> Any:
    """The same as a `while_loop` with a bound, without what the steps give."""

    def step(carry: Any) -> Any:
        i, y = carry
        return i + 1.0, fnp.sin(y) + 0.1 * fnp.sqrt(count - i) * x

    return while_loop(lambda s: s[0] < count, step, (np.float32(0.0), x), max_steps=LENGTH)


def by_hand(count: int, x: Any) -> tuple[Any, list[Any]]:
    """The last value, and the square of each."""
    y, squares = x, list[Any]()
    for i in range(min(count, LENGTH)):
        y = fnp.sin(y) + 0.1 * np.sqrt(np.float32(count - i)) * x
        squares.append(y * y)
    return y, squares


def last(count: int, x: Any) -> Any:
    return by_hand(count, x)[0]


def sines(x: Any) -> Any:
    """A step of one operation on one number."""
    until = lambda s: s > 9.0
    return scan(lambda s, _: (fnp.sin(s), None), x, None, length=40, until=until)[0]


def turns(fun: Any, *args: Any) -> list[int]:
    """How many steps make a turn of each loop that may end early, nested ones too."""

    def found(jaxpr: Jaxpr) -> list[int]:
        return [
            n
            for e in jaxpr.eqns
            for n in [
                *([e.params.unroll] if e.primitive.name == "for" and e.params.end == 0 else []),
                *[n for j in ir.jaxprs_in(e.params) for n in found(j)],
            ]
        ]

    return found(plan(make_jaxpr(fun)(*args)))


X = np.float32(0.7)


def test_short_steps_make_turns_forward_and_taped() -> None:
    assert turns(steps, 5.0, X) == [4]
    assert turns(bounded, 5.0, X) == []
    assert turns(grad(lambda x: bounded(5.0, x)[1]), X) == [2]
    assert turns(grad(lambda x: steps(5.0, x)[0][1]), X) == [2]
    assert turns(grad(sines), X) == [4]


@pytest.mark.parametrize("count", COUNTS)
def test_steps_after_the_end_change_nothing(count: int) -> None:
    (_, y), squares, taken = jit(steps)(np.float32(count), X)
    want, wanted = by_hand(count, X)
    rest = LENGTH - len(wanted)
    assert int(taken) == len(wanted)
    np.testing.assert_allclose(np.asarray(y), np.asarray(want), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(squares), [*map(float, wanted), *[0.0] * rest], rtol=1e-5)
    i, z = jit(bounded)(np.float32(count), X)
    assert int(i) == len(wanted)
    np.testing.assert_allclose(np.asarray(z), np.asarray(want), rtol=1e-5)


DERIVATIVES: list[Callable[[Any], Any]] = [
    grad,
    lambda f: grad(grad(f)),
    lambda f: lambda x: jvp(grad(f), (x,), (x,))[1],
]


@cache
def derivatives() -> Callable[[Any, Any], Any]:
    """All derivatives of the last value and of the sum of squares, in one compiled module."""
    last_of = lambda count: lambda x: bounded(count, x)[1]
    sum_of = lambda count: lambda x: steps(count, x)[1].sum()
    forms: list[Callable[[Any], Callable[[Any], Any]]] = [last_of, sum_of]
    return jit(lambda count, x: [[d(f(count))(x) for d in DERIVATIVES] for f in forms])


@pytest.mark.parametrize("count", [0, *COUNTS])
def test_derivatives_are_those_of_the_steps_taken(count: int) -> None:
    plain: list[Callable[[Any], Any]] = [
        lambda x: by_hand(count, x)[0],
        *[lambda x: sum(by_hand(count, x)[1])] * (count > 0),
    ]
    for f, found in zip(plain, derivatives()(np.float32(count), X), strict=False):
        want = [np.asarray(d(f)(X)) for d in DERIVATIVES]
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-3, atol=1e-6)


def test_it_goes_down_as_well() -> None:
    def f(x: Any) -> Any:
        return steps(np.float32(6.0), x, reverse=True)[1]

    _, want = by_hand(6, X)
    got = np.asarray(jit(f)(X))
    np.testing.assert_allclose(got, [*[0.0] * (LENGTH - 6), *map(float, want[::-1])], rtol=1e-5)
    wanted: Any = lambda x: sum(by_hand(6, x)[1])
    total: Any = lambda x: f(x).sum()
    slope = grad(wanted)(X)
    np.testing.assert_allclose(np.asarray(jit(grad(total))(X)), slope, rtol=1e-4)


def test_lanes_and_loops_around_it() -> None:
    counts = np.asarray([3.0, 7.0], np.float32)

    def f(c: Any, x: Any) -> Any:
        return bounded(c, x)[1]

    want = [float(by_hand(int(c), X)[0]) for c in counts]
    np.testing.assert_allclose(np.asarray(jit(vmap(f, (0, None)))(counts, X)), want, rtol=1e-5)
    plain: list[Any] = [grad(partial(last, int(c))) for c in counts]
    slopes = [float(slope(X)) for slope in plain]
    got = jit(vmap(grad(f, 1), (0, None)))(counts, X)
    np.testing.assert_allclose(np.asarray(got), slopes, rtol=1e-4)
    nest = lambda x: scan(lambda s, c: (s + f(c, x), None), 0.0, counts)[0]
    stacking = lambda x: scan(lambda s, c: (s + steps(c, x)[1].sum(), None), 0.0, counts)[0]
    assert turns(stacking, X) == [4]
    np.testing.assert_allclose(np.asarray(jit(grad(nest))(X)), sum(slopes), rtol=1e-4)
    np.testing.assert_allclose(
        np.asarray(jvp(jit(nest), (X,), (X,))[1]), X * sum(slopes), rtol=1e-4
    )


def test_what_is_kept_of_steps_not_taken_is_zero() -> None:
    """Of a step after the end, all that it makes is no number; a residual of it would be one that is added up."""
    total = lambda x: steps(np.float32(6.0), x)[1].sum()
    with np.errstate(all="raise"):
        assert np.isfinite(float(jit(grad(total))(X)))
        assert np.isfinite(float(jit(grad(grad(total)))(X)))


def test_python_is_called_in_the_steps_taken_alone() -> None:
    calls: list[float] = []

    def seen(y: Any) -> Any:
        calls.append(float(y))
        return y

    def run(x: Any) -> Any:
        def step(carry: Any) -> Any:
            i, y = carry
            return (i + 1, st.callback(seen, x, y) * 0.5), y

        return scan(lambda s, _: step(s), (0, x), None, length=40, until=lambda s: s[1] < 0.2)[0]

    assert turns(run, X) == []
    assert int(jit(run)(X)[0]) == len(calls) == 2


@pytest.mark.parametrize(
    "step",
    [
        lambda x: scan(lambda s, _: (s * 0.5, None), x, None, length=3)[0],
        lambda x: sum((x * k for k in range(60)), x),
        lambda x: fnp.tile(x, 9).sum(),
    ],
)
def test_other_steps_ask_each_time(step: Any) -> None:
    run = lambda x: scan(lambda s, _: (step(s), s), x, None, length=40, until=lambda s: s > 9.0)
    assert turns(run, X) == []


def test_an_array_that_is_updated_at_indices_asks_each_time() -> None:
    def step(carry: Any, k: Any) -> Any:
        y, total = carry
        return (y.at[k].set(total), total + y[k]), total

    run = lambda y: scan(step, (y, y[0]), np.arange(20), until=lambda c: c[1] > 9.0)
    assert turns(run, np.ones(50, np.float32)) == []


def test_explain_says_how_often_it_asks() -> None:
    lines = [str(loop) for loop in explain(steps, np.float32(5.0), X).loops]
    assert any("tests for its end once in 4" in line for line in lines), lines
