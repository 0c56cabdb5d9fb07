"""Arrays that are computed, and then have blocks replaced by what was read: XLA:CPU gets two kernels, not one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import jit
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.loops import fori_loop

APART = 'inlineable = "false"' if recomputes_in_branches() else "optimization_barrier"


def cholesky(a: Any) -> Any:
    """The lower factor, below what is left of `a`."""
    rows = fnp.arange(len(a))

    def step(k: Any, a: Any) -> Any:
        column = fnp.where(rows >= k, a[:, k] / fnp.sqrt(a[k, k]), 0)
        below = (rows[:, None] > k) & (rows > k)
        a = a - fnp.where(below, fnp.outer(column, column), 0)
        return a.at[:, k].set(column)

    return fori_loop(0, len(a), step, a)


def decayed(a: Any) -> Any:
    """What is written is made of the array that is computed, and so is the number beside it."""
    return fori_loop(0, len(a), lambda k, a: (a * a.dtype.type(0.5)).at[k].set(1), a)


def lowered(fun: Any, a: Any) -> str:
    return str(jit(fun).lower(a).as_text())


def test_what_is_replaced_by_what_was_read_is_computed_first() -> None:
    a = np.eye(8, dtype="f4")
    assert APART in lowered(cholesky, a)
    assert APART not in lowered(decayed, a)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "f2"])
def test_a_factor_that_is_written_in_place(dtype: str) -> None:
    m = np.random.default_rng(0).normal(size=(12, 12))
    a = (m @ m.T / 12 + np.eye(12)).astype(dtype)
    want = np.linalg.cholesky(a.astype("f8" if dtype != "c8" else "c16"))
    got = np.tril(np.asarray(jit(cholesky)(a)))
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-2 if dtype == "f2" else 1e-5)


def test_integers_and_truth_values_are_computed_first_too() -> None:
    def step(k: Any, s: Any) -> Any:
        i, b = s
        j, c = i + i[::-1], b ^ b[::-1]
        return j.at[k].set(i[k] * 2), c.at[k].set(b[k])

    i, b = np.arange(5), np.array([True, False, True, True, False])
    got_i, got_b = jit(lambda s: fori_loop(0, 5, step, s))((i, b))
    for k in range(5):
        i, b = (
            np.where(np.arange(5) == k, i * 2, i + i[::-1]),
            np.where(np.arange(5) == k, b, b ^ b[::-1]),
        )
    np.testing.assert_array_equal(got_i, i)
    np.testing.assert_array_equal(got_b, b)
