"""The counter of `fori_loop` has the dtype of its bounds, known or traced."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, jit, vmap
from fiveloop.loops import for_loop, fori_loop
from fiveloop.testing.core.misuse import assert_misuse

FAR = 2**40
BOUNDS = {
    "Python integers": (1, 4, np.int32),
    "large Python integers": (FAR, FAR + 3, np.int64),
    "large negative ones": (-FAR, 3 - FAR, np.int64),
    "across the end of int32": (2**31 - 2, 2**31 + 1, np.int64),
    "int64": (np.int64(1), np.int64(4), np.int64),
    "one of int64": (1, np.int64(4), np.int64),
    "int64, far": (np.int64(FAR), FAR + 3, np.int64),
    "uint8": (np.uint8(1), np.uint8(4), np.uint8),
    "int16 and int32": (np.int16(1), np.int32(4), np.int32),
}


@pytest.mark.parametrize(("low", "high", "dtype"), BOUNDS.values(), ids=BOUNDS)
def test_the_counter_has_the_dtype_of_the_bounds(low: Any, high: Any, dtype: Any) -> None:
    seen: list[np.dtype[Any]] = []

    def body(i: Any, last: Any) -> Any:
        seen.append(i.dtype)
        return i

    last = fori_loop(low, high, body, np.zeros((), dtype))
    assert set(seen) == {np.dtype(dtype)}
    assert int(last) == int(high) - 1
    if not isinstance(low, int):
        traced = jit(lambda low, high: fori_loop(low, high, body, np.zeros((), dtype)))
        assert int(traced(low, high if isinstance(high, np.generic) else dtype(high))) == int(last)


FLOATS: Any = [
    (0.0, 3.0),
    (0, np.float32(3)),
    (np.float16(1), np.float16(4)),
    (ml_dtypes.bfloat16(1), 3.0),
    (3.0, 1.0),
    (-2.0, 2),
]


@pytest.mark.parametrize(("low", "high"), FLOATS)
def test_bounds_may_be_floats(low: Any, high: Any) -> None:
    """As a Python loop over the whole numbers between them; one of traced bounds starts anywhere."""
    numbers = range(int(low), int(high))
    add = lambda i, total: total + i
    assert float(fori_loop(low, high, add, 0.5)) == 0.5 + sum(numbers)
    traced = jit(lambda low, high: fori_loop(low, high, add, np.float32(0.5)))
    assert float(traced(low, high)) == 0.5 + sum(numbers)
    slope = grad(lambda x: fori_loop(low, high, lambda i, y: y * x, 1.0))(2.0)
    assert float(slope) == len(numbers) * 2.0 ** max(len(numbers) - 1, 0)


def test_traced_bounds_may_lie_anywhere() -> None:
    total = lambda low, high: fori_loop(low, high, lambda i, s: s + i, 0.0)
    assert float(jit(total)(0.5, 3.2)) == 0.5 + 1.5 + 2.5
    assert float(jit(total)(np.nan, 3.0)) == 0.0
    highs = np.array([1.0, 2.5, 4.0])
    np.testing.assert_array_equal(np.asarray(vmap(partial(total, 0.0))(highs)), [0.0, 3.0, 6.0])
    # Where a float is too large to count in.
    far = np.float32(2**24)
    count = jit(lambda high: fori_loop(far, high, lambda i, n: n + 1, 0))
    assert int(count(np.float32(2**24 + 8))) == 8


def test_a_number_of_steps_that_is_computed_is_not_cut() -> None:
    @jit
    def run(steps: Any) -> Any:
        def body(i: Any, ref: Any) -> None:
            ref[...] = i

        return for_loop(steps, body, np.zeros((), steps.dtype))

    assert run(np.int64(5)).dtype == np.int64
    assert int(run(np.int64(5))) == 4
    assert int(run(np.int64(-FAR))) == 0


def keep(i: Any, x: Any) -> Any:
    return x


MISUSES: dict[str, tuple[Any, type[Exception], str]] = {
    "a bound that does not fit": (
        lambda: fori_loop(np.int32(0), FAR, keep, 0),
        OverflowError,
        f"fori_loop: upper must fit int32, the dtype of the other bound, got {FAR}; give the other as np.int64",
    ),
    "dtypes without a common one": (
        lambda: fori_loop(np.int64(0), np.uint64(3), keep, 0),
        TypeError,
        "fori_loop: lower and upper must have an integer dtype in common, got i64[] and u64[]; convert one of them "
        "with astype",
    ),
    "too many steps": (
        lambda: fori_loop(0, 2**31, keep, 0),
        ValueError,
        "fori_loop: the number of steps must be at most 2147483647, which the counter holds, got 2147483648; nest "
        "loops",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISUSES.values(), ids=MISUSES)
def test_misuse(call: Any, kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


@pytest.mark.parametrize("way", [lambda f: f, jit])
def test_a_traced_bound_is_differentiable(way: Any) -> None:
    power = lambda x, n: fori_loop(0, n, lambda i, y: y * x, 1.0)
    assert float(way(grad(power))(2.0, 3)) == 12.0
    assert float(way(grad(grad(power)))(2.0, 3)) == 12.0
    assert float(way(grad(power))(2.0, 0)) == 0.0
