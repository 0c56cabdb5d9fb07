"""The loops as fiveloop writes them: `for_loop` over Refs where something is written in place, else `scan`."""

from functools import partial
from typing import Any

import fiveloop.numpy as fnp
from benchmarks.inplace.transforms import Library
from benchmarks.loops import steps
from benchmarks.loops.inputs import (
    BATCH,
    COUNTED,
    DEAR_STEPS,
    GAP,
    GENERATIONS,
    ITEMS_PER_BIN,
    PASSED,
    PLACES,
    ROW,
    SCALINGS,
    WIDTH,
)
from benchmarks.loops.transforms import Data, program
from benchmarks.model import Program
from fiveloop import core, nn
from fiveloop.loops import cond, for_loop, fori_loop, scan

LIBRARY = Library(core.grad, core.jvp, fnp.sum)


def recurrence(data: Data) -> Any:
    """h = tanh(p0 h + p1 x[t]), every h."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = steps.recur(fnp, data["p"], h, x)
        return h, h

    return scan(step, fnp.zeros(()), data["x"])[1]


def lstm(data: Data) -> Any:
    """The outputs of an LSTM."""
    cell = partial(steps.lstm_cell, fnp, nn.sigmoid, data)

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        h, c = cell(state, x)
        return (h, c), h

    zeros = fnp.zeros((BATCH, WIDTH))
    return scan(step, (zeros, zeros), data["x"])[1]


def edit_distance(data: Data) -> Any:
    """Row by row, each of them cell by cell."""
    a, b = data["a"], data["b"]

    def row(above: Any, letter: Any) -> tuple[Any, None]:
        def cell(left: Any, inputs: Any) -> tuple[Any, Any]:
            corner, up, other = inputs
            here = steps.edit_cell(fnp, corner, up, left, letter, other)
            return here, here

        first = above[0] + GAP
        rest = scan(cell, first, (above[:-1], above[1:], b))[1]
        return fnp.concatenate([first[None], rest]), None

    return scan(row, GAP * fnp.arange(b.shape[0] + 1.0), a)[0][-1]


def edit_table(data: Data) -> Any:
    """The same with the whole table in a Ref, cell by cell."""
    a, b = data["a"], data["b"]
    n, m = a.shape[0], b.shape[0]
    table = fnp.zeros((n + 1, m + 1))
    table = table.at[0].set(GAP * fnp.arange(m + 1.0)).at[:, 0].set(GAP * fnp.arange(n + 1.0))

    def row(i: Any, d: Any) -> None:
        def cell(j: Any, _: Any) -> None:
            d[i + 1, j + 1] = steps.edit_cell(fnp, d[i, j], d[i, j + 1], d[i + 1, j], a[i], b[j])

        for_loop(m, cell, ())

    return for_loop(n, row, table)[n, m]


def floyd_warshall(data: Data) -> Any:
    """All shortest paths."""
    return fori_loop(0, data["d"].shape[0], lambda k, d: steps.shorter(fnp, d, k), data["d"])


def shortest_paths(data: Data) -> Any:
    """All shortest paths, cell by cell in a Ref."""
    n = data["d"].shape[0]

    def by_way_of(k: Any, d: Any) -> None:
        def row(i: Any, _: Any) -> None:
            def cell(j: Any, _: Any) -> None:
                d[i, j] = fnp.minimum(d[i, j], d[i, k] + d[k, j])

            for_loop(n, cell, ())

        for_loop(n, row, ())

    return for_loop(n, by_way_of, data["d"])


def linear(data: Data) -> Any:
    """h = a[t] h + x[t], every h."""

    def step(h: Any, given: Any) -> tuple[Any, Any]:
        a, x = given
        h = a * h + x
        return h, h

    return scan(step, fnp.zeros(()), (data["a"], data["x"]))[1]


def n_body(data: Data, count: int) -> Any:
    """Where the bodies are after some steps."""

    def step(_: Any, state: Any) -> Any:
        pos, vel = state
        return steps.kick_and_drift(fnp, pos, vel, data["mass"])

    return fori_loop(0, count, step, (data["pos"], data["vel"]))[0]


def life(data: Data) -> Any:
    """The board after some generations."""
    return fori_loop(0, GENERATIONS, lambda _, b: steps.generation(fnp, b), data["board"])


def histogram(data: Data) -> Any:
    """h[k[i]] += x[i]^2."""
    x, k = data["x"], data["k"]

    def body(i: Any, h: Any) -> None:
        h[k[i]] += x[i] * x[i]

    return for_loop(x.shape[0], body, fnp.zeros(x.shape[0] // ITEMS_PER_BIN, x.dtype))


def rk4(data: Data, count: int) -> Any:
    """The path of an ODE."""

    def step(y: Any, _: Any) -> tuple[Any, Any]:
        y = steps.rk4(fnp, y, data["p"])
        return y, y

    return scan(step, data["y"], length=count)[1]


def midpoint(data: Data, count: int) -> Any:
    """Where the paths of a neural ODE end."""
    step = lambda y, _: (steps.midpoint(fnp, y, data["v"], data["u"]), None)
    return scan(step, data["y"], length=count)[0]


def prefix_sums(data: Data) -> Any:
    """y[i+1] = y[i] + x[i]."""
    x = data["x"]

    def body(i: Any, y: Any) -> None:
        y[i + 1] = y[i] + x[i]

    return for_loop(x.shape[0], body, fnp.zeros(x.shape[0] + 1, x.dtype))


def ring(data: Data) -> Any:
    """y[t] = .3 x[t-11] + .2 x[t-7] + .5 x[t-3], from a ring buffer."""
    x = data["x"]
    step = lambda ring, given: steps.tapped(ring, *given)
    return scan(step, fnp.zeros(PLACES), (fnp.arange(x.shape[0]), x))[1]


def sieve(data: Data) -> Any:
    """Which numbers are prime."""
    n = data["marks"].shape[0]

    def number(i: Any, marks: Any) -> None:
        p = i + 2

        def strike(j: Any, _: Any) -> None:
            marks[p * (p + j)] = False

        for_loop(fnp.where(marks[p], (n - 1) // p - p + 1, 0), strike, ())

    return for_loop(int((n - 1) ** 0.5) - 1, number, data["marks"])


def outputs(data: Data) -> Any:
    """h = tanh(h / 2 + x[t]), every h written through a Ref."""
    x = data["x"]

    def body(t: Any, refs: Any) -> None:
        h, out = refs
        h[...] = fnp.tanh(0.5 * h[...] + x[t])
        out[t] = h[...]

    return for_loop(x.shape[0], body, (fnp.zeros(ROW), fnp.zeros_like(x)))[1]


def weights(data: Data, count: int) -> Any:
    """h = tanh(w h), with w read from a Ref at each step."""

    def body(_: Any, refs: Any) -> None:
        w, h = refs
        h[...] = fnp.tanh(w[...] @ h[...])

    return for_loop(count, body, (data["weights"], data["h"]))[1]


def three_deep(data: Data) -> Any:
    """Each cell of a cube passes a part of itself to three neighbours."""
    last = data["x"].shape[0] - 1

    def plane(i: Any, a: Any) -> None:
        def line(j: Any, _: Any) -> None:
            def cell(k: Any, _: Any) -> None:
                t = PASSED * a[i, j, k]
                a[i + 1, j, k] += t
                a[i, j + 1, k] += t
                a[i, j, k + 1] += t

            for_loop(last, cell, ())

        for_loop(last, line, ())

    return for_loop(last, plane, data["x"])


def group(data: Data) -> Any:
    """One lane in ten takes the dear branch."""

    def dear(x: Any) -> Any:
        return fori_loop(0, DEAR_STEPS, lambda _, x: steps.layer(fnp, data["layer"], x), x)

    def lane(x: Any) -> Any:
        return cond(x[0] > 0, dear, steps.cheap, x, vmap="group")

    return core.vmap(lane)(data["x"])


def lanes(data: Data) -> Any:
    """h = tanh(h / 2 + x[t]) in each column, every h."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = fnp.tanh(0.5 * h + x)
        return h, h

    return core.vmap(lambda x: scan(step, 0.0, x)[1], 1, 1)(data["x"])


def transport(data: Data) -> Any:
    """The row scalings of Sinkhorn's algorithm."""
    step = lambda _, u: steps.scaled(data["kernel"], data["mass"], u)
    return fori_loop(0, SCALINGS, step, data["mass"])


LOOPS = {
    "recurrence": recurrence,
    "lstm": lstm,
    "edit_distance": edit_distance,
    "edit_table": edit_table,
    "floyd_warshall": floyd_warshall,
    "shortest_paths": shortest_paths,
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
    "three_deep": three_deep,
    "group": group,
    "lanes": lanes,
    "transport": transport,
}


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop."""
    run: Any = LOOPS[loop]
    if loop in COUNTED:
        run = partial(run, count=size)
    return program(LIBRARY, run, loop, transform, size)
