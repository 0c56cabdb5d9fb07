"""while_loop: values, forward mode, batches, Refs in condition and body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, grad, jit, jvp, linearize, make_jaxpr, vmap
from fiveloop.loops import cond, for_loop, while_loop
from fiveloop.state import freeze, new_ref
from fiveloop.testing.core import laws
from fiveloop.testing.core.gradcheck import check_jvp
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops import references
from fiveloop.testing.state.laws import check_law_discharge

assert references.__name__

XS = np.array([0.5, 3.0, 90.0, 200.0])


def grow(x: Any, rate: Any = 1.5) -> Any:
    """x * rate + sin(x) / 10, again and again, until it is 100 or more; and how often."""

    def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
        y, n = state
        return y * rate + 0.1 * fnp.sin(y), n + 1

    return while_loop(lambda state: state[0] < 100.0, body, (x, 0))


def grow_by_hand(x: float, rate: float = 1.5) -> tuple[float, int]:
    n = 0
    while x < 100.0:
        x, n = x * rate + 0.1 * np.sin(x), n + 1
    return x, n


# values


@pytest.mark.parametrize("way", [lambda f: f, jit, closed_call])
@pytest.mark.parametrize("x", XS)
def test_it_runs_until_the_condition_fails(way: Callable[[Any], Any], x: float) -> None:
    y, n = way(grow)(x)
    want, steps = grow_by_hand(x)
    np.testing.assert_allclose(float(y), want, rtol=1e-5)
    assert int(n) == steps


def test_pytrees_and_closed_over_values() -> None:
    def f(tree: dict[str, Any], limit: Any) -> dict[str, Any]:
        def body(t: dict[str, Any]) -> dict[str, Any]:
            return {"n": t["n"] + 1, "x": t["x"] * limit, "empty": ()}

        return while_loop(lambda t: t["n"] < limit, body, {**tree, "empty": ()})

    out = jit(f)({"n": 0, "x": np.ones(3, np.float32)}, 3)
    assert int(out["n"]) == 3
    np.testing.assert_array_equal(np.asarray(out["x"]), [27.0] * 3)
    assert out["empty"] == ()


def test_weak_values_find_their_types() -> None:
    three = np.float64(3.0)

    def body(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        _, b, n = state
        return b, b * three, n + 1

    start: Any = (1, 2, 0)
    a, b, n = jit(lambda: while_loop(lambda s: s[2] < 3, body, start))()
    assert (a.dtype, b.dtype, n.dtype) == (np.float64, np.float64, np.int32)
    assert (float(a), float(b), int(n)) == (18.0, 54.0, 3)
    three_wide: Any = np.int64(3)
    kept = while_loop(lambda x: x < 10, lambda x: 11, three_wide)
    assert (kept.dtype, int(kept)) == (np.int64, 11)


# forward mode


@pytest.mark.parametrize("x", XS)
def test_tangents(x: float) -> None:
    check_jvp(jit(lambda x, rate: grow(x, rate)[0]), (x, np.float64(1.4)), order=1 + int(x == 3.0))


def test_a_tangent_that_a_later_step_brings() -> None:
    """Only c depends on x at first; after three steps a does."""

    def f(x: Any) -> Any:
        def body(s: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
            _, b, c, n = s
            return b, c, x * x, n + 1

        return while_loop(lambda s: s[3] < 3, body, (0.0, 0.0, 0.0, 0))[0]

    assert [float(v) for v in jvp(f, (3.0,), (1.0,))] == [9.0, 6.0]
    text = repr(make_jaxpr(lambda x, t: jvp(f, (x,), (t,)))(3.0, 1.0))
    assert text.count("while") == 1


def test_linearize_runs_the_loop_again() -> None:
    out, lin = linearize(lambda x: grow(x)[0], 3.0)
    value, dot = jvp(lambda x: grow(x)[0], (3.0,), (2.0,))
    assert float(out) == float(value)
    np.testing.assert_allclose(float(lin(2.0)), float(dot), rtol=1e-6)


def test_linearize_of_a_loop_on_refs_writes_once() -> None:
    def f(x: Any) -> Any:
        r = new_ref(fnp.zeros(4))

        def body(i: Any) -> Any:
            r[i] = x * (i + 1) + r[i]
            r[0] += 1.0
            return i + 1

        while_loop(lambda i: i < 3, body, 0)
        return freeze(r)

    out, lin = linearize(f, 2.0)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(f(2.0)))
    np.testing.assert_array_equal(np.asarray(lin(1.0)), [1.0, 2.0, 3.0, 0.0])
    np.testing.assert_array_equal(np.asarray(lin(2.0)), [2.0, 4.0, 6.0, 0.0])


def test_reverse_mode_past_a_loop() -> None:
    """The number of steps has no derivative; nor has what the result does not need."""

    def f(x: Any) -> Any:
        _, n = grow(x)
        return x * n

    assert float(jit(grad(f))(3.0)) == grow_by_hand(3.0)[1]
    assert float(grad(f)(3.0)) == grow_by_hand(3.0)[1]


# batches


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_each_lane_stops_by_itself(way: Callable[[Any], Any]) -> None:
    ys, ns = way(vmap(grow))(XS)
    want = [grow_by_hand(x) for x in XS]
    np.testing.assert_allclose(np.asarray(ys), [y for y, _ in want])
    np.testing.assert_array_equal(np.asarray(ns), [n for _, n in want])


def test_one_number_of_steps_for_all_lanes() -> None:
    def f(x: Any, n: Any) -> Any:
        return while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2.0, s[1] + 1), (x, 0))

    batched = vmap(f, in_axes=(0, None), out_axes=(0, None))
    ys, n = batched(XS, 3)
    np.testing.assert_allclose(np.asarray(ys), XS * 8)
    assert int(n) == 3
    assert "select" not in repr(make_jaxpr(batched)(XS, 3))


def test_a_value_that_never_changes_is_not_batched() -> None:
    def f(n: Any, w: Any) -> Any:
        return while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, s[1], s[2] + s[1].sum()), (0, w, 0.0)
        )[2]

    w = np.ones((5, 7))
    batched = vmap(f, in_axes=(0, None))
    np.testing.assert_allclose(np.asarray(batched(np.array([0, 1, 4]), w)), [0.0, 35.0, 140.0])
    assert "[3,5,7]" not in repr(make_jaxpr(batched)(np.array([0, 1, 4]), w))


def test_batches_of_batches_and_tangents_of_batches() -> None:
    rates = np.array([1.6, 2.0])
    both = vmap(vmap(lambda x, r: grow(x, r)[0], in_axes=(0, None)), in_axes=(None, 0))
    got = jit(both)(XS, rates)
    want = [[grow_by_hand(x, r)[0] for x in XS] for r in rates]
    np.testing.assert_allclose(np.asarray(got), want)
    check_jvp(jit(lambda xs, rate: vmap(lambda x: grow(x, rate)[0])(xs)), (XS, np.float64(1.4)))
    slope = lambda x: jvp(lambda y: grow(y)[0], (x,), (1.0,))[1]
    slopes, alone = jit(vmap(slope))(XS), jit(slope)
    one = [float(alone(x)) for x in XS]
    np.testing.assert_allclose(np.asarray(slopes), one)


def test_a_loop_in_a_loop_under_vmap() -> None:
    def f(n: Any) -> Any:
        def outer(state: tuple[Any, Any]) -> tuple[Any, Any]:
            i, total = state
            inner = while_loop(lambda s: s[0] < i, lambda s: (s[0] + 1, s[1] + 1), (0, 0))[1]
            return i + 1, total + inner

        return while_loop(lambda s: s[0] < n, outer, (0, 0))[1]

    got = jit(vmap(f))(np.arange(6))
    np.testing.assert_array_equal(np.asarray(got), [n * (n - 1) // 2 for n in range(6)])


# Refs


def fill(n: Any, init: Any, limit: Any) -> tuple[Any, Any]:
    """The condition reads what the body writes."""
    r = new_ref(init)

    def body(i: Any) -> Any:
        r[i % 3] += n * (i + 1)
        return i + 1

    steps = while_loop(lambda i: (r[0] < limit) & (i < 50), body, 0)
    return steps, freeze(r)


def fill_by_hand(n: float, init: Any, limit: float) -> tuple[int, Any]:
    r, i = np.array(init), 0
    while r[0] < limit and i < 50:
        r[i % 3] += n * (i + 1)
        i += 1
    return i, r


@pytest.mark.parametrize("way", [lambda f: f, jit, closed_call])
def test_the_condition_sees_what_the_body_writes(way: Callable[[Any], Any]) -> None:
    steps, r = way(fill)(0.5, np.zeros(3), 10.0)
    want_steps, want = fill_by_hand(0.5, np.zeros(3), 10.0)
    assert int(steps) == want_steps
    np.testing.assert_allclose(np.asarray(r), want)


def test_a_ref_outside_any_trace_in_condition_and_body() -> None:
    r = new_ref(np.zeros(3, np.float32))

    def body(i: Any) -> Any:
        r[1] += 1.0
        return i + 1

    assert int(while_loop(lambda i: r[1] < 4.0, body, 0)) == 4
    assert int(jit(lambda: while_loop(lambda i: r[1] < 6.0, body, 0))()) == 2
    np.testing.assert_array_equal(np.asarray(r[...]), [0.0, 6.0, 0.0])


def test_refs_tangents_and_batches() -> None:
    check_jvp(jit(lambda n, init: fill(n, init, 10.0)[1]), (np.float64(0.5), np.ones(3)), order=2)
    ns, limits = np.array([0.5, 2.0, 0.1]), np.array([10.0, 3.5, 0.0])
    inits = np.arange(9.0).reshape(3, 3)
    for way in (lambda f: f, jit):
        steps, r = way(vmap(fill))(ns, inits, limits)
        lanes = [fill_by_hand(*lane) for lane in zip(ns, inits, limits, strict=True)]
        np.testing.assert_array_equal(np.asarray(steps), [s for s, _ in lanes])
        np.testing.assert_allclose(np.asarray(r), [a for _, a in lanes])
    check_jvp(jit(lambda ns, inits: vmap(fill)(ns, inits, limits)[1]), (ns, inits))


def test_inside_a_for_loop_and_around_one() -> None:
    def f(x: Any) -> Any:
        def step(i: Any, refs: Any) -> None:
            r, count = refs

            def body(y: Any) -> Any:
                count[i] += 1
                return y * 2.0

            r[i] = while_loop(lambda y: y < 10.0, body, x + i)

        return for_loop(4, step, (fnp.zeros(4, "float64"), fnp.zeros(4, "int32")))

    r, count = jit(f)(1.0)
    np.testing.assert_array_equal(np.asarray(r), [16.0, 16.0, 12.0, 16.0])
    np.testing.assert_array_equal(np.asarray(count), [4, 3, 2, 2])
    check_jvp(jit(lambda x: f(x)[0]), (np.float64(1.0),))

    def g(x: Any) -> Any:
        def body(y: Any) -> Any:
            def step(i: Any, r: Any) -> None:
                r[...] = r[...] * x + i

            return for_loop(3, step, y)

        return while_loop(lambda y: y < 100.0, body, x)

    one = jit(g)
    check_jvp(one, (np.float64(1.3),))
    xs = np.array([1.3, 2.0, 150.0])
    np.testing.assert_allclose(np.asarray(jit(vmap(g))(xs)), [float(one(x)) for x in xs])


def test_a_branch_in_the_body() -> None:
    def collatz(n: Any) -> Any:
        def body(s: tuple[Any, Any]) -> tuple[Any, Any]:
            n, steps = s
            return cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1), steps + 1

        return while_loop(lambda s: s[0] > 1, body, (n, 0))[1]

    got = jit(vmap(collatz))(np.arange(1, 10))
    np.testing.assert_array_equal(np.asarray(got), [0, 1, 7, 2, 5, 8, 16, 3, 19])


# the laws, and what is compiled


def test_the_laws_hold() -> None:
    def f(n: Any, x: Any, w: Any) -> Any:
        r = new_ref(w)

        def body(s: tuple[Any, Any]) -> tuple[Any, Any]:
            i, y = s
            r[i] = fnp.sin(y) * r[i + 1]
            return i + 1, y * r[0] + x

        i, y = while_loop(lambda s: (s[0] < n) & (r[0] < 50.0), body, (0, x))
        return i, y, freeze(r) * 2.0

    s = sample(f, np.int32(3), np.float64(0.3), np.array([0.5, 1.5, -1.0, 2.0]))
    for law in (
        laws.check_law_type,
        laws.check_law_dce,
        laws.check_law_split,
        laws.check_law_batch,
        laws.check_law_jvp,
        laws.check_law_linearize,
        check_law_discharge,
    ):
        law(s)
    assert s.jaxpr.eqns[1].primitive.name == "while"


def test_values_that_nothing_needs_are_not_carried() -> None:
    def f(x: Any) -> Any:
        def body(s: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            i, y, z = s
            return i + 1, y + fnp.cos(z), fnp.exp(z)

        return while_loop(lambda s: s[0] < 3, body, (0, x, x))[0]

    text = jit(f).lower(1.0).as_text()
    assert "exponential" not in text
    assert "cosine" not in text


def test_a_loop_over_a_ref_stays_in_place() -> None:
    def f(x: Any) -> Any:
        r = new_ref(x)

        def body(i: Any) -> Any:
            a, b = r[i], r[i + 1]
            r[i + 1] = a * 0.5 + b
            r[i] = b
            return i + 1

        while_loop(lambda i: (i < 90) & (r[i] < 1e9), body, 0)
        return freeze(r)

    x = np.arange(100.0)
    assert jit(f).lower(x).compile().copies == 0
    want = x.copy()
    for i in range(90):
        want[i], want[i + 1] = want[i + 1], want[i] * 0.5 + want[i + 1]
    np.testing.assert_allclose(np.asarray(jit(f)(x)), want)
