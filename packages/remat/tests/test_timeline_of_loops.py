"""The memory of loops whose operands and results the compiler lays out in its own way, beside what XLA has counted."""

from __future__ import annotations

from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.loops import scan
from fiveloop.remat.timeline import upper

W: Any = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def test_the_results_of_a_loop_may_come_out_in_their_own_order() -> None:
    """The gradient of the weights is two products: one waits for a result of the loop that comes last, or first."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, y: Any) -> tuple[Any, None]:
            return fnp.tanh((h + y) @ w), None

        return (scan(step, fnp.tanh(x @ w), np.ones((16, 64), np.float32))[0] ** 2).sum()

    f, args = grad(loss, argnums=(0, 1)), (W, np.ones((4, 64), np.float32))
    planned = jit(f).lower(*args).compile().memory_analysis().temp
    assert planned <= 1.01 * upper(make_jaxpr(f)(*args)).peak <= 1.05 * planned


def test_a_matrix_that_is_transposed_before_a_loop_takes_memory() -> None:
    """The cotangents of few rows are multiplied with the transposed weights, which the loop in reverse is given."""
    outs = lambda h, y: (fnp.tanh(h @ W + y), None)
    loss = lambda h, ys: (scan(outs, h, ys)[0] ** 2).sum()
    args = np.ones((4, 64), np.float32), np.ones((16, 4, 64), np.float32)
    planned = jit(grad(loss)).lower(*args).compile().memory_analysis().temp
    simulated = upper(make_jaxpr(grad(loss))(*args)).peak
    assert planned <= 1.01 * simulated <= 1.1 * planned


def test_a_matrix_is_transposed_before_a_loop_that_multiplies_its_transpose() -> None:
    """The steps multiply few rows with the transposed weights: what is transposed before it are the weights."""
    steps = lambda h, y: (fnp.tanh(h @ W.T + y), None)
    loss = lambda h, ys: (scan(steps, h, ys)[0] ** 2).sum()
    args = np.ones((4, 64), np.float32), np.ones((16, 4, 64), np.float32)
    planned = jit(loss).lower(*args).compile().memory_analysis().temp
    simulated = upper(make_jaxpr(loss)(*args)).peak
    assert planned <= 1.01 * simulated <= 1.1 * planned
