"""Weighted sums of matrices are computed as products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.arrays import device_put
from fiveloop.core.prims import broadcast_in_dim, dot_general, maximum, mul, reduce_sum, reshape
from fiveloop.core.transforms import as_products

DRAW = np.random.default_rng(0)
X: Any = DRAW.normal(size=(9, 16, 20))
W: Any = DRAW.normal(size=9)


def repeated(w: Any) -> Any:
    return broadcast_in_dim(w, X.shape, (0,))


def outer(a: Any, b: Any) -> Any:
    return dot_general(a, b, (((), ()), ((), ())))


def is_product(fun: Callable[..., Any], *args: Any) -> bool:
    """Whether a sum becomes a product, and the 1 that is divided by weights a number rather than an argument."""
    text = str(as_products(make_jaxpr(fun)(*args)))
    return "dot_general" in text and "consts" not in text


FOUND: list[Callable[..., Any]] = [
    lambda x, w: reduce_sum(mul(x, repeated(w)), (0,)),
    lambda x, w: reduce_sum(mul(repeated(w), x), (0,)),
    lambda x, w: (x * w[:, None, None]).sum(0),
    lambda x, w: reduce_sum(vmap(lambda x, w: x * w)(x, w), (0,)) + 1.0,
    lambda x, w: (x / w[:, None, None]).sum(0),
    lambda x, w: jit(lambda x, w: (x * w[:, None, None]).sum(0))(x, w) * 2.0,
]
A, B = X[:, :, 0], X[:, 0, :]
OUTER: list[Callable[..., Any]] = [
    lambda a, b, w: (vmap(outer)(a, b) * w[:, None, None]).sum(0),
    lambda a, b, w: (w[:, None, None] * (a[:, :, None] * b[:, None, :])).sum(0),
    lambda a, b, w: (b[:, None, :] * a[:, :, None] / w[:, None, None]).mean(0),
    lambda a, b, w: dot_general(w, vmap(outer)(a, b), (((0,), (0,)), ((), ()))),
    lambda a, b, w: dot_general(vmap(outer)(a, b), w, (((0,), (0,)), ((), ()))),
    lambda a, b, w: vmap(outer)(a, b).sum(0),
    lambda a, b, w: vmap(grad(lambda m, a, b: a @ m @ b), (None, 0, 0))(X[0], a, b).mean(0),
]
LEFT: list[Callable[..., Any]] = [
    lambda x, w: (x * w[:, None, None]).sum(1),
    lambda x, w: (x * w[:, None, None]).sum(),
    lambda x, w: (x * x).sum(0),
    lambda x, w: (x * x[:, 0][:, None]).sum(0),
    lambda x, w: (x[:, :2, :8] * w[:, None, None]).sum(0),
    lambda x, w: (reshape(x, (9, 320)) * w[:, None]).sum(0),
    lambda x, w: (lambda y: y.sum(0) + y[0])(x * w[:, None, None]),
    lambda x, w: (x * w[0]).sum(0),
    lambda x, w: (w[:, None, None] / x).sum(0),
    lambda x, w: maximum(x, repeated(w)).sum(0),
]


@pytest.mark.parametrize("fun", FOUND)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_of_matrices_with_weights(fun: Any, dtype: Any) -> None:
    x, w = X.astype(dtype), W.astype(dtype)
    assert is_product(fun, x, w)
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(jit(fun)(x, w), fun(x, w), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("fun", OUTER)
def test_a_sum_of_outer_products_is_one_product(fun: Any) -> None:
    jaxpr = as_products(make_jaxpr(fun)(A, B, W))
    assert not any(v.aval.shape == X.shape for e in jaxpr.eqns for v in e.outvars), jaxpr
    want = fun(*map(device_put, (A, B, W)))
    np.testing.assert_allclose(jit(fun)(A, B, W), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("fun", LEFT)
def test_other_sums_stay(fun: Any) -> None:
    assert not is_product(fun, X, W)
    np.testing.assert_allclose(jit(fun)(X, W), fun(X, W), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64])
def test_other_dtypes_stay(dtype: Any) -> None:
    x, w = (10 * X).astype(dtype), (10 * W).astype(dtype)
    assert not is_product(FOUND[2], x, w)
