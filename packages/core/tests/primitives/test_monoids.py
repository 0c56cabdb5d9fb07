"""What elements that go to one place know of each other, compared with loops over all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import jvp
from fiveloop.core.arrays.array import as_value
from fiveloop.core.primitives.monoids import is_first, product_of_others

Array = np.ndarray[Any, Any]


def others(k: int, places: Array) -> list[int]:
    return [j for j in range(len(places)) if places[j] == places[k] and j != k]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 17])
def test_all_pairs(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(4):
        places = rng.integers(0, max(1, size // 3), size).astype(np.int32)
        x = rng.integers(-2, 4, size).astype(np.float32)
        flags = rng.integers(0, 2, size).astype(np.bool_)
        products = [float(np.prod(x[others(k, places)])) for k in range(size)]
        firsts = [
            bool(flags[k]) and not any(flags[[j for j in others(k, places) if j < k]])
            for k in range(size)
        ]
        np.testing.assert_array_equal(
            np.asarray(product_of_others(as_value(x), as_value(places))), products
        )
        np.testing.assert_array_equal(
            np.asarray(is_first(as_value(flags), as_value(places))), firsts
        )


def test_arrays_of_several_axes() -> None:
    places = np.array([[0, 1], [1, 0]], np.int64)
    x = np.array([[2.0, 3.0], [5.0, 7.0]])
    np.testing.assert_array_equal(
        np.asarray(product_of_others(as_value(x), as_value(places))), [[7, 5], [3, 2]]
    )


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(
    ("places", "want"),
    [([1], [1.0, 1.0, 1.0]), ([1, 2], [1.0, 1.0, 1.0]), ([0, 0], [5.0, 1.0, 1.0])],
)
def test_a_nan_wins_with_its_derivative_and_stays_with_its_own(
    kind: str, places: list[int], want: list[float]
) -> None:
    old = np.array([1.0, np.nan, 2.0 if kind == "max" else 0.25])
    shares = np.array([np.nan, 0.5])[: len(places)]

    def put(x: Any, v: Any) -> Any:
        return getattr(x.at[np.array(places)], kind)(v)

    _, dot = jvp(put, (old, shares), (np.ones(3), np.full(len(places), 5.0)))
    assert np.asarray(dot).tolist() == want
