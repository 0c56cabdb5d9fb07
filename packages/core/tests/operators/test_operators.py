"""Operators and methods of values equal NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit, make_jaxpr
from fiveloop.core.arrays.array import OPS, as_value

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv]
OPERATORS += [operator.mod, operator.pow, operator.lt, operator.le, operator.gt, operator.ge]
OPERATORS += [operator.eq, operator.ne]
X = np.array([[-3.5, 2.0, 7.0], [1.0, -0.5, 4.0]])
Y = np.array([[2.0, 3.0, -2.0], [-1.0, 0.25, 2.0]])
I = np.array([-7, 7, -6, 6, 5], np.int32)
J = np.array([2, -2, 3, -4, 5], np.int32)


def host(x: Any) -> np.ndarray[Any, Any]:
    """Elements on the host."""
    return np.asarray(x)


@pytest.mark.parametrize("op", OPERATORS)
def test_binary_operators_on_floats(op: Callable[[Any, Any], Any]) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(host(op(as_value(X), Y)), op(X, Y), rtol=1e-12)
        np.testing.assert_allclose(host(op(X, as_value(Y))), op(X, Y), rtol=1e-12)
        np.testing.assert_allclose(host(op(as_value(X), 3.0)), op(X, 3.0), rtol=1e-12)
        np.testing.assert_allclose(host(op(3.0, as_value(Y))), op(3.0, Y), rtol=1e-12)


@pytest.mark.parametrize("op", [o for o in OPERATORS if o not in (operator.pow, operator.truediv)])
def test_binary_operators_on_integers(op: Callable[[Any, Any], Any]) -> None:
    got = op(as_value(I), J)
    np.testing.assert_array_equal(host(got), op(I, J))
    assert got.dtype == op(I, J).dtype
    unsigned = np.abs(I).astype(np.uint8), np.abs(J).astype(np.uint8)
    np.testing.assert_array_equal(host(op(as_value(unsigned[0]), unsigned[1])), op(*unsigned))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.int64])
def test_integers_over_zero_are_zero_as_in_numpy(dtype: Any) -> None:
    x, y = np.array([7, 0, 5, 100], dtype), np.array([0, 0, 2, 3], dtype)
    ops: list[Any] = [operator.floordiv, operator.mod, divmod]
    for op in ops:
        with np.errstate(all="ignore"):
            want = op(x, y), op(x, np.zeros_like(x))
        got = op(as_value(x), y), op(as_value(x), 0)
        np.testing.assert_array_equal(np.array(got), np.array(want))
        np.testing.assert_array_equal(np.array(jit(op)(x, y)), np.array(want[0]))
    assert "select" not in str(make_jaxpr(lambda v: v // 3)(x)), (
        "a divisor that is known not to be zero"
    )


def test_division_of_integers_is_a_float() -> None:
    assert (as_value(I) / J).dtype == np.float32
    np.testing.assert_allclose(host(as_value(I) / J), I / J, rtol=1e-6)


def test_powers() -> None:
    x = as_value(X)
    np.testing.assert_allclose(host(x**3), X**3, rtol=1e-12)
    np.testing.assert_allclose(host(x**-2), X**-2.0, rtol=1e-12)
    np.testing.assert_array_equal(host(as_value(I) ** 2), I**2)
    np.testing.assert_array_equal(host(2 ** as_value(np.abs(I))), 2 ** np.abs(I))
    assert "integer_pow" in str(make_jaxpr(lambda v: v**3)(X))
    with pytest.raises(ValueError) as e:
        as_value(I) ** -1
    assert "power: integers have no negative integer powers, got i32[5] ** -1" in str(e.value)


def test_floor_division_of_floats_fits_the_remainder() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=500) * 100, rng.normal(size=500)
    q, m = host(as_value(x) // y), host(as_value(x) % y)
    np.testing.assert_array_equal(q, x // y)
    np.testing.assert_allclose(q * y + m, x, rtol=1e-9)
    np.testing.assert_allclose(host(as_value(np.float32(1.0)) // np.float32(0.1)), 9.0)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor])
def test_bits(op: Callable[[Any, Any], Any]) -> None:
    np.testing.assert_array_equal(host(op(as_value(I), J)), op(I, J))
    b = I > 0
    np.testing.assert_array_equal(host(op(as_value(b), ~b)), op(b, ~b))


def test_shifts() -> None:
    np.testing.assert_array_equal(host(as_value(I) << 2), I << 2)
    np.testing.assert_array_equal(host(as_value(I) >> 1), I >> 1)
    high = np.array([2**31], np.uint32)
    np.testing.assert_array_equal(host(as_value(high) >> 4), high >> 4)
    np.testing.assert_array_equal(host(1 << as_value(np.abs(J))), 1 << np.abs(J))


def test_unary_operators() -> None:
    np.testing.assert_array_equal(host(-as_value(X)), -X)
    np.testing.assert_array_equal(host(abs(as_value(X))), np.abs(X))
    np.testing.assert_array_equal(host(~as_value(I)), ~I)
    assert host(+as_value(X)).tolist() == X.tolist()


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("sum", {}),
    ("sum", {"axis": 0}),
    ("sum", {"axis": (0, 1), "keepdims": True}),
    ("prod", {"axis": 1}),
    ("mean", {"axis": -1, "keepdims": True}),
    ("max", {"axis": 0}),
    ("min", {}),
    ("argmax", {"axis": 1}),
    ("argmax", {}),
    ("argmin", {"axis": 0, "keepdims": True}),
]


@pytest.mark.parametrize(("name", "options"), METHODS)
def test_methods(name: str, options: dict[str, Any]) -> None:
    got, want = getattr(as_value(X), name)(**options), getattr(X, name)(**options)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(host(got), want, rtol=1e-12)
    traced = jit(lambda x: getattr(x, name)(**options))(X)
    np.testing.assert_allclose(host(traced), want, rtol=1e-12)


def test_sums_of_narrow_integers_are_wide() -> None:
    x = as_value(np.full(200, 200, np.uint8))
    assert x.sum().item() == 40000 and x.sum().dtype == np.uint32
    assert as_value(np.ones(3, np.bool_)).sum().item() == 3
    assert as_value(I).mean().dtype == np.float32
    assert as_value(X).sum(dtype=np.float32).dtype == np.float32
    assert as_value(I > 0).any().item() is True and as_value(I > 0).all().item() is False


def test_shape_methods() -> None:
    x = as_value(X)
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2)
    assert x.reshape(3, 2).shape == (3, 2) and x.reshape((6,)).shape == (6,)
    assert x.reshape(-1).shape == (6,) and x.ravel().shape == (6,)
    assert x.transpose(1, 0).shape == (3, 2) and x.transpose().shape == (3, 2)
    assert x.astype(np.int32).dtype == np.int32
    assert host(as_value(np.array([0.0, 0.5])).astype(bool)).tolist() == [False, True]
    assert (x @ x.T).shape == (2, 2) and (X @ as_value(Y).T).shape == (2, 2)


def test_every_operator_is_filled_in() -> None:
    names = {
        "add",
        "subtract",
        "multiply",
        "divide",
        "floor_divide",
        "remainder",
        "power",
        "matmul",
    }
    names |= {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "less"}
    names |= {"less_equal", "greater", "greater_equal", "equal", "not_equal", "negative", "abs"}
    names |= {"bitwise_invert", "getitem", "setitem", "ufunc"}
    assert names <= OPS.keys()
