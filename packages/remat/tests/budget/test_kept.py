"""Budgets of small programs, beside what the compiler needs for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.primitives import special as sp
from fiveloop.loops import scan
from fiveloop.remat import checkpoint, residuals
from fiveloop.remat.budget.amount import Choice

VECTOR = np.random.default_rng(1).standard_normal(256).astype(np.float32)
TABLES = np.random.default_rng(2).standard_normal((8, 32, 256)).astype(np.float32) * 0.1


def chosen(f: Any, *args: Any) -> Choice:
    """What the budget of a gradient came to."""
    (choice,) = residuals.choices_in(make_jaxpr(grad(f))(*args))
    return choice


@pytest.mark.parametrize(
    ("step", "x"),
    [
        (lambda x: sp.tanh((x[:, None, :32] * 1.1) @ TABLES)[:, 0] + x, TABLES[:, 0]),
        (lambda x: sp.tanh(x @ TABLES[0].T @ TABLES[0]) + x, VECTOR),
    ],
    ids=["in batches", "alone"],
)
def test_what_is_computed_of_products_with_vectors_is_not_in_their_places(
    step: Any, x: Any
) -> None:
    """The compiler drops an axis of one where it reads such a product."""

    def steps(x: Any) -> Any:
        for _ in range(4):
            x = step(x)
        return (x * x).sum()

    f = checkpoint(steps, budget=0.0)
    size = chosen(f, x).least
    assert jit(grad(f)).lower(x).compile().memory_analysis().temp <= 1.05 * size


def test_what_a_loop_changes_and_another_equation_reads_is_copied_once_it_is_there() -> None:
    """The second loop hands cotangents to the backward pass of the first, and a product reads them, too."""

    def loops(w: Any, x: Any) -> Any:
        h, ys = scan(lambda h, _: (sp.tanh(h @ w), h), x, None, length=8)
        g, _ = scan(lambda g, y: (sp.sin(g @ w + y), None), h, ys, reverse=True)
        return (g * h).sum()

    args = TABLES[0, :, :32], TABLES[:2, :, 32:64].reshape(64, 32)
    f = grad(checkpoint(loops, budget=2 / 9), argnums=(0, 1))
    (choice,) = residuals.choices_in(make_jaxpr(f)(*args))
    assert jit(f).lower(*args).compile().memory_analysis().temp <= 1.05 * choice.bytes
