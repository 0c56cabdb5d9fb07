"""Arrays of numbers that are written over: made when they are needed, not all at the beginning."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.loops import scan

ROWS = 64
X = np.random.default_rng(0).standard_normal((ROWS, 256)).astype(np.float32)
PLACES = np.random.default_rng(1).integers(0, ROWS, ROWS)


def temporary(fun: Any) -> int:
    """The temporary bytes of a compiled function of X."""
    return jit(fun).lower(X).compile().memory_analysis().temp


def gathered(n: int) -> Any:
    def fun(x: Any) -> Any:
        for _ in range(n):
            x = 2.0 * x[PLACES]
        return (x * X).sum()

    return grad(fun)


def scanned(n: int) -> Any:
    def fun(x: Any) -> Any:
        for _ in range(n):
            _, x = scan(lambda h, row: (fnp.sin(h + row),) * 2, x[0], x)
        return x

    return fun


@pytest.mark.parametrize("layers", [gathered, scanned])
def test_layers_are_filled_one_after_the_other(layers: Any) -> None:
    more = temporary(layers(9)) - temporary(layers(3))
    if recomputes_in_branches():
        # A compiler that drops barriers makes all of them at the beginning.
        assert more >= 5 * X.nbytes
    else:
        assert more < X.nbytes


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint32, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("number", [0, -0.0, 1])
def test_what_is_not_written_stays_the_same(dtype: Any, number: float) -> None:
    filled = np.full(4, number).astype(dtype)

    def puts(v: Any) -> Any:
        return [fnp.full(4, number, dtype).at[k].set(v) for k in range(3)]

    v = np.ones((), dtype)
    for k, got in enumerate(jit(puts)(v)):
        want = filled.copy()
        want[k] = v
        assert np.asarray(got).tobytes() == want.tobytes()


def test_what_is_read_and_written_elsewhere() -> None:
    """The operands that a loop waits for are the same for others that use them."""

    def fun(x: Any) -> Any:
        _, ys = scan(lambda h, row: (h + row,) * 2, x[0], x)
        _, zs = scan(lambda h, row: (h * 0.5 + row,) * 2, x[0], ys)
        return ys + zs, fnp.zeros_like(x).at[3].set(ys[0])

    both, alone = jit(fun)(X)
    ys = X[0] + np.cumsum(X, 0)
    zs, h = np.zeros_like(X), X[0]
    for k, row in enumerate(ys):
        zs[k] = h = h * 0.5 + row
    np.testing.assert_allclose(both, ys + zs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(alone)[3], ys[0], rtol=1e-6)
