"""Budgets on the models of the remat bench: gradients are the same, and the compiled memory keeps within them."""

from __future__ import annotations

import operator
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from dataclasses import replace

from benchmarks.remat.inputs import POLICIES, policy_of
from benchmarks.remat.models import MODELS
from benchmarks.remat.models.fiveloop_library import LIBRARY

from fiveloop.core import Jaxpr, grad, jit, prims, rules, transforms, tree_leaves
from fiveloop.core.backend import client
from fiveloop.remat import checkpoint, policies, residuals, timeline
from fiveloop.remat.budget import options, plan
from fiveloop.remat.budget.plan import planned


def compiled(loss: Any, arguments: Any) -> tuple[int, list[np.ndarray]]:
    program = jit(grad(loss)).lower(*arguments).compile()
    grads = [np.asarray(leaf) for leaf in tree_leaves(program(*arguments))]
    return program.memory_analysis().temp, grads


@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    arguments = model.arguments()
    sizes: list[int] = []

    def noted(p: Any, unknown: Any, source: Any) -> Any:
        found = planned(p, unknown, source)
        assert found.choice is not None
        sizes.append(p.budget.bytes_of(found.choice.least, found.choice.everything))
        return found

    monkeypatch.setattr(sys.modules["fiveloop.remat.checkpoint"], "planned", noted)

    def loss(params: Any, data: Any) -> Any:
        return model.loss(LIBRARY, params, data)

    _, want = compiled(loss, arguments)
    used, got = compiled(checkpoint(loss, budget=0.1), arguments)
    assert used <= 1.05 * sizes[0]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5 * np.abs(y).max())


def products(jaxpr: Jaxpr) -> Any:
    """The operations of the contractions of a jaxpr, those of loops as often as they run."""
    total: Any = 0
    for eqn in jaxpr.eqns:
        bodies = (rules.bodies_rules.find(eqn.primitive) or (lambda params: []))(eqn.params)
        total += sum(body.trips * products(body.jaxpr) for body in bodies)
        if eqn.primitive is prims.dot_general_p:
            total += transforms.equation_cost(eqn).flops
    return total


LARGER = dict[tuple[str, str], float]()
if client.jaxlib_version() >= (0, 12):
    LARGER = {("diffusion", "nothing_saveable"): 1.06}
"""How many times the bytes of the policy, on blocks of two products, plans of stages of one product each need here."""


@cache
def planner_of(name: str) -> plan.Planner:
    model = MODELS[name]
    jaxpr, names = residuals.staged("f", partial(model.loss, LIBRARY), *model.arguments())
    nonzero = tuple(a.differentiable for a in jaxpr.in_avals)
    made, _ = transforms.jvp_jaxpr(jaxpr, nonzero)
    return plan.Planner(made, (False,) * len(names) + (True,) * sum(nonzero), None)


def halves_under(policy: str, name: str) -> residuals.Halves:
    """The passes of a model whose blocks are under a policy."""
    model = MODELS[name]
    library = replace(LIBRARY, block=checkpoint(policy=policy_of(policies, policy)))
    return residuals.halves_of("f", lambda p, d: model.loss(library, p, d), *model.arguments())


@pytest.mark.parametrize("name", MODELS)
def test_no_more_is_done_again_than_by_a_policy_of_the_same_bytes(name: str) -> None:
    planner = planner_of(name)

    def passes(chosen: plan.Candidate) -> Jaxpr:
        jaxpr = planner.segments.jaxpr(chosen.plan)
        return options.both_passes(jaxpr, planner.unknown, policies.everything_saveable).jaxpr

    all_saved = passes(planner.all)
    for policy in POLICIES:
        theirs = halves_under(policy, name)
        need = plan.needed(theirs.both_passes()) * LARGER.get((name, policy), 1)
        ours = planner.within(int(need))
        assert ours is not None
        if policy == "everything_saveable":
            # What is light is done again all the same, where keeping it takes longer.
            assert products(passes(ours)) <= products(all_saved)
        else:
            again = map(transforms.operations_of, (passes(ours), all_saved))
            assert operator.sub(*again) <= theirs.flops_again


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_budget_takes_no_more_time_and_no_fewer_bytes(name: str) -> None:
    planner = planner_of(name)
    least, most = planner.least, planner.everything
    found = [planner.within(least + k * (most - least) // 9) for k in range(10)]
    plans = [chosen for chosen in found if chosen is not None]
    assert len(plans) == len(found)
    assert [c.bytes for c in plans] == sorted(c.bytes for c in plans)
    assert [c.time for c in plans] == sorted((c.time for c in plans), reverse=True)
    assert plans[0].bytes < plans[-1].bytes


@pytest.mark.parametrize("name", ["mixer", "diffusion"])
def test_no_product_is_done_again_that_blocks_under_a_policy_save(name: str) -> None:
    """Blocks of many stages, or behind which little is alive, are those that people put under a policy."""
    model = MODELS[name]
    params, data = model.arguments("full")
    library = replace(LIBRARY, block=checkpoint(policy=policies.dots_saveable))
    theirs = residuals.halves_of("f", lambda p: model.loss(library, p, data), params)
    need = plan.needed(theirs.both_passes())
    jaxpr, names = residuals.staged("f", partial(model.loss, LIBRARY), params, data)
    size = len(tree_leaves(params))
    before = len(names) - size - len(tree_leaves(data))
    mask = tuple(before <= k < before + size for k in range(len(names)))
    made, _ = transforms.jvp_jaxpr(jaxpr, mask)
    planner = plan.Planner(made, (False,) * len(names) + (True,) * sum(mask), None)
    ours = planner.within(need)
    assert ours is not None and planner.need(ours.plan) <= need
    eqns = planner.segments.jaxpr(ours.plan)
    passes = options.both_passes(eqns, planner.unknown, policies.everything_saveable)
    assert products(passes.jaxpr) <= products(theirs.both_passes())


def test_what_people_write_is_within_its_own_bytes() -> None:
    """The plan of fewest bytes is a checkpoint around each step, whose estimate is not the least."""
    model = MODELS["neural_ode"]
    params, data = model.arguments("full")
    each = replace(LIBRARY, block=checkpoint)
    theirs = residuals.halves_of("f", lambda p: model.loss(each, p, data), params)
    need = plan.needed(theirs.both_passes())
    within = checkpoint(lambda p: model.loss(LIBRARY, p, data), budget=need)
    ours = residuals.halves_of("f", within, params)
    assert plan.needed(ours.both_passes()) <= need


def test_what_goes_back_over_long_skips_is_simulated() -> None:
    model = MODELS["unet"]
    params, data = model.arguments()

    def loss(params: Any) -> Any:
        library = replace(LIBRARY, block=checkpoint(policy=policies.nothing_saveable))
        return model.loss(library, params, data)

    simulated = timeline.upper(residuals.halves_of("f", loss, params).both_passes()).peak
    used, _ = compiled(loss, (params,))
    assert 0.95 * used <= simulated <= 1.1 * used
