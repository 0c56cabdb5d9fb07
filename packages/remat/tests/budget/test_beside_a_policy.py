"""A policy beside a budget: its verdicts stand, whatever the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core.primitives import special as sp
from fiveloop.loops import cond, scan
from fiveloop.remat import checkpoint, checkpoint_name, policies, saved_residuals


@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_a_policy_beside_a_budget_knows_the_labels(budget: float) -> None:
    def blocks(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = sp.sin(checkpoint_name(sp.tanh(x @ w), "hidden") @ w)
        return x

    size = np.ones((64, 64), np.float32)

    policy = policies.save_anything_except_these_names("hidden")
    f = checkpoint(blocks, policy=policy, budget=budget)
    origins = [r.origin for r in saved_residuals(f, size, size)]
    assert not {"named 'hidden'", "result of tanh"} & {*origins}
    assert "result of dot_general" in origins


def in_one_loop(step: Any) -> Any:
    return lambda w, x: scan(lambda c, _: (step(w, c), None), x, None, length=6)[0]


def in_two_loops(step: Any) -> Any:
    def inner(w: Any) -> Any:
        once = lambda c, _: (step(w, c), None)
        return lambda c, _: (scan(once, c, None, length=3)[0], None)

    return lambda w, x: scan(inner(w), x, None, length=4)[0]


def in_a_branch_of_a_loop(step: Any) -> Any:
    taken = lambda w, c: cond(c[0, 0] > 0, lambda c: step(w, c), lambda c: c, c)
    return in_one_loop(taken)


# The least plan kept a few states of the loop, and computed the labelled values again.
@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("loop", [in_one_loop, in_two_loops, in_a_branch_of_a_loop])
def test_what_a_policy_saves_in_a_loop_is_saved_under_every_budget(
    loop: Any, budget: float
) -> None:
    step = lambda w, x: sp.sin(checkpoint_name(sp.tanh(x @ w), "hidden")) @ w
    size = np.ones((64, 64), np.float32)
    policy = policies.save_only_these_names("hidden")
    kept = saved_residuals(checkpoint(loop(step), policy=policy, budget=budget), size, size)
    (hidden,) = [r for r in kept if r.label == "hidden"]
    assert (hidden.verdict, hidden.trips > 1) == ("save", True)
    assert hidden.policy == "save_only_these_names('hidden')"
