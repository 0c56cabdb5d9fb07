"""The loops in jax with mutable Refs."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace import jax_refs
from benchmarks.inplace.jax_refs import repeat
from benchmarks.inplace.transforms import Data
from benchmarks.state.inputs import STRIDE, WINDOW, levels


def sine(x: Any, data: Data) -> Any:
    """y[i] = sin(y[i-1])."""
    y = jax.new_ref(x)

    def body(i: Any) -> None:
        y[i + 1] = jnp.sin(y[i])

    repeat(x.shape[0] - 1, body)
    return jax.freeze(y)


def edit(x: Any, data: Data) -> Any:
    """A row of an edit distance, whose substitutions cost x."""
    n = x.shape[0]
    row, corner = jax.new_ref(jnp.arange(float(n))), jax.new_ref(jnp.zeros(1))

    def body(j: Any) -> None:
        above = row[j + 1]
        row[j + 1] = jnp.minimum(jnp.minimum(above, row[j]) + 1.0, corner[0] + x[j + 1])
        corner[0] = above

    repeat(n - 1, body)
    return jax.freeze(row)


def heap(x: Any, data: Data) -> Any:
    """Replace the least element of a heap by each of x in turn, and let it sink."""
    n = x.shape[0]
    h = jax.new_ref(data["h"])

    def body(i: Any) -> None:
        h[0] = x[i]

        def sink(level: Any, p: Any) -> Any:
            left, right = jnp.minimum(2 * p + 1, n - 1), jnp.minimum(2 * p + 2, n - 1)
            child = jnp.where(h[right] < h[left], right, left)
            mine, other = h[p], h[child]
            h[p] = jnp.minimum(mine, other)
            h[child] = jnp.maximum(mine, other)
            return child

        jax.lax.fori_loop(0, levels(n), sink, jnp.int32(0))

    repeat(n, body)
    return jax.freeze(h)


def cycles(x: Any, data: Data) -> Any:
    """Go round the cycles of a permutation, each element handing a part of itself on."""
    k, y = data["k"], jax.new_ref(x)

    def body(i: Any, here: Any) -> Any:
        there = k[here]
        y[there] += 0.5 * y[here]
        return there

    jax.lax.fori_loop(0, x.shape[0], body, jnp.int32(0))
    return jax.freeze(y)


def strided(x: Any, data: Data) -> Any:
    """Add windows of every third element to those beside them."""
    y, window = jax.new_ref(x), STRIDE * jnp.arange(WINDOW)

    def body(i: Any) -> None:
        y[i + 1 + window] += 0.1 * y[i + window]

    repeat(x.shape[0] - WINDOW * STRIDE, body)
    return jax.freeze(y)


def gather(x: Any, data: Data) -> Any:
    """Read where an array of indices says that changes as it is used."""
    n = x.shape[0]
    y, k = jax.new_ref(x), jax.new_ref(data["k"])

    def body(i: Any) -> None:
        j = k[i]
        y[i] = y[j] * 0.5 + y[i]
        k[j] = (j * 5 + 1) % n

    repeat(n, body)
    return jax.freeze(y)


LOOPS = {
    **jax_refs.LOOPS,
    "sine": sine,
    "edit": edit,
    "heap": heap,
    "cycles": cycles,
    "strided": strided,
    "gather": gather,
}
