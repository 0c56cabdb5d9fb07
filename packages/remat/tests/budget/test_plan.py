"""Plans under a budget: what they keep within, what they cost, and what it costs to make them."""

from __future__ import annotations

import gc
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import Jaxpr, grad, jit, make_jaxpr, tree_leaves
from fiveloop.core.extend import ShapedArray, bind, jaxprs_in, jvp_jaxpr, stage
from fiveloop.core.ir.avals import SymbolicDim
from fiveloop.core.primitives import special as sp
from fiveloop.core.prims import cumsum, sort
from fiveloop.core.transforms import LIGHT, gradient_time, operations_of
from fiveloop.loops import cond, scan
from fiveloop.remat import checkpoint, checkpoint_name, policies, residuals, timeline
from fiveloop.remat.budget import options, plan, plans, search, stages
from fiveloop.remat.budget.amount import Choice, amount
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p
from fiveloop.state import debug_callback

KEEP = policies.everything_saveable

BLOCKS = 8
DRAWN = np.random.default_rng(0)
WS = [DRAWN.standard_normal((64, 64)).astype(np.float32) * 0.1 for _ in range(BLOCKS)]
X = DRAWN.standard_normal((128, 64)).astype(np.float32)


def chain(ws: Any, x: Any) -> Any:
    """A stack of equal blocks."""
    for w in ws:
        x = x + sp.sin(checkpoint_name(sp.tanh(x @ w), "hidden")) @ w
    return (x * x).sum()


def planner(f: Any = chain, given: Any = None, ws: Any = WS) -> plan.Planner:
    made, _ = jvp_jaxpr(make_jaxpr(f)(ws, X), (True,) * len(ws) + (False,))
    return plan.Planner(made, (False,) * (len(ws) + 1) + (True,) * len(ws), given)


@cache
def chains() -> plan.Planner:
    return planner()


@cache
def plain() -> tuple[int, Any]:
    compiled = jit(grad(chain)).lower(WS, X).compile()
    return compiled.memory_analysis().temp, compiled(WS, X)


def chosen(f: Any, *args: Any) -> Choice:
    """What the budget of a gradient came to; compiling it finds the same again."""
    (choice,) = residuals.choices_in(make_jaxpr(grad(f))(*args))
    return choice


def within(jaxpr: Jaxpr, budget: Any) -> Any:
    """The checkpoint of a jaxpr: all budgets of one jaxpr share its plans."""
    params = CheckpointParams(jaxpr, policies.undecided, Origin("f"), budget=amount(budget))
    return lambda *args: bind(checkpoint_p, *tree_leaves(args), params=params)[0]


def test_the_compiled_gradient_keeps_within_the_budget() -> None:
    found = chains().candidates
    jaxpr = make_jaxpr(chain)(WS, X)
    for fraction in (0.0, 0.3, 0.8):
        size = int(found[0].bytes + fraction * (found[-1].bytes - found[0].bytes))
        compiled = jit(grad(within(jaxpr, size))).lower(WS, X).compile()
        assert compiled.memory_analysis().temp <= 1.05 * size
        for got, want in zip(compiled(WS, X), plain()[1], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


PLACES = DRAWN.integers(0, 128, 128)


def scanned(x: Any) -> Any:
    """Each row with those before it."""
    return scan(lambda h, row: (sp.tanh(h + row),) * 2, x[0], x)[1]


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: cumsum(x, axis=0),
        lambda x: cumsum(x, axis=1),
        lambda x: sort(x, axis=0),
        lambda x: x[PLACES],
        scanned,
    ],
    ids=["cumsum of rows", "cumsum of columns", "sort", "gather", "scan"],
)
def test_blocks_that_mix_rows_keep_within_the_budget(mixed: Any) -> None:
    def blocks(ws: Any, x: Any) -> Any:
        for w in ws:
            x = x + sp.tanh(mixed(x @ w))
        return (x * x).sum()

    f, ws = checkpoint(blocks, budget=0.0), WS[:5]
    size = chosen(f, ws, X).least
    compiled = jit(grad(f)).lower(ws, X).compile()
    assert compiled.memory_analysis().temp <= 1.05 * size
    for got, want in zip(compiled(ws, X), jit(grad(blocks))(ws, X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-2)


def test_cotangents_of_a_table_that_all_blocks_read_are_added_in_place() -> None:
    """A block adds to the rows that it has read: none hands on a cotangent of the whole table."""
    table = DRAWN.normal(size=(4_000, 64)).astype(np.float32)

    def blocks(table: Any, ws: Any) -> Any:
        x = table[PLACES]
        for k, w in enumerate(ws):
            x = sp.tanh((x + table[k * PLACES]) @ w)
        return (x * x).sum()

    def blockwise(table: Any, ws: Any) -> Any:
        step = checkpoint(lambda x, table, places, w: sp.tanh((x + table[places]) @ w))
        x = table[PLACES]
        for k, w in enumerate(ws):
            x = step(x, table, k * PLACES, w)
        return (x * x).sum()

    ws = WS[:4]
    want = jit(grad(blocks))(table, ws)
    for f in (checkpoint(blocks, budget=0.0), blockwise):
        compiled = jit(grad(f)).lower(table, ws).compile()
        assert compiled.memory_analysis().temp < table.nbytes
        np.testing.assert_allclose(compiled(table, ws), want, rtol=1e-3, atol=1e-4)


def test_cotangents_of_stacked_outputs_are_made_in_the_steps_as_planned() -> None:
    """They are made of a stack that is saved anyway: no other one is needed."""

    def outputs(w: Any, x: Any) -> Any:
        h, ys = scan(lambda h, _: (sp.tanh(h @ w),) * 2, x, None, length=50)
        return (ys**2).mean() + h.sum()

    gradient = grad(checkpoint(outputs, budget=0.0))
    compiled = jit(gradient).lower(WS[0], X).compile()
    assert compiled.memory_analysis().temp < 1.2 * 50 * X.nbytes
    want = jit(grad(outputs))(WS[0], X)
    np.testing.assert_allclose(compiled(WS[0], X), want, rtol=1e-4, atol=1e-6 * abs(want).max())


def test_the_least_is_far_less_than_all() -> None:
    assert chains().candidates[0].bytes < 0.75 * plain()[0]


def swish(ws: Any, x: Any) -> Any:
    return (sp.tanh(x @ ws[0]) * sp.sin(x @ ws[1])).sum() + (cumsum(x, axis=0) ** 2).sum()


def in_a_loop(ws: Any, x: Any) -> Any:
    step = lambda h, _: (sp.tanh(h @ ws[0]), sp.sin(h @ ws[1]).sum())
    return scan(step, x, None, length=4)[1].sum()


@pytest.mark.parametrize("f", [chain, swish, in_a_loop])
def test_all_the_memory_is_that_of_the_program_without_a_checkpoint(f: Any) -> None:
    """The bytes are those of its simulation; loops save less by a minimum cut than everything."""
    found = planner(f, ws=WS[:3])
    passes = options.both_passes(found.program.jaxpr, found.unknown, policies.minimum_cut)
    plain, within_all = plan.needed(plan.of_loss(passes)), found.within(found.everything)
    assert within_all is not None and within_all.bytes <= plain
    assert (plain < found.everything) if f is in_a_loop else (plain == found.everything)
    assert timeline.peak(passes.jaxpr) <= plain


def test_a_budget_below_the_least_says_how_much_that_is() -> None:
    least = planner(ws=WS[:3]).least
    with pytest.raises(ValueError, match=rf"chain needs .* \({least} bytes\) with the.*1000 B"):
        grad(checkpoint(chain, budget="1 kB"))(WS[:3], X)


def test_more_bytes_never_take_more_time() -> None:
    found = chains().candidates
    assert len(found) > 3
    for less, more in pairwise(found):
        assert less.bytes < more.bytes and less.time >= more.time
    sizes = range(found[0].bytes, found[-1].bytes, 9973)
    chosen = [chains().within(size) for size in sizes]
    times = [c.time for c in chosen if c is not None]
    assert times == sorted(times, reverse=True) and len(times) == len(sizes)


def test_runs_of_blocks_are_computed_again_in_turn() -> None:
    def runs(steps: Any) -> int:
        return sum(isinstance(s, plans.Again) for s in steps)

    assert runs(chains().candidates[0].plan) > 0
    assert runs(chains().candidates[-1].plan) == 0


def test_verdicts_of_a_policy_are_fixed_first() -> None:
    def saved(budget: float, policy: Any) -> int:
        text = str(make_jaxpr(grad(checkpoint(chain, budget=budget, policy=policy)))(WS[:4], X))
        return text.count("= tanh")

    never = policies.save_only_these_names("hidden")
    always = policies.first_of(~never & never, lambda eqn: None)
    assert saved(0.0, never) < saved(0.0, always)


def test_equal_blocks_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[Jaxpr] = []

    real = options.Weighing.options

    def counted(self: options.Weighing, most: int) -> Any:
        weighed.append(self.jaxpr)
        return real(self, most)

    monkeypatch.setattr(options.Weighing, "options", counted)
    found = planner()
    assert found.program.size > 6
    assert len(weighed) < found.program.size - 2


def test_a_large_program_is_planned_without_splitting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LARGE", 10)
    monkeypatch.setattr(plan, "WORK", 10)
    monkeypatch.setattr(options.Weighing, "option", None)
    monkeypatch.setattr(plan.Planner, "need", None)
    found = planner()
    assert len(found.candidates) > 3
    jaxpr = make_jaxpr(grad(checkpoint(chain, budget=0.0)))(WS, X)
    assert any(jaxprs_in(e.params) for e in jaxpr.eqns)


def test_sums_of_stages_hold_the_cotangents_that_wait_to_be_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradient of weights that each step uses is one fused sum, of which all products are there at once."""

    def steps(ws: Any, x: Any) -> Any:
        x = x[:2]
        for _ in range(60):
            x = sp.tanh(x @ ws[0])
        return (x * x).sum()

    ws = [WS[0]]
    whole = planner(steps, ws=ws)
    monkeypatch.setattr(plan, "LARGE", 10)
    for c in (large := planner(steps, ws=ws)).plans[::4]:
        assert large.bytes_of(c) >= whole.need(c.plan)


def test_what_stages_need_is_put_together_as_the_whole_needs_it() -> None:
    found = chains()
    for steps in search.Search(found.chain).plans():
        passes = options.both_passes(found.segments.jaxpr(steps), found.unknown, KEEP)
        composed, simulated = found.chain.peak(steps), timeline.peak(passes.jaxpr)
        assert 0.95 * simulated <= composed <= 1.5 * simulated


def operations(found: plan.Planner, steps: Any) -> int:
    passes = options.both_passes(found.segments.jaxpr(steps), found.unknown, KEEP)
    return int(operations_of(passes.jaxpr, LIGHT))


def test_operations_of_runs_are_counted_as_they_are_done() -> None:
    found = chains()
    least = operations(found, found.all.plan)
    for steps in search.Search(found.chain).plans():
        again = operations(found, steps) - least
        assert 0.95 * again <= found.chain.again(steps) <= 1.25 * again


def light(ws: Any, x: Any) -> Any:
    """A stack of equal blocks with more light operations between products."""
    for w in ws:
        y = x @ w
        for _ in range(4):
            y = y * y - x
        x = x + y @ w
    return (x * x).sum()


def test_what_has_room_is_saved_only_where_that_takes_less_time() -> None:
    found = planner(light)
    less = 0
    for steps in search.Search(found.chain).plans():
        faster = found.chain.faster(steps)
        assert found.chain.peak(faster) <= found.chain.peak(steps)
        assert found._candidate(faster).time <= found._candidate(steps).time
        less += found.chain.kept(faster) < found.chain.kept(steps)
    assert less


def test_cuts_keep_to_the_rhythm_of_equal_blocks() -> None:
    program = planner(ws=[WS[0]] * 100).program
    found = [program.stage(k, k + 1).jaxpr for k in range(len(program.cuts) - 1)]
    assert len(found) > 16 and len(set(found[1:-1])) == 1


def deep(params: Any, x: Any, block: Any = lambda layer: layer) -> Any:
    """A loop over layers of two parts, whose middles are large."""

    def layer(x: Any, p: Any) -> tuple[Any, None]:
        x = x + sp.tanh(sp.sin(x @ p[0]) @ p[0].T)
        return x + sp.tanh(sp.sin(x @ p[1]) @ p[1].T), None

    return (scan(block(layer), x, params)[0] ** 2).sum()


DEEP = tuple(DRAWN.standard_normal((6, 32, 256)).astype(np.float32) * 0.1 for _ in range(2))


@cache
def of_loop() -> plan.Planner:
    made, _ = jvp_jaxpr(make_jaxpr(deep)(DEEP, X[:, :32]), (True, True, False))
    return plan.Planner(made, (False,) * 3 + (True,) * 2, None)


def test_the_body_of_a_loop_is_planned_in_parts() -> None:
    found = of_loop()
    of_bodies = [o for o in found.chain.options[0] if any(o.parts)]
    in_one = [o.backward for o in of_bodies if all(len(p.plan) == 1 for p in o.parts if p)]
    in_parts = [o for o in of_bodies if any(len(p.plan) > 1 for p in o.parts if p)]
    assert len(in_parts) > 4
    assert min(o.backward for o in in_parts) < 0.7 * min(in_one)


def test_a_loop_in_parts_keeps_within_the_budget() -> None:
    x = X[:, :32]
    want = jit(grad(deep))(DEEP, x)
    found = of_loop()
    jaxpr = make_jaxpr(deep)(DEEP, x)
    for fraction in (0.0, 0.3, 0.6):
        compiled = jit(grad(within(jaxpr, fraction))).lower(DEEP, x).compile()
        allowed = found.least + fraction * (found.everything - found.least)
        assert compiled.memory_analysis().temp <= 1.05 * allowed
        for got, w in zip(compiled(DEEP, x), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-3, atol=1e-4)


def test_the_body_of_a_loop_is_planned_without_splitting_its_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "WORK", 1)
    found = of_loop.__wrapped__()
    assert any(any(o.parts) for o in found.chain.options[0])


@pytest.mark.parametrize("policy", [policies.nothing_saveable, policies.dots_saveable])
def test_a_loop_whose_body_is_under_a_policy_is_a_plan(policy: Any) -> None:
    """The plan is what people write, to the byte and to the operation."""

    def by_hand(params: Any) -> Any:
        return deep(params, X[:, :32], lambda layer: checkpoint(layer, policy=policy))

    theirs = residuals.halves_of("f", by_hand, DEEP)
    found = of_loop()
    want = [timeline.peak(theirs.both_passes()), theirs.flops_again]
    both = [
        options.both_passes(found.segments.jaxpr(c.plan), found.unknown, KEEP).jaxpr
        for c in [*found.plans, found.all]
    ]
    sizes = [[timeline.peak(b), operations_of(b) - operations_of(both[-1])] for b in both]
    assert want in sizes


def test_layers_written_out_of_one_stack_are_equal_blocks() -> None:
    """Each layer reads parts of its own of the parameters; no stage hands back a cotangent of all of them."""

    def written_out(params: Any, x: Any) -> Any:
        for k in range(6):
            x = x + sp.tanh(sp.sin(x @ params[0][k]) @ params[1][k])
        return (x * x).sum()

    params = DEEP[0], np.swapaxes(DEEP[1], 1, 2)
    made, _ = jvp_jaxpr(make_jaxpr(written_out)(params, X[:, :32]), (True, True, False))
    program = stages.Program(made, (False,) * 3 + (True,) * 2)
    weighed = [program.weighed(k, k + 1) for k in range(program.size)]
    assert len(set(weighed)) < len(weighed) - 4
    planned = lambda p: checkpoint(written_out, budget=0.0)(p, X[:, :32])
    least, used = chosen(planned, params).least, temporary(planned, params)
    by_hand = checkpoint(lambda x, v, w: x + sp.tanh(sp.sin(x @ v) @ w))

    def in_blocks(params: Any) -> Any:
        x: Any = X[:, :32]
        for k in range(6):
            x = by_hand(x, params[0][k], params[1][k])
        return (x * x).sum()

    assert used <= 1.05 * least and used <= 1.05 * temporary(in_blocks, params)


def temporary(loss: Any, params: Any) -> int:
    return int(jit(grad(loss)).lower(params).compile().memory_analysis().temp)


def test_a_block_begins_where_what_is_before_all_blocks_ends() -> None:
    """The operand of the first block has no tangent, and is made of more than it holds."""

    def loss(ws: Any, x: Any) -> Any:
        y = sp.sin(x) * sp.cos(x) + 0.5 * x
        return chain(ws, y)

    program = planner(loss).program
    before = [e for e in program.jaxpr.eqns[: program.cuts[1]] if e.primitive.name == "dot_general"]
    assert not before


def test_of_times_that_are_the_same_the_fewest_operations_are_taken() -> None:
    few, many = plan.Candidate((), 20, 5.0, 1), plan.Candidate((), 10, 5.0, 2)
    assert plan._envelope([few, many]) == [many, few]
    assert plans.rounded(100.0) == plans.rounded(100.1) < plans.rounded(102.0)


def test_a_loop_whose_body_calls_functions_keeps_within_the_budget() -> None:
    twice = jit(lambda h, w: (sp.sin(h @ w), (w * w).sum()))

    def steps(ws: Any, x: Any) -> Any:
        def step(h: Any, w: Any) -> Any:
            h, size = twice(h, w)
            return jit(sp.tanh)(h), size

        h, sizes = scan(step, x, ws)
        return (h * h).sum() + sizes.sum()

    ws, x = DEEP[0][:, :, :32], X[:, :32]
    want = jit(grad(steps))(ws, x)
    jaxpr = make_jaxpr(steps)(ws, x)
    for budget in (0.0, 0.5, 1.0):
        got = jit(grad(within(jaxpr, budget)))(ws, x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_larger_and_slower_is_no_plan() -> None:
    sizes_and_times = [(10, 5.0), (20, 6.0), (30, 4.0)]
    found = plan._envelope([plan.Candidate((), *each) for each in sizes_and_times])
    assert [c.bytes for c in found] == [10, 30]


def test_keeping_a_byte_takes_time() -> None:
    tangents = make_jaxpr(square)(X)
    assert gradient_time(tangents, 0, 1000) > gradient_time(tangents, 0, 0)


def test_large_memory_is_mapped_in_each_call() -> None:
    """So of a large program less is saved, as a share of all: light operations are done again."""
    shares = []
    for rows in (128, 64 * 128):
        made, _ = jvp_jaxpr(
            make_jaxpr(light)(WS, np.zeros((rows, 64), np.float32)), (True,) * 8 + (False,)
        )
        found = plan.Planner(made, (False,) * 9 + (True,) * 8, None)
        best = found.within(found.everything)
        assert best is not None
        shares.append(best.bytes / found.everything)
    assert shares[1] < 0.8 * shares[0]


def test_sizes_that_are_no_numbers() -> None:
    size: Any = SymbolicDim()
    aval = ShapedArray((size,), np.float32)
    with pytest.raises(TypeError, match=r"arguments of square must be numbers"):
        stage(lambda x: [grad(lambda y: checkpoint(square, budget=0.5)(y).sum())(x)], [aval])


def square(x: Any) -> Any:
    return x * x


def test_a_loop_in_a_loop_under_a_budget() -> None:
    """The stage of the inner loop has no policy of its own: plans of its body alone."""
    ws = WS[0][:3, :4]

    def inner(h: Any) -> Any:
        return scan(lambda h, w: (sp.tanh(h * w), None), h, ws)[0]

    def rows(x: Any) -> Any:
        return (scan(lambda h, w: (inner(h) * w, None), x, ws)[0] ** 2).sum()

    for budget in (0.0, 1.0):
        got = grad(checkpoint(rows, budget=budget))(ws[0])
        np.testing.assert_allclose(got, grad(rows)(ws[0]), rtol=1e-5)


def test_a_branch_in_three_loops_keeps_within_a_budget() -> None:
    """What the innermost loop keeps of all steps is not in the sum of what the stages need."""
    rows = DRAWN.standard_normal((6, 5, 4, 8)).astype(np.float32)

    def loss(ws: Any, rows: Any) -> Any:
        def third(h: Any, x: Any) -> Any:
            return cond(
                h.sum() > 0, lambda h: sp.tanh(h @ ws[0] + x), lambda h: sp.sin(h) * x, h
            ), None

        def second(h: Any, xs: Any) -> Any:
            return scan(third, h @ ws[1], xs)[0], None

        def first(h: Any, xs: Any) -> Any:
            h = scan(second, h, xs)[0]
            return h, (h * h).sum()

        h, sums = scan(first, rows[0, 0, 0], rows)
        return sums.sum() + h.sum()

    f, ws = checkpoint(loss, budget=0.0), [w[:8, :8] for w in WS[:2]]
    size = chosen(f, ws, rows).bytes
    assert jit(grad(f)).lower(ws, rows).compile().memory_analysis().temp <= 1.05 * size


def test_a_program_that_calls_back_keeps_within_a_budget() -> None:
    seen: list[float] = []

    def noted(x: Any) -> Any:
        y = sp.sin(x).sum()
        debug_callback(lambda y: seen.append(float(y)), y)
        return sp.sin(y)

    jit(grad(checkpoint(noted, budget=0.5)))(X).block_until_ready()
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_numbers_of_two_bytes_are_kept_in_four_as_the_compiler_does(dtype: Any) -> None:
    def blocks(ws: Any, x: Any) -> Any:
        x = x.astype(dtype)
        for w in ws:
            x = x + sp.tanh(x @ w)
        return (x.astype(np.float32) ** 2).mean()

    ws = [w.astype(dtype) for w in WS]
    jaxpr = make_jaxpr(blocks)(ws, X)
    for fraction in (0.0, 0.5):
        f = within(jaxpr, fraction)
        choice = chosen(f, ws, X)
        size = choice.budget.bytes_of(choice.least, choice.everything)
        compiled = jit(grad(f)).lower(ws, X).compile()
        assert compiled.memory_analysis().temp <= 1.05 * size


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_planning_if_it_was_before(collects: bool) -> None:
    jaxpr = make_jaxpr(lambda x: (sp.sin(x) * x).sum())(X)
    (gc.enable if collects else gc.disable)()
    try:
        make_jaxpr(grad(within(jaxpr, 1.0)))(X)
        assert gc.isenabled() == collects
        with pytest.raises(ValueError, match="smallest plan"):
            make_jaxpr(grad(within(jaxpr, "1 B")))(X)
        assert gc.isenabled() == collects
    finally:
        gc.enable()
