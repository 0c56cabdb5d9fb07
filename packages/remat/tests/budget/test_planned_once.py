"""Plans are made once: for programs of one form, and for all budgets."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit
from fiveloop.core.primitives import special as sp
from fiveloop.remat import UnattainableError, checkpoint, explain_residuals
from fiveloop.remat.budget import plan

DRAWN = np.random.default_rng(0)
WS = [DRAWN.standard_normal((64, 64)).astype(np.float32) * 0.1 for _ in range(3)]
X = DRAWN.standard_normal((128, 64)).astype(np.float32)


def chain(ws: Any, x: Any) -> Any:
    """A stack of equal blocks."""
    for w in ws:
        x = x + sp.sin(sp.tanh(x @ w)) @ w
    return (x * x).sum()


@pytest.fixture(autouse=True)
def no_plans() -> None:
    """There are none at first."""
    plan._OUTCOMES.clear()
    plan._PLANS.clear()


@pytest.mark.parametrize("transform", [jit, lambda f: f], ids=["jit", "eager"])
def test_a_plan_is_made_once(monkeypatch: pytest.MonkeyPatch, transform: Any) -> None:
    made: list[int] = []
    real = plan.Planner.__init__

    def counted(self: plan.Planner, *args: Any) -> None:
        made.append(1)
        real(self, *args)

    monkeypatch.setattr(plan.Planner, "__init__", counted)
    f = transform(lambda ws, x: grad(checkpoint(chain, budget=0.5))(ws, x))
    first = f(WS, X)
    for one, two in zip(first, f(WS, X), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(made) == 1


def test_another_budget_chooses_from_the_same_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one budget cannot be met; an array that the program closes over is not kept alive."""

    def least(budget: Any, data: Any) -> Any:
        of_ws = checkpoint(lambda ws: chain(ws, data), budget=budget)
        return explain_residuals(of_ws, WS).choices[0].least

    data = jit(lambda x: x + 1.0)(X)
    with pytest.raises(UnattainableError) as raised:
        least("1 B", data)
    monkeypatch.setattr(plan.Planner, "__init__", None)
    found = {least(b, data) for b in (0.0, 0.5, raised.value.least)}
    assert found == {raised.value.least}
    alive = weakref.ref(data)
    del data, raised
    gc.collect()
    assert alive() is None


def plain_of(data: Any) -> Any:
    return jit(grad(chain))(WS, data)[0]


def test_a_plan_made_for_one_program_uses_the_constants_of_the_next() -> None:
    def loss(data: Any) -> Any:
        def inner(ws: Any) -> Any:
            return chain(ws, data)

        return grad(checkpoint(inner, budget=0.3))(WS)[0]

    np.testing.assert_allclose(loss(2 * X), plain_of(2 * X), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss(X), plain_of(X), rtol=1e-4, atol=1e-4)
