"""The reference: each loop and its derivative written by hand in NumPy, in float64."""

from functools import partial

import numpy as np

from benchmarks.inplace.inputs import DECAY, DOWN, ITEMS_PER_BIN, RIGHT, needed
from benchmarks.model import Program

Array = np.ndarray
DIFFERENCE = 1e-4  # of the central difference behind the jvp of a gradient


def forward(loop: str, x: Array, k: Array | None) -> Array:
    """The result of a loop."""
    y = np.zeros_like(x)
    match loop:
        case "prefix":
            for i in range(1, len(x)):
                y[i] = DECAY * y[i - 1] + x[i]
        case "two_refs":
            for i in range(1, len(x)):
                y[i] = DECAY * y[i - 1] + x[i] * x[i - 1]
        case "rows":
            for i in range(1, len(x)):
                y[i] = np.tanh(DECAY * y[i - 1] + x[i])
        case "nested":
            y = nested(x)
        case "swap":
            assert k is not None
            y = swapped(x, range(len(x)), k)
        case "histogram":
            assert k is not None
            y = np.zeros(len(x) // ITEMS_PER_BIN)
            np.add.at(y, k, x * x)
    return y


def nested(x: Array) -> Array:
    """Each cell passes a part of itself down and to the right."""
    a = x.copy()
    for i in range(len(x) - 1):
        for j in range(len(x) - 1):
            t = a[i, j]
            a[i + 1, j] += DOWN * t
            a[i, j + 1] += RIGHT * t
    return a


def swapped(x: Array, order: range, k: Array) -> Array:
    """x after exchanging element i with element k[i], in some order of i."""
    y = x.tolist()
    for i in order:
        j = int(k[i])
        y[i], y[j] = y[j], y[i]
    return np.array(y)


def backward(loop: str, x: Array, k: Array | None, y: Array, y_bar: Array) -> Array:
    """The cotangent of x, given the result and its cotangent."""
    y_bar, x_bar = y_bar.copy(), np.zeros_like(x)
    match loop:
        case "prefix" | "two_refs" | "rows":
            for i in range(len(x) - 1, 0, -1):
                t = y_bar[i] * (1.0 - y[i] ** 2) if loop == "rows" else y_bar[i]
                y_bar[i - 1] += DECAY * t
                if loop == "two_refs":
                    x_bar[i] += t * x[i - 1]
                    x_bar[i - 1] += t * x[i]
                else:
                    x_bar[i] += t
        case "nested":
            for i in range(len(x) - 2, -1, -1):
                for j in range(len(x) - 2, -1, -1):
                    y_bar[i, j] += DOWN * y_bar[i + 1, j] + RIGHT * y_bar[i, j + 1]
            x_bar = y_bar
        case "swap":
            assert k is not None
            x_bar = swapped(y_bar, range(len(x) - 1, -1, -1), k)
        case "histogram":
            assert k is not None
            x_bar = 2.0 * x * y_bar[k]
    return x_bar


def gradient(loop: str, k: Array | None, w: Array, x: Array) -> Array:
    """The gradient of half the weighted sum of squares of the result."""
    y = forward(loop, x, k)
    return backward(loop, x, k, y, w * y)


def compute(loop: str, transform: str, data: dict[str, Array]) -> dict[str, Array]:
    """One transform of one loop."""
    wide = {name: a if name == "k" else a.astype(np.float64) for name, a in data.items()}
    k = wide.get("k")
    if transform == "primal":
        return {"y": forward(loop, wide["x"], k)}
    slope = partial(gradient, loop, k, wide["w"])
    if transform == "gradient":
        return {"x_bar": slope(wide["x"])}
    step = DIFFERENCE * wide["v"]
    x_bar_dot = (slope(wide["x"] + step) - slope(wide["x"] - step)) / (2.0 * DIFFERENCE)
    return {"x_bar": slope(wide["x"]), "x_bar_dot": x_bar_dot}


def build(loop: str, transform: str, size: int) -> Program:
    """One transform of one loop."""
    return Program(partial(compute, loop, transform), (needed(loop, transform, size),))
