"""Sorting: order, stability, several keys, NaN and zeros; payloads and derivatives follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, vmap
from fiveloop.core.primitives.broadcast import reduce_sum
from fiveloop.core.primitives.elementwise import mul
from fiveloop.core.primitives.sort import argsort, sort, sort_together, top_k


@pytest.mark.parametrize(
    "dtype",
    [
        np.bool_,
        np.int8,
        np.int64,
        np.uint8,
        np.uint64,
        np.float16,
        np.float32,
        np.float64,
        np.complex64,
    ],
)
def test_equals_numpy(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-9, 10, (5, 7)).astype(dtype)
    for axis in (0, 1):
        np.testing.assert_array_equal(np.asarray(sort(x, axis)), np.sort(x, axis))
        got = np.asarray(argsort(x, axis))
        np.testing.assert_array_equal(got, np.argsort(x, axis, kind="stable"))


def test_nan_comes_last_and_zeros_are_equal() -> None:
    x = np.array([np.nan, 1.0, -np.inf, 0.0, -0.0, np.inf, -np.nan])
    got = np.asarray(sort(x))
    np.testing.assert_array_equal(got[:5], [-np.inf, 0.0, 0.0, 1.0, np.inf])
    assert np.isnan(got[5:]).all()
    assert np.asarray(argsort(x)).tolist() == [2, 3, 4, 1, 5, 0, 6]


def test_several_keys_and_payloads() -> None:
    first, second = np.array([2, 1, 2, 1]), np.array([1.0, 5.0, 0.0, 4.0])
    load = np.arange(4.0)
    a, b, moved = sort_together([first, second, load], num_keys=2)
    assert np.asarray(a).tolist() == [1, 1, 2, 2]
    assert np.asarray(b).tolist() == [4.0, 5.0, 0.0, 1.0]
    assert np.asarray(moved).tolist() == [3.0, 1.0, 2.0, 0.0]


def test_derivatives_follow_their_elements() -> None:
    x, w = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]]), np.array([[1.0, 10.0, 100.0]] * 2)
    got = np.asarray(grad(lambda v: reduce_sum(mul(sort(v, 1), w)))(x))
    assert got.tolist() == [[100.0, 1.0, 10.0], [10.0, 100.0, 1.0]]
    by_load = np.asarray(grad(lambda v: reduce_sum(mul(sort_together([x, v])[1], w)))(x))
    assert by_load.tolist() == got.tolist()


@pytest.mark.parametrize("dims", [(0, None), (1, 1), (None, 0)])
def test_batch_equals_a_loop(dims: tuple[int | None, int | None]) -> None:
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(3, 3) if dims[0] is not None else 3)
    load = rng.normal(size=(3, 3) if dims[1] is not None else 3)
    got = np.asarray(vmap(lambda k, v: sort_together([k, v])[1], in_axes=dims)(keys, load))
    for lane in range(3):
        k = keys if dims[0] is None else np.take(keys, lane, dims[0])
        v = load if dims[1] is None else np.take(load, lane, dims[1])
        np.testing.assert_array_equal(got[lane], v[np.argsort(k)])


def test_refusals() -> None:
    with pytest.raises(ValueError) as e:
        sort_together([np.ones(2)], num_keys=2)
    assert "sort: expected num_keys between 1 and 1, got 2" in str(e.value)
    assert "test_sort.py" in str(e.value)
    with pytest.raises(ValueError, match="sort: expected arrays of one shape"):
        sort_together([np.ones(2), np.ones(3)])
    with pytest.raises(ValueError, match="sort: expected at least one array, got none"):
        sort_together([])
    with pytest.raises(ValueError, match=r"sort: expected `axis` in \[-1, 1\)"):
        sort(np.ones(2), 1)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint32, np.int64, np.float16, np.float32, np.float64]
)
def test_the_greatest_are_the_first_of_the_reversed_order(dtype: Any) -> None:
    x = np.array([[3, 1, 2, 3, 0, 2], [5, 5, 5, 7, 1, 0]], dtype)
    values, places = top_k(x, 4)
    assert values.dtype == dtype
    assert places.dtype == np.int32
    assert places.tolist() == [[0, 3, 2, 5], [3, 0, 1, 2]]
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.asarray(places), -1))


def test_nan_is_the_greatest_and_zero_is_greater_than_minus_zero() -> None:
    x = np.array([1.0, np.nan, -0.0, 0.0, np.inf, np.nan, -np.inf], np.float32)
    assert top_k(x, 7)[1].tolist() == [1, 5, 4, 0, 3, 2, 6]


def test_derivatives_and_lanes_of_the_greatest() -> None:
    x = np.array([[3.0, 1.0, 4.0], [2.0, 6.0, 5.0]])
    of_squares = grad(lambda x: reduce_sum(mul(*[top_k(x, 2)[0]] * 2)))
    np.testing.assert_array_equal(of_squares(x), [[6, 0, 8], [0, 12, 10]])
    np.testing.assert_array_equal(vmap(lambda x: top_k(x, 1)[1])(x), [[2], [1]])
    np.testing.assert_array_equal(vmap(lambda x: top_k(x, 1)[1], in_axes=1)(x), [[0], [1], [1]])


def test_refusals_of_the_greatest() -> None:
    with pytest.raises(ValueError, match="top_k: expected a last axis of at least 4 elements"):
        top_k(np.zeros(3), 4)
    with pytest.raises(TypeError, match="top_k"):
        top_k(np.zeros(3, complex), 1)
