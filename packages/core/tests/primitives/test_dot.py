"""Contractions equal NumPy's, for every way axes can be contracted, paired and batched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import grad, jit, make_jaxpr, vmap
from fiveloop.core.ir.avals import ShapedArray
from fiveloop.core.primitives.broadcast import reduce_sum, transpose
from fiveloop.core.primitives.dot import DotParams, dot, dot_general, dot_general_p, matmul
from fiveloop.core.rules import cost_rules

RNG = np.random.default_rng(0)


def host(x: Any) -> np.ndarray[Any, Any]:
    """Elements on the host."""
    return np.asarray(x)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (1, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (6, 1, 3, 4)),
        ((6, 5, 2, 3), (5, 3, 4)),
        ((3,), (6, 5, 3, 4)),
        ((6, 5, 2, 3), (3,)),
        ((1, 1, 2, 3), (1, 1, 3, 4)),
    ],
)
def test_matmul_equals_numpy(a: Any, b: Any) -> None:
    x, y = RNG.normal(size=a), RNG.normal(size=b)
    np.testing.assert_allclose(host(matmul(x, y)), x @ y, rtol=1e-12)
    w = RNG.normal(size=(x @ y).shape)
    by_x, by_y = grad(lambda u, v: reduce_sum(matmul(u, v) * w), argnums=(0, 1))(x, y)
    t, step = RNG.normal(size=a), 1e-6
    want = ((x + step * t) @ y * w - (x - step * t) @ y * w).sum() / (2 * step)
    np.testing.assert_allclose((host(by_x) * t).sum(), want, rtol=1e-6, atol=1e-8)
    u = RNG.normal(size=b)
    want = (x @ (y + step * u) * w - x @ (y - step * u) * w).sum() / (2 * step)
    np.testing.assert_allclose((host(by_y) * u).sum(), want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "dtype",
    [
        np.int8,
        np.int32,
        np.uint8,
        np.float16,
        ml_dtypes.bfloat16,
        np.float32,
        np.float64,
        np.complex64,
    ],
)
def test_dtypes(dtype: Any) -> None:
    x, y = (RNG.integers(0, 4, s).astype(dtype) for s in ((3, 5), (5, 2)))
    got = matmul(x, y)
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(
        host(got).astype(np.complex128), x.astype(np.complex128) @ y.astype(np.complex128)
    )


def test_preferred_element_type() -> None:
    x = np.full((1, 64), 100, np.int8)
    numbers = (((1,), (1,)), ((), ()))
    wide = dot_general(x, x, numbers, preferred_element_type=np.int32)
    assert wide.dtype == np.int32 and wide.item() == 640000
    half = np.ones((2, 3), np.float16)
    out = dot_general(half, half, numbers, preferred_element_type=np.float32)
    assert out.dtype == np.float32
    by_x = grad(
        lambda v: reduce_sum(dot_general(v, half, numbers, preferred_element_type=np.float32))
    )(half)
    assert by_x.dtype == np.float16 and host(by_x).tolist() == [[2.0] * 3] * 2


def test_a_matrix_times_a_vector_of_each_lane_transposes_nothing() -> None:
    w, xs = np.ones((4, 3)), np.ones((5, 3))
    text = str(make_jaxpr(vmap(lambda x: dot(w, x)))(xs))
    assert "dot_general" in text
    assert "transpose" not in text


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        (lambda w, v: dot(transpose(w), v), (32,)),
        (lambda w, v: dot(v, transpose(w)), (40,)),
        (lambda w, v: dot(transpose(transpose(w)), v), (40,)),
        (lambda w, v: dot(v, transpose(w)), (1, 40)),
        (lambda w, v: dot(v, transpose(w)), (3, 40)),
        (lambda w, v: dot_general(transpose(w), v, (((1,), (1,)), ((), ()))), (1, 32)),
        (lambda w, v: dot_general(v, transpose(w), (((0,), (1,)), ((), ()))), (32,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int32])
def test_a_large_transpose_is_multiplied_as_the_matrix_it_is_made_of(
    product: Any, shape: tuple[int, ...], dtype: Any
) -> None:
    w, v = ((9 * RNG.normal(size=s)).astype(dtype) for s in ((32, 40), shape))
    text = jit(product).lower(w, v).as_text()
    (line,) = (line for line in text.splitlines() if "dot_general" in line)
    assert "tensor<32x40x" in line and "tensor<40x32x" not in line
    got, want = jit(product)(w, v), product(w.astype(np.complex128), v.astype(np.complex128))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("product", "shapes"),
    [
        (lambda w, v: dot(transpose(w), v), [(31, 40), (31,)]),
        (lambda w, v: dot(transpose(w), v), [(32, 31), (32,)]),
        (lambda w, v: dot(v, transpose(w)), [(23, 50), (50,)]),
        (lambda w, v: dot(transpose(w), v), [(40, 50), (40, 3)]),
        (lambda w, v: dot(transpose(w), transpose(v)), [(40, 50), (50, 40)]),
        (lambda w, v: dot_general(transpose(w, (0, 2, 1)), v, (((2,), (0,)), ((), ()))), [(2, 40, 50), (40,)]),
        (lambda w, v: dot_general(transpose(w), v, (((0, 1), (1, 0)), ((), ()))), [(40, 50), (40, 50)]),
    ],
)  # fmt: skip
def test_other_transposes_are_multiplied_as_they_are(product: Any, shapes: Any) -> None:
    w, v = (RNG.normal(size=shape) for shape in shapes)
    text = jit(product).lower(w, v).as_text()
    (line,) = (line for line in text.splitlines() if "dot_general" in line)
    found = f"tensor<{w.shape[1]}x{w.shape[0]}x"
    assert found in line or len(shapes[0]) == 3
    np.testing.assert_allclose(jit(product)(w, v), product(w, v), rtol=1e-12)


@pytest.mark.parametrize("dims", [(0, 0), (1, None), (None, 2), (2, 1), (3, 0)])
def test_batch_equals_a_loop(dims: tuple[int | None, int | None]) -> None:
    numbers = (((1,), (2,)), ((2,), (0,)))
    shapes = [[2, 3, 4], [4, 5, 3]]
    arrays, lanes = [], []
    for shape, dim in zip(shapes, dims, strict=True):
        full = list(shape)
        if dim is not None:
            full.insert(dim, 6)
        x = RNG.normal(size=full)
        arrays.append(x)
        lanes.append([x] * 6 if dim is None else [np.take(x, k, dim) for k in range(6)])
    got = host(vmap(lambda a, b: dot_general(a, b, numbers), in_axes=dims)(*arrays))
    want = [np.einsum("ikb,bjk->bij", a, b) for a, b in zip(*lanes, strict=True)]
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-12)


def test_cost_counts_products_and_sums() -> None:
    avals = [ShapedArray((3, 5), np.float32), ShapedArray((5, 2), np.float32)]
    cost = cost_rules[dot_general_p](avals, DotParams(((1,), (0,))))
    assert cost.flops == 2 * 3 * 5 * 2 and cost.bytes == 4 * (15 + 10 + 6)


def test_refusals() -> None:
    with pytest.raises(ValueError) as e:
        matmul(np.ones((2, 3)), np.ones((2, 3)))
    assert "matmul: expected inner sizes that agree, got 3 and 2 in f64[2,3] @ f64[2,3]" in str(
        e.value
    )
    assert "test_dot.py" in str(e.value)
    with pytest.raises(ValueError, match="matmul: expected arrays with axes"):
        matmul(np.ones(()), np.ones(2))
    with pytest.raises(ValueError, match="matmul: expected shapes that broadcast together"):
        matmul(np.ones((2, 1, 3)), np.ones((4, 3, 1)))
    with pytest.raises(ValueError, match="dot_general: expected contracted axes of equal sizes"):
        dot_general(np.ones((2, 3)), np.ones((2, 3)), (((1,), (0,)), ((), ())))
    with pytest.raises(ValueError, match="dot: expected vectors or matrices"):
        dot(np.ones((2, 2, 2)), np.ones(2))
    assert dot(np.ones(3), np.ones((3, 2))).shape == (2,)


@pytest.mark.parametrize("argnum", [0, 1])
@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        (((3, 4), (4, 5)), (((1,), (0,)), ((), ()))),
        (((4, 3), (4, 5)), (((0,), (0,)), ((), ()))),
        (((3, 4), (5, 4)), (((1,), (1,)), ((), ()))),
        (((4, 3), (5, 4)), (((0,), (1,)), ((), ()))),
        (((2, 3, 4), (2, 4, 5)), (((2,), (1,)), ((0,), (0,)))),
        (((2, 3, 4), (3, 4, 5)), (((1, 2), (0, 1)), ((), ()))),
    ],
)
def test_the_gradient_of_a_product_is_a_product(
    shapes: tuple[tuple[int, ...], ...], numbers: Any, argnum: int
) -> None:
    x, y = (RNG.normal(size=s) for s in shapes)
    weights = RNG.normal(size=host(dot_general(x, y, numbers)).shape)

    def weighted(x: Any, y: Any) -> Any:
        return reduce_sum(dot_general(x, y, numbers) * weights)

    jaxpr = str(make_jaxpr(grad(weighted, argnum))(x, y))
    assert "dot_general" in jaxpr
    assert "transpose" not in jaxpr
    change = RNG.normal(size=shapes[argnum])
    moved = [x + change if argnum == 0 else x, y + change if argnum == 1 else y]
    slope = float(weighted(*moved)) - float(weighted(x, y))
    found = host(grad(weighted, argnum)(x, y))
    np.testing.assert_allclose((found * change).sum(), slope, rtol=1e-9)
