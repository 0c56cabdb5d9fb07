"""The work of planning: how much is looked at, and how often, as programs grow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fiveloop.core import make_jaxpr
from fiveloop.core.extend import jvp_jaxpr
from fiveloop.core.primitives import special as sp
from fiveloop.loops import scan
from fiveloop.remat import fusion, timeline
from fiveloop.remat.budget import plan
from fiveloop.remat.budget.plans import Save
from fiveloop.remat.buffers import Timeline

X = np.ones((16, 16), np.float32)


def products_of_sums(x: Any, w: Any, times: int) -> Any:
    """Products that all read one long chain of light equations, which is computed again for each."""
    total = x
    for _ in range(times):
        for _ in range(4):
            x = x - 0.5 * x
        total = total + x @ w
    return total


def sines(x: Any, w: Any, times: int) -> Any:
    """A chain of equations that is long without a product, which the backward pass reads everywhere."""
    for _ in range(4 * times):
        x = sp.sin(x) * x
    return x * w


@pytest.mark.parametrize("program", [products_of_sums, sines])
def test_as_many_equations_are_asked_whether_they_are_fused_as_there_are(
    monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    asked: list[int] = []
    real = fusion.Fuser.may_join

    def counted(self: fusion.Fuser, *given: Any) -> bool:
        asked.append(1)
        return real(self, *given)

    monkeypatch.setattr(fusion.Fuser, "may_join", counted)

    def work(times: int) -> int:
        asked.clear()
        tangents, _ = jvp_jaxpr(make_jaxpr(lambda x, w: program(x, w, times))(X, X), (True, True))
        timeline.timeline(tangents)
        return len(asked)

    assert work(80) < 2.2 * work(40)


def test_few_of_many_plans_are_asked_whether_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes lead to a plan that is no slower all the same."""
    monkeypatch.setattr(plan, "SIMULATED", 0)
    monkeypatch.setattr(plan, "ASKED", 0)

    def loss(x: Any, w: Any) -> Any:
        for _ in range(16):
            x = x + sp.sin(x @ w) * sp.tanh(-x * x)
        return (x * x).sum()

    made, _ = jvp_jaxpr(make_jaxpr(loss)(X, X), (True, True))
    planner = plan.Planner(made, (False, False, True, True), None)
    least, most = planner.least, planner.everything
    times = []
    for k in range(8):
        before = len(planner._bytes)
        chosen = planner.within(least + k * (most - least) // 7)
        assert len(planner._bytes) - before <= math.log2(len(planner.plans)) + 1 + plan.BESIDE
        assert chosen is not None
        times.append(chosen.time)
    assert times == sorted(times, reverse=True)


def test_equal_bodies_are_laid_out_once_for_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second plan only the loop is laid out that differs, and what is around the loops."""

    def loss(x: Any, w: Any) -> Any:
        for k in range(5):

            def step(c: Any, _: Any, k: int = k) -> tuple[Any, None]:
                return sp.sin(c @ w) * (k + 2.0) + c, None

            x, _ = scan(step, x, None, length=3)
        return (x * x).sum()

    made, _ = jvp_jaxpr(make_jaxpr(loss)(X, X), (True, True))
    planner = plan.Planner(made, (False, False, True, True), None)
    first = planner.all.plan
    other = next(o for o in planner.chain.options[2][1:] if any(o.parts))
    laid_out: list[tuple[str, ...]] = []
    real = timeline._Layout.timeline

    def counted(self: timeline._Layout) -> Timeline:
        laid_out.append(self.path)
        return real(self)

    monkeypatch.setattr(timeline._Layout, "timeline", counted)
    planner.need(first)
    assert sum(map(bool, laid_out)) >= 10
    laid_out.clear()
    planner.need((*first[:2], Save(2, 3, other), *first[3:]))
    assert 1 <= sum(map(bool, laid_out)) <= 4
