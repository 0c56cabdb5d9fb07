"""Running results equal NumPy's, either way and along any axis; their derivatives hold at zeros and ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, vmap
from fiveloop.core.arrays.promotion import dtype_kind
from fiveloop.core.primitives import running as c
from fiveloop.core.primitives.broadcast import reduce_sum
from fiveloop.core.primitives.elementwise import mul

RUNNING: dict[str, tuple[Callable[..., Any], np.ufunc]] = {
    "cumsum": (c.cumsum, np.add),
    "cumprod": (c.cumprod, np.multiply),
    "cummax": (c.cummax, np.maximum),
    "cummin": (c.cummin, np.minimum),
    "cumlogsumexp": (c.cumlogsumexp, np.logaddexp),
}
DTYPES = [np.int32, np.uint8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def numpys(
    ufunc: np.ufunc, x: np.ndarray[Any, Any], axis: int, reverse: bool
) -> np.ndarray[Any, Any]:
    """The running results by NumPy."""
    turned = np.flip(x, axis) if reverse else x
    out = ufunc.accumulate(turned, axis)
    return np.flip(out, axis) if reverse else out


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_numpy(name: str, dtype: Any) -> None:
    ours, ufunc = RUNNING[name]
    kind = dtype_kind(np.dtype(dtype))
    if name == "cumlogsumexp" and kind != "f":
        assert ours(np.ones(2, dtype)).dtype == np.float32
        return
    x = np.random.default_rng(0).integers(1, 3, (3, 4, 2)).astype(dtype)
    wide = x.astype(np.float64) if kind == "f" else x
    for axis, reverse in ((0, False), (1, True), (-1, False)):
        got = np.asarray(ours(x, axis, reverse))
        assert got.dtype == x.dtype
        want = numpys(ufunc, wide, axis, reverse)
        rtol = 2e-2 if x.itemsize == 2 else 1e-5
        np.testing.assert_allclose(got.astype(wide.dtype), want, rtol=rtol)


def test_long_arrays_are_fast_to_compile_and_right() -> None:
    x = np.random.default_rng(0).uniform(size=300_000).astype(np.float32)
    np.testing.assert_allclose(
        np.asarray(jit(c.cumsum)(x)), np.cumsum(x, dtype=np.float64), rtol=1e-4
    )
    text = jit(c.cumsum).lower(x).as_text()
    assert len(text.splitlines()) < 40


def test_empty_axes() -> None:
    assert c.cumsum(np.ones((0, 3))).shape == (0, 3)
    assert c.cumlogsumexp(np.ones((2, 0))).shape == (2, 0)
    assert c.linear_recurrence(np.ones((0, 3)), np.ones((0, 3))).shape == (0, 3)


def weighted_slope(f: Callable[..., Any], x: Any, w: Any) -> list[float]:
    """The derivative of a weighted sum of the results."""
    out = grad(lambda v: reduce_sum(mul(f(v), np.asarray(w, np.float64))))(
        np.asarray(x, np.float64)
    )
    return [float(v) for v in np.asarray(out)]


def test_products_with_zeros() -> None:
    assert weighted_slope(c.cumprod, [2.0, 0.0, 3.0, 0.0], [1, 1, 1, 1]) == [1.0, 8.0, 0.0, 0.0]
    got = weighted_slope(c.cumprod, [2.0, 0.0, 3.0, 4.0], [0, 0, 0, 1])
    assert got == [0.0, 24.0, 0.0, 0.0]


def test_the_first_product_depends_on_its_element_alone() -> None:
    _, slopes = jvp(c.cumprod, (np.array([np.inf, 2.0]),), (np.ones(2),))
    assert slopes[0] == 1.0


def test_the_first_of_equals_has_the_derivative() -> None:
    assert weighted_slope(c.cummax, [1.0, 3.0, 3.0, 2.0], [1, 10, 100, 1000]) == [
        1.0,
        1110.0,
        0.0,
        0.0,
    ]
    assert weighted_slope(c.cummin, [2.0, 2.0, 1.0], [1, 10, 100]) == [11.0, 0.0, 100.0]
    turned = weighted_slope(
        lambda v: c.cummax(v, 0, True), [1.0, 3.0, 3.0, 2.0], [1, 10, 100, 1000]
    )
    assert turned == [0.0, 0.0, 111.0, 1000.0]


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([-np.inf, -800.0, 800.0, 0.0])
    np.testing.assert_array_equal(np.asarray(c.cumlogsumexp(x)), [-np.inf, -800.0, 800.0, 800.0])
    assert weighted_slope(c.cumlogsumexp, x, [1, 1, 1, 1]) == [1.0, 1.0, 2.0, 0.0]
    assert np.asarray(c.cumlogsumexp(np.array([np.inf, 1.0]))).tolist() == [np.inf, np.inf]


INFINITE: list[tuple[Any, list[float], list[float]]] = [
    (c.cummax, [-np.inf, 0.0, 1.0], [1, 10, 100]),
    (c.cummax, [-np.inf, -np.inf, 1.0], [11, 0, 100]),
    (c.cummax, [0.0, np.inf, np.inf], [1, 110, 0]),
    (c.cummin, [np.inf, 0.0, -np.inf], [1, 10, 100]),
    (c.cummin, [np.inf, np.inf, np.inf], [111, 0, 0]),
    (lambda v: c.cummax(v, 0, True), [1.0, 0.0, -np.inf], [1, 10, 100]),
    (c.cumlogsumexp, [-np.inf, 0.0, -np.inf], [1, 110, 0]),
    (c.cumlogsumexp, [-np.inf, -np.inf, 0.0], [11, 0, 100]),
    (c.cumlogsumexp, [0.0, np.inf, np.inf], [1, 110, 0]),
    (lambda v: c.cumlogsumexp(v, 0, True), [0.0, -np.inf, -np.inf], [1, 0, 110]),
]


@pytest.mark.parametrize(("fun", "x", "slopes"), INFINITE)
def test_slopes_at_infinities(fun: Any, x: list[float], slopes: list[float]) -> None:
    """The first of the elements that make a result infinite has its derivative, to any order."""
    assert weighted_slope(fun, x, [1, 10, 100]) == slopes
    at = np.array(x)
    columns = [jvp(fun, (at,), (e,))[1] for e in np.eye(3)]
    assert [float(np.asarray(t) @ [1, 10, 100]) for t in columns] == slopes
    twice = grad(lambda v: reduce_sum(grad(lambda w: reduce_sum(fun(w)))(v)))(at)
    assert np.asarray(twice).tolist() == [0.0, 0.0, 0.0]


def by_hand(a: Any, b: Any) -> np.ndarray[Any, Any]:
    """The recurrence in a plain loop."""
    h, out = 0.0, []
    for x, y in zip(a, b, strict=True):
        h = x * h + y
        out.append(h)
    return np.array(out)


def test_linear_recurrence() -> None:
    rng = np.random.default_rng(0)
    a, b, w = rng.normal(size=6), rng.normal(size=6), rng.normal(size=6)
    np.testing.assert_allclose(np.asarray(c.linear_recurrence(a, b)), by_hand(a, b), rtol=1e-12)
    back = by_hand(a[::-1], b[::-1])[::-1]
    np.testing.assert_allclose(np.asarray(c.linear_recurrence(a, b, 0, True)), back, rtol=1e-12)
    by_a = np.asarray(grad(lambda v: reduce_sum(mul(c.linear_recurrence(v, b), w)))(a))
    step = 1e-6
    want = [
        ((by_hand(a + step * e, b) - by_hand(a - step * e, b)) * w).sum() / (2 * step)
        for e in np.eye(6)
    ]
    np.testing.assert_allclose(by_a, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_batch_equals_a_loop(dim: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    got = np.asarray(vmap(lambda v: c.cumsum(v, 1, True), in_axes=dim)(x))
    want = np.flip(np.cumsum(np.flip(np.moveaxis(x, dim, 0), 2), 2), 2)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_refusals() -> None:
    with pytest.raises(ValueError) as e:
        c.cumsum(np.ones(3), 1)
    assert "cumsum: expected `axis` in [-1, 1) for 1 axes, got 1" in str(e.value)
    with pytest.raises(TypeError, match="cummax: expected real numbers, got c64"):
        c.cummax(np.ones(3, np.complex64))
    with pytest.raises(TypeError, match="linear_recurrence: expected operands of one type"):
        c.linear_recurrence(np.ones(3), np.ones(4))


@pytest.mark.parametrize("axis", [0, 1])
def test_is_written_over_what_is_read_for_the_last_time(axis: int) -> None:
    """A loop fills no second array: beside the operand are some numbers, and a copy where axes are swapped."""
    x = np.ones((64, 64), np.float32)
    compiled = jit(lambda x: c.cumsum(mul(x, x), axis) @ x).lower(x).compile()
    assert compiled.memory_analysis().temp < (axis + 1.5) * x.nbytes
    np.testing.assert_array_equal(compiled(x), np.cumsum(x, axis) @ x)
