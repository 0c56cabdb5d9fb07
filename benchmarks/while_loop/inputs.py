"""Arguments of the loops, by size."""

from typing import Any

import numpy as np

Arrays = dict[str, Any]

STEPS = 10_000  # of a loop whose size is a number of saved states
WIDTH = 64  # of the dense state
SAVED = 100  # states, where the size is a number of steps
PERIOD = 100  # steps of the inner loop of two

WRT = {"scalar": ("x", "p"), "dense": ("x", "p"), "chase": ("x", "p"), "heap": ("x",)}
"""The loops that have a gradient, and with respect to which arguments."""


def arguments(loop: str, count: int) -> Arrays:
    """What a loop of `count` steps reads, weights w of its result, and its number of steps."""
    draw = np.random.default_rng(count)
    data = _own(loop, count, draw)
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in data.items()}


def _own(loop: str, count: int, draw: np.random.Generator) -> Arrays:
    limit = np.array(count, np.int32)
    match loop:
        case "scalar":
            return {"x": np.array(0.7), "p": np.array(0.9), "limit": limit, "w": np.array(1.0)}
        case "dense":
            weights = draw.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
            x, w = draw.standard_normal(WIDTH), draw.uniform(0.5, 1.5, WIDTH)
            return {"x": x, "p": weights, "limit": limit, "w": w}
        case "lanes":
            limits = draw.permutation(np.arange(1, count + 1, dtype=np.int32))
            return {"x": draw.uniform(0.5, 1.0, count), "p": np.array(0.9), "limit": limits}
        case "chase":
            order = np.append(0, 1 + draw.permutation(count - 1)).astype(np.int32)
            links = np.empty(count, np.int32)
            links[order] = np.roll(order, -1)
            x, w = draw.standard_normal(count), draw.uniform(0.5, 1.5, count)
            return {"x": x, "p": np.array(0.8), "links": links, "w": w}
        case "heap":
            return {"x": draw.standard_normal(count), "w": draw.uniform(0.5, 1.5, count)}
    raise ValueError(f"expected the name of a loop, got {loop!r}")
