"""Other ways to write some of the loops in jax: with Refs, with `.at[].set`, without a loop, or by hand."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import fori_loop, scan

from benchmarks.inplace.jax_refs import repeat
from benchmarks.loops import jax_loops, steps
from benchmarks.loops.inputs import (
    BATCH,
    COUNTED,
    DEAR_SHARE,
    GAP,
    ITEMS_PER_BIN,
    PASSED,
    ROW,
    WIDTH,
)
from benchmarks.loops.transforms import Data, program
from benchmarks.model import Program


def outputs_refs(data: Data) -> Any:
    """h = tanh(h / 2 + x[t]), every h written through a Ref."""
    x = data["x"]
    out = jax.new_ref(jnp.zeros_like(x))

    def body(t: Any, h: Any) -> Any:
        h = jnp.tanh(0.5 * h + x[t])
        out[t] = h
        return h

    fori_loop(0, x.shape[0], body, jnp.zeros(ROW))
    return jax.freeze(out)


def weights_refs(data: Data, count: int) -> Any:
    """h = tanh(w h), with w read from a Ref at each step."""
    w = jax.new_ref(data["weights"])
    return fori_loop(0, count, lambda _, h: jnp.tanh(w[...] @ h), data["h"])


def three_deep_refs(data: Data) -> Any:
    """Each cell of a cube passes a part of itself to three neighbours."""
    a, last = jax.new_ref(data["x"]), data["x"].shape[0] - 1

    def cell(i: Any, j: Any, k: Any) -> None:
        t = PASSED * a[i, j, k]
        a[i + 1, j, k] += t
        a[i, j + 1, k] += t
        a[i, j, k + 1] += t

    repeat(last, lambda i: repeat(last, lambda j: repeat(last, lambda k: cell(i, j, k))))
    return jax.freeze(a)


def three_deep_at_set(data: Data) -> Any:
    """The same on a carried array."""
    last = data["x"].shape[0] - 1

    def cell(i: Any, j: Any, k: Any, a: Any) -> Any:
        t = PASSED * a[i, j, k]
        return a.at[i + 1, j, k].add(t).at[i, j + 1, k].add(t).at[i, j, k + 1].add(t)

    def line(i: Any, j: Any, a: Any) -> Any:
        return fori_loop(0, last, partial(cell, i, j), a)

    def plane(i: Any, a: Any) -> Any:
        return fori_loop(0, last, partial(line, i), a)

    return fori_loop(0, last, plane, data["x"])


def edit_table_at_set(data: Data) -> Any:
    """The whole table, cell by cell."""
    a, b = data["a"], data["b"]
    n, m = a.shape[0], b.shape[0]
    table = jnp.zeros((n + 1, m + 1))
    table = table.at[0].set(GAP * jnp.arange(m + 1.0)).at[:, 0].set(GAP * jnp.arange(n + 1.0))

    def cell(i: Any, j: Any, d: Any) -> Any:
        here = steps.edit_cell(jnp, d[i, j], d[i, j + 1], d[i + 1, j], a[i], b[j])
        return d.at[i + 1, j + 1].set(here)

    return fori_loop(0, n, lambda i, d: fori_loop(0, m, partial(cell, i), d), table)[n, m]


def prefix_sums_at_set(data: Data) -> Any:
    """y[i+1] = y[i] + x[i], on a carried array."""
    x = data["x"]

    def body(i: Any, y: Any) -> Any:
        return y.at[i + 1].set(y[i] + x[i])

    return fori_loop(0, x.shape[0], body, jnp.zeros(x.shape[0] + 1, x.dtype))


def prefix_sums_no_loop(data: Data) -> Any:
    """All sums at once."""
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(data["x"])])


def histogram_no_loop(data: Data) -> Any:
    """All items at once."""
    x = data["x"]
    return jnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype).at[data["k"]].add(x * x)


def lstm_by_hand(data: Data) -> Any:
    """The inputs' share of the gates computed for all steps at once, before the loop."""

    def step(state: Any, gates: Any) -> tuple[Any, Any]:
        h, c = state
        h, c = steps.gated(jnp, jax.nn.sigmoid, gates + h @ data["wh"], h, c)
        return (h, c), h

    zeros = jnp.zeros((BATCH, WIDTH))
    return scan(step, (zeros, zeros), data["x"] @ data["wx"] + data["b"])[1]


def group_by_hand(data: Data) -> Any:
    """The dear branch on as many lanes as are known to take it."""
    x = data["x"]
    lanes = jnp.nonzero(x[:, 0] > 0, size=x.shape[0] // DEAR_SHARE)[0]
    return steps.cheap(x).at[lanes].set(jax.vmap(partial(jax_loops.dear, data))(x[lanes]))


SPELLINGS: dict[str, dict[str, Any]] = {
    "refs": {
        "outputs": outputs_refs,
        "weights": weights_refs,
        "three_deep": three_deep_refs,
    },
    "at_set": {
        "three_deep": three_deep_at_set,
        "edit_table": edit_table_at_set,
        "prefix_sums": prefix_sums_at_set,
    },
    "no loop": {"prefix_sums": prefix_sums_no_loop, "histogram": histogram_no_loop},
    "by hand": {"lstm": lstm_by_hand, "group": group_by_hand},
    "": jax_loops.LOOPS,
}


def build(spelling: str, loop: str, transform: str, size: int) -> Program:
    """One transform of one loop in one spelling; the best has no name."""
    run: Any = SPELLINGS[spelling][loop]
    if loop in COUNTED:
        run = partial(run, count=size)
    return program(jax_loops.LIBRARY, run, loop, transform, size)
