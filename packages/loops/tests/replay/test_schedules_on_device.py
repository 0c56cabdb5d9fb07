"""Loops whose way back follows a schedule that the user gives: counts, gradients, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import ShapeDtype, grad, jit, jvp, vmap
from fiveloop.loops import explain, for_loop, fori_loop, scan, while_loop
from fiveloop.loops.schedules import Binomial, Online, Periodic, TwoLevel
from fiveloop.loops.schedules.simulation import evaluations
from fiveloop.state import pure_callback

X = np.float32(0.4)
SCHEDULES = (
    Binomial(3, tape=4),
    Online(4),
    Periodic(5, tape=8),
    TwoLevel(3, slow=4, period=3),
    TwoLevel(2, tape=3, slow=3, period=2),
)


def swept(schedule: Binomial, length: int) -> int:
    """The steps up to the last state that a sweep stores."""
    stored, last = schedule.first(), 0
    while schedule.sweeps and int(schedule.next(stored)) * schedule.tape < length:
        last = int(schedule.next(stored))
        stored = schedule.after_next(stored)
    return last * schedule.tape


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_schedule_takes_the_simulated_evaluations(schedule: Binomial) -> None:
    calls = []

    def count(k: Any) -> Any:
        calls.append(k)
        return np.int32(k + 1)

    def step(_: Any, val: Any) -> Any:
        k = pure_callback(count, ShapeDtype((), "int32"), val[0])
        return k, fnp.sin(val[1] + 0.1 * k)

    def slope(length: int) -> float:
        last = lambda x: fori_loop(0, length, step, (np.int32(0), x), checkpoints=schedule)[1]
        return float(jit(grad(last))(X))

    for length in (0, 1, 40):
        by_hand, x = 1.0, float(X)
        for k in range(length):
            by_hand, x = by_hand * np.cos(x + 0.1 * (k + 1)), np.sin(x + 0.1 * (k + 1))
        calls.clear()
        np.testing.assert_allclose(slope(length), by_hand, rtol=1e-4, atol=1e-7)
        found = evaluations(schedule, length)
        assert len(calls) == swept(schedule, length) + found.advanced + found.taped


def sines(x: Any, length: Any, **options: Any) -> Any:
    """As many steps as are asked for."""
    step = lambda val: (val[0] + 1, fnp.sin(val[1]) + 0.1 * val[0])
    return while_loop(lambda val: val[0] < length, step, (np.int32(0), x), **options)[1]


@pytest.mark.parametrize("schedule", [Online(3), TwoLevel(2, tape=2, slow=3, period=2)], ids=repr)
def test_lanes_and_second_derivatives(schedule: Binomial) -> None:
    lengths, xs = np.array([0, 3, 17], np.int32), np.full(3, X)
    second = lambda x, n, **options: jvp(grad(lambda x: sines(x, n, **options)), (x,), (X,))
    twice = lambda x, n, **options: grad(grad(lambda x: sines(x, n, **options)))(x)
    for order in (second, twice):
        found = jit(vmap(partial(order, checkpoints=schedule)))(xs, lengths)
        plain = jit(vmap(partial(order, checkpoints=3)))(xs, lengths)
        np.testing.assert_allclose(np.asarray(found), np.asarray(plain), rtol=1e-4, atol=1e-6)


def test_explain_tells_of_the_schedule_that_is_given() -> None:
    schedule = TwoLevel(3, slow=4, period=3)
    last = lambda x: scan(lambda c, _: (fnp.sin(c), None), x, length=40, checkpoints=schedule)[0]
    (loop,) = explain(grad(last), X).loops
    assert loop.steps == 40
    assert f"saved by {schedule}" in str(loop)
    assert f"of these 40 steps {evaluations(schedule, 40).advanced} are run again" in str(loop)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Periodic(3, tape=4), "is for loops of at most 12 steps, but this one takes 13 steps"),
        (Binomial(0), "checkpoints: slots must be an integer of at least 1, got 0"),
        (Online(1), "checkpoints: slots must be an integer of at least 2, got 1"),
        (TwoLevel(1, slow=1, period=1), "checkpoints: slow must be an integer of at least 2"),
        (TwoLevel(1, slow=2, period=0), "checkpoints: period must be an integer of at least 1"),
    ],
)
def test_misuse(schedule: Binomial, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        scan(lambda c, _: (c, None), X, length=13, checkpoints=schedule)


def test_a_periodic_schedule_is_for_loops_with_a_bound() -> None:
    schedule = Periodic(3, tape=4)
    slope = grad(lambda x: sines(x, 7, max_steps=12, checkpoints=schedule))(X)
    np.testing.assert_allclose(slope, grad(lambda x: sines(x, 7, checkpoints=3))(X), rtol=1e-5)
    unbounded = "is for loops of at most 12 steps, but this one has no bound on its steps"
    with pytest.raises(ValueError, match=unbounded):
        sines(X, 7, checkpoints=schedule)
    with pytest.raises(ValueError, match=unbounded):
        jit(lambda n: for_loop(n, lambda i, r: None, X, checkpoints=schedule))(7)
