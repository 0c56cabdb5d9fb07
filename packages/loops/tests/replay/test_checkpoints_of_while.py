"""`checkpoints` of a `while`: which states are saved, how often a step runs, and what is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, stop_gradient, value_and_grad, vmap
from fiveloop.loops import explain, fori_loop, scan, while_loop
from fiveloop.loops.schedules import binomial, online, simulation
from fiveloop.state import pure_callback
from fiveloop.testing.core.misuse import assert_misuse

X = np.float64(0.7)
calls = 0


def noted(x: Any) -> Any:
    global calls
    calls += 1
    return np.float64(0)


def step(x: Any, y: Any) -> Any:
    """A step that counts how often it runs."""
    zero = pure_callback(noted, np.zeros((), np.float64), stop_gradient(y))
    return fnp.sin(y) * x + 0.1 * y + zero


def waves(x: Any, n: Any, slots: int | None) -> Any:
    more = lambda c: c[0] < n
    return while_loop(more, lambda c: (c[0] + 1, step(x, c[1])), (0, x), checkpoints=slots)[1]


def counted_waves(x: Any, n: Any, slots: int) -> Any:
    return fori_loop(0, n, lambda i, y: step(x, y), x, checkpoints=slots)


def by_hand(x: Any, n: int) -> Any:
    y = x
    for _ in range(n):
        y = fnp.sin(y) * x + 0.1 * y
    return y


@pytest.mark.parametrize("slots", [4, 7])
def test_a_step_runs_as_often_as_the_online_schedule_says(slots: int) -> None:
    """What the way back of a step needs of it is not what the callback gives."""
    global calls
    both = jit(lambda x, n: value_and_grad(waves)(x, n, slots))
    for n in (0, 1, 2, 5, 17, 40):
        calls = 0
        _, slope = both(X, n)
        np.testing.assert_allclose(slope, grad(by_hand)(X, n), rtol=1e-9)
        runs = simulation.evaluations(online.Online(slots), n)
        assert calls == runs.swept + runs.advanced, n


@pytest.mark.parametrize("slots", [1, 3])
def test_a_step_runs_as_often_as_the_binomial_schedule_says(slots: int) -> None:
    """If the number of steps is known when the loop begins; it is run to the end for its value alone."""
    global calls
    slope = jit(lambda x, n: grad(counted_waves)(x, n, slots))
    for n in (1, 2, 5, 12):
        calls = 0
        np.testing.assert_allclose(slope(X, n), grad(by_hand)(X, n), rtol=1e-9)
        assert calls == binomial.advances(n, slots), n


def test_any_number_of_checkpoints_gives_the_same() -> None:
    want = [grad(by_hand)(x, 9) for x in np.array([0.1, 0.7])]
    for slots in (1, 2, 3, 20):
        lanes = vmap(grad(lambda x, slots=slots: waves(x, 9, slots)))
        np.testing.assert_allclose(jit(lanes)(np.array([0.1, 0.7])), want, rtol=1e-9)


def test_the_default_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def untold(x: Any) -> Any:
        return while_loop(lambda y: y < 100.0, lambda y: y * y + 1.0, x)

    for _ in range(2):
        grad(untold)(X)
        jit(lambda x: grad(untold)(x))(X)
        vmap(grad(untold))(np.array([X, X]))
    (message,) = [r.getMessage() for r in caplog.records if r.name == "fiveloop"]
    assert "saves 128 states of 8 bytes at a time" in message
    assert "test_checkpoints_of_while.py" in message


def test_nothing_is_told_where_no_state_is_saved(caplog: pytest.LogCaptureFixture) -> None:
    slope = grad(lambda x: while_loop(lambda y: y < 100.0, lambda y: y * 1.5, x))(X)
    assert slope > 1.0
    assert not [r for r in caplog.records if r.name == "fiveloop"]


def test_explain_tells_of_the_schedule() -> None:
    text = str(explain(lambda x: grad(waves)(x, 9, 5), X))
    assert "5 states of 8 bytes are saved at a time, the first ones in the forward pass" in text
    assert "no step is rerun more than once in a loop of up to 6 steps, twice up to 21" in text


def test_explain_names_what_the_turns_hold_and_how_many_there_are() -> None:
    """By what the user called the states, and where the number of steps is a constant, that."""
    counted = grad(lambda x: scan(lambda c, _: (fnp.sin(c), None), x, length=50, checkpoints=4)[0])
    (known,) = explain(counted, X).loops
    assert known.steps == 50 and not known.may_end
    assert [o.name for o in known.operands] == [
        "steps left",
        "slot",
        "its step",
        "saved carry",
        "problems that wait",
        "tangent of carry",
    ]
    open_ended = explain(lambda x: grad(waves)(x, 9, 5), X).loops
    assert all(loop.steps is None and loop.may_end for loop in open_ended)
    assert not any("operand" in o.name for loop in open_ended for o in loop.operands)


@pytest.mark.parametrize(
    "limits", [{}, {"checkpoints": online.Online(3, tape=2)}, {"max_steps": 12}]
)
def test_explain_names_the_number_of_steps(limits: Any) -> None:
    def loop(x: Any, n: Any) -> Any:
        return while_loop(lambda v: v[0] < n, lambda v: (v[0] + 1, fnp.sin(v[1])), (0, x), **limits)

    found = explain(grad(lambda x, n: loop(x, n)[1]), X, 9).loops
    assert not any("operand" in o.name for each in found for o in each.operands)
    assert any(o.name == "steps" for each in found for o in each.operands)


def test_explain_tells_how_many_steps_run_again_if_that_is_known() -> None:
    text = str(
        explain(grad(lambda x: scan(lambda c, _: (c * x, None), x, length=50, checkpoints=4)[0]), X)
    )
    assert f"of these 50 steps {binomial.advances(50, 4)} are rerun in all" in text


@pytest.mark.parametrize(
    ("given", "kind"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), (True, TypeError)]
)
def test_misuse(given: Any, kind: type[Exception]) -> None:
    shown = repr(given) if kind is ValueError else f"{given!r} of type {type(given).__name__}"
    expected = "while_loop: checkpoints must be an integer of at least 1, a schedule, or None, got "
    call = lambda: while_loop(lambda y: y < 3.0, lambda y: y + 1.0, X, checkpoints=given)
    assert_misuse(call, kind, expected + shown)


def test_the_way_back_is_one_kernel() -> None:
    """Each of its turns would be several otherwise, each of which costs as much as a small matrix times a vector."""

    def last(w: Any, x: Any) -> Any:
        return scan(lambda x, _: (fnp.tanh(w @ x), None), x, length=1000, checkpoints=100)[0].sum()

    compiled = jit(grad(last)).lower(fnp.ones((64, 64)), fnp.ones(64)).compile()
    entry = compiled.as_text().partition("ENTRY")[2]
    assert " call(" in entry and " while(" not in entry
