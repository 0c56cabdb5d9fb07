"""The minimum cut: what it keeps, what it does again, that no way costs less, and what it never does again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from fiveloop.core import SAVE, Jaxpr, MinimumCut, Policy, closed_call, make_jaxpr
from fiveloop.core.extend import (
    SAVE_EVERYTHING,
    Eqn,
    SavingPlan,
    ShapedArray,
    Split,
    Var,
    Weigh,
    split,
    stage_closed,
    typecheck,
)
from fiveloop.core.ir.jaxpr import used_vars
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.convert import convert
from fiveloop.core.primitives.dot import matmul
from fiveloop.core.primitives.reduce import reduce_max
from fiveloop.core.primitives.running import cumsum
from fiveloop.core.primitives.sort import sort
from fiveloop.core.prims import bytes_of
from fiveloop.core.transforms import Candidate
from fiveloop.core.transforms.residuals import Known, body_work, minimum_cut, work_of
from fiveloop.testing.core.oracle import run_jaxpr

X = np.linspace(0.1, 0.9, 8).astype(np.float32)
SQUARE = np.ones((8, 8), np.float32)
AGAIN = MinimumCut(memory_cost=1e6, share=1e6)
"""A cut that does again whatever may be."""


def cut_of(fun: Callable[..., Any], *args: Any, policy: Policy = AGAIN) -> Split:
    """The halves of a function of known arguments, none of them at hand, and of an unknown last one."""
    jaxpr = make_jaxpr(fun)(*args)
    unknown = [False] * (len(args) - 1) + [True]
    found = split(jaxpr, unknown, [False] * len(args), SavingPlan(policy).at_boundary())
    typecheck(found.known)
    typecheck(found.staged)
    results = run_jaxpr(found.known, args[:-1])
    got = run_jaxpr(found.staged, [*results, args[-1]])
    np.testing.assert_array_equal(got[0], run_jaxpr(jaxpr, args)[0])
    return found


def names(jaxpr: Jaxpr) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.eqns]


def test_an_operand_is_kept_in_place_of_several_results() -> None:
    found = cut_of(lambda x, t: sp.sin(x) * t + sp.cos(x) * t, X, X)
    assert found.sources == (("input", 0),)
    assert names(found.staged) == ["sin", "mul", "cos", "mul", "add"]
    assert found.known.eqns == ()


def test_the_smaller_of_equals_is_kept() -> None:
    wide = lambda x, t: convert(sp.sin(x), np.float64) * t
    (kept,) = cut_of(wide, X, X.astype(np.float64)).residuals
    assert kept.aval.dtype == np.float32


def test_prices_decide() -> None:
    many = lambda x, t: ew.exp(x) * t + sp.sin(x) * t
    dear = cut_of(many, X, X, policy=MinimumCut(memory_cost=1.0, share=10.0))
    assert names(dear.staged) == ["mul", "mul", "add"]
    cheap = cut_of(many, X, X, policy=MinimumCut(memory_cost=100.0, share=10.0))
    assert names(cheap.staged) == ["exp", "mul", "sin", "mul", "add"]


def test_a_chain_done_again_stays_below_its_share() -> None:
    def chain(x: Any, t: Any) -> Any:
        for _ in range(8):
            x = ew.exp(x)
            t = t * x
        return t

    # The known half needs none of them, so to do one in the staged half costs a tenth.
    for share, count in ((0.1, 1), (0.05, 2), (0.03, 3), (0.001, 8)):
        found = cut_of(chain, X * 0.01, X, policy=MinimumCut(memory_cost=100.0, share=share))
        assert len(found.residuals) == count, share


HEAVY: dict[str, Callable[[Any], Any]] = {
    "dot_general": lambda x: matmul(SQUARE, x),
    "reduce_max": lambda x: reduce_max(x, 0),
    "sort": lambda x: sort(x),
    "cumsum": lambda x: cumsum(x, 0),
    "take": lambda x: x[np.array([1, 0, 3, 2, 5, 4, 7, 6])],
    "closed_call": closed_call(lambda x: cumsum(x, 0)),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_equations_are_not_done_again(name: str) -> None:
    heavy = HEAVY[name]
    found = cut_of(lambda x, t: sp.sin(heavy(x)) * t + sp.cos(heavy(x)) * t, X, X)
    assert name in names(found.known)
    assert name not in names(found.staged)


def test_light_calls_are_done_again() -> None:
    call = closed_call(lambda x: sp.sin(x) * 2.0)
    found = cut_of(lambda x, t: call(x) * t + sp.cos(x) * t, X, X)
    assert found.sources == (("input", 0),)
    assert "closed_call" in names(found.staged)


def test_verdicts_of_a_policy_bind_the_cut() -> None:
    def saves_sines(eqn: Candidate) -> Any:
        return SAVE if eqn.primitive.name == "sin" else AGAIN(eqn)

    found = cut_of(lambda x, t: ew.exp(sp.sin(x)) * t + sp.sin(x) * t, X, X, policy=saves_sines)
    assert names(found.known) == ["sin", "sin"]
    never = lambda eqn: eqn.primitive.name != "exp" and AGAIN(eqn)
    shut = cut_of(lambda x, t: ew.exp(sp.cos(x)) * t, X, X, policy=never)
    assert "exp" in names(shut.staged)


def test_straight_line_code_saves_plainly() -> None:
    jaxpr = make_jaxpr(lambda x, t: sp.sin(x) * t + sp.cos(x) * t)(X, X)
    found = split(jaxpr, [False, True], [False, False], SavingPlan(AGAIN))
    plain = split(jaxpr, [False, True], [False, False], SAVE_EVERYTHING)
    assert found.residuals == plain.residuals
    assert len(found.residuals) == 2


def test_what_is_the_same_every_time_is_kept_at_no_cost() -> None:
    jaxpr = make_jaxpr(lambda w, x, t: ew.exp(sp.sin(w) * x) * t + x * t)(X, X, X)
    masks, plan = ([False, False, True], [False] * 3), SavingPlan(AGAIN).at_boundary()
    assert names(split(jaxpr, *masks, plan).staged) == ["mul", "mul", "add"]
    found = split(jaxpr, *masks, plan, fixed_in=[True, False, False])
    assert names(found.known) == ["sin"]
    assert names(found.staged) == ["mul", "exp", "mul", "mul", "add"]


def test_policies_are_values() -> None:
    assert MinimumCut() == MinimumCut()
    assert hash(MinimumCut(2.0)) == hash(MinimumCut(memory_cost=2.0))
    assert MinimumCut(2.0) != MinimumCut()
    jaxpr = make_jaxpr(lambda x, t: sp.sin(x) * t)(X, X)
    first, second = (
        split(jaxpr, [False, True], [False, False], SavingPlan(MinimumCut()).at_boundary())
        for _ in range(2)
    )
    assert first is second


# no way costs less


def random_program(rng: np.random.Generator, size: int) -> Jaxpr:
    """Functions of one and two operands, in three dtypes, of two inputs."""

    def run(x: Any, y: Any) -> list[Any]:
        values = [x, y]
        for _ in range(size):
            a, b = (values[k] for k in rng.integers(0, len(values), 2))
            kind = rng.integers(0, 5)
            dtype = (np.float16, np.float32, np.float64)[rng.integers(0, 3)]
            made = (
                (sp.sin, ew.neg, lambda v, dtype=dtype: convert(v, dtype))[kind](a)
                if kind < 3
                else a * b
            )
            values.append(made if kind < 4 else cumsum(made, 0))
        return values

    return make_jaxpr(run)(X, X)


def cost_of(known: Iterable[Eqn], wanted: Sequence[Var], again: set[Eqn], price: float) -> float:
    """What it costs to have these values when these equations are done again."""
    need, total = set(wanted), 0.0
    for eqn in reversed(list(known)):
        for v in need & set(eqn.outvars):
            need.remove(v)
            total += 0 if eqn in again else price * bytes_of([v.aval])
            if eqn in again:
                total += work_of(eqn)
                need |= used_vars(eqn.invars)
    return total + price * bytes_of(v.aval for v in need)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jaxpr = random_program(rng, 9)
    price = float(rng.choice([0.5, 2.0, 8.0]))
    wanted = [e.outvars[0] for e in jaxpr.eqns if rng.integers(0, 2)]
    policy = MinimumCut(memory_cost=price, share=1e6)
    known = [Known(eqn, policy(Candidate(eqn))) for eqn in jaxpr.eqns]
    light = [e for e in jaxpr.eqns if e.primitive.name != "cumsum"]
    found = minimum_cut(known, wanted, set(), body_work(jaxpr))
    assert found <= set(light)
    choices = (
        {e for e, chosen in zip(light, mask, strict=True) if chosen}
        for mask in product([False, True], repeat=len(light))
    )
    best = min(cost_of(jaxpr.eqns, wanted, again, price) for again in choices)
    assert cost_of(jaxpr.eqns, wanted, found, price) == pytest.approx(best)


# large programs


def test_a_long_body() -> None:
    def chain(x: Any, t: Any) -> Any:
        for k in range(1250):
            x = sp.sin(x) * 0.5 + 1.0
            if k % 50 == 0:
                x = cumsum(x, 0)
                t = t * x
        return t * x

    jaxpr = make_jaxpr(chain)(X, X)
    plan = SavingPlan(MinimumCut(memory_cost=1e4)).at_boundary()
    found = split(jaxpr, [False, True], [False, False], plan)
    assert len(jaxpr.eqns) > 3750
    assert len(found.residuals) == 25


def test_huge_values_do_not_overflow() -> None:
    vast = ShapedArray((2**20, 2**20), np.dtype(np.float32))
    jaxpr = stage_closed(lambda x, t: [sp.sin(x) * t + sp.cos(x) * t], [vast, vast])
    found = split(
        jaxpr, [False, True], [False, False], SavingPlan(MinimumCut(share=1.0)).at_boundary()
    )
    assert found.sources == (("input", 0),)


def counting() -> tuple[Policy, list[Candidate]]:
    """A policy that notes what it is asked."""
    asked: list[Candidate] = []

    def policy(eqn: Candidate) -> Weigh:
        asked.append(eqn)
        return Weigh(memory_cost=100.0)

    return policy, asked


def nested_calls(depth: int) -> Jaxpr:
    def nested(level: int, x: Any, t: Any) -> Any:
        if level:
            x, t = closed_call(lambda x, t: nested(level - 1, x, t))(sp.sin(x), t)
        return sp.cos(x), sp.sin(x) * t

    return make_jaxpr(lambda x, t: nested(depth, x, t))(X, X)


def test_nesting_costs_what_it_adds() -> None:
    counts = {}
    for depth in (3, 6, 12):
        policy, asked = counting()
        plan = SavingPlan(policy).at_boundary()
        jaxpr = nested_calls(depth)
        found = split(jaxpr, [False, True], [False, False], plan)
        counts[depth] = len(asked)
        assert split(jaxpr, [False, True], [False, False], plan) is found
        assert len(asked) == counts[depth], "the second split is not free"
    assert counts[12] - counts[6] == 2 * (counts[6] - counts[3])


def test_a_function_that_several_kernels_would_compute_again_is_kept() -> None:
    """On the way back its value is in the kernel of each cotangent that it leads to by element."""

    def run(a: Any, h: Any, x: Any, t: Any, ways: int) -> Any:
        slope = sp.cos(a * h + x)
        linear = cumsum(t) * a + cumsum(t * 2.0) * h + t * x
        return slope * linear if ways > 1 else slope * t + linear

    def kept(size: int, ways: int) -> bool:
        a, h, x = (np.full((size,), 0.1 * k, np.float32) for k in (1, 2, 3))
        t = np.ones((size,), np.float32)
        found = cut_of(lambda a, h, x, t: run(a, h, x, t, ways), a, h, x, t, policy=MinimumCut())
        return "cos" not in names(found.staged)

    assert kept(1024, 3)
    assert not kept(1024, 1)
    assert not kept(16, 3), "a few elements are computed again in no time"
