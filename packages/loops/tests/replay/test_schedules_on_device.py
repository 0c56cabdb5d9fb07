"""Loops whose way back follows a schedule that the user gives: counts, gradients, and what is refused."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import ShapeDtype, grad, jit, jvp, value_and_grad, vmap
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


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_schedule_takes_the_simulated_evaluations(schedule: Binomial) -> None:
    calls = []

    def count(k: Any) -> Any:
        calls.append(k)
        return np.int32(k + 1)

    def step(_: Any, val: Any) -> Any:
        k = pure_callback(count, ShapeDtype((), "int32"), val[0])
        return k, fnp.sin(val[1] + 0.1 * k)

    def last(length: int, x: Any) -> Any:
        return fori_loop(0, length, step, (np.int32(0), x), checkpoints=schedule)[1]

    for length in (0, 1, 40):
        by_hand, x = 1.0, float(X)
        for k in range(length):
            by_hand, x = by_hand * np.cos(x + 0.1 * (k + 1)), np.sin(x + 0.1 * (k + 1))
        found = evaluations(schedule, length)
        calls.clear()
        slope = jit(value_and_grad(partial(last, length)))(X)[1]
        np.testing.assert_allclose(slope, by_hand, rtol=1e-4, atol=1e-7)
        assert len(calls) == found.total
    calls.clear()
    jit(grad(partial(last, 40)))(X)
    assert len(calls) == (found.total if schedule.sweeps else found.advanced + found.taped)


def sines(x: Any, length: Any, **options: Any) -> Any:
    """As many steps as are asked for."""
    step = lambda val: (val[0] + 1, fnp.sin(val[1]) + 0.1 * val[0])
    return while_loop(lambda val: val[0] < length, step, (np.int32(0), x), **options)[1]


def test_states_in_a_slower_store_go_to_the_memory_of_the_host_and_back() -> None:
    schedule, x = TwoLevel(3, slow=4, period=3), np.ones(7, np.float32)
    step = lambda c, _: (fnp.sin(c), None)
    total: Any = lambda x: scan(step, x, length=40, checkpoints=schedule)[0].sum()
    lowered = jit(grad(total)).lower(x)
    text = lowered.as_text(platform="cuda")
    found = partial(re.findall, string=text)
    (there,) = found(r'(%\w+) = .*annotate_device_placement.*"pinned_host"')
    (row,) = found(rf"(%\w+) = stablehlo.reshape {there} ")
    (written,) = found(r"dynamic_update_slice %\w+, (%\w+), .*tensor<5x7xf32>")
    (read,) = found(r"(%\w+) = stablehlo.dynamic_slice .*tensor<5x7xf32>")
    (taken,) = found(rf"(%\w+) = stablehlo.reshape {read} ")
    back, *_ = found(r'annotate_device_placement\((%\w+)\).*"device"')
    # Nothing else reads or writes the store, and nothing is computed between it and the moves.
    assert (written, back) == (row, taken)
    assert "placement" not in lowered.as_text(platform="cpu")


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
    ahead, loop = explain(grad(last), X).loops
    assert (ahead.call, ahead.role) == ("scan", "forward half of a derivative")
    assert ahead.steps == loop.steps == 40
    assert f"saved by {schedule}" in str(loop)
    assert f"of these 40 steps {evaluations(schedule, 40).advanced} are rerun" in str(loop)


@pytest.mark.parametrize("schedule", [s for s in SCHEDULES if s.most is None], ids=repr)
def test_explain_tells_how_often_steps_run_again_of_any_number(schedule: Binomial) -> None:
    once, twice = schedule.longest(1), schedule.longest(2)
    text = str(explain(grad(partial(sines, checkpoints=schedule)), X, 9))
    assert (
        f"no step is rerun more than once in a loop of up to {once} steps, twice up to {twice}"
        in text
    )
    assert ("the first ones in the forward pass" in text) == schedule.sweeps


def test_explain_tells_how_often_steps_run_again_of_a_bounded_number() -> None:
    loop = lambda x, checkpoints: sines(x, 9, checkpoints=checkpoints, max_steps=40)
    again = evaluations(Online(4), 40).advanced
    text = str(explain(grad(partial(loop, checkpoints=Online(4))), X))
    assert f"if all 40 steps are taken, {again} are rerun in all" in text
    text = str(explain(grad(partial(loop, checkpoints=Periodic(5, tape=8))), X))
    assert "saved by Periodic(slots=5, tape=8), so none is recomputed" in text


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Binomial(0), "Binomial: slots must be an integer of at least 1, got 0"),
        (lambda: Online(1), "Online: slots must be an integer of at least 2, got 1"),
        (lambda: Periodic(1, tape=0), "Periodic: tape must be an integer of at least 1, got 0"),
        (lambda: TwoLevel(1, slow=1, period=1), "TwoLevel: slow must be an integer of at least 2"),
        (lambda: TwoLevel(1, slow=2, period=0), "TwoLevel: period must be an integer of at least"),
    ],
)
def test_numbers_are_checked_where_a_schedule_is_made(make: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make()
    with pytest.raises(
        TypeError, match=r"Online: slots must be an integer of at least 2, got 2\.5"
    ):
        Online(2.5)  # type: ignore[arg-type]  # what a user may give


def test_a_loop_of_more_steps_than_a_schedule_is_for_is_refused() -> None:
    expected = "is for loops of at most 12 steps, but this one takes 13 steps"
    with pytest.raises(ValueError, match=expected):
        scan(lambda c, _: (c, None), X, length=13, checkpoints=Periodic(3, tape=4))


@pytest.mark.parametrize(
    ("many", "few"),
    [
        (Binomial(10**9, tape=2), Binomial(20, tape=2)),
        (Online(10**9), Online(40)),
        (Periodic(10**9, tape=8), Periodic(5, tape=8)),
        (TwoLevel(10**9, slow=10**9, period=5), TwoLevel(40, slow=8, period=5)),
    ],
)
def test_no_slots_are_reserved_that_a_loop_never_uses(many: Binomial, few: Binomial) -> None:
    def temporary(schedule: Binomial, **options: Any) -> int:
        last = lambda x: sines(x, 7, checkpoints=schedule, **options)
        return jit(grad(last)).lower(X).compile().memory_analysis().temp

    assert many.within(40) == few
    assert evaluations(many, 40) == evaluations(few, 40)
    assert temporary(many, max_steps=40) == temporary(few, max_steps=40)


@pytest.mark.parametrize("slots", [10**12, Binomial(10**12), Online(10**12)])
def test_states_that_no_memory_holds_are_refused(slots: Any) -> None:
    expected = "checkpoints: 1,000,000,000,000 states of 8 bytes need 16,000,000,000,000 bytes, and"
    with pytest.raises(ValueError, match=expected) as raised:
        grad(lambda x: sines(x, 7, checkpoints=slots))(X)
    assert "test_schedules_on_device.py" in str(raised.value)


def test_a_periodic_schedule_is_for_loops_with_a_bound() -> None:
    schedule = Periodic(3, tape=4)
    slope = grad(lambda x: sines(x, 7, max_steps=12, checkpoints=schedule))(X)
    np.testing.assert_allclose(slope, grad(lambda x: sines(x, 7, checkpoints=3))(X), rtol=1e-5)
    unbounded = "one has no bound on its steps; give a schedule for any number of steps"
    with pytest.raises(ValueError, match=unbounded):
        sines(X, 7, checkpoints=schedule)
    with pytest.raises(ValueError, match=unbounded):
        jit(lambda n: for_loop(n, lambda i, r: None, X, checkpoints=schedule))(7)
