"""An effect on a Ref of the user's, defined and discharged outside: wherever a Ref may be, against NumPy."""

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
from fiveloop.core.extend import typecheck
from fiveloop.core.inspect import stages
from fiveloop.loops import cond, for_loop, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import discharge_state, freeze, new_ref
from fiveloop.testing.core.misuse import assert_misuse

from .smooth import SmoothEffect, smooth

X = np.array([0.3, -0.7, 1.1, 0.5])
START = np.array([1.0, 2.0, 3.0])


def program(start: Any, x: Any) -> Any:
    ref = new_ref(start)

    def step(c: Any, v: Any) -> Any:
        k, y = c

        def twice(y: Any) -> Any:
            smooth(ref, k - 2, y * v)
            smooth(ref, 2, ref[0])
            return y + ref[k]

        def twice_more(j: Any, z: Any) -> Any:
            smooth(ref, j, z)
            return z

        def part(y: Any) -> Any:
            checkpoint(lambda y: smooth(ref, k, y * y))(y)
            return y - 0.5

        y = cond(y > 0.0, twice, part, y)
        closed_call(lambda y: fori_loop(0, 2, twice_more, y))(y)
        return ((k + 1) % 3, y), y

    _, ys = scan(step, (0, x[0]), x)
    return (freeze(ref) ** 2).sum() + ys.sum()


def by_hand(start: Any, x: Any) -> Any:
    ref, (k, y), total = np.array(start), (0, x[0]), 0.0

    def smooth(i: int, v: Any) -> None:
        ref[i] = 0.75 * ref[i] + 0.25 * v

    for v in x:
        if y > 0.0:
            smooth(k - 2, y * v)
            smooth(2, ref[0])
            y = y + ref[k]
        else:
            smooth(k, y * y)
            y = y - 0.5
        smooth(0, y)
        smooth(1, y)
        k, total = (k + 1) % 3, total + y
    return (ref**2).sum() + total


def slopes(x: Any, h: float = 1e-6) -> Any:
    return np.array([by_hand(START, x + e) - by_hand(START, x - e) for e in h * np.eye(4)]) / (
        2 * h
    )


RUNS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: program(START, x),
    "jit": jit(lambda x: program(START, x)),
    "checkpoint": jit(checkpoint(lambda x: program(START, x))),
    "lane": lambda x: vmap(lambda x: program(START, x))(fnp.stack([x + 0.01, x]))[1],
    "lane of the last axis": lambda x: jit(vmap(program, in_axes=(1, 1)))(
        np.stack([START + 1.0, START], 1), fnp.stack([x, x], 1)
    )[1],
}


@pytest.mark.parametrize("name", RUNS)
def test_the_program_and_its_derivative(name: str) -> None:
    run = RUNS[name]
    np.testing.assert_allclose(run(X), by_hand(START, X), rtol=1e-6)
    for slope in (grad(run)(X), jit(grad(run))(X), linearize(run, X)[1](np.eye(4)[1])):
        want = slopes(X) if slope.ndim else slopes(X)[1]
        np.testing.assert_allclose(slope, want, rtol=1e-5)


def test_without_compiling_and_twice_differentiated() -> None:
    run: Any = partial(program, START)
    with disable_jit():
        np.testing.assert_allclose(run(X), by_hand(START, X), rtol=1e-6)
    along = np.array([1.0, -1.0, 0.5, 2.0])
    forth, back = X + 1e-5 * along, X - 1e-5 * along
    want = (slopes(forth) - slopes(back)) / 2e-5
    np.testing.assert_allclose(hessian(run)(X) @ along, want, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        jvp(jit(grad(checkpoint(run))), (X,), (along,))[1], want, rtol=1e-3, atol=1e-4
    )


def test_its_type_and_its_discharge() -> None:
    ref = new_ref(START)

    def two(ref: Any, x: Any) -> None:
        for_loop(3, lambda i, _: smooth(ref, i, x), 0.0)

    jaxpr = make_jaxpr(two)(ref, 2.0)
    assert jaxpr.effects == {SmoothEffect(0)}
    discharged = discharge_state(jaxpr)
    typecheck(discharged)
    assert not discharged.effects
    jit(two)(ref, 2.0)
    np.testing.assert_array_equal(ref[...], 0.75 * START + 0.5)


def test_it_stays_in_place() -> None:
    def run(start: Any, x: Any) -> Any:
        ref = new_ref(start)

        def step(i: Any, c: Any) -> Any:
            smooth(ref, (7 * i) % 1000, x * c)
            return c + 1.0

        fori_loop(0, 500, step, 0.0)
        return freeze(ref)[3]

    start = np.zeros(1000, np.float32)
    for f in (run, grad(run), lambda s, x: jvp(grad(run), (s, x), (s, x))):
        assert jit(f).lower(start, np.float32(1.0)).compile().copies == 0
    assert "smooth" not in str(stages(run, start, np.float32(1.0))["discharge"])


def test_lanes_that_end_a_loop_leave_it_alone() -> None:
    def run(ref: Any, n: Any) -> None:
        def step(k: Any) -> Any:
            smooth(ref, k % 3, 4.0)
            return k + 1

        while_loop(lambda k: k < n, step, 0)

    counts = np.array([0, 4, 2])
    refs = new_ref(np.stack([START] * 3, 1))
    jit(vmap(run, in_axes=(1, 0)))(refs, counts)
    for lane, count in enumerate(counts):
        want = START.copy()
        for k in range(count):
            want[k % 3] = 0.75 * want[k % 3] + 1.0
        np.testing.assert_allclose(refs[:, lane], want)


def test_lanes_that_share_a_ref_are_refused() -> None:
    ref = new_ref(START)
    with pytest.raises(TypeError, match="smooth: the lanes share a Ref; give each its own"):
        vmap(lambda x: smooth(ref, 0, x))(X)


@pytest.mark.parametrize(
    "transform", [lambda f: f, jit, checkpoint, grad], ids=["eager", "jit", "checkpoint", "grad"]
)
def test_a_part_of_a_ref_is_no_operand(transform: Callable[..., Any]) -> None:
    ref = new_ref(START)

    def run(x: Any) -> Any:
        smooth(ref.at[1:], 0, 2.0)
        return x * x

    assert_misuse(
        lambda: transform(run)(1.0),
        TypeError,
        "a primitive was applied to a part of a Ref, of type Ref{f64[2]}; expected the whole Ref, of type Ref{f64[3]}: "
        "apply it to that one and an index, or to what the part holds, `part[...]`",
        within=smooth,
    )
    np.testing.assert_array_equal(ref[...], START)
