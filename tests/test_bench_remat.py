"""The models of the remat bench: their gradients are finite, and the same under every checkpoint."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import page, verdicts
from benchmarks.duel import Row
from benchmarks.model import AtMost, Plan, RatioLimit, Saving
from benchmarks.remat import declared, fiveloop_models, inputs
from benchmarks.remat.inputs import NO_CHECKPOINT, POLICIES
from benchmarks.remat.models import KEPT, MODELS, Library, Model
from benchmarks.remat.models.fiveloop_library import LIBRARY
from benchmarks.stats import summarise

from fiveloop.core import jit, make_jaxpr, tree_leaves, value_and_grad
from fiveloop.remat import checkpoint, policies


def gradients(model: Model, library: Library = LIBRARY) -> list[np.ndarray]:
    fun = jit(value_and_grad(lambda p, d: model.loss(library, p, d)))
    return [np.asarray(leaf) for leaf in tree_leaves(fun(*model.arguments()))]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_under_a_checkpoint_of_each_block(name: str) -> None:
    plain = gradients(MODELS[name])
    block = checkpoint(policy=policies.save_only_these_names(KEPT))
    saved = gradients(MODELS[name], replace(LIBRARY, block=block))
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in plain)
    for got, want in zip(saved, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", MODELS)
def test_each_model_labels_a_value_that_is_worth_saving(name: str) -> None:
    model = MODELS[name]
    jaxpr = make_jaxpr(lambda p, d: model.loss(LIBRARY, p, d))(*model.arguments())
    assert f"name={KEPT}" in str(jaxpr)


def test_every_model_has_a_case_for_each_policy_and_limits_name_what_runs() -> None:
    names = {case.name for case in declared.CASES}
    assert len(names) == len(declared.CASES)
    assert {f"{p}/{m}" for p in (*POLICIES, NO_CHECKPOINT) for m in MODELS} <= names
    for case in declared.CASES:
        limited = {limit.peer for limit in case.limits if isinstance(limit, RatioLimit)}
        assert limited <= {peer.name for peer in case.peers}
    (geometric,) = declared.BENCHMARK.limits
    assert set(geometric.cases) <= names


def test_a_program_says_how_many_bytes_it_saves() -> None:
    # The sequence is data, and the last state is compared with its target: one state of each step, and four gates.
    program = fiveloop_models.build("lstm", NO_CHECKPOINT, 2)
    assert program.saving.saved_bytes == (5 * 2 + 1) * 32 * 128 * 4


def test_a_program_within_a_budget_says_how_many_bytes_that_allows() -> None:
    case = next(c for c in declared.CASES if c.name.startswith("budget"))
    (within, *_), at_most = [c for c in case.limits if isinstance(c, AtMost)], 1_000
    row = Row(case.name, 1, 1, within.contender or "", temp_bytes=1_060)

    def kept(allowed: int | None) -> bool | None:
        return verdicts.judge(case, within, [replace(row, saving=Saving(None, allowed))]).kept

    assert (kept(at_most), kept(2 * at_most), kept(None)) == (False, True, None)


def test_each_model_is_compiled_within_ten_budgets_at_two_sizes() -> None:
    cases = [case for case in declared.CASES if not case.timed]
    assert len(cases) == 2 * len(MODELS)
    for case in cases:
        limits = [limit for limit in case.limits if isinstance(limit, AtMost)]
        assert [limit.contender for limit in limits] == [peer.name for peer in case.peers]
        assert len(limits) == 10 and {limit.at_most for limit in limits} == {1.05}


def test_a_small_program_within_a_budget_computes_what_it_does_without() -> None:
    plain = fiveloop_models.build("experts", NO_CHECKPOINT, 2, scale="small")
    within = fiveloop_models.within("experts", 0.0, 2, scale="small")
    got, want = (tree_leaves(jit(p.fun)(*p.args)) for p in (within, plain))
    assert all(np.allclose(x, y, rtol=1e-4, atol=1e-6) for x, y in zip(got, want, strict=True))
    assert within.saving.allowed_bytes is not None and plain.saving.allowed_bytes is None


def plans(*costs: tuple[int, int]) -> Saving:
    return Saving(plans=tuple(Plan(*cost) for cost in costs))


def test_our_plans_compute_no_more_again_at_the_bytes_of_each_plan_of_the_peer() -> None:
    case = next(c for c in declared.CASES if c.name.startswith("torch"))
    (limit,) = case.limits
    theirs = Row(case.name, 1, 1, "torch", saving=plans((100, 50), (200, 0)))

    def kept(*ours: tuple[int, int]) -> bool | None:
        row = Row(case.name, 1, 1, "fiveloop", saving=plans(*ours))
        return verdicts.judge(case, limit, [row, theirs]).kept

    assert kept((90, 50), (200, 0)) is True
    assert kept((90, 60), (200, 0)) is False
    assert kept((101, 0)) is False
    assert kept() is None


def test_plans_are_those_of_budgets_and_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["transformer"]
    two = replace(model, small={**model.small, "layers": 2})
    monkeypatch.setattr(inputs, "arguments", lambda *_: two.arguments())
    monkeypatch.setattr(fiveloop_models, "STEPS", 8)
    program = fiveloop_models.planned("transformer", 2)
    found = sorted(program.saving.plans, key=lambda plan: plan.saved_bytes)
    assert len(found) > 2 and found[-1].flops_again == 0 < found[0].flops_again
    # These are the bytes of the products alone, with which none is computed again.
    assert min(p.saved_bytes for p in found if not p.flops_again) <= 84_736
    assert program.saving.allowed_bytes is not None


def test_the_costs_of_policies_are_over_those_without_a_checkpoint() -> None:
    def row(policy: str, seconds: float, temp: int) -> dict[str, Any]:
        run = {"least": seconds}
        return {"case": f"{policy}/m", "contender": "fiveloop", "run": run, "temp_bytes": temp}

    rows = [row(NO_CHECKPOINT, 2.0, 5_000), row("lean", 3.0, 2_000_000)]
    (table,) = page.costs({"rows": rows})
    assert table.splitlines()[2:] == ["| no_checkpoint | 1.00, 5 kB |", "| lean | 1.50, 2 MB |"]


def test_our_own_metric_misses_its_limit_at_the_largest_size() -> None:
    case, limit = declared.PLANNING_CASE, AtMost("run", 1.0, "row")

    def row(size: int, seconds: float) -> Row:
        return Row(case.name, size, size, "fiveloop", summarise([seconds] * 3))

    assert verdicts.judge(case, limit, [row(10, 2.0), row(20, 0.5)]).kept is True
    assert verdicts.judge(case, limit, [row(10, 0.5), row(20, 2.0)]).kept is False
    assert verdicts.judge(case, limit, []).kept is None


def test_plans_are_compared_at_the_bytes_that_the_peer_saves() -> None:
    ours = [Plan(100, 40), Plan(200, 20), Plan(150, 70), Plan(300, 20)]
    assert [verdicts.again_at(saved, ours) for saved in (99, 100, 125, 200, 900)] == [
        None,
        40,
        35,
        20,
        20,
    ]
