"""How often compiled programs run a loop's steps, counted by a callback that each step calls, beside the simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import jit, value_and_grad
from fiveloop.loops import scan, while_loop
from fiveloop.loops.schedules.binomial import Binomial
from fiveloop.loops.schedules.online import Online
from fiveloop.loops.schedules.simulation import evaluations
from fiveloop.testing.loops.counted_steps import CountedSteps

LARGE = ((128, 3), (500, 32), (1000, 16))


def unknown(counter: CountedSteps, **bound: Any) -> Callable[..., Any]:
    """Value and gradient of a loop that ends when its value says so."""

    def last(x: Any, length: Any) -> Any:
        start = (fnp.zeros((), np.int32), x)
        return while_loop(lambda val: val[0] < length, counter.step, start, **bound)[1]

    return jit(value_and_grad(last))


def known(counter: CountedSteps, length: int, **bound: Any) -> Callable[..., Any]:
    """Value and gradient of a loop of so many steps."""

    def last(x: Any) -> Any:
        step = lambda val, _: (counter.step(val), None)
        return scan(step, (fnp.zeros((), np.int32), x), None, length=length, **bound)[0][1]

    return jit(value_and_grad(last))


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
def test_an_unknown_count_takes_the_simulated_evaluations(slots: int) -> None:
    counter = CountedSteps()
    run = unknown(counter, checkpoints=slots)
    schedule = Online(slots) if slots > 1 else Binomial(slots)
    for length in range(65):
        calls = counter.of(run, np.float32(0.5), length)
        assert calls == evaluations(schedule, length).total, length


@pytest.mark.parametrize(("length", "slots"), LARGE)
def test_a_large_unknown_count_takes_the_simulated_evaluations(length: int, slots: int) -> None:
    counter = CountedSteps()
    calls = counter.of(unknown(counter, checkpoints=slots), np.float32(0.5), length)
    assert calls == evaluations(Online(slots), length).total


@pytest.mark.parametrize(("length", "slots"), [(1, 1), (9, 2), (33, 3), *LARGE])
def test_a_known_count_takes_the_fewest_evaluations(length: int, slots: int) -> None:
    counter = CountedSteps()
    calls = counter.of(known(counter, length, checkpoints=slots), np.float32(0.5))
    assert calls == evaluations(Binomial(slots), length).total


@pytest.mark.parametrize("length", [0, 7, 20])
def test_taped_steps_run_once(length: int) -> None:
    counter = CountedSteps()
    run = unknown(counter, max_steps=20)
    assert counter.of(run, np.float32(0.5), length) == length
