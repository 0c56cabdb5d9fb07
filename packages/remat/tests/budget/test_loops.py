"""Budgets of programs with loops of known length: how many states are saved, and how long that takes to find."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr
from fiveloop.core.primitives import special as sp
from fiveloop.loops import scan, while_loop
from fiveloop.loops.schedules import Periodic
from fiveloop.loops.schedules.binomial import advances
from fiveloop.remat import checkpoint, explain_residuals, pareto
from fiveloop.remat.budget import options, plan, rough, stages
from fiveloop.remat.policies import Scheduled

X = np.random.default_rng(0).standard_normal(64).astype(np.float32) * 0.1


@pytest.fixture(autouse=True)
def no_plans() -> None:
    """There are none at first."""
    plan._OUTCOMES.clear()
    plan._PLANS.clear()


def repeated(step: Callable[[Any], Any], steps: int, x: Any) -> Any:
    """A step many times."""
    return scan(lambda c, _: (step(c), None), x, None, length=steps)[0]


def long(x: Any) -> Any:
    """A loop of many steps."""
    return repeated(lambda c: sp.sin(c) * 1.01, 2_000, x).sum()


def nested(x: Any) -> Any:
    """A loop whose steps are loops."""
    return repeated(lambda c: repeated(lambda d: sp.sin(d) * 1.01, 100, c), 100, x).sum()


def until(steps: int, x: Any, scale: float) -> Any:
    """A loop of unknown length."""

    def step(c: Any) -> Any:
        return c[0] + 1, sp.sin(sp.sin(c[1]) * scale)

    return while_loop(lambda c: c[0] < steps, step, (0, x))[1]


def both(x: Any, scale: float) -> Any:
    """Two light equations."""
    return sp.sin(sp.sin(x) * scale)


def many(x: Any) -> Any:
    """Loops that differ, of all kinds."""
    for k in range(3):
        step = partial(both, scale=1.01 + 0.01 * k)
        x = until(8, repeated(step, 8, x), 1.01 + 0.01 * k)
        x = repeated(partial(repeated, step, 4), 8, x)
    return x.sum()


@pytest.mark.parametrize("f", [long, nested])
@pytest.mark.parametrize("taped", [False, True])
def test_a_loop_saves_as_many_states_as_a_policy_says(f: Any, taped: bool) -> None:
    few = checkpoint(f, policy=Scheduled(10, taped=taped, within=not taped))
    compiled = jit(grad(few)).lower(X).compile()
    np.testing.assert_allclose(compiled(X), jit(grad(f))(X), rtol=1e-5, atol=1e-6)
    whole = jit(grad(f)).lower(X).compile().memory_analysis().temp
    assert compiled.memory_analysis().temp < whole / 3


def test_loops_within_loops_save_a_few_states() -> None:
    smaller = checkpoint(nested, budget=8_000)
    compiled = jit(grad(smaller)).lower(X).compile()
    assert compiled.memory_analysis().temp <= 1.05 * 8_000
    np.testing.assert_allclose(compiled(X), jit(grad(nested))(X), rtol=1e-5, atol=1e-6)


def test_a_long_loop_runs_each_step_once_again_if_it_has_room_for_it() -> None:
    (choice,) = explain_residuals(checkpoint(long, budget=1.0), X).choices
    times = [time for size, time in choice.candidates if size < choice.everything / 5]
    assert min(times) < 1.5 * choice.milliseconds
    compiled = jit(grad(checkpoint(long, budget=0.15))).lower(X).compile()
    assert compiled.memory_analysis().temp <= 0.2 * choice.everything


@pytest.mark.parametrize("saved", [2, 8, 20, Periodic(4, tape=5)], ids=str)
def test_what_a_loop_with_a_few_states_does_again_is_counted_for_all_steps(saved: Any) -> None:
    w, x = np.ones((8, 8), np.float32), np.ones((4, 8), np.float32)
    each, steps = 2 * 4 * 8 * 8 + 20 * x.size, 20

    def f(x: Any) -> Any:
        step = lambda c, _: (sp.sin(c @ w), None)
        return scan(step, x, None, length=steps, checkpoints=saved)[0].sum()

    told = explain_residuals(f, x)
    ahead = advances(steps, saved) if isinstance(saved, int) else 0
    assert each * (ahead + steps) <= told.flops_again < each * (ahead + steps + 2)
    assert not told.open_ended


def test_the_time_of_a_plan_is_the_same_in_both_reports() -> None:
    w, x = np.eye(16, dtype=np.float32), np.ones((32, 16), np.float32)

    def f(w: Any, x: Any) -> Any:
        inner = lambda c: repeated(lambda d: sp.sin(d @ w) * 0.9, 20, c)
        return repeated(inner, 20, x).sum()

    for budget in (0.05, 0.1, 0.2, 1.0):
        (choice,) = explain_residuals(checkpoint(f, budget=budget), w, x).choices
        point = next(p for p in pareto(f, w, x, budgets=[budget]).points if p.budget)
        np.testing.assert_allclose(point.milliseconds, choice.milliseconds, rtol=0.05)


def test_estimates_of_schedules_are_those_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[options.Weighing] = []
    real = options.Weighing.schedules

    def noted(self: options.Weighing, first: Any) -> Any:
        seen.append(self)
        return real(self, first)

    monkeypatch.setattr(options.Weighing, "schedules", noted)
    make_jaxpr(grad(checkpoint(long, budget=0.9)))(X)
    weighing = seen[0]
    found = weighing.schedules(weighing.option(None))
    policies = [o.policy for o in found if isinstance(o.policy, Scheduled)]
    assert {policy.taped for policy in policies} == {False, True}
    for o, policy in zip(found, policies, strict=True):
        split = weighing.option(policy)
        np.testing.assert_allclose(
            (o.kept, o.backward), (split.kept, split.backward), rtol=0.1, atol=300
        )


def test_a_loop_is_split_only_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WORK", 0)
    monkeypatch.setattr(plan, "LARGE", 0)
    split: list[Any] = []
    monkeypatch.setattr(options, "both_passes", lambda *args: split.append(args))
    smaller, whole = grad(checkpoint(many, budget=0.0)), grad(many)
    np.testing.assert_allclose(jit(smaller)(X), jit(whole)(X), rtol=1e-5, atol=1e-6)
    assert not split
    (choice,) = explain_residuals(checkpoint(many, budget=0.0), X).choices
    assert choice.least < choice.everything / 2


def test_a_second_call_asks_no_loop_what_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = grad(checkpoint(nested, budget=1.0))
    make_jaxpr(gradient)(X)
    asked: list[Any] = []
    real = stages.unknown_vars

    def noted(*args: Any) -> Any:
        asked.append(args)
        return real(*args)

    monkeypatch.setattr(stages, "unknown_vars", noted)
    make_jaxpr(gradient)(X)
    assert not asked


@pytest.mark.parametrize("slots", [1, 2, 5, 40])
def test_the_fewest_advances(slots: int) -> None:
    assert [rough.advances(n, slots) for n in range(2, 60)] == [
        int(advances(n, slots)) for n in range(2, 60)
    ]
