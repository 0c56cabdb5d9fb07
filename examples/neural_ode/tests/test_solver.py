"""The solver, on equations whose solutions are known."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from neural_ode.solver import Solution, Trial, between, solve

from fiveloop import numpy as fnp
from fiveloop.core import Value, grad, jit, jvp

NOTHING = np.zeros((), np.float32)


def turned(rate: Any, state: Value) -> Value:
    """The field of a rotation."""
    slope: Value = rate * fnp.stack([state[1], -state[0]])
    return slope


def rotation(rate: Any, tolerance: float, **bound: int) -> Solution:
    """One unit of time of a rotation."""
    start = np.array([0.0, 1.0], np.float32)
    keep = lambda total, trial: total
    return solve(
        partial(turned, rate),
        start,
        1.0,
        tolerance=tolerance,
        gather=keep,
        total=NOTHING,
        **bound,
    )


@pytest.mark.parametrize("rate", [0.1, 3.0, 20.0])
def test_a_rotation_ends_where_it_should(rate: float) -> None:
    found = jit(lambda rate: rotation(rate, 1e-5))(np.float32(rate))
    np.testing.assert_allclose(found.point.state, [np.sin(rate), np.cos(rate)], atol=3e-4)
    assert float(found.point.time) == 1.0


def test_a_tighter_tolerance_takes_more_steps() -> None:
    loose, tight = (jit(lambda t=t: rotation(20.0, t).kept)() for t in (1e-2, 1e-5))
    assert int(tight) > int(loose) >= 1


def test_steps_whose_error_is_large_are_tried_again() -> None:
    def field(state: Value) -> Value:
        # Slow, then suddenly fast.
        return fnp.stack([fnp.ones_like(state[0]), fnp.exp(-(((state[0] - 0.5) / 0.1) ** 2))])

    start = np.zeros(2, np.float32)
    found = jit(
        lambda: solve(field, start, 1.0, tolerance=1e-4, gather=lambda t, _: t, total=NOTHING)
    )()
    assert int(found.rejected) > 0
    np.testing.assert_allclose(found.point.state, [1.0, 0.1 * np.pi**0.5], atol=2e-3)


def test_gathered_states_lie_on_the_solution_each_once() -> None:
    times = fnp.linspace(0.01, 1.0, 50)

    def gather(total: Value, trial: Trial) -> Value:
        states, inside = between(trial, times)
        return total + fnp.where(inside[:, None], states, 0.0)

    @jit
    def run() -> Value:
        start = np.array([0.0, 1.0], np.float32)
        total = fnp.zeros((50, 2), np.float32)
        field = partial(turned, np.float32(6.0))
        return solve(field, start, 1.0, tolerance=1e-5, gather=gather, total=total).total

    angle = 6.0 * np.asarray(times)
    np.testing.assert_allclose(run(), np.stack([np.sin(angle), np.cos(angle)], 1), atol=2e-3)


@pytest.mark.parametrize("bound", [{"max_steps": 60}, {"checkpoints": 3}, {}])
def test_the_gradient_is_that_of_the_solution_and_of_forward_mode(bound: dict[str, int]) -> None:
    def last(rate: Any) -> Value:
        return rotation(rate, 1e-4, **bound).point.state[0]

    rate = np.float32(7.0)
    backward = jit(grad(last))(rate)
    _, forward = jit(lambda r: jvp(last, (r,), (np.float32(1.0),)))(rate)
    np.testing.assert_allclose(backward, np.cos(7.0), atol=2e-3)
    np.testing.assert_allclose(backward, forward, rtol=1e-5)
