"""The loops as jax writes them best: `scan` where outputs are stacked, `fori_loop` where a value is carried."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import cond, fori_loop, scan

from benchmarks.inplace.transforms import Library
from benchmarks.loops import steps
from benchmarks.loops.inputs import (
    BATCH,
    DEAR_STEPS,
    GAP,
    GENERATIONS,
    ITEMS_PER_BIN,
    PLACES,
    ROW,
    SCALINGS,
    WIDTH,
)
from benchmarks.loops.transforms import Data

LIBRARY = Library(jax.grad, jax.jvp, jnp.sum)


def recurrence(data: Data) -> Any:
    """h = tanh(p0 h + p1 x[t]), every h."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = steps.recur(jnp, data["p"], h, x)
        return h, h

    return scan(step, jnp.zeros(()), data["x"])[1]


def lstm(data: Data) -> Any:
    """The outputs of an LSTM."""
    cell = partial(steps.lstm_cell, jnp, jax.nn.sigmoid, data)

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        h, c = cell(state, x)
        return (h, c), h

    zeros = jnp.zeros((BATCH, WIDTH))
    return scan(step, (zeros, zeros), data["x"])[1]


def edit_distance(data: Data) -> Any:
    """Row by row, each of them cell by cell."""
    a, b = data["a"], data["b"]

    def row(above: Any, letter: Any) -> tuple[Any, None]:
        def cell(left: Any, inputs: Any) -> tuple[Any, Any]:
            corner, up, other = inputs
            here = steps.edit_cell(jnp, corner, up, left, letter, other)
            return here, here

        first = above[0] + GAP
        rest = scan(cell, first, (above[:-1], above[1:], b))[1]
        return jnp.concatenate([first[None], rest]), None

    return scan(row, GAP * jnp.arange(b.shape[0] + 1.0), a)[0][-1]


def floyd_warshall(data: Data) -> Any:
    """All shortest paths."""
    return fori_loop(0, data["d"].shape[0], lambda k, d: steps.shorter(jnp, d, k), data["d"])


def linear(data: Data) -> Any:
    """h = a[t] h + x[t], every h."""

    def step(h: Any, given: Any) -> tuple[Any, Any]:
        a, x = given
        return a * h + x, a * h + x

    return scan(step, jnp.zeros(()), (data["a"], data["x"]))[1]


def n_body(data: Data, count: int) -> Any:
    """Where the bodies are after some steps."""

    def step(_: Any, state: Any) -> Any:
        pos, vel = state
        return steps.kick_and_drift(jnp, pos, vel, data["mass"])

    return fori_loop(0, count, step, (data["pos"], data["vel"]))[0]


def life(data: Data) -> Any:
    """The board after some generations."""
    return fori_loop(0, GENERATIONS, lambda _, b: steps.generation(jnp, b), data["board"])


def histogram(data: Data) -> Any:
    """h[k[i]] += x[i]^2, step by step."""
    x, k = data["x"], data["k"]

    def body(i: Any, h: Any) -> Any:
        return h.at[k[i]].add(x[i] * x[i])

    return fori_loop(0, x.shape[0], body, jnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype))


def rk4(data: Data, count: int) -> Any:
    """The path of an ODE."""

    def step(y: Any, _: Any) -> tuple[Any, Any]:
        y = steps.rk4(jnp, y, data["p"])
        return y, y

    return scan(step, data["y"], length=count)[1]


def midpoint(data: Data, count: int) -> Any:
    """Where the paths of a neural ODE end."""
    step = lambda y, _: (steps.midpoint(jnp, y, data["v"], data["u"]), None)
    return scan(step, data["y"], length=count)[0]


def prefix_sums(data: Data) -> Any:
    """y[i+1] = y[i] + x[i]."""

    def step(y: Any, x: Any) -> tuple[Any, Any]:
        return y + x, y + x

    return jnp.concatenate([jnp.zeros(1), scan(step, jnp.zeros(()), data["x"])[1]])


def ring(data: Data) -> Any:
    """y[t] = .3 x[t-11] + .2 x[t-7] + .5 x[t-3], from a ring buffer."""
    x = data["x"]
    step = lambda ring, given: steps.tapped(ring, *given)
    return scan(step, jnp.zeros(PLACES), (jnp.arange(x.shape[0]), x))[1]


def sieve(data: Data) -> Any:
    """Which numbers are prime."""
    n = data["marks"].shape[0]

    def number(p: Any, marks: Any) -> Any:
        def strike(j: Any, marks: Any) -> Any:
            return marks.at[p * (p + j)].set(False)

        return fori_loop(0, jnp.where(marks[p], (n - 1) // p - p + 1, 0), strike, marks)

    return fori_loop(2, int((n - 1) ** 0.5) + 1, number, data["marks"])


def outputs(data: Data) -> Any:
    """h = tanh(h / 2 + x[t]), every h."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(0.5 * h + x)
        return h, h

    return scan(step, jnp.zeros(ROW), data["x"])[1]


def weights(data: Data, count: int) -> Any:
    """h = tanh(w h), with w closed over."""
    return fori_loop(0, count, lambda _, h: jnp.tanh(data["weights"] @ h), data["h"])


def dear(data: Data, x: Any) -> Any:
    """The dear branch."""
    return fori_loop(0, DEAR_STEPS, lambda _, x: steps.layer(jnp, data["layer"], x), x)


def group(data: Data) -> Any:
    """One lane in ten takes the dear branch; all run it."""
    return jax.vmap(lambda x: cond(x[0] > 0, partial(dear, data), steps.cheap, x))(data["x"])


def lanes(data: Data) -> Any:
    """h = tanh(h / 2 + x[t]) in each column, every h."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(0.5 * h + x)
        return h, h

    return jax.vmap(lambda x: scan(step, 0.0, x)[1], 1, 1)(data["x"])


def transport(data: Data) -> Any:
    """The row scalings of Sinkhorn's algorithm."""
    step = lambda _, u: steps.scaled(data["kernel"], data["mass"], u)
    return fori_loop(0, SCALINGS, step, data["mass"])


LOOPS = {
    "recurrence": recurrence,
    "lstm": lstm,
    "edit_distance": edit_distance,
    "edit_table": edit_distance,
    "floyd_warshall": floyd_warshall,
    "shortest_paths": floyd_warshall,
    "linear": linear,
    "n_body": n_body,
    "life": life,
    "histogram": histogram,
    "rk4": rk4,
    "midpoint": midpoint,
    "prefix_sums": prefix_sums,
    "ring": ring,
    "sieve": sieve,
    "outputs": outputs,
    "weights": weights,
    "group": group,
    "lanes": lanes,
    "transport": transport,
}
