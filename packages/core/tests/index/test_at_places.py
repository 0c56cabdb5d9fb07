"""The methods of `x.at[index]`, and what they do out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit
from fiveloop.core.extend import as_value
from fiveloop.testing.core.misuse import assert_misuse

HOST = np.arange(1.0, 13.0).reshape(4, 3)
PICKS = np.asarray([1, 3, 1])
INDICES: dict[str, Any] = {
    "integer": 2,
    "slice": slice(1, 3),
    "negative stride": (slice(None), slice(None, None, -2)),
    "picks": PICKS,
    "picks and integer": (PICKS, -1),
    "mask": HOST[:, 0] > 3.0,
    "mask in the middle": (slice(None), np.asarray([True, False, True])),
}
METHODS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "set": (lambda place, v: place.set(v), None),
    "add": (lambda place, v: place.add(v), np.add),
    "subtract": (lambda place, v: place.subtract(v), np.subtract),
    "multiply": (lambda place, v: place.multiply(v), np.multiply),
    "mul": (lambda place, v: place.mul(v), np.multiply),
    "divide": (lambda place, v: place.divide(v), np.divide),
    "power": (lambda place, v: place.power(v), np.power),
    "max": (lambda place, v: place.max(v), np.maximum),
    "min": (lambda place, v: place.min(v), np.minimum),
}


@pytest.mark.parametrize("name", INDICES)
def test_methods_do_as_numpy_does_element_by_element(name: str) -> None:
    index = INDICES[name]

    def run(x: Any, index: Any) -> list[Any]:
        return [update(x.at[index], 5.0) for update, _ in METHODS.values()]

    want = []
    for _, ufunc in METHODS.values():
        out = HOST.copy()
        if ufunc is None:
            out[index] = 5.0
        else:
            ufunc.at(out, index, 5.0)
        want.append(out)
    results = [run(as_value(HOST), index), jit(lambda x: run(x, index))(HOST)]
    if isinstance(index, np.ndarray):
        results.append(jit(run)(HOST, index))
    for result in results:
        for got, expected in zip(result, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", INDICES)
def test_a_function_is_applied_once(name: str) -> None:
    index = INDICES[name]
    want = HOST.copy()
    want[index] = np.sqrt(want[index])

    def run(x: Any, index: Any) -> Any:
        return x.at[index].apply(np.sqrt)

    np.testing.assert_allclose(run(as_value(HOST), index), want)
    if isinstance(index, np.ndarray):
        np.testing.assert_allclose(jit(run)(HOST, index), want)


OUTSIDE: dict[str, tuple[Any, Any]] = {
    "picks": (np.asarray([1, 7, -9, -1, 3]), np.asarray([0, 3, 4])),
    "an integer inside": (np.int32(-2), 0),
    "an integer outside": (np.int32(4), np.zeros(0, np.int64)),
    "bytes": (np.asarray([3, 200], np.uint8), np.asarray([0])),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("traced", [False, True], ids=["known", "traced"])
def test_what_is_out_of_bounds_is_left_out(name: str, traced: bool) -> None:
    index, inside = OUTSIDE[name]
    values = np.arange(10.0, 10.0 + np.size(index) * 3).reshape(*np.shape(index), 3)

    def run(index: Any) -> list[Any]:
        place = as_value(HOST).at[index]
        return [
            place.set(values, mode="drop"),
            place.add(values, mode="drop"),
            place.multiply(values, mode="fill"),
            place.apply(np.negative, mode="drop"),
            place.get(mode="fill"),
            place.get(mode="fill", fill_value=-1.0),
        ]

    chosen = np.reshape(index, -1).astype(np.int64)[inside]
    shares = values.reshape(-1, 3)[inside]
    want = [HOST.copy() for _ in range(4)]
    want[0][chosen] = shares
    np.add.at(want[1], chosen, shares)
    np.multiply.at(want[2], chosen, shares)
    want[3][chosen] *= -1.0
    for filler in (np.nan, -1.0):
        read = np.full((max(np.size(index), 1), 3), filler)
        read[inside] = HOST[chosen]
        want.append(read.reshape(*np.shape(index), 3))
    for got, expected in zip((jit(run) if traced else run)(index), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("mode", "row"), [(None, 4), ("clip", 3), ("drop", 4), ("promise_in_bounds", 3)]
)
def test_a_write_out_of_bounds_is_left_out_unless_it_is_to_be_clamped(
    mode: str | None, row: int
) -> None:
    @jit
    def run(i: Any) -> tuple[Any, ...]:
        place = as_value(HOST).at[i]
        return place.add(1.0, mode=mode), place.get(indices_are_sorted=True)

    want = HOST.copy()
    want[row : row + 1] += 1.0
    written, read = run(np.int32(9))
    np.testing.assert_array_equal(written, want)
    np.testing.assert_array_equal(read, HOST[3])


def test_an_explicit_mode_is_for_known_positions_too() -> None:
    x = as_value(HOST)
    np.testing.assert_array_equal(x.at[9].get(mode="clip"), HOST[3])
    np.testing.assert_array_equal(x.at[9].set(0.0, mode="drop"), HOST)
    np.testing.assert_array_equal(np.asarray(x.at[np.array([-9, 1])].set(0.0, mode="clip"))[:2], 0)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        x.at[9].set(0.0)


@pytest.mark.parametrize(
    ("inner", "ascends"), [(slice(None), True), (0, True), (slice(None, None, -1), False)]
)
def test_indices_are_sorted_only_where_those_of_all_axes_are(inner: Any, ascends: bool) -> None:
    write = jit(lambda x, i: x.at[i, inner].add(1.0, indices_are_sorted=True))
    text = write.lower(HOST, np.asarray([1, 1, 2])).as_text()
    assert ("indices_are_sorted = true" in text) == ascends


def test_no_derivative_comes_from_what_is_left_out() -> None:
    def total(x: Any, i: Any) -> Any:
        read = x.at[i].get(mode="fill", fill_value=0.0)
        return read.sum() + x.at[i].divide(2.0, mode="drop").sum()

    slope = grad(total)(HOST, np.asarray([0, 9, 0]))
    np.testing.assert_allclose(slope, [[2.25] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3])


MISUSES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "another mode": (
        lambda: as_value(HOST).at[0].set(1.0, mode="wrap"),
        ValueError,
        "x.at[index]: expected a mode in (None, 'promise_in_bounds', 'clip', 'drop', 'fill'), got 'wrap'",
    ),
    "integers divided": (
        lambda: as_value(np.arange(3)).at[0].divide(2),
        TypeError,
        "x.at[index].divide: expected floating point numbers, got i64[3]; convert it first: `x.astype('float32')`",
    ),
    "no function": (
        lambda: as_value(HOST).at[0].apply(3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "x.at[index].apply: expected a function, got 3",
    ),
    "another option": (
        lambda: as_value(HOST).at[0].get(unique=True),
        TypeError,
        "x.at[index].get: expected `mode`, `fill_value`, `unique_indices` or `indices_are_sorted`, got 'unique'",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISUSES.values(), ids=MISUSES)
def test_misuse(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)
