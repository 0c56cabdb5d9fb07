"""Loops in many lanes stay in place: no step copies or selects a whole array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Value, grad, jit, jvp, vmap
from fiveloop.core.extend import as_value
from fiveloop.loops import for_loop

LANES, STEPS = 4, 64


def swaps(x: Value, partner: Value) -> Value:
    """Exchange x[i] and x[partner[i]], step by step, and weigh the result."""

    def body(i: Value, refs: Any) -> None:
        y, k = refs
        j = k[i]
        mine, other = y[i], y[j]
        y[i] = other
        y[j] = mine

    return fnp.sum(for_loop(STEPS, body, (x, partner))[0] * fnp.arange(float(STEPS)))


def weights_swapped_back(partner: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    weights = np.tile(np.arange(STEPS, dtype=np.float32), (LANES, 1))
    for lane in range(LANES):
        for i in reversed(range(STEPS)):
            j = partner[lane, i]
            weights[lane, i], weights[lane, j] = weights[lane, j], weights[lane, i]
    return weights


@pytest.mark.parametrize("transform", ["primal", "gradient", "jvp of gradient"])
def test_swaps_with_an_index_of_each_lane_stay_in_place(transform: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((LANES, STEPS), np.float32)
    partner = rng.integers(0, STEPS, (LANES, STEPS), np.int32)

    def total(x: Any) -> Value:
        return fnp.sum(vmap(swaps)(x, as_value(partner)))

    forms = {
        "primal": total,
        "gradient": grad(total),
        "jvp of gradient": lambda x: jvp(grad(total), (x,), (x,))[1],
    }
    assert jit(forms[transform]).lower(x).compile().copies == 0


def test_the_gradient_of_swaps_swaps_the_weights_back() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((LANES, STEPS), np.float32)
    partner = rng.integers(0, STEPS, (LANES, STEPS), np.int32)
    got = jit(grad(lambda x: fnp.sum(vmap(swaps)(x, as_value(partner)))))(x)
    np.testing.assert_array_equal(np.asarray(got), weights_swapped_back(partner))
