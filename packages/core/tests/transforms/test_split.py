"""Partial evaluation: what each option means, no more staged than must be, and what crosses between the halves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import numpy as np
import pytest

from fiveloop.core import (
    RECOMPUTE,
    SAVE,
    EverythingSaveable,
    Jaxpr,
    MinimumCut,
    NothingSaveable,
    Verdict,
    closed_call,
    jit,
    make_jaxpr,
)
from fiveloop.core.extend import (
    SAVE_EVERYTHING,
    SAVE_NOTHING,
    SavingPlan,
    Split,
    linearize_jaxpr,
    split,
    typecheck,
)
from fiveloop.core.primitives import elementwise as ew
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.broadcast import broadcast_in_dim
from fiveloop.core.transforms import Candidate
from fiveloop.testing.core.oracle import run_jaxpr

X = np.array([0.4, -0.7, 1.1])
Y = np.array([1.5, 0.5, -2.0])


def names(jaxpr: Jaxpr) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.eqns]


def run_halves(cut: Split, args: Sequence[Any]) -> list[Any]:
    """The results of both halves: the known ones, and those of the staged half."""
    known_args = [x for x, u in zip(args, cut.unknown_in, strict=True) if not u]
    first = run_jaxpr(cut.known, known_args)
    num_known = len(first) - len(cut.residuals)
    given = [x for x, s in zip(args, cut.staged_in, strict=True) if s]
    early, late = iter(first[:num_known]), iter(run_jaxpr(cut.staged, first[num_known:] + given))
    outs = []
    for unknown, staged in zip(cut.out_unknown, cut.out_staged, strict=True):
        known_out = None if unknown else next(early)
        outs.append(next(late) if staged else known_out)
    return outs


def cut_of(
    fun: Callable[..., Any],
    unknown: Sequence[bool],
    inst: Sequence[bool] | None = None,
    plan: SavingPlan = SAVE_EVERYTHING,
    **options: Any,
) -> Split:
    """The halves of a function of vectors; both are well typed, and together they are the whole."""
    args = [X, Y, X + Y][: len(unknown)]
    jaxpr = make_jaxpr(fun)(*args)
    found = split(jaxpr, unknown, inst or [False] * len(args), plan, **options)
    typecheck(found.known)
    typecheck(found.staged)
    for got, want in zip(run_halves(found, args), run_jaxpr(jaxpr, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    return found


WRAPS: dict[str, Callable[[Any], Any]] = {"plain": lambda f: f, "in a call": closed_call}


# the masks


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_only_what_depends_on_the_unknown_is_staged(wrap: Any) -> None:
    found = cut_of(wrap(lambda x, y: (sp.sin(x), sp.cos(y), x * y, x)), [False, True])
    assert found.out_unknown == (False, True, True, False)
    assert found.out_staged == found.out_unknown
    inner = found.staged
    while names(inner) == ["closed_call"]:
        inner = inner.eqns[0].params.jaxpr
    assert sorted(names(inner)) == ["cos", "mul"]


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_an_input_at_hand_is_no_residual(wrap: Any) -> None:
    fun = wrap(lambda x, y: x * y)
    without = cut_of(fun, [False, True])
    assert (len(without.residuals), without.staged_in) == (1, (False, True))
    assert without.sources == (("input", 0),)
    at_hand = cut_of(fun, [False, True], inst=[True, False])
    assert (len(at_hand.residuals), at_hand.staged_in) == (0, (True, True))


def test_an_input_at_hand_that_nothing_uses_is_not_taken() -> None:
    found = cut_of(lambda x, y: (sp.sin(x), sp.cos(y)), [False, True], inst=[True, True])
    assert found.staged_in == (False, True)
    assert found.residuals == ()


def test_a_result_made_unknown_is_left_out_of_the_known_half() -> None:
    fun = lambda x, y: (sp.sin(x), y)
    found = cut_of(fun, [False, True], ensure_out_unknown=[True, False])
    assert found.out_unknown == (True, True)
    # It is computed early nonetheless: what it needs is known.
    assert names(found.known) == ["sin"]
    assert names(found.staged) == []
    assert len(found.known.outvars) == len(found.residuals) == 1


def test_a_result_asked_for_in_both_halves_is_in_both() -> None:
    fun = lambda x, y: (sp.sin(x), sp.cos(x), y)
    found = cut_of(fun, [False, True], ensure_out_inst=[True, False, False])
    assert found.out_unknown == (False, False, True)
    assert found.out_staged == (True, False, True)
    assert found.sources == (("output", 0),)
    assert len(found.known.outvars) == 3
    again = cut_of(fun, [False, True], [True, True], SAVE_NOTHING, ensure_out_inst=True)
    assert names(again.staged) == ["sin", "cos"]
    assert again.residuals == ()


def test_masks_may_be_told_by_one_bool() -> None:
    fun = lambda x, y: (sp.sin(x), y)
    assert cut_of(fun, [False, True], ensure_out_unknown=True).out_unknown == (True, True)
    assert cut_of(fun, [False, True], ensure_out_inst=True).out_staged == (True, True)


@pytest.mark.parametrize("mask", [(False,) * 3, (True,) * 3])
def test_nothing_and_everything_unknown(mask: tuple[bool, ...]) -> None:
    found = cut_of(lambda x, y, z: (x * y, sp.sin(z)), mask)
    empty = found.known if mask[0] else found.staged
    assert (empty.eqns, empty.outvars, found.residuals) == ((), (), ())


# residuals


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_residual_used_often_is_kept_once(wrap: Any) -> None:
    def fun(x: Any, y: Any) -> Any:
        z = ew.exp(x)
        return y * z, y + z, sp.sin(y) * z, z

    found = cut_of(wrap(fun), [False, True])
    assert len(found.residuals) == 1
    assert found.sources == (("output", 3),)


def test_calls_that_differ_in_their_variables_alone_are_cut_once() -> None:
    """Their halves are the same jaxprs; which operands are one variable, or which constant, makes a difference."""
    inner = jit(lambda a, b, t: (sp.sin(a) * b * t, a + b))

    def fun(x: Any, y: Any) -> Any:
        calls = [(x, x * 2.0), (x * 2.0, x), (x, x), (x, X), (x, Y)]
        return [inner(a, b, y) for a, b in calls]

    found = cut_of(fun, [False, True])
    number = [e.params.jaxpr for e in found.known.eqns if e.primitive.name == "closed_call"]
    staged = [e.params.jaxpr for e in found.staged.eqns if e.primitive.name == "closed_call"]
    assert len(number) == len(staged) == 5
    assert number[0] is number[1]
    assert staged[0] is staged[1]
    assert len({*number}) == 4


def test_residuals_that_nothing_needs_are_pruned() -> None:
    dead = make_jaxpr(lambda x, y: (y * 2.0, sp.tanh(x) * y, sp.sin(x)))(X, Y)
    jaxpr = dead.replace(outvars=[dead.outvars[0], dead.outvars[2]])
    found = split(jaxpr, [False, True], [False, False], SAVE_EVERYTHING)
    assert found.residuals == ()
    assert names(found.known) == ["sin"]
    assert names(found.staged) == ["mul"]


def test_a_call_keeps_nothing_for_results_that_nobody_uses() -> None:
    call = closed_call(lambda x, y: (sp.sin(x) * y, ew.exp(x) * y))
    jaxpr = make_jaxpr(lambda x, y: call(x, y)[0])(X, Y)
    known, _, _, num_res = linearize_jaxpr(jaxpr, (True, False))
    (eqn,) = known.eqns
    assert sorted(names(eqn.params.jaxpr)) == ["cos", "mul", "sin"]
    assert num_res == 2


def test_what_is_repeated_is_spread_again_and_not_kept() -> None:
    found = cut_of(lambda x, y: broadcast_in_dim(sp.sin(x), (2, 3), (1,)) * y, [False, True])
    (kept,) = found.residuals
    assert kept.aval.shape == (3,)


def test_a_chain_is_done_again_from_what_is_saved() -> None:
    def policy(eqn: Candidate) -> Verdict:
        return SAVE if eqn.primitive.name == "sin" else RECOMPUTE

    fun = lambda x, y: ew.exp(sp.cos(sp.sin(x))) * y
    found = cut_of(fun, [False, True], plan=SavingPlan(policy))
    assert names(found.known) == ["sin"]
    assert names(found.staged) == ["cos", "exp", "mul"]
    assert cut_of(fun, [False, True]).sources == (("saved", 0),)


# policies and plans


def test_policies_and_plans_are_values() -> None:
    for make in (EverythingSaveable, NothingSaveable, MinimumCut):
        assert make() == make() and hash(make()) == hash(make())
        assert SavingPlan(make()) == SavingPlan(make())
        assert SavingPlan(make()).at_boundary() == SavingPlan(make()).at_boundary()
    assert SavingPlan(EverythingSaveable()) != SavingPlan(NothingSaveable())


def test_verdicts_say_what_and_why() -> None:
    assert Verdict("save", "because") == Verdict("save", "because")
    assert SAVE.saves and not RECOMPUTE.saves
    eqn = make_jaxpr(sp.sin)(X).eqns[0]
    assert SavingPlan(lambda eqn: True).verdict(eqn) == SAVE
    assert SavingPlan(lambda eqn: False).verdict(eqn) == RECOMPUTE
    assert SavingPlan(lambda eqn: Verdict("save", "mine")).verdict(eqn).reason == "mine"


# what is remembered


def test_a_split_is_remembered_by_masks_and_plan() -> None:
    jaxpr = make_jaxpr(lambda x, y: sp.sin(x) * y)(X, Y)
    first = split(jaxpr, [False, True], [False, False], SavingPlan(EverythingSaveable()))
    again = split(jaxpr, (False, True), (False, False), SavingPlan(EverythingSaveable()))
    assert first is again
    assert split(jaxpr, [True, True], [False, False], SAVE_EVERYTHING) is not first
    assert split(jaxpr, [False, True], [False, False], SAVE_NOTHING) is not first
    bare = lambda eqn: True
    assert split(jaxpr, [False, True], [False, False], SavingPlan(bare)) is split(
        jaxpr, [False, True], [False, False], SavingPlan(bare)
    )


def test_what_is_remembered_is_bounded_and_dies_with_the_jaxpr() -> None:
    jaxpr = make_jaxpr(lambda x, y: sp.sin(x) * y)(X, Y)
    plans = [SavingPlan(MinimumCut(memory_cost=k)) for k in range(200)]
    cuts = [weakref.ref(split(jaxpr, [False, True], [False] * 2, p).known) for p in plans]
    gc.collect()
    alive = sum(cut() is not None for cut in cuts)
    assert 0 < alive <= 64
    del jaxpr
    gc.collect()
    assert sum(cut() is not None for cut in cuts) == 0


def nested_calls(depth: int) -> Jaxpr:
    def level(k: int, x: Any, y: Any) -> Any:
        z = sp.sin(x) * y
        if k == 0:
            return z
        return closed_call(lambda a, b: level(k - 1, a, b))(sp.cos(x), z)

    return make_jaxpr(lambda x, y: level(depth, x, y))(X, Y)


def test_twelve_calls_deep_take_time_in_proportion() -> None:
    """Each of the transforms, and all of them in a row: nothing is done twice per level."""

    def seconds(depth: int) -> float:
        best = float("inf")
        for _ in range(3):
            jaxpr = nested_calls(depth)
            start = process_time()
            split(jaxpr, [False, True], [False, False], SAVE_EVERYTHING)
            linearize_jaxpr(jaxpr, (True, True))
            best = min(best, process_time() - start)
        return best

    # Three times as deep takes three times as long; what doubles with each level takes 256 times.
    assert seconds(12) < 10 * seconds(4)


def test_five_thousand_equations_are_cut_within_a_second() -> None:
    def chain(x: Any, t: Any) -> Any:
        for _ in range(1700):
            x = sp.sin(x) * 0.5 + 1.0
        return t * x

    jaxpr = make_jaxpr(lambda x, t: chain(x, t))(X, Y)
    assert len(jaxpr.eqns) > 5000
    plan = SavingPlan(MinimumCut(memory_cost=1e4)).at_boundary()
    split(make_jaxpr(lambda x, t: sp.sin(x) * t)(X, Y), [False, True], [False] * 2, plan)  # SciPy
    start = process_time()
    found = split(jaxpr, [False, True], [False, False], plan)
    assert process_time() - start < 1.0
    assert len(found.residuals) == 1
