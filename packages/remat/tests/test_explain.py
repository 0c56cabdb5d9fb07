"""`explain_residuals`: table, data, picture, and the difference of two."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, make_jaxpr, stop_gradient, value_and_grad
from fiveloop.core.extend import bind
from fiveloop.loops import cond, scan, while_loop
from fiveloop.remat import (
    ResidualExplanation,
    UnattainableError,
    checkpoint,
    checkpoint_name,
    explain_residuals,
    pareto,
    policies,
    saved_residuals,
)
from fiveloop.remat.budget.amount import amount, shown
from fiveloop.remat.explain.table import WIDTH
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p
from fiveloop.remat.timeline import peak
from fiveloop.state import new_ref

WS, X = np.ones((12, 8, 8), np.float32), np.ones((4, 8), np.float32)
LINE = "test_explain.py"


def layer(w: Any, x: Any) -> Any:
    h = checkpoint_name(fnp.tanh(x @ w), "hidden")
    return fnp.sin(h) * x


def model(ws: Any, x: Any, policy: Any = None) -> Any:
    wrap = checkpoint(layer, policy=policy) if policy else layer
    return (scan(lambda h, w: (wrap(w, h), None), x, ws)[0] ** 2).sum()


def under(policy: Any) -> Any:
    return lambda ws, x: model(ws, x, policy)


def line_of(text: str) -> str:
    """Where a line of this file is, as explanations print it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{LINE}:{1 + next(k for k, line in enumerate(lines) if text in line)}"


def test_a_residual_of_a_loop_is_told_by_the_line_of_its_body() -> None:
    kept = {r.origin: r for r in saved_residuals(under(policies.dots_saveable), WS, X)}
    dot = kept["result of dot_general"]
    assert (dot.path, dot.trips, dot.bytes, dot.bytes_each) == (
        ("for", "checkpoint"),
        12,
        12 * X.nbytes,
        X.nbytes,
    )
    assert f"{LINE}:{dot.source and dot.source.line}" == line_of("fnp.tanh(x @ w)")
    assert (dot.policy, dot.verdict) == ("dots_saveable", "save")
    assert [(n.primitive, n.again) for n in dot.needed_by] == [("tanh", True)]
    assert dot.flops == 12 * 2 * 4 * 8 * 8
    carry = kept["carry, result of mul"]
    assert (carry.trips, carry.reason) == (12, "recomputation starts from it")
    assert f"{LINE}:{carry.source and carry.source.line}" == line_of("fnp.sin(h) * x")
    assert kept["argument `ws`"].verdict == ""


def test_labels_and_the_minimum_cut_are_told() -> None:
    kept = saved_residuals(under(None), WS, X)
    assert kept[0] is next(iter(kept))
    cut = [r for r in kept if r.path == ("for",)]
    assert {r.policy for r in cut} == {"minimum_cut"}
    named = [r for r in cut if r.label]
    assert [(r.label, r.origin, r.policy) for r in named] == [
        ("hidden", "named 'hidden'", "minimum_cut")
    ]
    chosen = policies.save_only_these_names("hidden")
    (named_too,) = [r for r in saved_residuals(under(chosen), WS, X) if r.label]
    assert (named_too.origin, named_too.policy) == (
        "named 'hidden'",
        "save_only_these_names('hidden')",
    )


def test_what_is_kept_in_a_branch_says_in_which() -> None:
    def f(x: Any) -> Any:
        return cond(x[0, 0] > 0, lambda x: fnp.sin(x @ x), lambda x: x, x).sum()

    paths = {r.path for r in saved_residuals(f, np.ones((8, 8), np.float32)) if r.path}
    assert paths == {("cond branch 1",)}


def test_the_index_of_a_branch_is_needed_by_the_branches() -> None:
    def f(x: Any) -> Any:
        return cond(x[0] > 0, lambda x: fnp.sin(x), lambda x: x, x).sum()

    (index,) = [r for r in saved_residuals(f, np.ones(8, np.float32)) if not r.aval.shape]
    assert [n.primitive for n in index.needed_by] == ["cond"]


def test_the_table_of_a_checkpointed_loop() -> None:
    told = explain_residuals(under(policies.dots_saveable), WS, X)
    tanh, carry = line_of("fnp.tanh(x @ w)"), line_of("fnp.sin(h) * x")
    outside = line_of("** 2).sum()")
    expected = f"""\
  bytes  steps   flops  value                 made at             in              needed by         verdict
  3 KiB                 argument `ws`                                             dot_general       in memory anyway
1.5 KiB     12  6.14 k  dot_general           {tanh}  for/checkpoint  tanh again        save by dots_saveable
1.5 KiB     12  15.7 k  carry, result of mul  {carry}  for/checkpoint  dot_general, mul  recomputation starts from it
  128 B         24.2 k  mul                   {outside}                  mul               no checkpoint is around

saved  6.125 KiB in 4 values, 3 KiB of it in memory anyway
again  15.4 k operations in the backward pass
"""
    assert str(told).startswith(expected)
    assert repr(told) == str(told)
    assert "and 3 more, 3.125 KiB" in told.table(1)
    for rows in (-1, "3"):
        with pytest.raises((TypeError, ValueError), match=r"table: expected `rows` .*, got"):
            told.table(rows)  # type: ignore[arg-type]  # that is the point


def test_tables_are_cut_to_a_width_or_not_at_all() -> None:
    """The explanation, the difference of two and the ways to checkpoint take the same argument."""
    name = "the values of the hidden units of each layer of the whole model " * 3
    long = policies.save_only_these_names("hidden", name)
    saving, lean = (explain_residuals(under(p), WS, X) for p in (long, policies.nothing_saveable))
    tables: list[Any] = [saving, saving.compare(lean), pareto(model, WS, X, policies=[long])]
    for told in tables:
        whole = told.table(width=None)
        assert name in whole and "…" not in whole
        assert name not in str(told) and max(map(len, str(told).splitlines())) <= WIDTH
        narrow = told.table(width=100).splitlines()
        assert 98 <= max(map(len, narrow)) <= 100
        assert told.table(width=10_000) == whole
        assert told.table(width=1) == told.table(width=0), "columns of numbers are never cut"
        for width in (-1, "3"):
            with pytest.raises((TypeError, ValueError), match=r"table: expected `width` .*, got"):
                told.table(width=width)
    assert "and 1 more" in saving.compare(lean).table(rows=0)


def test_a_table_of_any_width_names_all_arguments() -> None:
    many = explain_residuals(checkpoint(lambda *xs: sum(xs), budget=1.0), *[X] * 9)
    assert "in 0, 1, 2, 3, 4, 5, 6, 7, ...; a derivative in others" in str(many)
    assert "in 0, 1, 2, 3, 4, 5, 6, 7, 8; a derivative in others" in many.table(width=None)


def test_what_goes_back_is_not_computed_again() -> None:
    """The derivative of a product multiplies by its operands; only the sine is computed again."""

    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    needs = [
        {str(n.primitive): n.again for n in r.needed_by}
        for r in saved_residuals(checkpoint(f), X, X)
    ]
    assert sorted(map(sorted, (n.items() for n in needs))) == [
        [("cos", True), ("sin", True)],
        [("mul", False)],
    ]


def test_all_of_it_comes_back_from_json() -> None:
    told = explain_residuals(under(policies.dots_saveable), WS, X)
    data = json.loads(told.to_json(indent=1))
    assert data == told.to_dict()
    assert (
        data["saved_bytes"]
        == told.bytes
        == saved_residuals(under(policies.dots_saveable), WS, X).bytes
    )
    assert data["residuals"][0]["type"] == "f32[12,8,8]"
    assert max(level for level, _ in data["timeline"]) == told.peak
    assert told.peak == max(data["peak_bytes"].values())


def test_the_peak_is_that_of_the_gradient() -> None:
    for policy in None, policies.nothing_saveable:
        told = explain_residuals(under(policy), WS, X).peak
        whole = peak(make_jaxpr(value_and_grad(under(policy), argnums=(0, 1)))(WS, X))
        assert abs(told - whole) <= 256, "but for the cotangent, which is a number here"


def test_the_passes_follow_each_other() -> None:
    told = explain_residuals(
        lambda x: fnp.sin(fnp.sin(x @ x) @ x).sum(), np.ones((8, 8), np.float32)
    )
    phases = [m.phase for m in told.moments]
    assert phases == sorted(phases, reverse=True)
    assert 0 < told.turn < len(phases)
    assert told.flops_again == 0
    assert told.at_peak[0].bytes == 256
    assert told.at_peak[0].source.startswith(LINE)


def test_a_backward_pass_of_a_loop_is_no_part_of_the_forward_pass() -> None:
    """The loss is divided after the loop that goes back, and nothing that it needs is alive by then."""

    def loss(ws: Any, x: Any) -> Any:
        return (scan(lambda h, w: (layer(w, h), None), x, ws)[0] ** 2).mean()

    for fun in (loss, checkpoint(loss), checkpoint(loss, policy=policies.dots_saveable)):
        told = explain_residuals(fun, WS, X)
        stacked = 12 * X.nbytes
        assert told.peak_of("forward") >= stacked and told.peak_of("backward") >= stacked


def test_what_is_computed_again_is_counted() -> None:
    x = np.ones((16, 16), np.float32)

    def f(x: Any) -> Any:
        return fnp.sin(x @ x) @ x

    again = explain_residuals(checkpoint(f, policy=policies.nothing_saveable), x).flops_again
    assert again == 2 * 16**3 + 20 * 16**2, "the first product and its sine"
    assert explain_residuals(checkpoint(f, policy=policies.everything_saveable), x).flops_again == 0


def test_what_a_loop_is_given_by_its_derivative_comes_from_the_line_of_the_loop() -> None:
    def f(x: Any) -> Any:
        return while_loop(lambda c: c.sum() < 9.0, lambda c: c * x, x).sum()  # the loop

    told = explain_residuals(f, np.full(4, 1.5, np.float32)).to_dict()
    sources = {each["source"] for each in (*told["residuals"], *told["at_peak"])}
    assert sources - {""} == {line_of("# the loop")}


def test_the_difference_of_two_policies() -> None:
    chosen = policies.save_only_these_names("hidden"), policies.nothing_saveable
    saving, lean = (explain_residuals(under(p), WS, X) for p in chosen)
    change = saving.compare(lean)
    assert [r.label for r in change.gone] == ["hidden"]
    assert change.new == ()
    assert [r.label for r in lean.compare(saving).new] == ["hidden"]
    assert "-1.5 KiB" in str(change)
    assert "saved  6.125 KiB -> 4.625 KiB" in repr(change)
    assert "sides  - save_only_these_names('hidden'), + nothing_saveable" in str(change)
    assert json.loads(change.to_json())["gone"][0]["label"] == "hidden"
    assert str(saving.compare(saving)).startswith("sides  - first, + second\nsaved")


def test_the_sides_of_a_difference_have_names() -> None:
    x = np.ones((32, 32), np.float32)
    plain, other = explain_residuals(chain, x), explain_residuals(pair, x)
    assert plain.compare(other).names == ("chain", "pair")
    assert plain.compare(within_a_half()).names == ("no checkpoint", "budget 50%")
    assert within_a_half().to_dict()["policies"] == ["budget 50%"]
    change = plain.compare(within_a_half(), names=("as it was", "lean & small"))
    assert "sides  - as it was, + lean & small" in str(change)
    assert json.loads(change.to_json())["names"] == ["as it was", "lean & small"]
    for names in ("ab", ("a",), ("a", 2), 3):
        with pytest.raises(TypeError, match="compare: names must be a pair of strings, got"):
            plain.compare(other, names=names)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ValueError, match=r"compare: names must differ, got \('a', 'a'\)"):
        plain.compare(other, names=("a", "a"))


def test_a_function_that_writes_a_ref_is_explained() -> None:
    def f(x: Any) -> Any:
        ref = new_ref(fnp.zeros(8))
        ref[...] = fnp.sin(x)
        return (ref[...] * x).sum()

    kept = explain_residuals(checkpoint(jit(f)), np.ones(8, np.float32))
    assert [r.origin for r in kept.residuals] == ["argument `x`"]
    assert kept.flops_again >= 160, "the sine"


def test_a_function_without_floating_arguments_has_nothing_to_explain() -> None:
    def counted(n: Any) -> Any:
        return n * 2

    told = str(explain_residuals(counted, 3))
    first = "counted has no floating argument: there is nothing to differentiate\n\nsaved  0 B in 0"
    assert told.startswith(first)
    assert str(explain_residuals(lambda x: x * 2.0, X)).startswith("saved  0 B in 0 values")


def test_a_function_is_expected() -> None:
    with pytest.raises(TypeError, match="explain_residuals: expected a function, got 3"):
        explain_residuals(3, X)  # type: ignore[arg-type]  # that is the point


def chain(x: Any) -> Any:
    for _ in range(8):
        x = fnp.sin(x @ x)
    return x.sum()


def pair(x: Any) -> Any:
    return fnp.sin(fnp.sin(x @ x) @ x).sum()


@cache
def within_a_half() -> ResidualExplanation:
    return explain_residuals(checkpoint(chain, budget=0.5), np.ones((32, 32), np.float32))


def test_budgets_and_policies_side_by_side(tmp_path: Path) -> None:
    x = np.ones((32, 32), np.float32)
    found = pareto(chain, x, budgets=[0.0, 0.5, 1.0])
    assert found.name == "chain"
    assert {p.name for p in found.points if not p.budget} == {
        "everything_saveable",
        "dots_saveable",
        "dots_with_no_batch_dims_saveable",
        "nothing_saveable",
        "no checkpoint",
    }
    least, *_, most = [p for p in found.points if p.budget]
    assert (least.name, least.peak < most.peak) == ("budget=0.0", True)
    assert least.milliseconds > most.milliseconds
    assert least.flops_again > most.flops_again == 0
    peaks = [p.peak for p in found.front]
    times = [p.milliseconds for p in found.front]
    assert peaks == sorted(peaks)
    assert times == sorted(times, reverse=True)
    assert json.loads(found.to_json()) == found.to_dict()
    assert str(found).splitlines()[0].split() == ["peak", "time", "way", "saved", "done", "again"]
    drawn = found.plot(tmp_path / "pareto.svg")
    assert drawn.count("<circle") == len(found.points)
    assert ">0.0</text>" in drawn and ">nothing_saveable</text>" in drawn
    saving = explain_residuals(checkpoint(chain, policy=policies.everything_saveable), x)
    (point,) = [p for p in found.points if p.name == "everything_saveable"]
    assert (point.saved, point.peak) == (saving.bytes, saving.peak)


def test_policies_of_ones_own_are_listed_as_they_are_written() -> None:
    def products(eqn: policies.Candidate) -> bool:
        return eqn.primitive.name == "dot_general"

    mine: list[Any] = [products, products, lambda eqn: True, policies.dots_saveable | products]
    found = pareto(chain, np.ones((32, 32), np.float32), budgets=[0.5], policies=mine)
    assert sorted(p.name for p in found.points) == [
        "<lambda>",
        "budget=0.5",
        "dots_saveable | products",
        "no checkpoint",
        "products",
    ]
    for bad in (policies.dots_saveable, "dots_saveable", {"mine": products}):
        with pytest.raises(TypeError, match="pareto: policies must be a sequence of policies, got"):
            pareto(chain, X @ X.T, policies=bad)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match=r"pareto: a policy must be callable .*, got 'dots'"):
        pareto(chain, X @ X.T, policies=["dots"])  # type: ignore[list-item]  # that is the point


def test_no_budget_takes_more_time_than_a_smaller_one() -> None:
    def waves(x: Any) -> Any:
        for _ in range(12):
            x = fnp.sin(x) * fnp.exp(-x * x) + x
        return x.sum()

    budgets = [k / 20 for k in range(21)]
    found = pareto(waves, np.ones(1000, np.float32), budgets=budgets)
    rows = sorted((p for p in found.points if p.budget), key=lambda p: float(p.name[7:]))
    times = [p.milliseconds for p in rows]
    assert len({*times}) > 5
    assert times == sorted(times, reverse=True)
    same = [p for p in found.points if p.name in ("budget=1.0", "everything_saveable")]
    assert len({(p.peak, p.milliseconds, p.saved) for p in same}) == 1


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: checkpoint(chain, budget=0.5)(x) + checkpoint(pair, budget=0.0)(x),
        lambda x: stop_gradient(chain(x)),
        lambda x: x,
    ],
    ids=["budgets within", "no derivative", "nothing to plan"],
)
def test_budgets_are_listed_around_others_and_where_there_is_nothing_to_plan(fun: Any) -> None:
    found = pareto(fun, np.ones((32, 32), np.float32), budgets=[0.0, 1.0])
    assert next(p.name for p in found.points if p.budget) == "budget=0.0"


def test_budgets_that_cannot_be_met_have_a_line() -> None:
    x = np.ones((32, 32), np.float32)
    found = pareto(pair, x, budgets=["10 B", 1.0, "20 B"])
    assert [p.name for p in found.points if p.budget] == ["budget=1.0"]
    assert found.unattainable == ("budget='10 B'", "budget='20 B'")
    assert found.least is not None
    assert found.to_dict()["least"] == found.least > 4096
    assert str(found).endswith(f"budget='20 B': pair needs {shown(found.least)} at least")
    with pytest.raises(UnattainableError, match="and the budget is 24 kB; give it more") as raised:
        grad(checkpoint(pair, budget="24 kB"))(np.ones((64, 64), np.float32))
    assert raised.value.least > 24_000
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (str(copied), copied.least) == (str(raised.value), raised.value.least)
    with pytest.raises(
        ValueError, match=r"pareto: pair needs .* more than every one of the budgets"
    ):
        pareto(pair, x, budgets=["10 B"])


def test_names_that_label_nothing_are_told_where_policies_are_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def labelled(x: Any) -> Any:
        return fnp.sin(checkpoint_name(fnp.exp(x), "hidden")).sum()

    names = policies.save_only_these_names
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        pareto(labelled, X, budgets=[], policies=[names("hidden"), names("hiden")])
    (record,) = caplog.records
    assert "the policy names 'hiden', and the names in labelled are: 'hidden'" in record.message


def test_what_is_no_policy_is_refused_by_name() -> None:
    a_list: Any = [policies.dots_saveable]
    with pytest.raises(TypeError, match="pareto: a policy must be callable on an equation"):
        pareto(chain, X, policies=[a_list])


def test_bad_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pareto: a budget.* got 'much'"):
        pareto(chain, X @ X.T, budgets=["much"])
    for budget in (0.5, "2GiB"):
        with pytest.raises(TypeError, match=f"pareto: budgets must be a sequence, got {budget!r}"):
            pareto(chain, X @ X.T, budgets=budget)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match="pareto: expected a function, got 3"):
        pareto(3, X)  # type: ignore[arg-type]  # that is the point


def test_a_budget_shows_all_plans_and_the_one_taken() -> None:
    found = within_a_half()
    (plan,) = found.choices
    assert (plan.bytes, plan.milliseconds) in plan.candidates
    sizes, times = ([c[k] for c in plan.candidates] for k in (0, 1))
    assert sizes == sorted(sizes)
    assert times == sorted(times, reverse=True)
    taken = [line.split()[0] for line in str(found).splitlines() if line.endswith("taken")]
    assert taken == [shown(plan.bytes).split()[0]]
    told = found.to_dict()["plans"][0]
    assert json.loads(found.to_json())["plans"][0] == told
    assert told["candidates"] == [list(c) for c in plan.candidates]


def test_states_that_are_saved_at_a_time_are_told() -> None:
    x = np.ones((8, 8), np.float32)

    def steps(x: Any) -> Any:
        return scan(lambda h, _: (fnp.sin(h @ x), None), x, length=50, checkpoints=4)[0].sum()

    found = explain_residuals(steps, x)
    (state,) = found.states
    assert (state.slots, state.steps, state.bytes_each) == (4, 50, 256)
    assert "states 4 of 50 of 256 B at a time, the others recomputed: loop at" in str(found)
    assert found.to_dict()["states"][0]["slots"] == 4
    assert explain_residuals(lambda x: fnp.sin(x @ x), x).states == ()


def test_what_a_loop_of_saved_states_is_given_is_needed_by_its_steps() -> None:
    def steps(w: Any, x: Any) -> Any:
        going = lambda x: (x**2).sum() > 1e-3
        return while_loop(going, lambda x: fnp.sin(x @ w), x, checkpoints=4).sum()

    w = np.full((8, 8), 0.1, np.float32)
    for residual in saved_residuals(steps, w, X):
        assert [need.primitive for need in residual.needed_by] == ["replay"]


def test_a_budget_is_named_with_the_figures_of_its_plan() -> None:
    found = within_a_half()
    (plan,) = found.choices
    assert plan.least <= plan.bytes <= (plan.least + plan.everything) // 2 < plan.everything
    assert {r.policy for r in found.residuals if r.verdict == "save"} == {"budget 50%"}
    assert "under a budget of 50%, of plans from" in str(found)
    assert str(found).endswith("for what the compiler may add; the peak above does not")
    assert found.to_dict()["plans"][0]["bytes"] == plan.bytes


def test_the_least_of_a_budget_is_that_of_the_derivative_which_the_table_names() -> None:
    def deep(ws: Any, n: Any, x: Any) -> Any:
        for w in ws["w"]:
            x = x + fnp.sin(fnp.tanh(x @ w)) @ w
        return (x**2).sum() * n

    ws, x = {"w": [np.ones((64, 64), np.float32)] * 6}, np.ones((128, 64), np.float32)
    f = checkpoint(deep, budget=0.0)
    in_some = explain_residuals(lambda ws: f(ws, 2, x), ws)
    with pytest.raises(ValueError, match=rf"\({in_some.choices[0].least} bytes\) with the"):
        grad(checkpoint(deep, budget="1 kB"))(ws, 2, x)
    assert (in_some.arguments, in_some.to_dict()["arguments"]) == (("`ws`",), ["`ws`"])
    in_all = explain_residuals(f, ws, 2, x)
    assert in_all.choices[0].least != in_some.choices[0].least
    line = "       for the derivative in `ws`, `x`; a derivative in others has other plans"
    assert line in str(in_all).splitlines()


@pytest.mark.parametrize(
    "policy",
    [
        policies.nothing_saveable,
        policies.everything_saveable,
        policies.dots_saveable,
        ~policies.dots_saveable,
    ],
)
def test_the_figures_of_a_budget_beside_a_policy_fit_together(policy: Any) -> None:
    """What the policy has computed again needs its bytes, and with all memory no more is done again."""
    x = np.ones((32, 32), np.float32)
    jaxpr = make_jaxpr(chain)(x)  # all budgets of one jaxpr share its plans
    for budget in (0.0, 0.5, 1.0):
        params = CheckpointParams(jaxpr, policy, Origin("chain"), budget=amount(budget))
        within = lambda x, params=params: bind(checkpoint_p, x, params=params)[0]
        found = explain_residuals(within, x)
        (plan,) = found.choices
        assert found.peak <= plan.bytes <= plan.everything
        assert all(plan.least <= size <= plan.everything for size, _ in plan.candidates)
        compiled = jit(grad(within)).lower(x).compile()
        assert compiled.memory_analysis().temp <= 1.05 * plan.bytes
    alone = explain_residuals(checkpoint(chain, policy=policy), x)
    assert found.flops_again <= alone.flops_again
    assert found.peak <= alone.peak


def test_what_a_policy_beside_a_budget_saves_is_told_to_be_saved_by_the_policy() -> None:
    def two(w: Any, x: Any) -> Any:
        return fnp.sin(checkpoint_name(fnp.tanh(x @ w), "hidden") @ w)

    named = policies.save_only_these_names("hidden")
    w = np.ones((8, 8), np.float32)
    kept = saved_residuals(checkpoint(two, policy=named, budget=1.0), w, X)
    by = {(r.label, r.policy) for r in kept if r.verdict == "save"}
    assert by == {("hidden", "save_only_these_names('hidden')"), ("", "budget 100%")}


def test_the_times_of_budgets_and_policies_compare() -> None:
    """Ways that are the same program take the same time, also around a checkpoint and a loop of unknown length."""
    x = np.ones((16, 16), np.float32)

    def steps(x: Any, n: Any) -> Any:
        return while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, fnp.sin(c[1])), (0, x))[1].sum()

    for found in (
        pareto(checkpoint(chain), x, budgets=[0.0]),
        pareto(steps, x, 3, budgets=[1.0]),
        pareto(pair, x, budgets=[0.0]),
    ):
        (ours,) = [p for p in found.points if p.budget]
        ways = [p for p in found.points if not p.budget]
        ours_is = (ours.peak, ours.saved, ours.flops_again)
        same = next(p for p in ways if (p.peak, p.saved, p.flops_again) == ours_is)
        assert ours.milliseconds == pytest.approx(same.milliseconds)


def test_a_budget_with_room_for_a_policy_is_no_slower_where_runs_hold_branches() -> None:
    """What runs of stages do again counts the parts of branches that depend on no tangent."""
    x = np.ones((32, 32), np.float32)

    def branches(x: Any) -> Any:
        for _ in range(4):
            computed = lambda x: fnp.cos(x @ x) * fnp.exp(-x * x)
            x = cond(x.sum() > 1e9, fnp.sin, computed, x)
        return (x**2).sum()

    found = pareto(branches, x, budgets=[1.0])
    (ours,) = [p.milliseconds for p in found.points if p.budget]
    assert ours <= min(p.milliseconds for p in found.points)


def test_operations_of_loops_of_unknown_length_are_at_least_those_of_a_step() -> None:
    def f(x: Any, **how: Any) -> Any:
        go_on, step = lambda s: s[0] < 100, lambda s: (s[0] + 1, fnp.tanh(s[1] * 0.5))
        return while_loop(go_on, step, (0, x), **how)[1].sum()

    unknown = explain_residuals(lambda x: f(x, checkpoints=4), X)
    assert unknown.to_dict()["open_ended"] and "again  at least" in str(unknown)
    assert "one step is counted of loops of unknown length" in str(unknown)
    known = explain_residuals(lambda x: f(x, max_steps=200), X)
    assert not known.to_dict()["open_ended"] and "at least" not in str(known)
