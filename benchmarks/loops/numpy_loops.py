"""The reference: each loop forward, in plain NumPy and float64."""

from typing import Any

import numpy as np

from benchmarks.inplace.transforms import Library
from benchmarks.loops import inputs, steps
from benchmarks.loops.inputs import (
    DEAR_STEPS,
    GAP,
    GENERATIONS,
    ITEMS_PER_BIN,
    PASSED,
    PLACES,
    SCALINGS,
    TAPS,
)
from benchmarks.loops.transforms import Data, program
from benchmarks.model import Program

Array = np.ndarray


def wide(data: Data) -> dict[str, Array]:
    """The arguments in float64."""
    return {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in data.items()}


def sigmoid(x: Array) -> Array:
    """The logistic function."""
    out: Array = 1.0 / (1.0 + np.exp(-x))
    return out


def recurrence(data: Data) -> Array:
    """h = tanh(p0 h + p1 x[t]), every h."""
    h, found = 0.0, []
    for x in data["x"]:
        h = steps.recur(np, data["p"], h, x)
        found.append(h)
    return np.array(found)


def lstm(data: Data) -> Array:
    """The outputs of an LSTM."""
    h = c = np.zeros((data["x"].shape[1], data["wh"].shape[0]))
    found = []
    for x in data["x"]:
        h, c = steps.lstm_cell(np, sigmoid, data, (h, c), x)
        found.append(h)
    return np.stack(found)


def edit_distance(data: Data) -> Array:
    """The whole table, and its last cell."""
    a, b = (data[k].tolist() for k in "ab")
    above = [GAP * j for j in range(len(b) + 1)]
    for i, x in enumerate(a):
        here = [GAP * (i + 1)]
        for j, y in enumerate(b):
            here.append(min(min(above[j + 1], here[j]) + GAP, above[j] + abs(x - y)))
        above = here
    return np.array(above[-1])


def floyd_warshall(data: Data) -> Array:
    """All shortest paths."""
    d: Array = data["d"]
    for k in range(len(d)):
        d = steps.shorter(np, d, k)
    return d


def linear(data: Data) -> Array:
    """h = a[t] h + x[t], every h."""
    h, found = 0.0, []
    for a, x in zip(data["a"].tolist(), data["x"].tolist(), strict=True):
        h = a * h + x
        found.append(h)
    return np.array(found)


def n_body(data: Data, count: int) -> Array:
    """Where the bodies are after some steps."""
    pos, vel = data["pos"], data["vel"]
    for _ in range(count):
        pos, vel = steps.kick_and_drift(np, pos, vel, data["mass"])
    return np.asarray(pos)


def life(data: Data) -> Array:
    """The board after some generations."""
    board: Array = data["board"]
    for _ in range(GENERATIONS):
        board = steps.generation(np, board)
    return board


def histogram(data: Data) -> Array:
    """h[k[i]] += x[i]^2."""
    x = data["x"]
    return np.bincount(data["k"], x * x, len(x) // ITEMS_PER_BIN)


def rk4(data: Data, count: int) -> Array:
    """The path of an ODE."""
    y, found = data["y"], []
    for _ in range(count):
        y = steps.rk4(np, y, data["p"])
        found.append(y)
    return np.stack(found)


def midpoint(data: Data, count: int) -> Array:
    """Where the paths of a neural ODE end."""
    y: Array = data["y"]
    for _ in range(count):
        y = steps.midpoint(np, y, data["v"], data["u"])
    return y


def prefix_sums(data: Data) -> Array:
    """y[i+1] = y[i] + x[i]."""
    return np.concatenate([np.zeros(1), np.cumsum(data["x"])])


def ring(data: Data) -> Array:
    """y[t] = .3 x[t-11] + .2 x[t-7] + .5 x[t-3]."""
    x = np.concatenate([np.zeros(PLACES), data["x"]])
    late = np.stack([np.roll(x, by) for by in TAPS])
    found: Array = np.array([*TAPS.values()]) @ late[:, PLACES:]
    return found


def sieve(data: Data) -> Array:
    """Which numbers are prime."""
    marks: Array = data["marks"].copy()
    for p in range(2, int((len(marks) - 1) ** 0.5) + 1):
        if marks[p]:
            marks[p * p :: p] = False
    return marks


def outputs(data: Data) -> Array:
    """h = tanh(h / 2 + x[t]), every h."""
    h, found = np.zeros(data["x"].shape[1]), []
    for x in data["x"]:
        h = np.tanh(0.5 * h + x)
        found.append(h)
    return np.stack(found)


def weights(data: Data, count: int) -> Array:
    """h = tanh(w h)."""
    h: Array = data["h"]
    for _ in range(count):
        h = np.tanh(data["weights"] @ h)
    return h


def transport(data: Data) -> Array:
    """The row scalings of Sinkhorn's algorithm."""
    u: Array = data["mass"]
    for _ in range(SCALINGS):
        u = steps.scaled(data["kernel"], data["mass"], u)
    return u


def three_deep(data: Data) -> Array:
    """Each cell of a cube passes a part of itself to three neighbours."""
    a = data["x"].tolist()
    last = range(len(a) - 1)
    for i in last:
        for j in last:
            for k in last:
                t = PASSED * a[i][j][k]
                a[i + 1][j][k] += t
                a[i][j + 1][k] += t
                a[i][j][k + 1] += t
    return np.array(a)


def group(data: Data) -> Array:
    """One lane in ten takes the dear branch."""
    x = data["x"]
    y = x.T
    for _ in range(DEAR_STEPS):
        y = steps.layer(np, data["layer"], y)
    found: Array = np.where(x[:, :1] > 0, y.T, steps.cheap(x))
    return found


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
    "three_deep": three_deep,
    "group": group,
    "lanes": outputs,
    "transport": transport,
}


def forward(loop: str, data: Data, size: int) -> Array:
    """What one loop gives."""
    run: Any = LOOPS[loop]
    found: Array = run(data, size) if loop in inputs.COUNTED else run(data)
    return found


def no_derivative(*_: Any) -> Any:
    """NumPy has none; gradients are compared between the libraries."""
    raise TypeError("expected a forward loop: NumPy has no derivatives")


LIBRARY = Library(no_derivative, no_derivative, np.sum)


def build(loop: str, transform: str, size: int) -> Program:
    """One loop, forward."""
    return program(LIBRARY, lambda data: forward(loop, wide(data), size), loop, transform, size)
