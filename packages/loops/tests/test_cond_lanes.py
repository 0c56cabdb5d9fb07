"""cond and switch under vmap, in all ways to run lanes: select, serial, group."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.state as st
from fiveloop.core import Array, grad, jit, jvp, make_jaxpr, psum, vmap
from fiveloop.core.primitives.elementwise import exp, log, sqrt
from fiveloop.core.primitives.special import sin
from fiveloop.loops import cond, explain, for_loop, fori_loop, switch, while_loop
from fiveloop.loops.primitives.cond import cond_p
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.state.extend import thread_effect
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.misuse import assert_misuse

RNG = np.random.default_rng(0)
WAYS = ["select", "serial", "group"]
SIZES = [1, 2, 7, 64, 301]


def choice(way: Any) -> Any:
    def one(x: Any, w: Any) -> Any:
        branches = [lambda x: x * x, lambda x: sin(w * x) / x, lambda x: sqrt(x) * w]
        return switch((x * 3).astype(np.int32), branches, x, vmap=way)

    return one


def by_hand(x: Any, w: Any) -> Any:
    return np.choose((x * 3).astype(int), [x * x, np.sin(w * x) / x, np.sqrt(x) * w])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_calls_are_made_branch_after_branch_or_lane_after_lane(way: Any, ordered: bool) -> None:
    seen: list[float] = []

    def told(x: Any) -> Any:
        st.debug_callback(lambda x: seen.append(float(x)), x, ordered=ordered)
        return x

    jit(vmap(lambda x: cond(x > 0, told, told, x, vmap=way)))(np.array([1.0, -2.0, 3.0, -4.0]))
    assert seen == ([-2, -4, 1, 3] if way == "select" else [1, -2, 3, -4])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_each_lane_takes_its_branch(way: Any, size: int) -> None:
    x = RNG.uniform(0, 1, size)
    got = jit(vmap(choice(way), (0, None)))(x, 1.3)
    np.testing.assert_allclose(np.asarray(got), by_hand(x, 1.3), rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_lanes_are_differentiable_to_second_order(way: Any) -> None:
    x = RNG.uniform(0.05, 0.95, 19)
    check_grads(lambda x, w: vmap(choice(way), (0, None))(x, w), (x, np.float64(1.3)), order=2)


@pytest.mark.parametrize("way", WAYS)
def test_derivatives_of_lanes_are_lanes_of_derivatives(way: Any) -> None:
    x = RNG.uniform(0.05, 0.95, 19)
    for derive in (grad, lambda f: grad(grad(f)), lambda f: lambda x, w: jvp(f, (x, w), (x, w))[1]):
        one: Any = derive(choice(way))
        want = [float(one(v, 1.3)) for v in x]
        np.testing.assert_allclose(np.asarray(vmap(one, (0, None))(x, 1.3)), want, rtol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_lanes_within_lanes(way: Any) -> None:
    x = RNG.uniform(0, 1, (5, 33))
    twice = vmap(vmap(choice(way), (0, None)), (1, None), 1)
    np.testing.assert_allclose(np.asarray(jit(twice)(x, 1.3)), by_hand(x, 1.3), rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_lanes_in_a_loop(way: Any) -> None:
    x = RNG.uniform(0, 1, 9)

    def body(i: Any, r: Any) -> None:
        r[...] = r[...] * 0.5 + 0.1 * vmap(choice(way), (0, None))(r[...], 1.3)

    def total(x: Any) -> Any:
        return for_loop(4, body, x).sum()

    want = x
    for _ in range(4):
        want = want * 0.5 + 0.1 * by_hand(want, 1.3)
    np.testing.assert_allclose(float(total(x)), want.sum(), rtol=1e-6)
    check_grads(total, (x,), order=1)


@pytest.mark.parametrize("way", WAYS)
def test_no_derivative_comes_from_a_branch_not_taken(way: Any) -> None:
    x = np.asarray([0.0, 1.0, -1.0, 4.0])
    slope = vmap(grad(lambda x: cond(x > 0, lambda: log(x), lambda: 0.0 * x, vmap=way)))(x)
    np.testing.assert_allclose(np.asarray(slope), [0, 1, 0, 0.25])


@pytest.mark.parametrize("way", WAYS)
def test_an_infinite_slope_stays_infinite(way: Any) -> None:
    """The last lane of a group is run again in place of those that are missing in its last block."""
    x = np.concatenate([[1.0, 4.0, 0.0], -np.ones(40)])
    one = lambda x: cond(x >= 0, lambda: sqrt(x), lambda: x, vmap=way)
    slopes = jit(grad(lambda x: vmap(one)(x).sum()))(x)
    np.testing.assert_array_equal(np.asarray(slopes), [0.5, 0.25, np.inf, *[1.0] * 40])


@pytest.mark.parametrize("way", WAYS)
def test_a_loop_in_a_branch_not_taken_ends(way: Any) -> None:
    def grown(x: Any) -> Any:
        # From zero this would never end.
        return while_loop(lambda y: y < 100.0, lambda y: 2.0 * y, x)

    got = vmap(lambda x: cond(x > 0, lambda: grown(x), lambda: x, vmap=way))(
        np.asarray([0.0, 3.0, 0.0, 7.0])
    )
    np.testing.assert_allclose(np.asarray(got), [0, 192, 0, 112])


@pytest.mark.parametrize("way", WAYS)
def test_lanes_write_to_their_own_refs(way: Any) -> None:
    def write(ref: Any, x: Any) -> None:
        ref[0] = x
        ref[1] += 2.0 * x

    def one(x: Any) -> Any:
        ref = st.new_ref(np.ones(3))
        ref[2] = x
        cond(x > 0, lambda: write(ref, x), lambda: None, vmap=way)
        return st.freeze(ref)

    x = np.asarray([1.0, -2.0, 3.0])
    want = [[1, 3, 1], [1, 1, -2], [3, 7, 3]]
    np.testing.assert_allclose(np.asarray(vmap(one)(x)), want)
    slopes = vmap(grad(lambda x: (one(x) * np.asarray([1.0, 10.0, 100.0])).sum()))(x)
    np.testing.assert_allclose(np.asarray(slopes), [121, 100, 121])


@pytest.mark.parametrize("way", WAYS)
def test_lanes_add_to_a_ref_that_they_share(way: Any) -> None:
    total = st.new_ref(np.zeros(()))

    def add(x: Any) -> None:
        total[...] += x

    def one(x: Any) -> Any:
        cond(x > 0, lambda: add(x), lambda: None, vmap=way)
        return x

    vmap(one)(np.asarray([1.0, -2.0, 3.0]))
    assert float(total[...]) == 4.0


@pytest.mark.parametrize("way", ["serial", "group"])
def test_operands_that_lanes_share_are_not_repeated(way: Any) -> None:
    w = np.ones((64, 64))

    def one(p: Any, x: Any, w: Any) -> Any:
        return cond(p, lambda x, w: w @ x, lambda x, w: x, x, w, vmap=way)

    printed = str(make_jaxpr(vmap(one, (0, 0, None)))(np.ones(10, bool), np.ones((10, 64)), w))
    assert "64,64]" in printed
    assert "10,64,64]" not in printed


def test_what_branches_only_read_is_not_written_back_in_series() -> None:
    def run(x: Any, v: Any) -> Any:
        def body(i: Any, refs: Any) -> None:
            r, s = refs
            old = s[...]
            new = cond(r[i].sum() > 0.0, lambda: 0.5 * r[i], lambda: old, vmap="serial")
            s[...] = sin(new)
            r[i] += 0.01 * s[...]

        return for_loop(x.shape[0], body, (x, v))

    x = np.random.default_rng(0).normal(size=(5, 37, 41))
    assert explain(vmap(run), x, x[:, 0]).copies == 0
    for got, want in zip(
        vmap(run)(x, x[:, 0]), zip(*map(run, x, x[:, 0]), strict=True), strict=True
    ):
        np.testing.assert_allclose(got, np.stack([np.asarray(w) for w in want]))


@pytest.mark.parametrize("way", ["select", "serial", "group"])
def test_a_branch_may_be_given_a_ref_that_it_does_not_use(way: Any) -> None:
    def run(x: Any) -> Any:
        ref = st.new_ref(x)
        out: Any = cond(x.sum() > 0.0, lambda r, x: sin(x), lambda r, x: x, ref, x, vmap=way)
        ref[...] += out
        return ref[...]

    x = np.random.default_rng(0).normal(size=(5, 3))
    want = np.where(x.sum(axis=1, keepdims=True) > 0.0, np.sin(x) + x, 2.0 * x)
    np.testing.assert_allclose(vmap(run)(x), want)
    np.testing.assert_allclose(jit(vmap(run))(x), want)


def test_a_write_to_a_shared_ref_is_refused() -> None:
    shared = st.new_ref(np.zeros(()))

    def write(x: Any) -> None:
        shared[...] = x

    def one(x: Any) -> Any:
        return cond(x > 0, lambda: write(x), lambda: None, vmap="serial")

    assert_misuse(
        lambda: vmap(one)(np.ones(3)),
        TypeError,
        "cond: under vmap, lanes cannot write to one Ref{f64[]} from outside, each would overwrite the others; give "
        "each lane its own (pass the Ref with in_axes=0), or accumulate with `+=`",
        within=one,
    )


def test_lanes_that_communicate_are_refused() -> None:
    def one(x: Any) -> Any:
        return cond(x > 0, lambda: psum(x, "lanes"), lambda: x, vmap="group")

    assert_misuse(
        lambda: vmap(one, axis_name="lanes")(np.ones(3)),
        TypeError,
        "cond: under vmap, a branch that communicates along the mapped axis must run for all lanes at once; use "
        'vmap="select"',
        within=one,
    )


def test_another_way_is_refused() -> None:
    assert_misuse(
        lambda: cond(True, lambda: 1, lambda: 2, vmap="mask"),  # type: ignore[call-arg, call-overload]
        ValueError,
        'cond: vmap must be "select", "serial" or "group", got \'mask\'',
    )


def test_a_choice_that_lanes_share_stays_one() -> None:
    def one(p: Any, x: Array) -> Any:
        return cond(p, lambda: exp(x), lambda: x, vmap="group")

    printed = str(make_jaxpr(vmap(one, (None, 0)))(True, np.ones(5)))
    assert printed.count(" cond[") == 1
    assert " for[" not in printed


@pytest.mark.parametrize("way", WAYS)
def test_there_may_be_no_lanes(way: Any) -> None:
    assert vmap(choice(way), (0, None))(np.zeros(0), 1.3).shape == (0,)


def test_a_handled_effect_leaves_the_way_that_was_chosen() -> None:
    def checked_half(x: Any) -> Any:
        st.check(x > 0, "not positive")
        return x / 2

    jaxpr = make_jaxpr(lambda p, x: cond(p, checked_half, lambda x: x, x, vmap="serial"))(True, 1.0)
    record = st.CheckEffect.initial([e for e in jaxpr.effects if isinstance(e, st.CheckEffect)])
    threaded = thread_effect(jaxpr, st.CheckEffect, record.aval)
    assert [eqn.params.vmap for eqn in threaded.eqns if eqn.primitive is cond_p] == ["serial"]


def test_lanes_are_put_in_order_by_gathers() -> None:
    """In a derivative, too, as the transpose of an order is its inverse."""

    def total(x: Any) -> Any:
        return vmap(lambda x: cond(x[0] > 0, sin, exp, x, vmap="group"))(x).sum()

    text = jit(grad(total)).lower(np.ones((64, 5), np.float32)).as_text()
    assert "stablehlo.scatter" not in text
    assert text.count("stablehlo.case") == 2


def test_lanes_of_cheap_branches_are_not_put_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Putting them in order would take longer than both branches."""
    monkeypatch.undo()

    def printed(branch: Any, way: Any) -> str:
        one = lambda x: cond(x[0] > 0, branch, lambda x: x, x, vmap=way)
        return str(make_jaxpr(vmap(one))(np.ones((64, 8), np.float32)))

    def dear(x: Any) -> Any:
        return fori_loop(0, 1_000, lambda i, x: sin(x), x)

    def long(x: Any) -> Any:
        return while_loop(lambda x: x[0] < 9, lambda x: x + 1, x)

    assert printed(sin, "group") == printed(sin, "select")
    assert "steps" in printed(dear, "group") != printed(dear, "select")
    assert "steps" in printed(long, "group") != printed(long, "select")


@pytest.mark.parametrize("size", [1, 7, 301])
def test_cheap_branches_run_for_all_lanes_beside_groups_of_the_others(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yet nothing comes from a branch that a lane does not take."""
    monkeypatch.undo()

    def grown(x: Any, w: Any) -> Any:
        return fori_loop(0, 200, lambda i, x: x + 0.01 * sin(w * x), x)

    def loss(x: Any, w: Any, way: Any) -> Any:
        branches = [lambda x: log(x) * w, lambda x: grown(x, w), lambda x: sqrt(-x)]
        one = lambda k, x: switch(k, [*branches, lambda x: grown(x, -w)], x, vmap=way)
        return (vmap(one)(kinds, x) ** 2).sum()

    kinds = RNG.integers(0, 4, size).astype(np.int32)
    # The logarithm and the root are not a number where another branch is taken.
    x = RNG.uniform(0.5, 1, (size, 8)) * np.choose(kinds, [1, 1, -1, 0])[:, None]
    for run in (loss, grad(loss, (0, 1))):
        got, want = (jit(partial(run, way=way))(x, 1.3) for way in ("group", "serial"))
        pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
        for a, b in pairs:
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def test_of_two_branches_the_cheap_one_needs_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    dear = lambda x: fori_loop(0, 1_000, lambda i, x: sin(x), x)
    one = lambda x: cond(x[0] > 0, dear, lambda x: 0.5 * x, x, vmap="group")
    x = RNG.normal(size=(64, 8)).astype(np.float32)
    text = jit(grad(lambda x: vmap(one)(x).sum())).lower(x).as_text()
    assert "stablehlo.case" not in text
    assert "stablehlo.scatter" not in text


def test_lanes_are_put_in_blocks_by_one_kernel() -> None:
    """So long a loop is not small to XLA, which would run each step of some nanoseconds as several kernels."""
    one = lambda x: cond(x > 0, sin, exp, x, vmap="group")
    many = np.ones((2, 20_000), np.float32)
    for f, x in ((vmap(one), many[0]), (vmap(vmap(one)), many)):
        text = jit(f).lower(x).compile().as_text()
        entry = text[text.index("ENTRY") :]
        assert "while(" not in entry


def test_lanes_of_dear_branches_run_in_smaller_blocks() -> None:
    def blocks(repeats: int) -> int:
        dear = lambda x: fori_loop(0, repeats, lambda i, x: sin(x), x)
        one = lambda x: cond(x[0] > 0, dear, lambda x: x, x, vmap="group")
        jaxpr = make_jaxpr(vmap(one))(np.ones((512, 8), np.float32))
        return int(next(e.params.nsteps for e in jaxpr.eqns if e.primitive is for_p))

    assert blocks(10) < blocks(1_000) < blocks(100_000)
