"""An index that is an array made outside of the loop, as `argmax` gives it: known, and no number of the program."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.loops import explain, for_loop, fori_loop, scan
from fiveloop.state import ds
from fiveloop.testing.core.gradcheck import check_grads

K, L = (to_array(as_value(np.int32(1))) for _ in range(2))
P, Q = (to_array(as_value(np.array([0, 2], np.int32))) for _ in range(2))
X: Any = np.array([0.5, -1.5, 2.0])
STEPS = 3


def element(i: Any, r: Any) -> None:
    r[K] = r[K] * 0.5 + r[i]


def added(i: Any, r: Any) -> None:
    r[K] += r[L]


def block(i: Any, r: Any) -> None:
    r[ds(K, 1)] = r[ds(L, 1)] * 0.5


def read(i: Any, r: Any) -> None:
    r[i] = r[K] - r[ds(L, 1)][0] * 0.5


def picked(i: Any, r: Any) -> None:
    r[P] = r[Q] * r[K]


def two(i: Any, r: Any) -> None:
    r[K] = r[i] * 2.0
    r[L] = r[K] + r[P][0]


BODIES = (element, added, block, read, picked, two)


def by_hand(body: Any) -> Any:
    """The loop in NumPy, which has the same indices as integers."""
    numbers = {"K": 1, "L": 1, "P": np.array([0, 2]), "Q": np.array([0, 2])}
    there = {**body.__globals__, **numbers, "ds": lambda start, size: slice(start, start + size)}
    out = X.copy()
    for i in range(STEPS):
        FunctionType(body.__code__, there)(i, out)
    return out


@pytest.mark.parametrize("body", BODIES)
def test_of_refs(body: Any) -> None:
    def run(x: Any) -> Any:
        return for_loop(STEPS, body, x)

    want = by_hand(body)
    for way in (run, jit(run)):
        np.testing.assert_allclose(np.asarray(way(X)), want, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(vmap(run)(np.stack([X, X])))[1], want, rtol=1e-12)
    check_grads(jit(run), (X,), order=1)
    assert explain(run, X)


@pytest.mark.parametrize(
    ("step", "number"),
    [
        (lambda y, i: y.at[K].add(y[i]), lambda y, i: y + np.eye(3)[1] * y[i]),
        (lambda y, i: y.at[ds(K, 1)].set(y[ds(L, 1)] * 2.0), lambda y, i: y * [1, 2, 1]),
        (lambda y, i: y.at[P].mul(y[L]), lambda y, i: y * [y[1], 1, y[1]]),
        (lambda y, i: y.at[i].set(y[K]), lambda y, i: np.where(np.arange(3) == i, y[1], y)),
    ],
)
def test_of_carried_arrays(step: Any, number: Any) -> None:
    want = X
    for i in range(STEPS):
        want = number(want, i)

    def loop(x: Any) -> Any:
        return fori_loop(0, STEPS, lambda i, y: step(y, i), x)

    def scanned(x: Any) -> Any:
        return scan(lambda y, i: (step(y, i), None), x, np.arange(STEPS))[0]

    for way in (loop, jit(loop), scanned, jit(scanned)):
        np.testing.assert_allclose(np.asarray(way(X)), want, rtol=1e-12)
    check_grads(jit(loop), (X,), order=1)
