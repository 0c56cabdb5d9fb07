"""Shapes: moving, joining, padding and repeating elements, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fiveloop.core import grad, make_jaxpr, vmap
from fiveloop.core.arrays.array import as_value
from fiveloop.core.primitives import broadcast as bc
from fiveloop.core.primitives import shape as s
from fiveloop.core.primitives.elementwise import mul

X = np.arange(24.0).reshape(2, 3, 4)


def host(x: Any) -> np.ndarray[Any, Any]:
    """Elements on the host."""
    return np.asarray(x)


def test_reshape_fills_in_one_dim() -> None:
    assert bc.reshape(X, (4, -1)).shape == (4, 6)
    assert bc.reshape(X, -1).shape == (24,)
    np.testing.assert_array_equal(host(bc.reshape(X, (6, 4))), X.reshape(6, 4))
    assert bc.squeeze(X[:1], 0).shape == (3, 4)
    assert bc.squeeze(X[:1, :1]).shape == (4,)
    assert bc.expand_dims(X, (0, -1)).shape == (1, 2, 3, 4, 1)


def test_transpose_and_reverse() -> None:
    np.testing.assert_array_equal(host(bc.transpose(X)), X.T)
    np.testing.assert_array_equal(host(bc.transpose(X, (1, 2, 0))), X.transpose(1, 2, 0))
    np.testing.assert_array_equal(host(bc.move_axis(as_value(X), 0, -1)), np.moveaxis(X, 0, -1))
    np.testing.assert_array_equal(host(s.reverse(X, (0, 2))), X[::-1, :, ::-1])
    np.testing.assert_array_equal(host(s.reverse(X)), X[::-1, ::-1, ::-1])


def test_broadcast() -> None:
    np.testing.assert_array_equal(
        host(bc.broadcast_to(X[0, :, :1], (5, 3, 4))), np.broadcast_to(X[0, :, :1], (5, 3, 4))
    )
    np.testing.assert_array_equal(
        host(bc.broadcast_in_dim(X[:, 0, 0], (3, 2, 5), (1,))),
        np.broadcast_to(X[:, 0, 0][:, None], (3, 2, 5)),
    )


def test_full_takes_the_dtype_of_its_value() -> None:
    assert bc.full((2,), 1).dtype == np.int32
    assert bc.full((2,), 1.0).dtype == np.float32
    assert bc.full((2,), True).dtype == np.bool_
    assert bc.full((2,), 1, np.float64).dtype == np.float64
    assert bc.full((2,), np.float16(2)).dtype == np.float16
    assert not bc.full((2,), 1.0).weak_type
    assert host(bc.full_like(np.ones(2, np.uint8), 7)).tolist() == [7, 7]
    assert host(bc.zeros((2,))).tolist() == [0.0, 0.0] and bc.ones(3).shape == (3,)


@pytest.mark.parametrize(
    ("low", "high", "interior"),
    [
        ((1, 0, 2), (0, 1, 0), (0, 0, 0)),
        ((-1, 1, 0), (0, -1, -2), (0, 0, 0)),
        ((0, 1, 0), (0, 2, 1), (1, 0, 2)),
        ((-1, 0, -2), (1, -1, 0), (2, 1, 1)),
    ],
)
def test_pad(low: Any, high: Any, interior: Any) -> None:
    want = X
    for axis, (lo, hi, gap) in enumerate(zip(low, high, interior, strict=True)):
        rows = np.moveaxis(want, axis, 0)
        spread = np.full(((rows.shape[0] - 1) * (gap + 1) + 1, *rows.shape[1:]), -5.0)
        spread[:: gap + 1] = rows
        around = np.full((max(lo, 0) + len(spread) + max(hi, 0), *rows.shape[1:]), -5.0)
        around[max(lo, 0) : max(lo, 0) + len(spread)] = spread
        cut = around[max(-lo, 0) : len(around) - max(-hi, 0)]
        want = np.moveaxis(cut, 0, axis)
    np.testing.assert_array_equal(host(s.pad(X, -5.0, low, high, interior)), want)
    # The derivative by an element is 1 where it is kept, that by the value counts what is left.
    by_x, by_value = grad(
        lambda x, v: bc.reduce_sum(s.pad(x, v, low, high, interior)), argnums=(0, 1)
    )(X, np.float64(-5.0))
    kept = host(s.pad(np.ones_like(X), 0.0, low, high, interior)).sum()
    assert host(by_x).sum() == kept and set(np.unique(host(by_x))) <= {0.0, 1.0}
    assert by_value.item() == want.size - kept


def test_pad_of_nothing() -> None:
    empty = np.zeros((0, 2))
    assert s.pad(empty, 1.0, (1, 0), (1, 0), (3, 0)).shape == (2, 2)
    dot = grad(lambda x: bc.reduce_sum(s.pad(x, 1.0, (1, 0), (1, 0), (3, 0))))(empty)
    assert dot.shape == (0, 2)


def test_pad_batches_its_value() -> None:
    values = np.array([1.0, 2.0])
    got = host(
        vmap(lambda x, v: s.pad(x, v, (1, 0), (0, 1), (0, 1)), in_axes=(None, 0))(X[0], values)
    )
    want = [host(s.pad(X[0], float(v), (1, 0), (0, 1), (0, 1))) for v in values]
    np.testing.assert_array_equal(got, np.stack(want))


def test_concatenate_and_stack() -> None:
    got = s.concatenate([X, X[:, :1]], 1)
    np.testing.assert_array_equal(host(got), np.concatenate([X, X[:, :1]], 1))
    assert s.concatenate([np.ones(2, np.float32), np.ones(1, np.int32)]).dtype == np.float32
    np.testing.assert_array_equal(host(s.stack([X, X], -1)), np.stack([X, X], -1))
    weights = np.arange(3.0)
    by_a, by_b = grad(
        lambda a, b: bc.reduce_sum(mul(s.concatenate([a, b]), weights)), argnums=(0, 1)
    )(np.ones(1), np.ones(2))
    assert host(by_a).tolist() == [0.0] and host(by_b).tolist() == [1.0, 2.0]


def test_iota() -> None:
    np.testing.assert_array_equal(host(s.iota(np.int64, (2, 3), 1)), [[0, 1, 2]] * 2)
    assert s.iota(np.float32, 3).dtype == np.float32


def test_rules_read_well() -> None:
    text = str(
        make_jaxpr(grad(lambda x: bc.reduce_sum(bc.transpose(bc.reshape(x, (3, 2))))))(X[:, :, 0])
    )
    assert "broadcast_in_dim" in text and "transpose" in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bc.reshape(X, (5, 5)),
            "reshape: expected a shape of 24 elements for an array of shape (2, 3, 4), got (5, 5)",
        ),
        (lambda: bc.reshape(X, (-1, 5)), "reshape: cannot find the dim -1 in (-1, 5)"),
        (lambda: bc.reshape(X, (2, "x")), "reshape: expected `shape` to hold integers, got 'x'"),
        (
            lambda: bc.transpose(X, (0, 0, 1)),
            "transpose: expected each axis once in `axes`, got (0, 0, 1)",
        ),
        (
            lambda: bc.transpose(X, (0, 1)),
            "transpose: expected `perm` to name each axis of f64[2,3,4] once",
        ),
        (lambda: s.reverse(X, 3), "reverse: expected `axes` in [-3, 3) for 3 axes, got 3"),
        (
            lambda: s.concatenate([X, X[0]]),
            "concatenate: expected arrays of one shape save along axis 0",
        ),
        (lambda: s.concatenate([]), "concatenate: expected at least one array, got none"),
        (lambda: bc.broadcast_to(X, (3, 4)), "broadcast_to: cannot broadcast (2, 3, 4) to (3, 4)"),
        (
            lambda: bc.broadcast_in_dim(X, (2, 3, 5), (0, 1, 2)),
            "broadcast_in_dim: expected `dims` to place each axis of (2, 3, 4)",
        ),
        (lambda: bc.squeeze(X, 0), "squeeze: expected `axes` of size 1 in (2, 3, 4), got (0,)"),
        (lambda: s.pad(X, 0.0, (1,), (1,)), "pad: expected amounts for each axis of f64[2,3,4]"),
        (
            lambda: s.pad(X, 0.0, (-3, 0, 0), (0, 0, 0)),
            "pad: cannot cut more elements than there are",
        ),
        (
            lambda: s.pad(X, X, (0,) * 3, (0,) * 3),
            "pad: expected `value` to be a scalar, got f64[2,3,4]",
        ),
        (lambda: bc.full((2, -1), 0.0), "full: expected no negative sizes in `shape`, got (2, -1)"),
        (lambda: bc.full((2,), X), "full: expected `value` to be a scalar, got f64[2,3,4]"),
        (lambda: s.iota(np.bool_, 3), "iota: expected numbers, got bool[3]"),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert message in str(error.value)
    assert "test_shape.py" in str(error.value)


def test_identities_bind_nothing() -> None:
    x = as_value(X)
    assert bc.reshape(x, X.shape) is x
    assert bc.transpose(x, (0, 1, 2)) is x
    assert bc.broadcast_to(x, X.shape) is x
    assert s.pad(x, 0.0, (0,) * 3, (0,) * 3) is x
    assert bc.reduce_sum(x, ()) is x
