"""Where programs are cut: among Refs, and between equations that hold others."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop import nn
from fiveloop.core import grad, jit, make_jaxpr, pmean, vmap
from fiveloop.core.extend import jvp_jaxpr
from fiveloop.core.inspect import in_place
from fiveloop.core.primitives import special as sp
from fiveloop.loops import cond, for_loop, scan
from fiveloop.remat import checkpoint, checkpoint_name, policies, residuals, saved_residuals
from fiveloop.remat.budget import plan
from fiveloop.remat.budget.options import Priced
from fiveloop.state import freeze, new_ref

DRAWN = np.random.default_rng(0)
WS = [DRAWN.standard_normal((32, 32)).astype(np.float32) * 0.2 for _ in range(6)]
X = DRAWN.standard_normal((64, 32)).astype(np.float32)


@cache
def planner(f: Any) -> plan.Planner:
    made, _ = jvp_jaxpr(make_jaxpr(f)(WS, X), (True,) * len(WS) + (False,))
    return plan.Planner(made, (False,) * (len(WS) + 1) + (True,) * len(WS), None)


def need(f: Any) -> int:
    """The bytes that a gradient needs without a budget."""
    return plan.needed(make_jaxpr(grad(f))(WS, X))


def check_least(f: Any, share: float) -> None:
    """The least budget is a share of what the gradient needs without one, and is kept to."""
    gradient = grad(checkpoint(f, budget=0.0))
    (choice,) = residuals.choices_in(make_jaxpr(gradient)(WS, X))
    assert choice.least < share * need(f)
    # It is planned once: the second trace is of the same form, and of the same budget.
    compiled = jit(gradient).lower(WS, X).compile()
    assert compiled.memory_analysis().temp <= 1.05 * choice.least
    for got, want in zip(compiled(WS, X), jit(grad(f))(WS, X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def with_metric(ws: Any, x: Any) -> Any:
    metric = new_ref(np.float32(0.0))
    for w in ws:
        x = x + sp.tanh(x @ w)
        metric[...] += (x * x).mean()
    return freeze(metric)


def with_state(ws: Any, x: Any) -> Any:
    state = new_ref(x)
    for w in ws:
        state[...] += jit(sp.tanh)(state[...] @ w)
        state[:, :4] *= 0.5
    return (freeze(state) ** 2).mean()


def with_loops(ws: Any, x: Any) -> Any:
    for w in ws:
        x, _ = scan(lambda c, _, w=w: (c + sp.tanh(c @ w), None), x, None, length=4)  # type: ignore[misc]
    return (x * x).mean()


def test_a_program_is_cut_between_loops_that_are_split_once() -> None:
    """Equal bodies are one jaxpr, and what is kept of their carry is counted."""
    found = planner(with_loops)
    loops = [e.params.body for e in found.program.jaxpr.eqns if e.primitive.name == "for"]
    assert len(loops) == len(WS)
    assert len({*loops}) == 1
    assert found.program.size > len(WS)
    check_least(with_loops, 0.75)


def test_what_loops_need_is_put_together_as_the_whole_needs_it() -> None:
    found = planner(with_loops)
    for c in found.plans[:: max(len(found.plans) // 8, 1)]:
        assert found.need(c.plan) <= 1.3 * c.bytes


@pytest.mark.parametrize("f", [with_metric, with_state])
def test_a_program_is_cut_where_its_own_ref_is_alive(f: Any) -> None:
    check_least(f, 0.75)


def test_a_loop_over_a_ref_stays_in_place_within_a_budget() -> None:
    def steps(ws: Any, x: Any) -> Any:
        rows = new_ref(x)
        for w in ws[:2]:

            def step(i: Any, refs: Any, w: Any = w) -> None:
                refs[0][i] = sp.tanh(refs[0][i] @ w)

            for_loop(64, step, [rows])
        return (freeze(rows) ** 2).mean()

    budgeted = grad(checkpoint(steps, budget=0.0))
    assert in_place(make_jaxpr(budgeted)(WS, X)).copies == ()
    got, want = (jit(f)(WS, X)[0] for f in (budgeted, grad(steps)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_a_ref_from_outside_stays_one() -> None:
    seen = new_ref(np.float32(0.0))

    def noting(ws: Any, x: Any) -> Any:
        for w in ws[:2]:
            x = x + sp.tanh(x @ w)
        seen[...] = 2.0
        return (x * x).mean()

    grad(checkpoint(noting, budget=0.5))(WS, X)
    assert float(seen[...]) == 2.0


def in_branches(ws: Any, x: Any) -> Any:
    flag = x.sum() > 0.0
    for w in ws:
        x = cond(flag, lambda x: x + sp.tanh(x @ w), lambda x: x + sp.sin(x @ w.T) @ w, x)  # noqa: B023
    return (x * x).mean()


def test_blocks_that_are_branches() -> None:
    check_least(in_branches, 0.75)


def test_branches_that_a_plan_leaves_as_they_are_save_what_they_do_without_a_budget() -> None:
    found = planner(in_branches)
    assert found.bytes_of(found.all) <= need(in_branches)


def test_blocks_that_are_checkpoints_are_put_in_others() -> None:
    block = checkpoint(lambda x, w: x + sp.sin(sp.tanh(x @ w)) @ w, policy=policies.dots_saveable)

    def blocks(ws: Any, x: Any) -> Any:
        for w in ws:
            x = block(x, w)
        return (x * x).mean()

    check_least(blocks, 0.75)


def test_blocks_traced_anew_are_equal() -> None:
    program = planner(in_branches).program
    stages = [program.stage(k, k + 1).jaxpr for k in range(program.size)]
    assert len(set(stages)) <= len(stages) - 4


def test_a_program_of_lanes_is_planned_as_one_of_them() -> None:
    def centred(x: Any) -> Any:
        return (sp.tanh(x - pmean(sp.sin(x), "lanes")) ** 2).sum()

    want = vmap(grad(centred), axis_name="lanes")(X)
    got = vmap(grad(checkpoint(centred, budget=0.3)), axis_name="lanes")(X)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def with_biases(params: Any, x: Any) -> Any:
    for w, b in params:
        x = sp.tanh(x @ w + b)
    return (x**2).mean()


def in_groups(size: int) -> Any:
    """The same layers in checkpoints of so many."""

    def run(params: Any, x: Any) -> Any:
        def layers(some: Any, x: Any) -> Any:
            for w, b in some:
                x = sp.tanh(x @ w + b)
            return x

        for first in range(0, len(params), size):
            x = checkpoint(layers)(params[first : first + size], x)
        return (x**2).mean()

    return run


def test_the_least_of_equal_layers_is_at_most_that_of_groups_of_them() -> None:
    params = [(np.ones((64, 64), np.float32), np.ones(64, np.float32))] * 8
    x = np.ones((512, 64), np.float32)

    def temporary(f: Any) -> int:
        return int(jit(grad(f)).lower(params, x).compile().memory_analysis().temp)

    least = temporary(checkpoint(with_biases, budget=0.0))
    assert least <= min(temporary(in_groups(size)) for size in (2, 3, 4))


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
@pytest.mark.parametrize("contracts", [False, True])
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_loops_over_floats_of_two_bytes_keep_to_budgets(
    dtype: Any, contracts: bool, budget: float
) -> None:
    """XLA converts what such a loop reads to four bytes as a whole, by rules that differ from version to version."""
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    w, x = np.full((128, 128), 0.01, dtype), np.full((256, 128), 0.1, dtype)

    def f(w: Any, x: Any) -> Any:
        def step(h: Any, y: Any) -> Any:
            h = sp.tanh((h @ w if contracts else h * w[0]) + y)
            return h, h

        return (scan(step, x[:8], x.reshape(32, 8, 128))[1] ** 2).sum()

    gradient = grad(checkpoint(f, budget=budget))
    (choice,) = residuals.choices_in(make_jaxpr(gradient)(w, x))
    allowed = choice.budget.bytes_of(choice.least, choice.everything)
    assert jit(gradient).lower(w, x).compile().memory_analysis().temp <= 1.05 * allowed


def test_a_product_costs_its_operations_once_however_many_kernels_read_it() -> None:
    wide, narrow, x = (fnp.ones(shape) for shape in ((64, 256), (64, 128), (64, 64)))

    def f(x: Any, wide: Any, narrow: Any) -> Any:
        x = checkpoint_name(x + nn.gelu(x @ wide) @ wide.T, "stream")
        return nn.gelu(x @ narrow).sum()

    step = checkpoint(
        f, policy=Priced(3.0)
    )  # each product takes 1.6 ns for each byte of its result
    kept = [r for r in saved_residuals(step, x, wide, narrow) if "argument" not in r.origin]
    assert [r.label for r in kept] == ["stream"]
