"""`follow`: a lane for which a condition does not hold goes along with one for which it does."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, linear_transpose, make_jaxpr, vmap
from fiveloop.core.extend import as_value, select, zeros_of
from fiveloop.state.extend import follow, gate
from fiveloop.testing.core.laws import check_laws
from fiveloop.testing.core.samples import sample
from fiveloop.testing.state import references
from fiveloop.testing.state.laws import check_law_discharge

assert references.__name__

X, HOLDS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])


@pytest.mark.parametrize("pred", [True, False])
def test_the_laws(pred: bool) -> None:
    def chosen(p: Any, x: Any) -> Any:
        got = follow(p, x)
        return select(p, got * got, zeros_of(got.aval))

    s = sample(chosen, np.asarray(pred), X)
    check_laws(s)
    check_law_discharge(s)


def test_one_lane_keeps_its_value() -> None:
    ways: list[Any] = [lambda f: f, jit]
    for way in ways:
        assert [float(way(follow)(np.asarray(p), np.float64(7.0))) for p in (True, False)] == [7, 7]
    for p, slope in ((True, 1.0), (False, 0.0)):
        assert float(jvp(partial(follow, np.asarray(p)), (2.0,), (1.0,))[1]) == slope


@pytest.mark.parametrize("dim", [0, 1])
def test_a_lane_takes_the_value_of_the_first_that_holds(dim: int) -> None:
    x = np.stack([X, X + 10], 1 - dim)
    got = vmap(follow, (0, dim), dim)(HOLDS, x)
    want = np.take(x, [1, 1, 1, 3], dim)
    np.testing.assert_array_equal(np.asarray(got), want)
    bar = grad(lambda x: vmap(follow, (0, dim), dim)(HOLDS, x).sum())(x)
    np.testing.assert_array_equal(
        np.asarray(bar), np.broadcast_to(HOLDS, (2, 4)).swapaxes(0, dim - 1)
    )


def test_what_lanes_share_stays_one() -> None:
    got = vmap(follow, (0, None), None)(HOLDS, X)
    np.testing.assert_array_equal(np.asarray(got), X)
    for holds, slope in ((HOLDS, 1.0), (HOLDS & False, 0.0)):
        bar = grad(lambda x: vmap(follow, (0, None), None)(holds, x).sum())(X)  # noqa: B023
        np.testing.assert_array_equal(np.asarray(bar), np.full(4, slope))


def test_batches_within_batches() -> None:
    """A lane goes along with one next to it, and with one of another batch if there is none."""
    holds = np.array([[False, True], [False, False]])
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    got = vmap(vmap(follow))(holds, x)
    np.testing.assert_array_equal(np.asarray(got), np.full((2, 2), 2.0))
    shared = vmap(vmap(follow, (0, None), None), (0, None), None)
    assert "broadcast" not in str(make_jaxpr(shared)(holds, x))
    np.testing.assert_array_equal(np.asarray(shared(holds, x)), x)


def test_integers_and_bools_follow_too() -> None:
    for x in (np.arange(4), HOLDS, X * 1j):
        np.testing.assert_array_equal(np.asarray(vmap(follow)(HOLDS, x))[[0, 2]], x[[1, 1]])


@pytest.mark.parametrize("pred", [np.array([True, False]), np.array(False)])
def test_the_laws_of_a_gate(pred: Any) -> None:
    def chosen(x: Any, other: Any) -> Any:
        wide = pred.reshape(-1, 1)
        return [select(wide, gate(as_value(pred), x, y) ** 2, 0.0) for y in (None, other)]

    check_laws(sample(chosen, X.reshape(2, 2), -X.reshape(2, 2)))


@pytest.mark.parametrize("fun", [gate, follow])
def test_what_follows_or_has_a_gate_is_linear(fun: Any) -> None:
    (ct,) = linear_transpose(lambda x: vmap(fun)(HOLDS, x), X)(X)
    np.testing.assert_array_equal(np.asarray(ct), np.where(HOLDS, X, 0.0))
    (ct,) = linear_transpose(lambda x: vmap(fun, (0, None))(HOLDS, x), np.float64(1.0))(X)
    # What is shared follows if some lane holds; which lanes have a cotangent is for the `select` after it to say.
    assert float(ct) == {gate: 6.0, follow: 10.0}[fun]
