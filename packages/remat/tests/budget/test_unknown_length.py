"""Budgets of programs whose loops decide at each step whether they go on: how many of their states are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.extend import bind
from fiveloop.core.primitives import special as sp
from fiveloop.loops import cond, scan, while_loop
from fiveloop.remat import checkpoint, policies, residuals
from fiveloop.remat.budget.amount import Choice, UnattainableError, amount
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p

DRAWN = np.random.default_rng(0)
WAVE = DRAWN.standard_normal(128).astype(np.float32)
WIDE = DRAWN.standard_normal((128, 128)).astype(np.float32) * 0.1


def within(f: Any, x: Any) -> Callable[[Any], Any]:
    """The gradient of a function under a budget, and what the budget comes to: all budgets share its plans."""
    jaxpr = make_jaxpr(f)(x)

    def under(budget: Any) -> tuple[Any, Choice]:
        params = CheckpointParams(jaxpr, policies.undecided, Origin("f"), budget=amount(budget))
        gradient = grad(lambda x: bind(checkpoint_p, x, params=params)[0])
        (choice,) = residuals.choices_in(make_jaxpr(gradient)(x))
        return gradient, choice

    return under


def until(x: Any, steps: int = 60, w: Any = 1.1, invariant: Any = 1.0, **how: Any) -> Any:
    """As many steps as a value of the program says."""

    def step(c: Any) -> Any:
        return c[0] + 1, sp.sin(sp.tanh(w @ c[1] if np.ndim(w) else w * c[1]) + x * invariant)

    return while_loop(lambda c: c[0] < steps + (x[0] > 9.0), step, (0, x), **how)[1]


def rerun(x: Any) -> Any:
    """A loop of unknown length in another one."""
    return while_loop(
        lambda c: c[0] < 5 + (x[0] > 9.0), lambda c: (c[0] + 1, until(c[1], 9)), (0, x)
    )[1]


OPEN_ENDED = {
    "alone": until,
    "two": lambda x: until(until(x) * 0.5, 30),
    "in a loop": lambda x: scan(lambda h, _: (until(h, 9), None), x, None, length=4)[0],
    "in one of unknown length": rerun,
    "in a branch": lambda x: cond(x[0] < 9.0, until, sp.sin, x),
    "in a call": lambda x: jit(until)(x * 2.0),
    "in a checkpoint": lambda x: checkpoint(until)(x * 2.0),
    "in one that saves": lambda x: checkpoint(until, policy=policies.everything_saveable)(x * 2.0),
    "beside a large constant": lambda x: until(x, w=WIDE),
}


@pytest.mark.parametrize("f", OPEN_ENDED.values(), ids=OPEN_ENDED)
def test_a_loop_of_unknown_length_saves_fewer_states_where_there_is_less_room(f: Any) -> None:
    x = np.tile(WAVE, 1 if f is OPEN_ENDED["beside a large constant"] else 8)

    def loss(x: Any) -> Any:
        return (f(x) ** 2).sum()

    want = jit(grad(loss))(x)
    under = within(loss, x)
    for fraction in (0.0, 0.3, 1.0):
        gradient, choice = under(fraction)
        compiled = jit(gradient).lower(x).compile()
        assert compiled.memory_analysis().temp <= 1.05 * choice.allowed
        np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)
    assert choice.least < choice.everything / 5
    sizes, times = zip(*choice.candidates, strict=True)
    assert list(sizes) == sorted(sizes) and list(times) == sorted(times, reverse=True)
    assert len(sizes) > 3
    with pytest.raises(UnattainableError, match="the smallest plan") as error:
        under(choice.least - 1)
    assert error.value.least == choice.least


def test_a_budget_leaves_the_saved_states_that_a_loop_asks_for() -> None:
    """What the compiler computes before the loop, `x * 0.1`, is stated, too: of a few states it is a large part."""

    def loss(x: Any) -> Any:
        return (until(x, invariant=0.1, checkpoints=4) ** 2).sum()

    x = np.tile(WAVE, 24)
    gradient, choice = within(loss, x)(0.0)
    assert choice.least > 5 * x.nbytes
    assert jit(gradient).lower(x).compile().memory_analysis().temp <= 1.05 * choice.least
