"""Checks in loops, branches and checkpoints: the first step that fails, the branch taken, and never a replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    closed_call,
    disable_jit,
    grad,
    hessian,
    jit,
    jvp,
    linearize,
    make_jaxpr,
    vmap,
)
from fiveloop.loops import cond, for_loop, fori_loop, map, scan, switch, while_loop
from fiveloop.remat import checkpoint, saved_residuals
from fiveloop.state import (
    CheckError,
    addupdate,
    all_checks,
    check,
    checked,
    checkify,
    index_checks,
    nan_checks,
    new_ref,
)
from fiveloop.testing.core.misuse import raised


def message(call: Callable[[], object]) -> str:
    """The first line of the CheckError that a call raises."""
    error = raised(call)
    assert isinstance(error, CheckError), error
    return str(error).split("\n")[0]


def floats(xs: Any) -> Any:
    """Numbers as float32."""
    return np.array(xs, np.float32)


def grows(limit: Any, x: Any) -> Any:
    """Ten steps, each of which adds one and looks whether the sum is less than a limit."""

    def body(i: Any, r: Any) -> None:
        check(r[...] < limit, "{:.1f} is too large", r[...])
        r[...] += 1.0

    return for_loop(10, body, x)


def nested(limit: Any, x: Any) -> Any:
    """Four steps of three."""

    def step(c: Any, _: Any) -> Any:
        def inner(i: Any, r: Any) -> None:
            check(r[...] < limit, "{:.1f} is too large", r[...])
            r[...] += 1.0

        return for_loop(3, inner, c), c

    return scan(step, x, None, length=4)[0]


LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "for": (grows, "7.0 is too large (in step 7)"),
    "scan of for": (nested, "7.0 is too large (in step (2, 1))"),
    "call": (lambda limit, x: closed_call(grows)(limit, x), "7.0 is too large (in step 7)"),
    "checkpoint": (lambda limit, x: checkpoint(grows)(limit, x), "7.0 is too large (in step 7)"),
    "scan of checkpoint": (
        lambda limit, x: scan(
            checkpoint(lambda c, _: (check(c < limit, "c is {}", c), (c + 1.0, None))[1]),
            x,
            None,
            length=9,
        )[0],
        "c is 7.0 (in step 7)",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_first_step_that_fails(name: str) -> None:
    f, want = LOOPS[name]
    ways: list[Callable[..., Any]] = [
        f,
        jit(f),
        jit(grad(f, argnums=1)),
        grad(f, argnums=1),
        jit(grad(checkpoint(f), argnums=1)),
        lambda limit, x: jvp(f, (limit, x), (0.0, 1.0)),
    ]
    for way in ways:
        way(np.float32(20.0), np.float32(0.0))
        assert message(partial(way, np.float32(7.0), np.float32(0.0))) == want
    # A second derivative has lanes of its own.
    second = message(lambda: jit(hessian(f, argnums=1))(np.float32(7.0), np.float32(0.0)))
    assert second.replace(", lane 0", "") == want
    lanes = message(lambda: jit(vmap(f, in_axes=(0, None)))(floats([20, 9, 7]), 0.0))
    assert lanes == want[:-1] + ", lane 2)"
    error, _ = jit(vmap(checkify(f), in_axes=(0, None)))(floats([20, 30, 7]), np.float32(0.0))
    assert [bool(error[k]) for k in range(3)] == [False, False, True]
    assert (error[2].get() or "").startswith(want + "\n")


def test_as_python() -> None:
    with disable_jit():
        assert message(lambda: grows(7.0, 0.0)) == "7.0 is too large"


def test_while_loops() -> None:
    def f(limit: Any) -> Any:
        def holds(c: Any) -> Any:
            check(c < limit + 5.0, "the condition sees {}", c)
            return c < 10.0

        def step(c: Any) -> Any:
            check(c < limit, "the step sees {}", c)
            return c + 1.0

        return while_loop(holds, step, 0.0)

    for way in (f, jit(f), lambda x: jvp(f, (x,), (x,))):
        way(np.float32(20.0))
        assert message(partial(way, np.float32(7.0))) == "the step sees 7.0 (in step 7)"
        assert message(partial(way, np.float32(-5.0))) == "the condition sees 0.0"

    def to(n: Any) -> Any:
        """A lane that has made its steps is not checked any more, although the loop goes on."""
        return while_loop(lambda c: c < n, lambda c: (check(c < n, "c is {}", c), c + 1)[1], 0)

    np.testing.assert_array_equal(np.asarray(jit(vmap(to))(np.array([3, 0, 5]))), [3, 0, 5])
    assert message(lambda: jit(vmap(f))(floats([20, 7, 20]))) == (
        "the step sees 7.0 (in step 7, lane 1)"
    )


def test_only_the_branch_taken() -> None:
    def positive(x: Any) -> Any:
        check(x > 0, "{} is not positive", x)
        return fnp.log(x)

    def deep(x: Any) -> Any:
        return for_loop(3, lambda i, r: r.__setitem__(..., checkpoint(positive)(x) + i), x)

    for taken in (positive, closed_call(positive), checkpoint(positive), deep):

        def f(flag: Any, x: Any, taken: Callable[..., Any] = taken) -> Any:
            return cond(flag, taken, lambda x: x, x)

        xs, flags = floats([1, -2, 3]), np.array([True, False, True])
        for way in (vmap(f), jit(vmap(f)), jit(vmap(grad(f, argnums=1)))):
            way(flags, xs)
            wrong = partial(way, ~flags, xs)
            assert message(wrong).startswith("-2.0 is not positive")
        jit(f)(False, -1.0)
        assert message(partial(jit(f), True, -1.0)).startswith("-1.0 is not positive")

    def chosen(k: Any, x: Any) -> Any:
        return switch(k, [positive, lambda x: x, lambda x: positive(-x)], x)

    assert message(lambda: jit(vmap(chosen))(np.array([1, 0, 2]), floats([-1, 1, 1]))) == (
        "-1.0 is not positive (in lane 2)"
    )


def test_a_replay_checks_nothing_and_saves_no_more() -> None:
    def f(x: Any, checks: bool) -> Any:
        def look(x: Any) -> None:
            if checks:
                check(x < 9.0, "no")

        def body(i: Any, r: Any) -> None:
            look(r[...])
            r[...] = fnp.sin(r[...])

        def called(x: Any) -> Any:
            look(x)
            return fnp.exp(x)

        y = closed_call(called)(x)
        ref = new_ref(y)

        def fill(i: Any, _: Any) -> None:
            look(i)
            ref[...] = y * 2.0

        for_loop(2, fill, 0.0)
        return fnp.sin(for_loop(5, body, fnp.sin(ref[...] * y)))

    def saved(checks: bool) -> list[str]:
        kept = saved_residuals(checkpoint(partial(f, checks=checks)), 1.0)
        return sorted(str(r.aval) for r in kept)

    assert saved(True) == saved(False)
    text = str(make_jaxpr(grad(checkpoint(lambda x: f(x, True))))(1.0))
    assert text.count("check 'no'") == 3
    slopes = [float(jit(grad(checkpoint(partial(f, checks=c))))(1.0)) for c in (True, False)]
    assert slopes[0] == slopes[1] == float(grad(lambda x: f(x, False))(1.0))


def test_the_derivative_of_a_while_checks_once() -> None:
    def step(c: Any) -> Any:
        check(c < 99.0, "no")
        return c * 2.0

    def looped(x: Any) -> Any:
        return while_loop(lambda c: c < 9.0, step, x)

    def f(x: Any) -> Any:
        _, dot = jvp(looped, (x,), (1.0,))
        return dot

    assert str(make_jaxpr(f)(1.0)).count("check 'no'") == 1
    linear = linearize(looped, 1.0)[1]
    assert float(linear(1.0)) == float(f(1.0)) == 16.0
    assert "check" not in str(make_jaxpr(linear)(1.0))


def test_indices_in_loops() -> None:
    def f(x: Any, k: Any) -> Any:
        def body(i: Any, r: Any) -> None:
            r[i] = x[i + k]

        return for_loop(3, body, fnp.zeros(3))

    x = floats(range(5))
    run = checked(f, errors=index_checks)
    for way in (run, jit(run), lambda x, k: jit(grad(lambda y: run(y, k).sum()))(x)):
        way(x, 2)
        assert message(partial(way, x, 4)) == (
            "index 5 is out of bounds for an axis of size 5 (in step 1)"
        )
    error, _ = jit(checkify(lambda x, k: map(lambda j: x[j + k], fnp.arange(3)), index_checks))(
        x, 3
    )
    assert (error.get() or "").startswith("index 5 is out of bounds")
    assert "(in step 2)" in (error.get() or "")


def test_nans_in_loops() -> None:
    def f(x: Any) -> Any:
        return fori_loop(0, 5, lambda i, c: fnp.sqrt(c - 1.0), x)

    error, _ = jit(checkify(f, errors=nan_checks))(10.0)
    assert (error.get() or "").startswith("`sqrt` made a nan (in step 3)\n")
    error, _ = checkify(grad(f), errors=all_checks)(10.0)
    assert (error.get() or "").startswith("`sqrt` made a nan (in step 3)\n")
    error, _ = jit(checkify(lambda x: cond(x > 0, fnp.log, lambda x: x, x), all_checks))(-1.0)
    assert error.get() is None


NAN = np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)
ORDER = np.array([1, 0])


def added_to_a_row(x: Any) -> Any:
    ref = new_ref(np.zeros((2, 2), np.float32))
    addupdate(ref, np.array([0, 0]), x)
    return ref[...]


MOVES: dict[str, Callable[[Any], Any]] = {
    "transpose": lambda x: x.T,
    "reverse": lambda x: x[::-1],
    "sort": lambda x: fnp.sort(x, axis=0),
    "cumsum": lambda x: fnp.cumsum(x, 0),
    "dot_general": lambda x: x @ fnp.ones_like(x),
    "gather": lambda x: x[ORDER],
    "scatter": lambda x: x.at[ORDER].set(x),
    "sum of both": lambda x: x + x.T,
    "in a branch": lambda x: cond(x[0, 0] > 0, lambda x: x.T, lambda x: x, x),
    "added twice to a row": added_to_a_row,
}


@pytest.mark.parametrize("name", MOVES)
def test_a_nan_that_is_moved_is_not_made(name: str) -> None:
    error, _ = checkify(MOVES[name], errors=nan_checks)(NAN)
    assert error.get() is None


def test_a_nan_that_is_made_beside_another() -> None:
    x = np.array([[np.inf, np.nan], [1.0, 2.0]], np.float32)
    makers: dict[str, Callable[[Any], Any]] = {"sub": lambda x: x - x, "log": lambda x: fnp.log(-x)}
    for name, f in makers.items():
        error, _ = checkify(f, errors=nan_checks)(x)
        assert (error.get() or "").startswith(f"`{name}` made a nan\n")
