"""The six loops in jax with a carried array and functional updates."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace.inputs import DECAY, DOWN, ITEMS_PER_BIN, RIGHT
from benchmarks.inplace.transforms import Data


def prefix(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i]."""

    def body(i: Any, y: Any) -> Any:
        return y.at[i + 1].set(DECAY * y[i] + x[i + 1])

    return jax.lax.fori_loop(0, x.shape[0] - 1, body, jnp.zeros_like(x))


def two_refs(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i] x[i-1]."""

    def body(i: Any, y: Any) -> Any:
        return y.at[i + 1].set(DECAY * y[i] + x[i + 1] * x[i])

    return jax.lax.fori_loop(0, x.shape[0] - 1, body, jnp.zeros_like(x))


def swap(x: Any, data: Data) -> Any:
    """Exchange x[i] and x[k[i]]."""
    k = data["k"]

    def body(i: Any, y: Any) -> Any:
        mine, other = y[i], y[k[i]]
        return y.at[i].set(other).at[k[i]].set(mine)

    return jax.lax.fori_loop(0, x.shape[0], body, x)


def nested(x: Any, data: Data) -> Any:
    """Each cell passes a part of itself down and to the right."""
    last = x.shape[0] - 1

    def outer(i: Any, a: Any) -> Any:
        def inner(j: Any, a: Any) -> Any:
            t = a[i, j]
            return a.at[i + 1, j].add(DOWN * t).at[i, j + 1].add(RIGHT * t)

        return jax.lax.fori_loop(0, last, inner, a)

    return jax.lax.fori_loop(0, last, outer, x)


def histogram(x: Any, data: Data) -> Any:
    """h[k[i]] += x[i]^2."""
    k = data["k"]

    def body(i: Any, h: Any) -> Any:
        return h.at[k[i]].add(x[i] * x[i])

    return jax.lax.fori_loop(0, x.shape[0], body, jnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype))


def rows(x: Any, data: Data) -> Any:
    """y[i, :] = tanh(a y[i-1, :] + x[i, :])."""

    def body(i: Any, y: Any) -> Any:
        return y.at[i + 1].set(jnp.tanh(DECAY * y[i] + x[i + 1]))

    return jax.lax.fori_loop(0, x.shape[0] - 1, body, jnp.zeros_like(x))


LOOPS = {
    "prefix": prefix,
    "two_refs": two_refs,
    "swap": swap,
    "nested": nested,
    "histogram": histogram,
    "rows": rows,
}
