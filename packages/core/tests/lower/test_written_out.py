"""Constant arrays in the module: indices and masks are written out, so that XLA computes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import jit
from fiveloop.loops import fori_loop

X = np.ones(3, np.float32)


def num_arguments(fun: Any, *args: Any) -> int:
    """How many arguments the module takes, arrays that are closed over included."""
    text = str(jit(fun).lower(*args).as_text())
    return text.split("public @main(")[1].split(") ->")[0].count("%arg")


def test_small_integers_are_written_out_and_other_arrays_are_arguments() -> None:
    small, large = np.arange(3), np.arange(20_001)
    assert num_arguments(lambda x: x * small, X) == 1
    assert num_arguments(lambda x: x * (small > 1), X) == 1
    assert num_arguments(lambda x: x * small.astype(np.float32), X) == 2
    assert num_arguments(lambda x: x + fnp.sum(fnp.asarray(large)), X) == 2


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8"])
def test_it_keeps_its_bits(dtype: str) -> None:
    held = np.array([[0, 1, 2], [3, 250, 7]]).astype(dtype)
    got = np.asarray(jit(lambda: fnp.asarray(held)[::-1])())
    assert got.dtype == held.dtype
    np.testing.assert_array_equal(got, held[::-1])


def test_an_index_is_checked_while_compiling() -> None:
    at = np.array([2, 0, -1])
    read = jit(lambda x: fnp.asarray(x)[at])
    np.testing.assert_array_equal(read(np.arange(3.0)), [2.0, 0.0, 2.0])
    assert num_arguments(lambda x: fnp.asarray(x)[at], X) == 1


def test_a_changed_array_is_seen_by_a_function_that_is_made_anew() -> None:
    for k in range(3):
        held = np.full(3, k)
        np.testing.assert_array_equal(jit(lambda x: x + held)(X), held + 1)  # noqa: B023


def test_an_eager_loop_keeps_it_open_so_that_another_takes_its_place() -> None:
    for k in range(3):
        held = np.arange(3) * k
        got = fori_loop(0, 2, lambda _, x: x + held, fnp.asarray(X))  # noqa: B023
        np.testing.assert_array_equal(got, X + 2 * held)


@pytest.mark.parametrize("name", ["fmod", "floor_divide", "mod"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_integers_are_not_divided_while_compiling(name: str, dtype: Any) -> None:
    """XLA ends the process there where it divides by zero, or the least integer by -1."""
    x = np.array([1, 5, np.iinfo(dtype).min], dtype)
    y = np.array([0, 3, -1 if np.iinfo(dtype).min else 1]).astype(dtype)
    got = np.asarray(jit(lambda: getattr(fnp, name)(x, y))())
    assert got[1] == getattr(np, name)(5, 3)
