"""What a step writes is carried to the step that reads it, where the places are known; else it is read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.passes import run_passes
from fiveloop.core.primitives.elementwise import minimum
from fiveloop.core.primitives.special import cos, sin
from fiveloop.loops import explain, for_loop, planning
from fiveloop.loops.plan.passes import plan
from fiveloop.state import ds, new_ref
from fiveloop.testing.core.gradcheck import check_grads
from fiveloop.testing.core.samples import sample
from fiveloop.testing.loops.laws import check_law_planning

N = 18
RNG = np.random.default_rng(0)
X: Any = RNG.normal(size=N)
TABLE: Any = RNG.normal(size=(N, N))


def looped(body: Callable[[Any, Any], None], steps: int, **options: Any) -> Callable[[Any], Any]:
    return lambda x: for_loop(steps, body, x, **options)


def once(i: Any, r: Any) -> None:
    r[i + 1] = sin(r[i]) + r[i + 1]


def downward(i: Any, r: Any) -> None:
    r[i] = cos(r[i + 1]) * r[i]


def twice(i: Any, r: Any) -> None:
    r[i + 2] = r[i + 1] - 0.5 * r[i]


def skipping(i: Any, r: Any) -> None:
    r[2 * i + 2] = sin(r[2 * i])


def four(i: Any, r: Any) -> None:
    r[i + 4] = sin(r[i])


def added(i: Any, r: Any) -> None:
    r[i + 1] += 0.5 * r[i]


def old(i: Any, r: Any) -> None:
    before = r[i]
    r[i + 1] = before
    r[i + 1] += sin(before)


def windows(i: Any, r: Any) -> None:
    r[ds(i + 1, 1)] = cos(r[ds(i, 1)])


def mixed(i: Any, r: Any) -> None:
    r[ds(i + 1, 1)] = cos(r[i][None])


def clamped(i: Any, r: Any) -> None:
    r[i + 1] = sin(r[i])


CARRIED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "once": (looped(once, N - 1), 1),
    "downward": (looped(downward, N - 1, reverse=True), 1),
    "twice": (looped(twice, N - 2), 2),
    "skipping": (looped(skipping, (N - 1) // 2), 1),
    "four steps later": (looped(four, N - 4), 4),
    "two steps": (looped(clamped, 2), 1),
    "added": (looped(added, N - 1), 1),
    "written and added to": (looped(old, N - 1), 1),
    "windows": (looped(windows, N - 1), 1),
    "two forms": (looped(mixed, N - 1), 1),
    "unrolled": (looped(once, N - 1, unroll=3), 1),
}


def against(i: Any, r: Any) -> None:
    r[i] = cos(r[i + 1]) * r[i]


def elsewhere(i: Any, r: Any) -> None:
    r[(7 * i) % N] = sin(r[i])


def written_twice(i: Any, r: Any) -> None:
    r[i + 1] = sin(r[i])
    r[0] = cos(r[i + 1])


def too_late(i: Any, r: Any) -> None:
    r[i + 5] = sin(r[i])


def half(i: Any, r: Any) -> None:
    r[2 * i + 1] = sin(r[2 * i])


NOT_CARRIED: dict[str, Callable[[Any], Any]] = {
    "from steps to come": looped(against, N - 1),
    "computed index": looped(elsewhere, N),
    "two writes": looped(written_twice, N - 1),
    "five steps later": looped(too_late, N - 5),
    "never written": looped(half, N // 2),
    "past the end": looped(clamped, N + 2),
    "before the beginning": looped(lambda i, r: once(i - 1, r), N - 1),
    "whole": looped(lambda i, r: r.__setitem__(..., sin(r[...])), N),
    "one step": looped(once, 1),
    "few steps": looped(once, 15),
}


def carried_values(fun: Any, *args: Any) -> int:
    """How many more values planning lets a loop carry."""
    jaxpr = make_jaxpr(fun)(*args)
    with planning(carry=False):
        without = make_jaxpr(fun)(*args)
    (one,), (other,) = (
        [e for e in plan(j).eqns if e.primitive.name == "for"] for j in (jaxpr, without)
    )
    return len(one.invars) - len(other.invars)


@pytest.mark.parametrize("name", CARRIED)
def test_what_is_read_later_is_carried(name: str) -> None:
    fun, count = CARRIED[name]
    assert carried_values(fun, X) == count


@pytest.mark.parametrize("name", NOT_CARRIED)
def test_what_is_not_known_is_read_again(name: str) -> None:
    assert carried_values(NOT_CARRIED[name], X) == 0


@pytest.mark.parametrize("name", [*CARRIED, *NOT_CARRIED])
def test_values_and_derivatives_are_the_same(name: str) -> None:
    fun = CARRIED[name][0] if name in CARRIED else NOT_CARRIED[name]
    loss = lambda x: (fun(x) ** 2).sum()
    forms = [
        fun,
        grad(loss),
        lambda x: jvp(grad(loss), (x,), (x,))[1],
        lambda x: vmap(fun)(x * np.ones((3, 1))),
    ]
    together = lambda x: [form(x) for form in forms]
    with planning(False):
        plain = sample(together, X).run()
    for got, want in zip(jit(together)(X), plain, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12, atol=1e-14)
    check_grads(loss, (X,), order=1)
    check_law_planning(sample(grad(loss), X))


def table(d: Any) -> Any:
    """Each cell from that above it and that before it."""

    def row(i: Any, r: Any) -> None:
        def cell(j: Any, _: Any) -> None:
            r[i + 1, j + 1] = minimum(r[i, j + 1], sin(r[i + 1, j])) + r[i + 1, j + 1]

        for_loop(N - 1, cell, ())

    return for_loop(N - 1, row, d)


def test_in_rows_of_an_outer_loop() -> None:
    jaxpr = plan(make_jaxpr(table)(TABLE))
    (outer,) = [e for e in jaxpr.eqns if e.primitive.name == "for"]
    (inner,) = [e for e in outer.params.body.eqns if e.primitive.name == "for"]
    assert [v.aval.shape for v in inner.outvars] == [()]
    with planning(False):
        want = np.asarray(jit(table)(TABLE))
    np.testing.assert_allclose(np.asarray(jit(table)(TABLE)), want, rtol=1e-12)
    check_grads(lambda d: table(d).sum(), (TABLE,), order=1)


def test_from_a_ref_outside_the_loop() -> None:
    def outside(x: Any) -> Any:
        ref = new_ref(x)
        for_loop(N - 1, lambda i, _: once(i, ref), ())
        return ref[...]

    assert carried_values(outside, X) == 1
    with planning(False):
        want = np.asarray(jit(outside)(X))
    np.testing.assert_allclose(np.asarray(jit(outside)(X)), want, rtol=1e-12)


def test_a_ref_that_was_only_read_back_is_gone() -> None:
    """The cotangents of prefix sums are a sum that is carried."""

    def loss(x: Any) -> Any:
        def body(i: Any, y: Any) -> None:
            y[i + 1] = y[i] + x[i]

        return (for_loop(N - 1, body, np.zeros(N)) * X).sum()

    ready = run_passes(make_jaxpr(grad(loss))(X[1:]))
    (backward,) = [e for e in ready.eqns if e.primitive.name == "for"]
    assert [v.aval.shape for v in backward.outvars] == [(N - 1,), ()]
    want = np.cumsum(X[:0:-1])[::-1]
    np.testing.assert_allclose(np.asarray(grad(loss)(X[1:])), want, rtol=1e-12)


def test_rows_are_read_where_they_are() -> None:
    rows = looped(once, N - 1)
    assert carried_values(rows, RNG.normal(size=(N, 16))) == 1
    assert carried_values(rows, RNG.normal(size=(N, 17))) == 0


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex64, np.bool_])
def test_any_dtype(dtype: Any) -> None:
    def body(i: Any, r: Any) -> None:
        r[i + 1] = r[i] | r[i + 1] if dtype == np.bool_ else r[i] * 2 + r[i + 1]

    x = np.arange(N).astype(dtype)
    want = x.copy()
    for i in range(N - 1):
        want[i + 1] = want[i] | want[i + 1] if dtype == np.bool_ else want[i] * 2 + want[i + 1]
    got = jit(looped(body, N - 1))(x)
    assert np.asarray(got).dtype == dtype
    np.testing.assert_array_equal(np.asarray(got), want)


def test_it_is_told() -> None:
    found = explain(looped(once, N - 1), X)
    decision = found.loops[0].decision("carry", "state")
    assert decision.done
    assert decision.reason == "the element that a step writes is carried to the step that reads it"
