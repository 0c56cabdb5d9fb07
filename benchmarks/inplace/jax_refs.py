"""The six loops in jax with mutable Refs."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace.inputs import DECAY, DOWN, ITEMS_PER_BIN, RIGHT
from benchmarks.inplace.transforms import Data


def repeat(count: int, body: Any) -> None:
    """Run a body for its effects alone."""

    def step(i: Any, nothing: Any) -> Any:
        body(i)
        return nothing

    jax.lax.fori_loop(0, count, step, None)


def prefix(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i], with x closed over."""
    y = jax.new_ref(jnp.zeros_like(x))

    def body(i: Any) -> None:
        y[i + 1] = DECAY * y[i] + x[i + 1]

    repeat(x.shape[0] - 1, body)
    return jax.freeze(y)


def two_refs(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i] x[i-1], with x and y both in Refs."""
    x_ref, y = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def body(i: Any) -> None:
        y[i + 1] = DECAY * y[i] + x_ref[i + 1] * x_ref[i]

    repeat(x.shape[0] - 1, body)
    return jax.freeze(y)


def swap(x: Any, data: Data) -> Any:
    """Exchange x[i] and x[k[i]]."""
    k, y = data["k"], jax.new_ref(x)

    def body(i: Any) -> None:
        j = k[i]
        mine, other = y[i], y[j]
        y[i] = other
        y[j] = mine

    repeat(x.shape[0], body)
    return jax.freeze(y)


def nested(x: Any, data: Data) -> Any:
    """Each cell passes a part of itself down and to the right."""
    a, last = jax.new_ref(x), x.shape[0] - 1

    def outer(i: Any) -> None:
        def inner(j: Any) -> None:
            t = a[i, j]
            a[i + 1, j] += DOWN * t
            a[i, j + 1] += RIGHT * t

        repeat(last, inner)

    repeat(last, outer)
    return jax.freeze(a)


def histogram(x: Any, data: Data) -> Any:
    """h[k[i]] += x[i]^2."""
    k, h = data["k"], jax.new_ref(jnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype))

    def body(i: Any) -> None:
        h[k[i]] += x[i] * x[i]

    repeat(x.shape[0], body)
    return jax.freeze(h)


def rows(x: Any, data: Data) -> Any:
    """y[i, :] = tanh(a y[i-1, :] + x[i, :])."""
    x_ref, y = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

    def body(i: Any) -> None:
        y[i + 1] = jnp.tanh(DECAY * y[i] + x_ref[i + 1])

    repeat(x.shape[0] - 1, body)
    return jax.freeze(y)


LOOPS = {
    "prefix": prefix,
    "two_refs": two_refs,
    "swap": swap,
    "nested": nested,
    "histogram": histogram,
    "rows": rows,
}
