"""`barrier` and `order` change no value, no derivative and no batch; `to_memory` moves and comes back."""

from __future__ import annotations

import numpy as np
import pytest

from fiveloop.core import grad, jit, jvp, make_jaxpr, vmap
from fiveloop.core.arrays.array import Value, as_value
from fiveloop.core.primitives.broadcast import reduce_sum
from fiveloop.core.primitives.elementwise import mul
from fiveloop.core.primitives.ordering import barrier, order, to_memory
from fiveloop.core.primitives.special import sin


def through_barrier(x: Value, y: Value) -> Value:
    """A product with a barrier on its way."""
    a, b = barrier(sin(x), y)
    return mul(a, b)


def through_order(x: Value, y: Value) -> Value:
    """The same with an order."""
    a, b = order(np.int32(3), sin(x), y)
    return mul(a, b)


@pytest.mark.parametrize("f", [through_barrier, through_order])
def test_values_and_derivatives_pass(f: object) -> None:
    assert callable(f)
    x, y = np.array([0.5, 1.0]), np.array([2.0, 3.0])
    np.testing.assert_allclose(np.asarray(jit(f)(x, y)), np.sin(x) * y, rtol=1e-12)
    _, dot = jvp(f, (x, y), (np.ones(2), np.zeros(2)))
    np.testing.assert_allclose(np.asarray(dot), np.cos(x) * y, rtol=1e-12)
    by_x, by_y = grad(lambda u, v: reduce_sum(f(u, v)), argnums=(0, 1))(x, y)
    np.testing.assert_allclose(np.asarray(by_x), np.cos(x) * y, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(by_y), np.sin(x), rtol=1e-12)
    got = vmap(f, in_axes=(0, None))(np.stack([x, -x]), y)
    np.testing.assert_allclose(
        np.asarray(got), np.stack([np.sin(x) * y, -np.sin(x) * y]), rtol=1e-12
    )


def test_barrier_is_in_the_program() -> None:
    x = as_value(np.ones(2))
    assert "optimization_barrier" in jit(through_barrier).lower(x, x).as_text()
    assert "barrier" in str(make_jaxpr(through_barrier)(x, x))
    assert barrier() == [] and order(np.int32(0)) == []


def test_a_batched_index_is_any_lanes() -> None:
    got = vmap(lambda i, x: order(i, x)[0])(np.arange(3, dtype=np.int32), np.arange(3.0))
    assert np.asarray(got).tolist() == [0.0, 1.0, 2.0]


def test_refusals() -> None:
    with pytest.raises(TypeError) as e:
        order(np.float32(0.0), np.ones(2))
    assert "order: expected `index` to be an int32 scalar, got f32[]" in str(e.value)


def test_no_more_values_are_light_than_there_are() -> None:
    with pytest.raises(TypeError, match="order: expected `light` to be at most 1, got 2"):
        order(np.int32(0), 1.0, light=2)


def test_what_was_moved_away_is_returned_in_the_memory_of_the_device() -> None:
    """XLA refuses a result in another memory."""
    text = (
        jit(lambda x: to_memory(sin(x), "pinned_host")).lower(np.ones(2)).as_text(platform="cuda")
    )
    assert 0 < text.index('"pinned_host"') < text.index('"device"') < text.rindex("return ")
