"""The counter of `fori_loop` has the dtype of its bounds, known or traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit
from fiveloop.core.testing.misuse import assert_misuse
from fiveloop.loops import for_loop, fori_loop

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
