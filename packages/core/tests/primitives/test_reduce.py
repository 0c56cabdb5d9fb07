"""Reductions equal NumPy in every dtype; ties, zeros and NaN are treated as documented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, vmap
from fiveloop.core.arrays.promotion import dtype_kind
from fiveloop.core.primitives import reduce as r
from fiveloop.core.primitives.broadcast import reduce_sum

NUMBERS = [np.int8, np.int32, np.int64, np.uint8, np.uint64, np.float16, ml_dtypes.bfloat16]
NUMBERS += [np.float32, np.float64, np.complex64, np.complex128]
REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (reduce_sum, np.sum),
    "prod": (r.reduce_prod, np.prod),
    "max": (r.reduce_max, np.max),
    "min": (r.reduce_min, np.min),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_equals_numpy(name: str, dtype: Any) -> None:
    ours, numpys = REDUCTIONS[name]
    kind = dtype_kind(np.dtype(dtype))
    if kind == "c" and name in ("max", "min"):
        with pytest.raises(TypeError, match="expected real numbers"):
            ours(np.ones(2, dtype))
        return
    x = np.random.default_rng(0).integers(1, 3, (2, 3, 2)).astype(dtype)
    exact = x.astype(np.complex128 if kind == "c" else np.float64 if kind == "f" else dtype)
    for axes in (None, 0, (0, 2), (-1,), ()):
        got = np.asarray(ours(x, axes))
        want = np.asarray(numpys(exact, axes)).astype(exact.dtype)
        assert got.dtype == x.dtype
        rtol = 1e-2 if x.itemsize == 2 else 1e-6
        np.testing.assert_allclose(got.astype(exact.dtype), want, rtol=rtol)


def test_half_floats_are_summed_in_float32() -> None:
    x = np.ones(4096, np.float16)
    assert np.asarray(reduce_sum(x)).item() == 4096.0


def test_bools() -> None:
    x = np.array([[True, False], [True, True]])
    assert np.asarray(r.reduce_and(x, 1)).tolist() == [False, True]
    assert np.asarray(r.reduce_or(x, 1)).tolist() == [True, True]
    assert np.asarray(r.reduce_and(np.array([1, 2, 0]))).item() is False
    assert reduce_sum(x).item() == 3 and reduce_sum(x).dtype == np.int32
    assert np.asarray(r.reduce_max(x, 0)).tolist() == [True, True]


def test_nan_wins() -> None:
    x = np.array([1.0, np.nan, 3.0])
    assert np.isnan(r.reduce_max(x).item()) and np.isnan(r.reduce_min(x).item())
    assert r.argmax(x).item() == 1 and r.argmin(x).item() == 1


def test_places_of_extremes() -> None:
    x = np.array([[3.0, 1.0, 3.0], [0.0, -2.0, -2.0]])
    assert np.asarray(r.argmax(x, 1)).tolist() == [0, 0]
    assert np.asarray(r.argmin(x, 1)).tolist() == [1, 1]
    assert np.asarray(r.argmax(x, 0)).tolist() == [0, 0, 0]
    assert r.argmin(x).item() == 4
    assert r.argmax(x, 0, np.uint8).dtype == np.uint8
    assert np.asarray(vmap(lambda v: r.argmax(v, 0), in_axes=1)(x)).tolist() == [0, 0, 0]
    assert r.argmax(np.array([-np.inf, -np.inf])).item() == 0
    with pytest.raises(ValueError, match="int8 cannot count 200 elements"):
        r.argmax(np.ones(200), 0, np.int8)


def test_equal_winners_share() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    dot = np.asarray(grad(lambda v: reduce_sum(r.reduce_max(v, 1)))(x))
    np.testing.assert_allclose(dot, [[0, 0.5, 0.5], [1 / 3] * 3])


def test_products_with_zeros() -> None:
    for x in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [2.0, 4.0, 3.0, 5.0, 7.0], [6.0]):
        want = [float(np.prod(np.delete(x, k))) for k in range(len(x))]
        assert np.asarray(grad(r.reduce_prod)(np.array(x))).tolist() == want
    curved = grad(lambda x: reduce_sum(grad(r.reduce_prod)(x)))(np.array([2.0, 0.0, 3.0]))
    assert np.asarray(curved).tolist() == [3.0, 5.0, 2.0]


def test_products_over_several_axes() -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, (2, 3, 4))
    out, dot = jvp(lambda v: r.reduce_prod(v, (0, 2)), (x,), (np.ones_like(x),))
    np.testing.assert_allclose(np.asarray(out), x.prod((0, 2)), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(dot), x.prod((0, 2)) * (1 / x).sum((0, 2)), rtol=1e-12)
    empty, flat = jvp(lambda v: r.reduce_prod(v, 0), (np.ones((0, 2)),), (np.ones((0, 2)),))
    assert np.asarray(empty).tolist() == [1.0, 1.0] and np.asarray(flat).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_batch_equals_a_loop(dim: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    got = np.asarray(vmap(lambda v: r.reduce_max(v, (1,)), in_axes=dim)(x))
    np.testing.assert_array_equal(got, np.moveaxis(x, dim, 0).max(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: reduce_sum(np.ones((2, 3)), 2),
            "reduce_sum: expected `axes` in [-2, 2) for 2 axes, got 2",
        ),
        (
            lambda: reduce_sum(np.ones((2, 3)), (0, -2)),
            "reduce_sum: expected each axis once in `axes`, got (0, -2)",
        ),
        (
            lambda: r.reduce_max(np.ones((0, 3))),
            "reduce_max: expected at least one element along axes (0, 1), got f64[0,3]",
        ),
        (
            lambda: r.argmax(np.ones((0,))),
            "argmax: expected at least one element along axis 0, got f64[0]",
        ),
        (
            lambda: r.argmax(np.ones(3), 0, np.float32),
            "argmax: expected an integer `index_dtype`, got float32",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert message in str(error.value)
    assert "test_reduce.py" in str(error.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.bool_])
def test_places_of_extremes_among_many(dtype: Any) -> None:
    """Where the rank of an element and its index are one number, ties, zeros and NaN count as they do elsewhere."""
    drawn = np.random.default_rng(0).integers(-3, 4, size=(40, 30)).astype(np.float64)
    if dtype is np.int32:
        drawn[5, 6], drawn[:, 7] = np.iinfo(dtype).max, np.iinfo(dtype).min
    elif dtype is not np.bool_:
        drawn[5, 6:9], drawn[8, :20], drawn[9, 6:9] = (np.inf, -np.inf, np.nan), -0.0, -np.nan
    x = drawn.astype(dtype)
    wide = x.astype(np.float64)
    for axis in (0, 1, None):
        assert (np.asarray(r.argmax(x, axis)) == np.argmax(wide, axis)).all()
        assert (np.asarray(r.argmin(x, axis)) == np.argmin(wide, axis)).all()
    assert r.argmax(np.ones((200, 4), dtype), 0, np.uint8).dtype == np.uint8


def test_places_of_extremes_among_many_compute_nothing_of_indices_alone() -> None:
    """XLA would take that out of a loop, and compile a kernel for it."""
    lowered = jit(lambda x: r.argmax(x, 0)).lower(np.ones((32, 32), np.float32)).as_text()
    (iota,) = [line for line in lowered.splitlines() if "stablehlo.iota" in line]
    name = iota.split("=")[0].strip()
    (use,) = [x for x in lowered.splitlines() if f"{name}," in x or f"{name} " in x.split("=")[-1]]
    assert "stablehlo.or" in use
