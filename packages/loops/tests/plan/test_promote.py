"""Arrays carried by value: indexed and updated in place, with derivatives that cost what the elements cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, grad, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import fori_loop, scan
from fiveloop.testing.core.gradcheck import check_grads

N = 40
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, N)
J = RNG.integers(0, N, N)
THREE = np.asarray([3, 5, 3])
Step = Callable[[Any, Any], Any]


def twice(i: Any, x: Any) -> Any:
    return fori_loop(0, 3, lambda k, y: y.at[(i + k) % N].add(y[i] * 0.1), x)


STEPS: dict[str, Step] = {
    "recurrence": lambda i, x: x.at[i].set(x[i - 1] * 0.9 + x[i]),
    "swap": lambda i, x: x.at[i].set(x[(7 * i) % N]).at[(7 * i) % N].set(x[i]),
    "histogram": lambda i, x: x.at[(i * i) % N].add(1.5),
    "index array": lambda i, x: x.at[np.asarray([3, 5, 3])].add(x[i] * np.asarray([0.1, 0.2, 0.3])),
    "extremes": lambda i, x: x.at[(i + THREE) % N].max(x[i] * np.asarray([0.1, 0.2, 0.3])),
    "factors": lambda i, x: x.at[(i + THREE) % N].multiply(1.0 + x[i] * 0.1),
    "slices": lambda i, x: x.at[2:6].set(x[4:8] * x[i]),
    "far out of range": lambda i, x: x.at[i - 3 * N].set(x[i + 2 * N] * 0.5),
    "from the end": lambda i, x: x.at[-i - 1].set(x[i] * 0.5),
    "old after new": lambda i, x: (lambda new: new.at[0].set(x[i] + new[i]))(
        x.at[i].set(x[i] * 0.5)
    ),
    "inner loop": twice,
}


def by_hand(step: Step) -> Any:
    compiled, x = jit(step), X
    for i in range(N):
        x = np.asarray(compiled(i, x))
    return x


def looped(step: Step) -> Callable[[Any], Any]:
    return lambda x: fori_loop(0, N, step, x)


def text(fun: Any, *args: Any) -> str:
    return str(make_jaxpr(fun)(*args))


@pytest.mark.parametrize("name", STEPS)
def test_values_are_those_of_a_python_loop(name: str) -> None:
    got = jit(looped(STEPS[name]))(X)
    np.testing.assert_allclose(np.asarray(got), by_hand(STEPS[name]), rtol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_the_array_is_only_indexed(name: str) -> None:
    printed = text(looped(STEPS[name]), X)
    assert "[:]" not in printed
    assert ".at[" not in printed


@pytest.mark.parametrize("name", STEPS)
def test_derivatives_are_right(name: str) -> None:
    check_grads(looped(STEPS[name]), (X,), order=1, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in STEPS if n not in ("index array", "slices")])
@pytest.mark.parametrize("transform", ["primal", "gradient", "jvp of gradient"])
def test_no_step_copies_the_array(name: str, transform: str) -> None:
    def total(x: Any) -> Any:
        y = looped(STEPS[name])(x)
        return (y * y).sum()

    forms = {
        "primal": total,
        "gradient": grad(total),
        "jvp of gradient": lambda x: jvp(grad(total), (x,), (x,))[1],
    }
    assert jit(forms[transform]).lower(X).compile().copies == 0


@pytest.mark.parametrize("name", STEPS)
def test_lanes_have_arrays_of_their_own(name: str) -> None:
    xs = np.stack([X, X[::-1], 0.5 * X])
    each = [np.asarray(looped(STEPS[name])(x)) for x in xs]
    np.testing.assert_allclose(np.asarray(vmap(looped(STEPS[name]))(xs)), each, rtol=1e-12)


def test_an_array_among_other_carried_values_in_a_scan() -> None:
    def step(carry: Any, j: Any) -> Any:
        x, total = carry
        x = x.at[j].add(total)
        return (x, total + x[j]), x[j]

    def run(x: Any) -> Any:
        return scan(step, (x, 1.0), J)

    assert ".at[" not in text(run, X)
    want, total, ys = X.copy(), 1.0, []
    for j in J:
        want[j] += total
        total += want[j]
        ys.append(want[j])
    (x, last), outs = run(X)
    np.testing.assert_allclose(np.asarray(x), want, rtol=1e-12)
    np.testing.assert_allclose(float(last), total, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(outs), ys, rtol=1e-12)


LEFT_ALONE: dict[str, Step] = {
    "used whole": lambda i, x: x.at[i].set(x.sum()),
    "two updates of one version": lambda i, x: x.at[i].set(1.0) + x.at[0].set(2.0),
    "fixed places": lambda i, x: x.at[0].set(x[1] * 0.5),
    "another array": lambda i, x: (x * 0.5).at[i].set(1.0),
    "a later read that the update needs": lambda i, x: (
        lambda new: new.at[0].set(x[(new[i] > 0).astype(np.int32)])
    )(x.at[i].set(x[i] * 0.5)),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_arrays_used_in_other_ways_stay_values(name: str) -> None:
    step = LEFT_ALONE[name]
    assert "[:]" in text(looped(step), X)
    np.testing.assert_allclose(np.asarray(looped(step)(X)), by_hand(step), rtol=1e-12)


def test_a_constant_read_out_of_range_is_read_as_everywhere() -> None:
    # A position that is resolved must not be resolved again: -9 of 8 is before the first element, not the last.
    x = np.arange(8.0)
    for offset in (-20, -9, -8, -1, 0, 7, 8, 20):
        alone = jit(lambda x, i, offset=offset: x[i + offset])(x, 0)
        loop = jit(lambda x, offset=offset: fori_loop(0, 1, lambda i, s: s + x[i + offset], 0.0))(x)
        assert float(loop) == float(alone)


def test_a_constant_gathered_from_costs_the_elements() -> None:
    table, picks = RNG.uniform(size=N), RNG.integers(0, N, (N, 2))

    def total(table: Any) -> Any:
        return fori_loop(0, N, lambda i, s: s + (table[jit(lambda: picks)()[i]] ** 2).sum(), 0.0)

    want = np.zeros(N)
    np.add.at(want, picks, 2 * table[picks])
    np.testing.assert_allclose(np.asarray(jit(grad(total))(table)), want, rtol=1e-12)
    assert jit(grad(total)).lower(table).compile().copies == 0


def test_an_inner_loop_may_have_an_array_under_two_names() -> None:
    def outer(i: Any, x: Any) -> Any:
        same, s = fori_loop(0, 3, lambda j, c: (c[0], c[1] + c[0][j]), (x, 0.0))
        *_, s = fori_loop(0, 3, lambda j, c: (c[0], c[1], c[2] + c[0][j] * c[1][j]), (x, same, s))
        return x.at[i].set(s)

    got = fori_loop(0, 3, outer, np.arange(1.0, 6.0))
    with disable_jit():
        want = fori_loop(0, 3, outer, np.arange(1.0, 6.0))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want))
