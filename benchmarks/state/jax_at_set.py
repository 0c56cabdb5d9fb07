"""The loops in jax with carried arrays and functional updates."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace import jax_at_set
from benchmarks.inplace.transforms import Data
from benchmarks.state.inputs import STRIDE, WINDOW, levels


def sine(x: Any, data: Data) -> Any:
    """y[i] = sin(y[i-1])."""
    return jax.lax.fori_loop(0, x.shape[0] - 1, lambda i, y: y.at[i + 1].set(jnp.sin(y[i])), x)


def edit(x: Any, data: Data) -> Any:
    """A row of an edit distance, whose substitutions cost x."""
    n = x.shape[0]

    def body(j: Any, carry: Any) -> Any:
        row, corner = carry
        above = row[j + 1]
        least = jnp.minimum(jnp.minimum(above, row[j]) + 1.0, corner + x[j + 1])
        return row.at[j + 1].set(least), above

    return jax.lax.fori_loop(0, n - 1, body, (jnp.arange(float(n)), 0.0))[0]


def heap(x: Any, data: Data) -> Any:
    """Replace the least element of a heap by each of x in turn, and let it sink."""
    n = x.shape[0]

    def body(i: Any, h: Any) -> Any:
        def sink(level: Any, carry: Any) -> Any:
            h, p = carry
            left, right = jnp.minimum(2 * p + 1, n - 1), jnp.minimum(2 * p + 2, n - 1)
            child = jnp.where(h[right] < h[left], right, left)
            mine, other = h[p], h[child]
            h = h.at[p].set(jnp.minimum(mine, other))
            return h.at[child].set(jnp.maximum(mine, other)), child

        return jax.lax.fori_loop(0, levels(n), sink, (h.at[0].set(x[i]), jnp.int32(0)))[0]

    return jax.lax.fori_loop(0, n, body, data["h"])


def cycles(x: Any, data: Data) -> Any:
    """Go round the cycles of a permutation, each element handing a part of itself on."""
    k = data["k"]

    def body(i: Any, carry: Any) -> Any:
        y, here = carry
        there = k[here]
        return y.at[there].add(0.5 * y[here]), there

    return jax.lax.fori_loop(0, x.shape[0], body, (x, jnp.int32(0)))[0]


def strided(x: Any, data: Data) -> Any:
    """Add windows of every third element to those beside them."""
    window = STRIDE * jnp.arange(WINDOW)

    def body(i: Any, y: Any) -> Any:
        return y.at[i + 1 + window].add(0.1 * y[i + window])

    return jax.lax.fori_loop(0, x.shape[0] - WINDOW * STRIDE, body, x)


def gather(x: Any, data: Data) -> Any:
    """Read where an array of indices says that changes as it is used."""
    n = x.shape[0]

    def body(i: Any, carry: Any) -> Any:
        y, k = carry
        j = k[i]
        return y.at[i].set(y[j] * 0.5 + y[i]), k.at[j].set((j * 5 + 1) % n)

    return jax.lax.fori_loop(0, n, body, (x, data["k"]))[0]


LOOPS = {
    **jax_at_set.LOOPS,
    "sine": sine,
    "edit": edit,
    "heap": heap,
    "cycles": cycles,
    "strided": strided,
    "gather": gather,
}
